"""The command line: Go's flag syntax, nats-server's answers, and flags over the file."""

from __future__ import annotations

import pytest

from tnats.server.config.baseline import complete
from tnats.server.config.load import read_options
from tnats.server.config.options import Options
from tnats.server.config.problems import ConfigError
from tnats.server.config.validation import unsupported
from tnats.server.flags import FLAGS, USAGE, Answer, Flags, merge, parse_flags


def parse(line: str) -> Flags | Answer:
    return parse_flags(line.split(), program="nats-server", version="2.15.1", own_version="0.1.0")


def flags(line: str) -> Flags:
    found = parse(line)
    assert isinstance(found, Flags), found
    return found


def answer(line: str) -> Answer:
    found = parse(line)
    assert isinstance(found, Answer), found
    return found


def options(line: str, file: str = "") -> Options:
    found = read_options("n.conf", read=lambda _: file, env={}) if file else Options()
    merge(found, flags(line))
    return found


@pytest.mark.parametrize(
    "line", ["-p 5", "--p 5", "-p=5", "--port=5", "-port 5", "-p 1 -p 5", "-p 5 --", "-p 0x5", "-p +5"]
)
def test_spellings_of_a_flag(line: str) -> None:
    """One or two dashes, space or equals sign, short or long, the last one counts."""
    assert options(line).port == 5


@pytest.mark.parametrize(
    ("line", "stderr"),
    [
        ("--bogus", "flag provided but not defined: -bogus"),
        ("-p", "flag needs an argument: -p"),
        ("-p abc", 'invalid value "abc" for flag -p: parse error'),
        ("-p 08", 'invalid value "08" for flag -p: parse error'),
        ("-p 99999999999999999999", 'invalid value "99999999999999999999" for flag -p: value out of range'),
        ("-D=maybe", 'invalid boolean value "maybe" for -D: parse error'),
        ("---p 1", "bad flag syntax: ---p"),
        ("-=x", "bad flag syntax: -=x"),
    ],
)
def test_bad_flag_prints_the_usage_and_exits_with_0(line: str, stderr: str) -> None:
    """The error goes to stderr, the usage to stdout, and the exit code is 0: so does nats-server."""
    assert answer(line) == Answer(stdout=USAGE + "\n", stderr=stderr + "\n", exit_code=0)


@pytest.mark.parametrize("line", ["-v", "--version", "version", "-p 1 Version", "-v --help"])
def test_version_has_two_lines_on_stdout(line: str) -> None:
    """The first is what client suites read, the second says which tnats this is."""
    assert answer(line) == Answer(stdout="nats-server: v2.15.1\ntnats: v0.1.0\n")


@pytest.mark.parametrize("line", ["-h", "--help", "help", "-p 1 HELP"])
def test_help_is_the_usage(line: str) -> None:
    """On stdout, exit 0."""
    assert answer(line) == Answer(stdout=USAGE + "\n")


def test_usage_names_every_flag() -> None:
    """Nothing the server takes is missing from its help."""
    words = USAGE.replace(",", " ").split()
    for flag in FLAGS:
        for name in flag.names:
            assert f"-{name}" in words or f"--{name}" in words, name


def test_usage_says_what_is_not_available() -> None:
    """Of every flag that sets an option: at its line or at the head of its section, if a start with it is refused."""
    head, told = "", {}
    for line in USAGE.splitlines():
        if line.endswith(":"):
            head = line
        for word in line.replace(",", " ").split():
            told[word.lstrip("-")] = "not available" in head + line
    values: dict[type, object] = {bool: True, int: 1, str: "udp://a:1"}
    for flag in FLAGS:
        if flag.path:
            section = "-cluster nats://a:1 " if flag.path.startswith("cluster.") else ""
            given = options(f"{section}-{flag.names[0]}={values[flag.kind]}")
            assert told[flag.names[0]] == bool(unsupported(given)), flag.names


def test_help_tls_lists_the_values() -> None:
    """Cipher suites and curves by the names that a configuration uses."""
    assert "TLS_AES_128_GCM_SHA256\n" in answer("--help_tls").stdout


@pytest.mark.parametrize(
    ("line", "stderr"),
    [
        ("foo", 'nats-server: unrecognized command: "foo"'),
        ("-D true -t", 'nats-server: unrecognized command: "true"'),
        ("-t", "nats-server: must specify [-c, --config] option to check configuration file syntax"),
        ("-sl a=b=c", "nats-server: invalid signal parameters: [c]"),
    ],
)
def test_bad_command_line_exits_with_1(line: str, stderr: str) -> None:
    """What is wrong beyond the flags themselves is an error."""
    assert answer(line) == Answer(stderr=stderr + "\n", exit_code=1)


def test_signal_has_name_and_target() -> None:
    """`-sl name`, with or without the process."""
    assert flags("-sl reload=/run/n.pid").signal == ("reload", "/run/n.pid")
    assert flags("--signal ldm").signal == ("ldm", "")
    assert flags("-p 1").signal is None


def test_flags_override_the_file() -> None:
    """Values of the file stay where no flag was given, also booleans that a flag turns off."""
    file = "port: 1\nhost: h\ndebug: true\njetstream { store_dir: s, max_mem: 5 }\n"
    file += "authorization { user: u, password: p, timeout: 7 }"
    found = options("-p 2 -D=false -sd /d --pass q", file)
    assert (found.port, found.host, found.debug) == (2, "h", False)
    assert (found.jetstream.enabled, found.jetstream.store_dir, found.jetstream.max_memory_store) == (True, "/d", 5)
    assert found.authorization is not None
    assert (found.authorization.user, found.authorization.password) == ("u", "q")
    assert found.authorization.timeout_ns == 7_000_000_000
    assert options("-js=false", file).jetstream.enabled is False


def test_store_dir_of_the_command_line_beats_the_top_level_one() -> None:
    """The file may give the directory in two places."""
    found = options("-sd /d", "store_dir: s\njetstream: true")
    complete(found)
    assert found.jetstream.store_dir == "/d"


@pytest.mark.parametrize(
    ("line", "debug", "trace", "verbose"),
    [("-D", True, False, False), ("-V", False, True, False), ("-VV", False, True, True), ("-DV", True, True, False),
     ("-DVV", True, True, True), ("-DV=false", False, False, False)],
)  # fmt: skip
def test_combined_log_flags(line: str, debug: bool, trace: bool, verbose: bool) -> None:
    """-DV and its relatives set several options at once."""
    found = options(line)
    assert (found.debug, found.trace, found.trace_verbose) == (debug, trace, verbose)


def test_cluster_url_gives_address_and_user() -> None:
    """The listen URL may hold a user and any free port; without a user, the file's is dropped."""
    found = options("--cluster nats://a:b%40c@h:-1 --routes nats://x:1,nats://y:2 --cluster_name c").cluster
    assert (found.host, found.port, found.name, found.routes) == ("h", -1, "c", ["nats://x:1", "nats://y:2"])
    assert (found.authorization.user, found.authorization.password) == ("a", "b@c")
    file = "cluster { port: 1, authorization { user: u, password: p } }"
    assert options("--cluster_listen nats://h:2", file).cluster.authorization.user == ""
    assert options("--cluster=", file).cluster.port == 0


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("--routes nats://a:1", "solicited routes require cluster capabilities, e.g. --cluster"),
        ("--cluster foo", "missing port in address"),
        ("--cluster nats://u@h:1", "expected cluster password to be set"),
        ("--tls", "TLS Server certificate must be present and valid"),
        ("--tlscert c", "TLS Server private key must be present and valid"),
    ],
)
def test_flags_that_do_not_go_together(line: str, text: str) -> None:
    """Half of a cluster or of a TLS set-up is refused."""
    with pytest.raises(ConfigError, match=text):
        options(line)


def test_tls_flags_make_or_drop_the_tls_section() -> None:
    """The flags replace the file's section, `-tls=false` drops it."""
    found = options("--tlsverify --tlscert c --tlskey k --tlscacert a", "tls { timeout: 9 }").tls
    assert found is not None
    assert (found.cert_file, found.key_file, found.ca_file, found.verify) == ("c", "k", "a", True)
    assert options("-tls=false", "tls { timeout: 9 }").tls is None


def test_missing_feature_asked_for_by_a_flag_names_the_flag() -> None:
    """The check for features sees flags as it sees the file."""
    assert (
        str(unsupported(options("-js"), built=frozenset())[0])
        == '-js: "jetstream": JetStream: not available in this release'
    )
    assert unsupported(options("-sd x"), built=frozenset()) == []
