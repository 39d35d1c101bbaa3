"""What a user may choose for a connection: defaults, types and checks in one place.

`ConnectOptions` is the same table as `Options` for type checkers, so that `connect(..., name="x")` is checked;
a unit test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypedDict
from urllib.parse import unquote, urlsplit

import attrs

from tnats import limits
from tnats.client.errors import ClientError
from tnats.client.events import Event
from tnats.errors import FeatureMissing
from tnats.limits import SECOND_NS
from tnats.records import frozen

DEFAULT_PORT = 4222


def positive(instance: object, attribute: attrs.Attribute[Any], value: float) -> None:
    """Validator: greater than zero."""
    if not value > 0:
        raise ClientError(f"option {attribute.name} must be greater than 0, not {value!r}")


def discard_event(event: Event) -> None:
    """The default of `on_event`."""


@frozen(kw_only=True)
class Options:
    """One connection's settings. Times in seconds, sizes in bytes."""

    name: str = ""
    """Shown by the server in its monitoring and logs."""
    user: str | None = None
    password: str | None = None
    token: str | None = None
    echo: bool = True
    """Whether this connection receives its own messages."""
    inbox_prefix: str = "_INBOX"
    """First tokens of reply subjects; a user whose permissions name another prefix sets it here."""
    shuffle_servers: bool = True
    """Try the given servers in random order, so that many clients spread over a cluster."""
    discover_servers: bool = True
    """Reconnect also to cluster members that the server names."""
    connect_timeout_s: float = attrs.field(default=2.0, validator=positive)
    """Per server: address look-up, TCP connection and log-in together."""
    reconnect_attempts_max: int | None = 60
    """Failed attempts in a row after which a server is given up; 0 never reconnects, None never gives up."""
    reconnect_wait_min_s: float = attrs.field(default=0.05, validator=positive)
    reconnect_wait_max_s: float = attrs.field(default=2.0, validator=positive)
    """Between rounds over all servers; doubles from the minimum, shortened by up to a half at random."""
    ping_interval_s: float = attrs.field(default=120.0, validator=positive)
    pings_outstanding_max: int = attrs.field(default=2, validator=positive)
    """A connection that owes this many PONGs when the next PING is due counts as stale and is dropped."""
    pending_bytes_max: int = attrs.field(default=limits.CLIENT_PENDING_BYTES_MAX, validator=positive)
    """Outgoing bytes not yet taken by the network, also while disconnected: beyond it `publish` waits."""
    drain_timeout_s: float = attrs.field(default=30.0, validator=positive)
    on_event: Callable[[Event], None] = discard_event
    """Called with every `tnats.client.events` record."""


class ConnectOptions(TypedDict, total=False):
    """The keywords of `connect`: see `Options`."""

    name: str
    user: str | None
    password: str | None
    token: str | None
    echo: bool
    inbox_prefix: str
    shuffle_servers: bool
    discover_servers: bool
    connect_timeout_s: float
    reconnect_attempts_max: int | None
    reconnect_wait_min_s: float
    reconnect_wait_max_s: float
    ping_interval_s: float
    pings_outstanding_max: int
    pending_bytes_max: int
    drain_timeout_s: float
    on_event: Callable[[Event], None]


def nanoseconds(seconds: float) -> int:
    """The seam's unit for a user's seconds."""
    return round(seconds * SECOND_NS)


@frozen
class ServerAddress:
    """Where a server listens, and the credentials that its URL carried."""

    host: str
    port: int
    user: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    token: str | None = attrs.field(default=None, repr=False)

    @property
    def url(self) -> str:
        """Without credentials: fit for logs and events."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"nats://{host}:{self.port}"


def parse_address(text: str) -> ServerAddress:
    """`host`, `host:port`, `nats://host`, `nats://user:password@host:port`, `nats://token@host`; IPv6 in brackets.

    Raises ClientError for what is no such address, FeatureMissing for schemes that are not offered yet.
    """
    text = text.strip()
    try:
        parts = urlsplit(text if "://" in text else f"nats://{text}")
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise ClientError(f"server address {text!r}: {exc}") from None
    if parts.scheme in ("tls", "ws", "wss"):
        raise FeatureMissing(f"server address {text!r}: {parts.scheme}:// is not available in this client yet")
    if parts.scheme != "nats":
        raise ClientError(f"server address {text!r}: unknown scheme {parts.scheme!r}, use nats://")
    if not host:
        raise ClientError(f"server address {text!r}: no host")
    address = ServerAddress(host, DEFAULT_PORT if port is None else port)
    if parts.username and parts.password is None:
        return attrs.evolve(address, token=unquote(parts.username))
    if parts.username:
        return attrs.evolve(address, user=unquote(parts.username), password=unquote(parts.password or ""))
    return address


def parse_addresses(servers: str | Iterable[str]) -> list[ServerAddress]:
    """One address, several, or one text with commas. Raises like `parse_address`, and ClientError when empty."""
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = [parse_address(text) for text in texts]
    if not addresses:
        raise ClientError("no server address given")
    return addresses
