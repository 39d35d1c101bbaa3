"""Everything a server can be told: the top-level options, and how a file becomes a record of them.

`Options` is what the rest of the server reads. Its rows, with those of the sections it holds, are the one list of
options: docs/configuration.md, reload and the check for missing features are made from them.

The way from a file to a running configuration: `read_options` (or a bare `Options()`), then `flags.merge`, then
`baseline.complete` for defaults that depend on other options, then `validation.validate` and `unsupported`.
"""

from __future__ import annotations

import attrs

from tnats.auth.nkeys import kind_of_public_key
from tnats.auth.users import Credentials, User
from tnats.ids import KeyKind, is_public_key
from tnats.limits import MIB, SECOND_NS
from tnats.notation import quote
from tnats.records import define
from tnats.server.config.accounts import ACCOUNTS, MAPPINGS, AccountOptions, MappingDestination
from tnats.server.config.authorization import AuthorizationOptions, describe_user
from tnats.server.config.clusters import ClusterOptions, GatewayOptions, LeafNodeOptions
from tnats.server.config.doors import MqttOptions, WebSocketOptions
from tnats.server.config.features import Feature
from tnats.server.config.jetstream import JETSTREAM, JetStreamOptions
from tnats.server.config.parser import Node
from tnats.server.config.problems import Position, Problem
from tnats.server.config.readers import (
    ANY_DURATION_TEXT,
    BOOLEAN,
    BYTES_31_BITS,
    DURATION,
    INTEGER,
    LISTEN,
    LISTEN_ROW,
    PATH,
    TEXT,
    WRITE_TIMEOUT,
    as_boolean,
    as_integer,
    at_least,
    duration_text,
    integer_between,
    name_without_spaces,
    section,
    text_map,
    texts,
)
from tnats.server.config.table import (
    Given,
    Reader,
    Reading,
    Refused,
    Section,
    describe,
    further_row,
    option,
    read_section,
)
from tnats.server.config.tls import OCSP, OCSP_CACHE, TLS, OcspCacheOptions, OcspOptions, TlsOptions

DEFAULT_HOST = "0.0.0.0"
DEFAULT_PORT = 4222
ANY_PORT = -1
NO_CONNECTIONS = -1
"""`max_connections: 0` in a file: nobody may connect."""
MAX_PAYLOAD_WARNING_BYTES = 8 * MIB
_LAME_DUCK_MINIMUM_NS = 30 * SECOND_NS


# ------------------------------------------------------------------ readers of single top-level options


def _max_connections(reading: Reading, node: Node, key: str) -> int:
    return as_integer(node, key) or NO_CONNECTIONS


def _sub_tokens_refusal(key: str, value: int) -> str:
    return f"{key} value is too big" if value > 0 else f"{key} value can not be negative"


def _trusted_keys(reading: Reading, node: Node, key: str) -> list[str]:
    found: list[str] = texts("trusted").read(reading, node, key)
    for text in found:
        if not is_public_key(text, KeyKind.OPERATOR):
            reading.error(f"trust key {quote(text)} required to be a valid public operator nkey", node.position)
    return found


def _tags(reading: Reading, node: Node, key: str) -> list[str]:
    """Lower case, without duplicates and empty ones."""
    found: list[str] = texts("tags").read(reading, node, key)
    return list(dict.fromkeys(tag.strip().lower() for tag in found if tag.strip()))


@define(eq=False, repr=False)
class TrustedProxy(Section):
    key: str = option(TEXT, "", aliases=("public_key",))

    def finish(self, reading: Reading, node: Node) -> None:
        if kind_of_public_key(self.key) is None:
            raise Refused(f"invalid proxy key {quote(self.key)}")


def _trusted(reading: Reading, node: Node, key: str) -> list[TrustedProxy]:
    if not isinstance(node.value, list):
        raise Refused(f"expected proxies' trusted field to be an array, got {describe(node)}")
    return [read_section(reading, TrustedProxy, item, "proxies' trusted entry") for item in node.value]


@define(eq=False, repr=False)
class ProxiesOptions(Section):
    trusted: list[TrustedProxy] = option(Reader("list of maps", _trusted, TrustedProxy), factory=list)


@define(eq=False, repr=False)
class ResolverOptions(Section):
    """Where account JWTs come from. `type`: `memory`, `url`, `full` or `cache`."""

    type: str = option(TEXT, "")
    url: str = ""
    dir: str = option(TEXT, "")
    allow_delete: bool = option(BOOLEAN, False)
    hard_delete: bool | None = option(BOOLEAN, None)
    limit: int = option(INTEGER, 0)
    ttl_ns: int = option(ANY_DURATION_TEXT, 0, key="ttl")
    interval_ns: int = option(ANY_DURATION_TEXT, 60 * SECOND_NS, key="interval")
    timeout_ns: int = option(ANY_DURATION_TEXT, 1_900_000_000, key="timeout")

    def finish(self, reading: Reading, node: Node) -> None:
        given = self.type
        self.type = {"mem": "memory"}.get(given.lower(), given.lower())
        if self.type not in ("memory", "full", "cache"):
            raise Refused(_RESOLVER_REFUSAL)
        if self.type == "memory":
            return
        keys = {key.lower() for key in node.value} if isinstance(node.value, dict) else set()
        if not self.dir:
            raise Refused("dir has no value and needs to point to a directory")
        if self.type == "cache":
            for key, name in (("interval", "sync"), ("allow_delete", "allow_delete"), ("hard_delete", "hard_delete")):
                if key in keys and (key != "allow_delete" or self.allow_delete):
                    reading.error(f"CACHE does not accept {name}", node.position)
        elif self.ttl_ns:
            reading.error("FULL does not accept ttl", node.position)
        elif self.hard_delete is not None and not self.allow_delete:
            reading.error("hard_delete has no effect without delete", node.position)


_RESOLVER_REFUSAL = (
    'error parsing account resolver, should be MEM or  URL("url") or a map containing dir and type state=[FULL|CACHE])'
)


def _resolver(reading: Reading, node: Node, key: str) -> ResolverOptions:
    if isinstance(node.value, dict):
        return read_section(reading, ResolverOptions, node, "resolver")
    if not isinstance(node.value, str):
        raise Refused(f"error parsing operator resolver, wrong type: {describe(node)}")
    word = node.value.strip()
    if word.upper() in ("MEM", "MEMORY"):
        return ResolverOptions(type="memory")
    inner = word[4:-1].strip().strip('"') if word[:4].upper() == "URL(" and word.endswith(")") else ""
    if not inner:
        raise Refused(_RESOLVER_REFUSAL)
    return ResolverOptions(type="url", url=inner)


def _grace_refusal(grace_ns: int) -> str | None:
    return "invalid lame_duck_grace_period, needs to be positive" if grace_ns < 0 else None


# ------------------------------------------------------------------ the record


@define(eq=False, repr=False)
class Options(Section):
    FURTHER_ROWS = (
        LISTEN_ROW,
        further_row("http", LISTEN, ("http_host", "http_port"), Feature.MONITORING, doc="HTTP monitoring"),
        further_row("https", LISTEN, ("http_host", "https_port"), Feature.HTTPS_MONITORING, doc="HTTPS monitoring"),
    )

    # Where clients connect
    host: str = option(TEXT, "", aliases=("net",), doc="default 0.0.0.0")
    port: int = option(INTEGER, 0, doc="default 4222; -1 = any free port")
    client_advertise: str = option(
        TEXT, "", reloadable=True, doc="host[:port] told to clients in place of the real one"
    )
    server_name: str = option(name_without_spaces("server name"), "", doc="default: the server's id")
    server_tags: list[str] = option(Reader("string or list of strings", _tags), factory=list, reloadable=True)
    server_metadata: dict[str, str] = option(text_map("metadata"), factory=dict, reloadable=True)
    feature_flags: dict[str, bool] = option(
        text_map("feature flags", as_boolean, "map of booleans"), factory=dict, doc="unknown flags are logged"
    )
    proxy_protocol: bool = option(BOOLEAN, False, feature=Feature.PROXY_PROTOCOL)
    proxies: ProxiesOptions | None = option(
        section(ProxiesOptions, "proxies"), None, reloadable=True, feature=Feature.TRUSTED_PROXIES
    )

    # Logging
    debug: bool = option(BOOLEAN, False, reloadable=True)
    trace: bool = option(BOOLEAN, False, reloadable=True, doc="log the protocol")
    trace_verbose: bool = option(BOOLEAN, False, reloadable=True, doc="`trace` with the system account")
    trace_headers: bool = option(BOOLEAN, False, reloadable=True, doc="`trace`, of messages only the headers")
    logtime: bool = option(BOOLEAN, True, reloadable=True)
    logtime_utc: bool = option(BOOLEAN, False, reloadable=True)
    log_file: str = option(
        PATH, "", aliases=("logfile",), reloadable=True, feature=Feature.LOG_FILE, doc="default: stderr"
    )
    logfile_size_limit: int = option(INTEGER, 0, aliases=("log_size_limit",), feature=Feature.LOG_FILE, doc="rotate at")
    logfile_max_num: int = option(INTEGER, 0, aliases=("log_max_num",), feature=Feature.LOG_FILE, doc="files to keep")
    syslog: bool = option(BOOLEAN, False, reloadable=True, feature=Feature.SYSLOG)
    remote_syslog: str = option(TEXT, "", reloadable=True, feature=Feature.SYSLOG)
    max_traced_msg_len: int = option(INTEGER, 0, reloadable=True, doc="bytes of a traced message; 0 = all")
    connect_error_reports: int = option(INTEGER, 3600, zero_is_default=True, reloadable=True)
    reconnect_error_reports: int = option(INTEGER, 1, zero_is_default=True, reloadable=True)

    # Files and monitoring
    pid_file: str = option(PATH, "", aliases=("pidfile",), reloadable=True)
    ports_file_dir: str = option(PATH, "", reloadable=True, doc="directory of `<executable>_<pid>.ports`")
    http_host: str = ""
    http_port: int = option(INTEGER, 0, aliases=("monitor_port",), feature=Feature.MONITORING, doc="0 = off")
    https_port: int = option(INTEGER, 0, feature=Feature.HTTPS_MONITORING, doc="0 = off")
    http_base_path: str = option(TEXT, "/", zero_is_default=True, feature=Feature.MONITORING)
    prof_port: int = option(INTEGER, 0, feature=Feature.PROFILING)
    prof_block_rate: int = option(INTEGER, 0, reloadable=True, feature=Feature.PROFILING)

    # Limits
    max_connections: int = option(
        Reader("integer", _max_connections), 65_536, aliases=("max_conn",), reloadable=True, doc="0 = refuse everybody"
    )
    max_subscriptions: int = option(INTEGER, 0, aliases=("max_subs",), doc="per connection; 0 = any number")
    max_sub_tokens: int = option(
        integer_between(1, 255, _sub_tokens_refusal),
        0,
        aliases=("max_subscription_tokens",),
        doc="1 to 255; absent = any",
    )
    max_control_line: int = option(BYTES_31_BITS, 4096, zero_is_default=True, reloadable=True, doc="bytes")
    max_payload: int = option(BYTES_31_BITS, MIB, zero_is_default=True, reloadable=True, doc="bytes; headers count")
    max_pending: int = option(INTEGER, 64 * MIB, zero_is_default=True, doc="bytes waiting for one client")
    max_closed_clients: int = option(INTEGER, 10_000, zero_is_default=True)
    no_fast_producer_stall: bool = option(BOOLEAN, False, reloadable=True)
    no_header_support: bool = option(BOOLEAN, False)
    disable_sublist_cache: bool = option(
        BOOLEAN, False, aliases=("no_sublist_cache",), doc="without effect: there is no cache apart from publish plans"
    )

    # Timers
    ping_interval_ns: int = option(
        DURATION, 120 * SECOND_NS, key="ping_interval", zero_is_default=True, reloadable=True
    )
    ping_max: int = option(INTEGER, 2, zero_is_default=True, reloadable=True, doc="unanswered PINGs before closing")
    write_deadline_ns: int = option(
        DURATION, 10 * SECOND_NS, key="write_deadline", zero_is_default=True, reloadable=True
    )
    write_timeout: str = option(
        WRITE_TIMEOUT,
        "default",
        reloadable=True,
        doc="`close`: all that waits must go out within `write_deadline`; else any byte taken renews it",
    )
    lame_duck_duration_ns: int = option(
        at_least(_LAME_DUCK_MINIMUM_NS, "lame_duck_duration", "30 seconds"),
        120 * SECOND_NS,
        key="lame_duck_duration",
        feature=Feature.LAME_DUCK,
        doc="at least 30s",
    )
    lame_duck_grace_period_ns: int = option(
        duration_text(_grace_refusal),
        10 * SECOND_NS,
        key="lame_duck_grace_period",
        zero_is_default=True,
        feature=Feature.LAME_DUCK,
    )

    # Security
    tls: TlsOptions | None = option(TLS, None, reloadable=True, feature=Feature.TLS)
    allow_non_tls: bool = option(BOOLEAN, False, feature=Feature.TLS)
    ocsp: OcspOptions | None = option(OCSP, None, reloadable=True, feature=Feature.OCSP)
    ocsp_cache: OcspCacheOptions | None = option(OCSP_CACHE, None, reloadable=True, feature=Feature.OCSP)
    authorization: AuthorizationOptions | None = option(section(AuthorizationOptions, "authorization"), None)
    no_auth_user: str = option(TEXT, "", doc="user that clients without credentials become")
    accounts: list[AccountOptions] = option(ACCOUNTS, factory=list, reloadable=True, feature=Feature.ACCOUNTS)
    mappings: dict[str, list[MappingDestination]] = option(
        MAPPINGS, factory=dict, aliases=("maps",), reloadable=True, feature=Feature.SUBJECT_MAPPINGS
    )
    system_account: str = option(TEXT, "", aliases=("system",), feature=Feature.SYSTEM_ACCOUNT, doc="default $SYS")
    no_system_account: bool = option(BOOLEAN, False, aliases=("no_system", "no_sys_acc"))
    operator: list[str] = option(
        texts("operators"),
        factory=list,
        aliases=("operators", "roots", "root", "root_operators", "root_operator"),
        feature=Feature.OPERATOR_MODE,
        doc="operator JWTs, inline or as files",
    )
    trusted_keys: list[str] = option(
        Reader("string or list of strings", _trusted_keys),
        factory=list,
        aliases=("trusted",),
        feature=Feature.OPERATOR_MODE,
    )
    resolver: ResolverOptions | None = option(
        Reader("`MEMORY`, `URL(...)` or map", _resolver, ResolverOptions),
        None,
        aliases=("account_resolver", "accounts_resolver"),
        reloadable=True,
        feature=Feature.OPERATOR_MODE,
    )
    resolver_tls: TlsOptions | None = option(TLS, None, reloadable=True, feature=Feature.OPERATOR_MODE)
    resolver_preload: dict[str, str] = option(
        text_map("resolver_preload"), factory=dict, reloadable=True, feature=Feature.OPERATOR_MODE
    )
    resolver_pinned_accounts: list[str] = option(
        texts("resolver_pinned_accounts"), factory=list, reloadable=True, feature=Feature.OPERATOR_MODE
    )
    default_sentinel: str = option(TEXT, "", reloadable=True, feature=Feature.OPERATOR_MODE)

    # Servers together, other doors, streams
    cluster: ClusterOptions = option(
        section(ClusterOptions, "cluster"), factory=ClusterOptions, feature=Feature.CLUSTER
    )
    gateway: GatewayOptions = option(
        section(GatewayOptions, "gateway"), factory=GatewayOptions, feature=Feature.GATEWAYS
    )
    leafnodes: LeafNodeOptions = option(
        section(LeafNodeOptions, "leafnodes"), factory=LeafNodeOptions, aliases=("leaf",), feature=Feature.LEAF_NODES
    )
    websocket: WebSocketOptions = option(
        section(WebSocketOptions, "websocket"), factory=WebSocketOptions, aliases=("ws",), feature=Feature.WEBSOCKET
    )
    mqtt: MqttOptions = option(section(MqttOptions, "mqtt"), factory=MqttOptions, feature=Feature.MQTT)
    jetstream: JetStreamOptions = option(JETSTREAM, factory=JetStreamOptions, feature=Feature.JETSTREAM)
    store_dir: str = option(PATH, "", aliases=("storedir",), doc="as `jetstream.store_dir`")
    default_js_domain: dict[str, str] = option(text_map("default_js_domain"), factory=dict, feature=Feature.LEAF_NODES)

    # Where this came from
    config_file: str = ""
    config_digest: str = ""
    given: dict[str, Given] = attrs.field(factory=dict)
    """Every option given in the file or by flags, by dotted path."""
    warnings: tuple[Problem, ...] = ()

    def cross_check(self, reading: Reading) -> None:
        """Checks between sections; unlike `finish` also made when some options were refused."""
        for verbose in ("trace_verbose", "trace_headers"):
            if verbose in reading.given:
                self.trace = getattr(self, verbose)
        if self.store_dir and self.jetstream.store_dir:
            reading.error("Duplicate 'store_dir' configuration", position_of(reading.given, "store_dir"))
        _check_users(self, reading)
        callout = self.authorization.auth_callout if self.authorization is not None else None
        names = {account.name for account in self.accounts}
        for name in callout.allowed_accounts if callout is not None else ():
            if name not in names:
                reading.error(f"auth_callout allowed account {quote(name)} not found in configured accounts", None)

    def all_users(self) -> list[User]:
        """Users of `authorization` and of all accounts."""
        own = (self.authorization.users or []) if self.authorization is not None else []
        return [*own, *(user for account in self.accounts for user in account.users)]

    def credentials(self) -> Credentials:
        """What an `Authenticator` for the client listener decides by."""
        block = self.authorization or AuthorizationOptions()
        users = self.all_users()
        return Credentials(
            users=tuple(users) if users or block.users is not None else None,
            token=block.token,
            username=block.user,
            password=block.password,
            no_auth_user=self.no_auth_user,
            proxy_required=block.proxy_required,
        )


def position_of(given: dict[str, Given], path: str) -> Position | None:
    found = given.get(path)
    return found.position if found is not None else None


def _check_users(options: Options, reading: Reading) -> None:
    """One way to authorize, and no user twice across `authorization` and the accounts."""
    block = options.authorization
    position = position_of(reading.given, "authorization")
    users = options.all_users()
    if block is not None:
        if (block.user or block.password) and block.token:
            reading.error("Cannot have a user/pass and token", position)
        elif block.users is not None or users:
            if block.user:
                reading.error("Can not have a single user/pass and a users array", position)
            if block.token:
                reading.error("Can not have a token and a users array", position)
    seen: set[str] = set()
    for user in users:
        if user.name in seen:
            where = position_of(reading.given, f"accounts.{user.account}.users") or position
            reading.error(f"Duplicate {describe_user(user)} detected", where)
        seen.add(user.name)
