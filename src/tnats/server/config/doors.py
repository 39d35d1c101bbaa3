"""`websocket { }` and `mqtt { }`: rows and records (configuration reference, "websocket", "mqtt")."""

from __future__ import annotations

from tnats.limits import SECOND_NS
from tnats.notation import quote
from tnats.records import define
from tnats.server.config.authorization import SimpleAuthorizationOptions
from tnats.server.config.parser import Node
from tnats.server.config.readers import (
    BOOLEAN,
    DURATION,
    INTEGER,
    LISTEN_ROW,
    TEXT,
    integer_between,
    read_duration,
    section,
    text_map,
    texts,
)
from tnats.server.config.table import Reader, Reading, Refused, Section, describe, option
from tnats.server.config.tls import TLS, TlsOptions

_MQTT_ACK_PENDING_MAX = 0xFFFF


def _handshake_timeout(reading: Reading, node: Node, key: str) -> int:
    """A duration, or an integer of seconds without a warning."""
    if isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value * SECOND_NS
    if not isinstance(node.value, str):
        raise Refused(f"error parsing handshake timeout: expected a duration, got {describe(node)}")
    return read_duration(node.value)


@define(eq=False, repr=False)
class WebSocketOptions(Section):
    FURTHER_ROWS = (LISTEN_ROW,)

    host: str = option(TEXT, "", aliases=("net",))
    port: int = option(INTEGER, 0, doc="0 = no WebSocket, -1 = any free port")
    advertise: str = option(TEXT, "")
    tls: TlsOptions | None = option(TLS, None, reloadable=True)
    no_tls: bool = option(BOOLEAN, False, doc="needed to run without `tls`")
    same_origin: bool = option(BOOLEAN, False)
    allowed_origins: list[str] = option(
        texts("allowed origins"),
        factory=list,
        aliases=("allowed_origin", "allow_origins", "allow_origin", "origins", "origin"),
    )
    handshake_timeout_ns: int = option(
        Reader("seconds or duration", _handshake_timeout), 0, key="handshake_timeout", doc="0 = no limit"
    )
    compression: bool = option(BOOLEAN, False, aliases=("compress",))
    authorization: SimpleAuthorizationOptions = option(
        section(SimpleAuthorizationOptions, "authorization"),
        factory=SimpleAuthorizationOptions,
        aliases=("authentication",),
    )
    no_auth_user: str = option(TEXT, "")
    jwt_cookie: str = option(TEXT, "")
    user_cookie: str = option(TEXT, "")
    pass_cookie: str = option(TEXT, "")
    token_cookie: str = option(TEXT, "")
    headers: dict[str, str] = option(text_map("headers"), factory=dict, doc="added to the upgrade response")
    ping_interval_ns: int = option(DURATION, 0, key="ping_interval", doc="0 = the server's")

    @property
    def is_off(self) -> bool:
        return self.port == 0


def _consumer_replicas(reading: Reading, node: Node, key: str) -> int:
    reading.warn(
        f"invalid use of field {quote(key)}: consumer replicas setting ignored in this server version", node.position
    )
    return 0


@define(eq=False, repr=False)
class MqttOptions(Section):
    FURTHER_ROWS = (LISTEN_ROW,)

    host: str = option(TEXT, "", aliases=("net",))
    port: int = option(INTEGER, 0, doc="by convention 1883; 0 = no MQTT, -1 = any free port")
    tls: TlsOptions | None = option(TLS, None, reloadable=True)
    authorization: SimpleAuthorizationOptions = option(
        section(SimpleAuthorizationOptions, "authorization"),
        factory=SimpleAuthorizationOptions,
        aliases=("authentication",),
    )
    no_auth_user: str = option(TEXT, "")
    ack_wait_ns: int = option(
        DURATION, 30 * SECOND_NS, key="ack_wait", aliases=("ackwait",), zero_is_default=True, reloadable=True
    )
    js_api_timeout_ns: int = option(
        DURATION, 5 * SECOND_NS, key="js_api_timeout", aliases=("api_timeout",), zero_is_default=True
    )
    max_ack_pending: int = option(
        integer_between(
            0,
            _MQTT_ACK_PENDING_MAX,
            lambda _, value: f"invalid value {value}, should in [0..{_MQTT_ACK_PENDING_MAX}] range",
        ),
        1024,
        aliases=("max_pending", "max_inflight"),
        zero_is_default=True,
        reloadable=True,
    )
    js_domain: str = option(TEXT, "")
    stream_replicas: int = option(INTEGER, 0, reloadable=True, doc="0 = by the size of the cluster, at most 3")
    consumer_replicas: int = option(Reader("integer", _consumer_replicas), 0, doc="ignored")
    consumer_memory_storage: bool = option(BOOLEAN, False, reloadable=True)
    consumer_inactive_threshold_ns: int = option(
        DURATION, 0, key="consumer_inactive_threshold", aliases=("consumer_auto_cleanup",), reloadable=True
    )
    reject_qos2_publish: bool = option(BOOLEAN, False)
    downgrade_qos2_subscribe: bool = option(BOOLEAN, False)

    @property
    def is_off(self) -> bool:
        return self.port == 0
