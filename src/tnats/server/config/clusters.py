"""`cluster { }`, `gateway { }` and `leafnodes { }`: rows and records (configuration reference, "cluster", "gateway",
"leafnodes").
"""

from __future__ import annotations

from tnats.auth.nkeys import is_user_seed
from tnats.auth.permissions import Permissions, entry_problem
from tnats.ids import KeyKind
from tnats.limits import SECOND_NS
from tnats.notation import format_duration, quote
from tnats.records import define
from tnats.server.config.addresses import redacted_url
from tnats.server.config.authorization import PERMISSIONS, AuthorizationOptions, between_servers, subjects
from tnats.server.config.parser import Node
from tnats.server.config.readers import (
    BOOLEAN,
    DURATION,
    INTEGER,
    LISTEN_ROW,
    TEXT,
    WRITE_TIMEOUT,
    as_text,
    name_without_spaces,
    public_key,
    read_duration,
    section,
    section_list,
    texts,
    timeout,
    url,
    urls,
)
from tnats.server.config.table import (
    Reader,
    Reading,
    Refused,
    Section,
    describe,
    option,
    read_section,
)
from tnats.server.config.tls import MUTUAL_TLS, TLS, TlsOptions

ROUTE_PING_INTERVAL_MAX_NS = 30 * SECOND_NS
_RTT_THRESHOLDS_NS = (10_000_000, 50_000_000, 100_000_000)
_COMPRESSION_MODES = {
    "not supported": "not supported",
    "not_supported": "not supported",
    "disabled": "off",
    "off": "off",
    "false": "off",
    "accept": "accept",
    "auto": "s2_auto",
    "s2_auto": "s2_auto",
    "s2_uncompressed": "s2_uncompressed",
    "fast": "s2_fast",
    "s2_fast": "s2_fast",
    "better": "s2_better",
    "s2_better": "s2_better",
    "best": "s2_best",
    "s2_best": "s2_best",
}


# ------------------------------------------------------------------ compression


def _thresholds(reading: Reading, node: Node, key: str) -> list[int]:
    if not isinstance(node.value, list):
        raise Refused(f"Expected {key} to be an array of durations, got {describe(node)}")
    return [max(0, read_duration(as_text(item, key))) for item in node.value]


@define(eq=False, repr=False)
class CompressionOptions(Section):
    mode: str = option(TEXT, "")
    rtt_thresholds_ns: list[int] = option(
        Reader("list of durations", _thresholds),
        factory=list,
        key="rtt_thresholds",
        aliases=("thresholds", "rtts", "rtt"),
    )


def compression(mode_if_on: str) -> Reader:
    """A mode, a boolean (true = `mode_if_on`), or `{ mode, rtt_thresholds }`."""

    def read(reading: Reading, node: Node, key: str) -> CompressionOptions:
        if isinstance(node.value, bool):
            return CompressionOptions(mode=mode_if_on if node.value else "off")
        if isinstance(node.value, str):
            options = CompressionOptions(mode=node.value)
        elif isinstance(node.value, dict):
            options = read_section(reading, CompressionOptions, node, key)
        else:
            raise Refused(f"field {quote(key)} should be a boolean or a structure, got {describe(node)}")
        _normalize(options, mode_if_on)
        return options

    return Reader("mode, boolean or map", read, CompressionOptions)


def _normalize(options: CompressionOptions, mode_if_on: str) -> None:
    given = options.mode
    mode = mode_if_on if given.lower() in ("on", "enabled", "true") else _COMPRESSION_MODES.get(given.lower())
    if mode is None:
        raise Refused(f"unsupported compression mode {quote(given)}")
    options.mode = mode
    if mode != "s2_auto":
        return
    thresholds = list(options.rtt_thresholds_ns)
    if not thresholds:
        options.rtt_thresholds_ns = list(_RTT_THRESHOLDS_NS)
        return
    ascending = [threshold for threshold in thresholds if threshold]
    shown = f"[{' '.join(map(format_duration, thresholds))}]"
    if ascending != sorted(ascending):
        raise Refused(f"RTT threshold values {shown} should be in ascending order")
    while thresholds and thresholds[-1] == 0:
        thresholds.pop()
    if len(thresholds) > 4:
        raise Refused(f"compression mode {quote(given)} should have no more than 4 RTT thresholds: {shown}")
    if not thresholds:
        raise Refused(f"compression mode {quote(given)} requires at least one RTT threshold")
    options.rtt_thresholds_ns = thresholds


# ------------------------------------------------------------------ cluster


def _cluster_permissions(reading: Reading, node: Node, key: str) -> Permissions:
    """`import` reads as publish and `export` as subscribe; queue groups have no meaning here."""
    permissions: Permissions = PERMISSIONS.read(reading, node, key)
    if permissions.responses is not None:
        raise Refused("Cluster permissions do not support dynamic responses")
    check_cluster_subjects(permissions)
    return permissions


def check_cluster_subjects(permissions: Permissions) -> None:
    """Refuse queue groups in the permissions of a cluster."""
    if permissions.subscribe is not None:
        for which, entries in (("allow", permissions.subscribe.allow or ()), ("deny", permissions.subscribe.deny)):
            for entry in entries:
                problem = entry_problem(entry, with_queue=False)
                if problem is not None:
                    raise Refused(f"cluster export {which}: {problem}")


def _cluster_ping_interval(reading: Reading, node: Node, key: str) -> int:
    interval_ns: int = DURATION.read(reading, node, key)
    if interval_ns > ROUTE_PING_INTERVAL_MAX_NS:
        reading.warn(
            f"Cluster 'ping_interval' will reset to {format_duration(ROUTE_PING_INTERVAL_MAX_NS)} "
            "which is the max for routes",
            node.position,
        )
    return interval_ns


@define(eq=False, repr=False)
class ClusterOptions(Section):
    FURTHER_ROWS = (LISTEN_ROW,)

    name: str = option(name_without_spaces("cluster name"), "", doc="generated if absent")
    host: str = option(TEXT, "", aliases=("net",), doc="default 0.0.0.0")
    port: int = option(INTEGER, 0, doc="by convention 6222; 0 = no cluster, -1 = any free port")
    authorization: AuthorizationOptions = option(between_servers("Cluster"), factory=AuthorizationOptions)
    routes: list[str] = option(urls("route"), factory=list, reloadable=True, doc="servers to connect to")
    tls: TlsOptions | None = option(MUTUAL_TLS, None, reloadable=True)
    cluster_advertise: str = option(TEXT, "", aliases=("advertise",), reloadable=True)
    no_advertise: bool = option(BOOLEAN, False, reloadable=True, doc="do not tell clients of the other servers")
    connect_retries: int = option(INTEGER, 0)
    connect_backoff: bool = option(BOOLEAN, False)
    permissions: Permissions | None = option(
        Reader("map", _cluster_permissions), None, reloadable=True, doc="`import` and `export` of interest"
    )
    pool_size: int = option(INTEGER, 0, reloadable=True, doc="connections to each peer; default 3, -1 = one")
    accounts: list[str] = option(
        texts("accounts"), factory=list, reloadable=True, doc="accounts with a connection of their own"
    )
    compression: CompressionOptions | None = option(
        compression("s2_fast"), None, reloadable=True, doc="default `accept`"
    )
    ping_interval_ns: int = option(
        Reader("duration", _cluster_ping_interval), 0, key="ping_interval", reloadable=True, doc="at most 30s"
    )
    ping_max: int = option(INTEGER, 0, reloadable=True)
    write_deadline_ns: int = option(DURATION, 0, key="write_deadline")
    write_timeout: str = option(WRITE_TIMEOUT, "default")

    @property
    def is_off(self) -> bool:
        return self.port == 0 and not self.routes

    def finish(self, reading: Reading, node: Node) -> None:
        inner = self.authorization.default_permissions
        if inner is None:
            return
        check_cluster_subjects(inner)
        reading.warn(
            'invalid use of field "authorization": '
            'setting "permissions" within cluster authorization block is deprecated',
            node.position,
        )
        if self.permissions is None:
            self.permissions = inner


# ------------------------------------------------------------------ gateway


@define(eq=False, repr=False)
class RemoteGatewayOptions(Section):
    name: str = option(TEXT, "")
    urls: list[str] = option(urls("gateway", one=True), factory=list, aliases=("url",))
    tls: TlsOptions | None = option(MUTUAL_TLS, None)


@define(eq=False, repr=False)
class GatewayOptions(Section):
    FURTHER_ROWS = (LISTEN_ROW,)

    name: str = option(name_without_spaces("gateway name"), "", doc="must be the cluster's name if that is set")
    host: str = option(TEXT, "", aliases=("net",))
    port: int = option(INTEGER, 0, doc="by convention 7222; 0 = no gateway, -1 = any free port")
    authorization: AuthorizationOptions = option(between_servers("Gateway"), factory=AuthorizationOptions)
    tls: TlsOptions | None = option(MUTUAL_TLS, None, reloadable=True)
    advertise: str = option(TEXT, "")
    connect_retries: int = option(INTEGER, 0)
    connect_backoff: bool = option(BOOLEAN, False)
    gateways: list[RemoteGatewayOptions] = option(section_list(RemoteGatewayOptions, "gateway entry"), factory=list)
    reject_unknown_cluster: bool = option(BOOLEAN, False, aliases=("reject_unknown",))
    write_deadline_ns: int = option(DURATION, 0, key="write_deadline")
    write_timeout: str = option(WRITE_TIMEOUT, "default")

    @property
    def is_off(self) -> bool:
        return self.port == 0 and not self.name


# ------------------------------------------------------------------ leaf nodes


@define(eq=False, repr=False)
class LeafUserOptions(Section):
    user: str = option(TEXT, "", aliases=("username",))
    password: str = option(TEXT, "", aliases=("pass",), secret=True)
    account: str = option(TEXT, "")
    proxy_required: bool = option(BOOLEAN, False)


@define(eq=False, repr=False)
class LeafAuthorizationOptions(Section):
    user: str = option(TEXT, "", aliases=("username",))
    password: str = option(TEXT, "", aliases=("pass",), secret=True)
    nkey: str = option(public_key(KeyKind.USER, lambda _: "Not a valid public nkey for leafnode authorization"), "")
    account: str = option(TEXT, "")
    timeout_ns: int = option(timeout("leafnode authorization", warn_if_long=True), 0, key="timeout")
    users: list[LeafUserOptions] = option(section_list(LeafUserOptions, "user entry"), factory=list)
    proxy_required: bool = option(BOOLEAN, False)

    def finish(self, reading: Reading, node: Node) -> None:
        if self.users and self.user:
            raise Refused("can not have a single user/pass and a users array")
        if self.users and self.nkey:
            raise Refused("can not have a single nkey and a users array")
        names: set[str] = set()
        for entry in self.users:
            if entry.user in names:
                raise Refused(f"duplicate user {quote(entry.user)} detected in leafnode authorization")
            names.add(entry.user)


@define(eq=False, repr=False)
class LeafProxyOptions(Section):
    """An HTTP proxy on the way to the remote; for WebSocket URLs only."""

    url: str = option(url("proxy"), "")
    username: str = option(TEXT, "")
    password: str = option(TEXT, "", secret=True)
    timeout_ns: int = option(DURATION, 0, key="timeout")

    def finish(self, reading: Reading, node: Node) -> None:
        if not self.url:
            return
        scheme, separator, rest = self.url.partition("://")
        if not separator or scheme not in ("http", "https"):
            raise Refused(f"proxy URL scheme must be http or https, got: {scheme if separator else ''}")
        if not rest.partition("/")[0]:
            raise Refused("proxy URL must specify a host")
        if self.timeout_ns < 0:
            raise Refused("proxy timeout must be >= 0")
        if bool(self.username) != bool(self.password):
            raise Refused("proxy username and password must both be specified or both be empty")


def _seed(reading: Reading, node: Node, key: str) -> str:
    seed = as_text(node, key)
    if not is_user_seed(seed):
        raise Refused("Remote leafnode nkey is not a valid seed")
    return seed


@define(eq=False, repr=False)
class _MigrateOptions(Section):
    leader_migrate_delay_ns: int = option(DURATION, 0, key="leader_migrate_delay")


def _migrate(reading: Reading, node: Node, key: str) -> tuple[bool, int]:
    """(migrate leaders away while disconnected, after how long)"""
    if isinstance(node.value, bool):
        return node.value, 0
    if not isinstance(node.value, dict):
        raise Refused(f"Expected boolean or map for jetstream_cluster_migrate, got {describe(node)}")
    return True, read_section(reading, _MigrateOptions, node, key).leader_migrate_delay_ns


@define(eq=False, repr=False)
class LeafRemoteOptions(Section):
    urls: list[str] = option(urls("leafnode", one=True), factory=list, aliases=("url",))
    account: str = option(TEXT, "", aliases=("local",), doc="local account; default $G")
    credentials: str = option(TEXT, "", aliases=("creds",), doc="file with user JWT and seed")
    nkey: str = option(Reader("user seed", _seed), "", aliases=("seed",), secret=True)
    tls: TlsOptions | None = option(TLS, None)
    hub: bool = option(BOOLEAN, False)
    deny_imports: tuple[str, ...] = option(subjects(with_queue=False), (), aliases=("deny_import",))
    deny_exports: tuple[str, ...] = option(subjects(with_queue=False), (), aliases=("deny_export",))
    no_randomize: bool = option(BOOLEAN, False, aliases=("dont_randomize",))
    ws_compression: bool = option(
        BOOLEAN, False, aliases=("ws_compress", "websocket_compress", "websocket_compression")
    )
    ws_no_masking: bool = option(BOOLEAN, False, aliases=("websocket_no_masking",))
    jetstream_cluster_migrate: tuple[bool, int] = option(
        Reader("boolean or map", _migrate, _MigrateOptions), (False, 0), aliases=("js_cluster_migrate",)
    )
    isolate_leafnode_interest: bool = option(BOOLEAN, False, aliases=("isolate",))
    request_isolation: bool = option(BOOLEAN, False)
    compression: CompressionOptions | None = option(compression("s2_auto"), None, doc="default `s2_auto`")
    first_info_timeout_ns: int = option(DURATION, SECOND_NS, key="first_info_timeout", zero_is_default=True)
    dial_timeout_ns: int = option(DURATION, 0, key="dial_timeout")
    disabled: bool = option(BOOLEAN, False)
    ignore_discovered_servers: bool = option(BOOLEAN, False)
    proxy: LeafProxyOptions | None = option(section(LeafProxyOptions, "proxy"), None)

    def finish(self, reading: Reading, node: Node) -> None:
        if self.credentials and self.nkey:
            raise Refused("Remote leafnode can not have both creds and nkey defined")
        websocket = [each.lower().startswith("ws") for each in self.urls]
        if any(websocket) and not all(websocket):
            shown = " ".join(quote(redacted_url(each)) for each in self.urls)
            raise Refused(
                f"remote leaf node configuration cannot have a mix of websocket and non-websocket urls: [{shown}]"
            )

    def identity(self) -> tuple[object, ...]:
        """What two remotes may not share."""
        return tuple(self.urls), self.account, self.credentials or self.nkey


def _remotes(reading: Reading, node: Node, key: str) -> list[LeafRemoteOptions]:
    seen: set[tuple[object, ...]] = set()

    def keep(remote: LeafRemoteOptions, item: Node) -> LeafRemoteOptions:
        if remote.identity() in seen:
            shown = " ".join(quote(redacted_url(each)) for each in remote.urls)
            raise Refused(f"duplicate remote urls=[{shown}], account={quote(remote.account or '$G')}")
        seen.add(remote.identity())
        return remote

    found: list[LeafRemoteOptions] = section_list(LeafRemoteOptions, "remote leafnode entry", keep).read(
        reading, node, key
    )
    return found


def _min_version(reading: Reading, node: Node, key: str) -> str:
    version = as_text(node, key)
    parts = version.removeprefix("v").partition("-")[0].split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise Refused("invalid leafnode's minimum version: invalid semver")
    if tuple(map(int, parts)) < (2, 8, 0):
        raise Refused("the minimum version should be at least 2.8.0")
    return version


@define(eq=False, repr=False)
class LeafNodeOptions(Section):
    FURTHER_ROWS = (LISTEN_ROW,)

    host: str = option(TEXT, "", aliases=("net",))
    port: int = option(INTEGER, 0, doc="by convention 7422; 0 = accept no leaf nodes, -1 = any free port")
    authorization: LeafAuthorizationOptions = option(
        section(LeafAuthorizationOptions, "authorization"), factory=LeafAuthorizationOptions
    )
    tls: TlsOptions | None = option(TLS, None, reloadable=True)
    leafnode_advertise: str = option(TEXT, "", aliases=("advertise",))
    no_advertise: bool = option(BOOLEAN, False)
    min_version: str = option(Reader("version", _min_version), "", aliases=("minimum_version",), doc=">= 2.8.0")
    compression: CompressionOptions | None = option(
        compression("s2_auto"), None, reloadable=True, doc="default `s2_auto`"
    )
    isolate_leafnode_interest: bool = option(BOOLEAN, False, aliases=("isolate",))
    reconnect_ns: int = option(
        DURATION, SECOND_NS, key="reconnect", aliases=("reconnect_delay", "reconnect_interval"), zero_is_default=True
    )
    dial_timeout_ns: int = option(DURATION, SECOND_NS, key="dial_timeout", zero_is_default=True)
    write_deadline_ns: int = option(DURATION, 0, key="write_deadline")
    write_timeout: str = option(WRITE_TIMEOUT, "default")
    remotes: list[LeafRemoteOptions] = option(
        Reader("list of maps", _remotes, LeafRemoteOptions), factory=list, reloadable=True, doc="servers to join"
    )

    @property
    def is_off(self) -> bool:
        return self.port == 0 and not self.remotes
