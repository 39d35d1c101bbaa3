"""The command line of the server: nats-server's flags, in the syntax of Go's flag package; pure.

Syntax: `-x` and `--x` are the same; `-x value` and `-x=value`; a boolean takes `=false` but no separate value. Flags
end at `--` or at the first bare word; the words `version` and `help` are commands, any other is an error.

A bad flag prints the error to stderr and the usage to stdout and exits with 0: nats-server does so, and scripts that
start it see no failure there. Everything after the flags that fails exits with 1.

`parse_flags` gives either what to do instead of serving (`Answer`) or the `Flags`; `merge` lays them over the options
of the configuration file. A flag overrides the file, also where the file says more (`-js=false` turns JetStream off).
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

from tnats.records import frozen
from tnats.server.config.addresses import port_number, redacted_url, split_host_port
from tnats.server.config.authorization import AuthorizationOptions
from tnats.server.config.clusters import ClusterOptions
from tnats.server.config.options import Options
from tnats.server.config.problems import ConfigError, Position, Problem
from tnats.server.config.table import Given, Row, Section, rows_of
from tnats.server.config.tls import CIPHER_SUITES, CURVES, INSECURE_CIPHER_SUITES, TlsOptions

_INT64_MAX = 2**63 - 1
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class FlagError(Exception):
    """A command line that Go's flag package refuses; the text is the one line for stderr, without newline."""


@frozen
class Flag:
    names: tuple[str, ...]
    """All spellings, without dashes."""
    kind: type[bool] | type[int] | type[str]
    path: str = ""
    """The option it sets, as a path of attributes of `Options`; "" for flags with a meaning of their own."""


FLAGS = (
    Flag(("addr", "a", "net"), str, "host"),
    Flag(("port", "p"), int, "port"),
    Flag(("server_name", "n", "name"), str, "server_name"),
    Flag(("client_advertise",), str, "client_advertise"),
    Flag(("pid", "P"), str, "pid_file"),
    Flag(("ports_file_dir",), str, "ports_file_dir"),
    Flag(("http_port", "m"), int, "http_port"),
    Flag(("https_port", "ms"), int, "https_port"),
    Flag(("profile",), int, "prof_port"),
    Flag(("debug", "D"), bool, "debug"),
    Flag(("trace", "V"), bool, "trace"),
    Flag(("VV",), bool),
    Flag(("DV",), bool),
    Flag(("DVV",), bool),
    Flag(("logtime", "T"), bool, "logtime"),
    Flag(("logtime_utc",), bool, "logtime_utc"),
    Flag(("log", "l"), str, "log_file"),
    Flag(("log_size_limit",), int, "logfile_size_limit"),
    Flag(("syslog", "s"), bool, "syslog"),
    Flag(("remote_syslog", "r"), str, "remote_syslog"),
    Flag(("max_traced_msg_len",), int, "max_traced_msg_len"),
    Flag(("jetstream", "js"), bool, "jetstream.enabled"),
    Flag(("store_dir", "sd"), str, "jetstream.store_dir"),
    Flag(("user",), str, "authorization.user"),
    Flag(("pass",), str, "authorization.password"),
    Flag(("auth",), str, "authorization.token"),
    Flag(("tls",), bool),
    Flag(("tlsverify",), bool),
    Flag(("tlscert",), str),
    Flag(("tlskey",), str),
    Flag(("tlscacert",), str),
    Flag(("cluster", "cluster_listen"), str),
    Flag(("cluster_name",), str, "cluster.name"),
    Flag(("cluster_advertise",), str, "cluster.cluster_advertise"),
    Flag(("no_advertise",), bool, "cluster.no_advertise"),
    Flag(("connect_retries",), int, "cluster.connect_retries"),
    Flag(("routes",), str),
    Flag(("config", "c"), str),
    Flag(("t",), bool),
    Flag(("signal", "sl"), str),
    Flag(("version", "v"), bool),
    Flag(("help", "h"), bool),
    Flag(("help_tls",), bool),
)
_BY_NAME = {name: flag for flag in FLAGS for name in flag.names}


@frozen
class Flags:
    """The flags that were given, by their first name; each holds the last value."""

    given: dict[str, bool | int | str]

    def text(self, name: str) -> str:
        value = self.given.get(name, "")
        return value if isinstance(value, str) else str(value)

    def on(self, name: str) -> bool:
        return self.given.get(name) is True

    @property
    def config_file(self) -> str:
        return self.text("config")

    @property
    def check_only(self) -> bool:
        """`-t`: check the configuration file and exit."""
        return self.on("t")

    @property
    def signal(self) -> tuple[str, str] | None:
        """`-sl name[=pid]`: send a signal to a running server and exit; (name, pid, pid file or glob)."""
        text = self.text("signal")
        if not text:
            return None
        name, _, target = text.partition("=")
        return name, target


@frozen
class Answer:
    """Print and exit instead of serving."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0


def parse_flags(argv: Sequence[str], *, program: str, version: str, own_version: str) -> Flags | Answer:
    """`argv` without the program's name. `program` stands in the texts.

    `version` is the nats-server release whose behaviour is offered, on a line of its own since scripts read it;
    `own_version` is tnats's.
    """
    try:
        flags, words = _scan(argv)
    except FlagError as error:
        return Answer(stdout=USAGE + "\n", stderr=f"{error}\n")
    if flags.on("version"):
        return Answer(stdout=_version_lines(program, version, own_version))
    if flags.on("help"):
        return Answer(stdout=USAGE + "\n")
    if flags.on("help_tls"):
        return Answer(stdout=tls_usage())
    for word in words[:1]:
        if word.lower() == "version":
            return Answer(stdout=_version_lines(program, version, own_version))
        if word.lower() == "help":
            return Answer(stdout=USAGE + "\n")
        return Answer(stderr=f'{program}: unrecognized command: "{word}"\n', exit_code=1)
    if flags.text("signal").count("=") > 1:
        extra = " ".join(flags.text("signal").split("=")[2:])
        return Answer(stderr=f"{program}: invalid signal parameters: [{extra}]\n", exit_code=1)
    if flags.check_only and not flags.config_file:
        text = "must specify [-c, --config] option to check configuration file syntax"
        return Answer(stderr=f"{program}: {text}\n", exit_code=1)
    return flags


def _version_lines(program: str, version: str, own_version: str) -> str:
    return f"{program}: v{version}\ntnats: v{own_version}\n"


def _scan(argv: Sequence[str]) -> tuple[Flags, list[str]]:
    """The flags at the start of `argv`, and the words after them. Raises `FlagError`."""
    given: dict[str, bool | int | str] = {}
    rest = list(argv)
    while rest:
        word = rest[0]
        if len(word) < 2 or not word.startswith("-"):
            break
        rest.pop(0)
        if word == "--":
            break
        body = word[2:] if word.startswith("--") else word[1:]
        if not body or body[0] in "-=":
            raise FlagError(f"bad flag syntax: {word}")
        name, equals, text = body.partition("=")
        flag = _BY_NAME.get(name)
        if flag is None:
            raise FlagError(f"flag provided but not defined: -{name}")
        if flag.kind is bool:
            given[flag.names[0]] = _boolean(name, text) if equals else True
            continue
        if not equals:
            if not rest:
                raise FlagError(f"flag needs an argument: -{name}")
            text = rest.pop(0)
        given[flag.names[0]] = _integer(name, text) if flag.kind is int else text
    return Flags(given), rest


def _boolean(name: str, text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise FlagError(f'invalid boolean value "{text}" for -{name}: parse error')


def _integer(name: str, text: str) -> int:
    """Go's integer notation: sign, and prefix 0x, 0o, 0b or a leading 0 for octal."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if digits[:1] == "0" and digits[1:2].isdigit():
        digits = "0o" + digits[1:]
    try:
        plain = digits.isascii() and digits.strip() == digits and digits[:1] not in ("+", "-")
        value = int(digits, 0) if plain else None
    except ValueError:
        value = None
    if value is None:
        raise FlagError(f'invalid value "{text}" for flag -{name}: parse error')
    value = -value if text.startswith("-") else value
    if not -_INT64_MAX - 1 <= value <= _INT64_MAX:
        raise FlagError(f'invalid value "{text}" for flag -{name}: value out of range')
    return value


# ------------------------------------------------------------------ over the options of the file


def merge(options: Options, flags: Flags) -> None:
    """Lay the flags over `options`, in place. Raises `ConfigError` for what does not go together."""
    for flag in FLAGS:
        if flag.path and flag.names[0] in flags.given:
            _set(options, flag.path, flags.given[flag.names[0]], flag)
    for name, paths in (("VV", ("trace", "trace_verbose")), ("DV", ("debug", "trace")),
                        ("DVV", ("debug", "trace", "trace_verbose"))):  # fmt: skip
        for path in paths:
            if name in flags.given:
                _set(options, path, flags.given[name], _BY_NAME[name])
    _merge_cluster(options, flags)
    _merge_tls(options, flags)


def _set(options: Options, path: str, value: object, flag: Flag) -> None:
    """Set the option, and note it as given by the flag (with its section, which is what features are checked by)."""
    record: Section = options
    *outer, last = path.split(".")
    trail = ""
    position = Position(f"-{flag.names[-1]}", 0, 0)
    for name in outer:
        inner = getattr(record, name)
        if inner is None:
            inner = AuthorizationOptions()  # the only section on the way that may be absent
            setattr(record, name, inner)
        row = _row(record, name)
        trail += row.key
        options.given[trail] = Given(row, position, inner)
        trail += "."
        record = inner
    setattr(record, last, value)
    row = _row(record, last)
    options.given[trail + row.key] = Given(row, position, value)


def _row(record: Section, field: str) -> Row:
    return next(row for row in rows_of(type(record)) if row.fields == (field,))


def _merge_cluster(options: Options, flags: Flags) -> None:
    cluster = options.cluster
    if "cluster" in flags.given:
        text = flags.text("cluster")
        if not text:
            _set(options, "cluster.port", 0, _BY_NAME["cluster"])
        else:
            _listen_at(options, cluster, text)
    if "routes" in flags.given:
        text = flags.text("routes")
        routes = [route.strip() for route in text.split(",") if route.strip()]
        _set(options, "cluster.routes", routes, _BY_NAME["routes"])
        if routes and not cluster.port and not cluster.host:
            raise ConfigError([Problem("solicited routes require cluster capabilities, e.g. --cluster")])


def _listen_at(options: Options, cluster: ClusterOptions, url: str) -> None:
    """`nats://[user:password@]host:port` for the cluster; without a user, the file's user is dropped."""
    flag = _BY_NAME["cluster"]
    authority = url.partition("://")[2].partition("/")[0]
    credentials, at, address = authority.rpartition("@")
    try:
        host, port_text = split_host_port(address)
        port = port_number(port_text)
    except ValueError as error:
        reason = str(error) if "://" in url else "missing port in address"
        raise ConfigError([Problem(f"-cluster {redacted_url(url)}: {reason}")]) from error
    user, colon, password = credentials.partition(":")
    if at and not colon:
        raise ConfigError([Problem("expected cluster password to be set")])
    _set(options, "cluster.host", host, flag)
    _set(options, "cluster.port", port, flag)
    cluster.authorization.user = unquote(user)
    cluster.authorization.password = unquote(password)


def _merge_tls(options: Options, flags: Flags) -> None:
    names = ("tls", "tlsverify", "tlscert", "tlskey", "tlscacert")
    if flags.given.get("tls") is False:
        options.tls = None
        options.given.pop("tls", None)
        return
    if not any(name in flags.given for name in names):
        return
    if not flags.text("tlscert"):
        raise ConfigError([Problem("TLS Server certificate must be present and valid")])
    if not flags.text("tlskey"):
        raise ConfigError([Problem("TLS Server private key must be present and valid")])
    tls = TlsOptions(
        cert_file=flags.text("tlscert"),
        key_file=flags.text("tlskey"),
        ca_file=flags.text("tlscacert"),
        verify=flags.on("tlsverify"),
    )
    _set(options, "tls", tls, _BY_NAME["tls"])


# ------------------------------------------------------------------ help


USAGE = """
Usage: tnats serve [options]

Server:
    -a, --addr, --net <host>         Address to listen on (default: 0.0.0.0)
    -p, --port <port>                Port for clients (default 4222; -1 = any)
    -n, --name, --server_name <name> Name of this server (default: its id)
    -P, --pid <file>                 Write the process id to this file
    -m, --http_port <port>           Port for HTTP monitoring
    -ms,--https_port <port>          Port for HTTPS monitoring (not available)
    -c, --config <file>              Configuration file; flags override it
    -t                               Check the configuration file and exit
    -sl,--signal <signal>[=<pid>]    Send a signal to a running server: ldm,
                                     stop, quit, term, reopen, reload; <pid>
                                     is a process id, a pid file, or a pattern
                                     of pid files
        --client_advertise <host>    Address told to clients instead
        --ports_file_dir <dir>       Write <executable>_<pid>.ports there

Logging:
    -l, --log <file>                 Log to this file
    -T, --logtime                    Begin lines with the time (default: true)
        --logtime_utc                Time in UTC (default: false)
    -s, --syslog                     Log to syslog (not available)
    -r, --remote_syslog <addr>       Log to this syslog server (not available)
    -D, --debug                      Log debugging output
    -V, --trace                      Log the protocol
    -VV                              Log the protocol, of the system account too
    -DV                              Both -D and -V
    -DVV                             Both -D and -VV
        --log_size_limit <bytes>     Start a new log file at this size
        --max_traced_msg_len <bytes> Log so much of each message (default: all)

JetStream:
    -js, --jetstream                 Turn JetStream on
    -sd, --store_dir <dir>           Directory for streams

Authorization:
        --user <user>                User that clients must give
        --pass <password>            Password that clients must give
        --auth <token>               Token that clients must give

TLS (not available in this release):
        --tls                        Turn TLS on; clients need no certificate
        --tlscert <file>             Certificate of the server
        --tlskey <file>              Private key of the server
        --tlsverify                  Turn TLS on; clients need a certificate
        --tlscacert <file>           Authorities that sign clients' certificates

Cluster (not available in this release):
        --routes <url, url>          Servers to connect to
        --cluster, --cluster_listen <url>
                                     Address for other servers' connections
        --cluster_name <name>        Name of the cluster (default: generated)
        --no_advertise               Do not tell clients of the other servers
        --cluster_advertise <host>   Address told to other servers
        --connect_retries <number>   Tries to connect to servers told of

Profiling (not available in this release):
        --profile <port>             Port for profiling over HTTP

Common:
    -h, --help                       Show this text
    -v, --version                    Show the version
        --help_tls                   Show the values of the TLS options
"""


def tls_usage() -> str:
    suites = "".join(f"    {name}\n" for name in CIPHER_SUITES)
    insecure = "".join(f"    {name}\n" for name in INSECURE_CIPHER_SUITES)
    curves = "".join(f"    {name}\n" for name in CURVES)
    return (
        "\nTLS is configured in the tls section of the configuration file:\n\n"
        "    tls {\n"
        '        cert_file: "server-cert.pem"\n'
        '        key_file:  "server-key.pem"\n'
        '        ca_file:   "ca.pem"\n'
        "        verify:    true\n"
        "    }\n\n"
        f"Values of cipher_suites:\n{suites}\n"
        f"and only with allow_insecure_cipher_suites:\n{insecure}\n"
        f"Values of curve_preferences:\n{curves}"
    )
