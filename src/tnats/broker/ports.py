"""The broker's borders as types: what its hot loop asks of its slow parts, and what upper layers plug in.

Upper layers (accounts, cluster, JetStream, edges, server) import these types and `Broker`; nothing here imports them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tnats.auth.users import ConnectionType, Outcome
from tnats.wire.connect import ConnectInfo

if TYPE_CHECKING:
    from tnats.broker.hot.message import Inbox, Message, Origin, Subscription
    from tnats.broker.hot.outbound import Outbound
    from tnats.broker.hot.plan import Plan


# ------------------------------------------------------------------ hot loop to connection


class Owner(Protocol):
    """What the hot loop asks of the client connection it works for; none of it is asked per ordinary message."""

    def on_locked(self) -> None:
        """Something other than CONNECT came before login."""

    def on_control(self, line: bytes) -> tuple[bytes, bytes, int, int] | None:
        """Handle a complete control line (with its line end) that is no publish in plain form.

        For a publish in another form: subject, reply (or empty), header size (0: none) and total size.
        """

    def on_partial(self, line: bytes) -> bytes:
        """What to keep of a control line that has not ended yet: `line`, or less. Checks its length and verb."""

    def on_payload_too_large(self, size: int) -> None:
        """A publish exceeds max_payload: close."""

    def on_headers_refused(self) -> None:
        """HPUB without negotiated headers: close."""

    def on_unknown_operation(self) -> None:
        """The bytes are not of the protocol: close."""

    def find_plan(self, subject: bytes) -> Plan:
        """Where messages of this connection on `subject` go, its permissions considered."""

    def on_denied(self, subject: bytes) -> None:
        """A message on `subject` was refused by permissions."""

    def on_publish(self, plan: Plan, subject: bytes, reply: bytes) -> bool:
        """Pedantic check, reserved replies and +OK, before delivery; whether to deliver."""

    def on_no_responders(self, subject: bytes, reply: bytes) -> None:
        """A message with `reply` reached nobody, and the client wants to know."""

    def on_stall(self) -> None:
        """This connection publishes to a target that has fallen behind."""

    def on_blocked(self) -> None:
        """The outbound has bytes that the connection does not take now."""

    def on_slow_consumer(self) -> None:
        """The outbound would exceed max_pending."""

    def on_write_error(self, reason: str) -> None:
        """Writing failed: the connection is over."""

    def on_reply_delivered(self, reply: bytes) -> None:
        """A message with `reply` was put into the outbound (asked for by `Outbound.tracks_replies`)."""


class Drain(Protocol):
    """Where something gathers during a pass, to be handled at its end (`Exchange.announce`)."""

    def drain(self) -> None:
        """Handle what has gathered."""


class PlanBuilder(Protocol):
    """Who builds a plan anew when it is out of date."""

    def refresh(self, plan: Plan) -> None: ...


class Special(Protocol):
    """Handling of a plan's messages by slow code: denied subjects, messages that a mapping drops."""

    def publish(self, origin: Origin, plan: Plan, message: Message) -> int:
        """Handle `message`; how many it reached (0: the requester may be told "no responders")."""


class SubscriptionOwner(Protocol):
    """The client, internal or not, that a subscription belongs to. It has one of outbound and inbox."""

    @property
    def outbound(self) -> Outbound | None: ...

    @property
    def inbox(self) -> Inbox | None: ...

    def may_receive(self, subscription: Subscription, subject: bytes) -> bool:
        """Whether a message on `subject` may be delivered; asked when a plan is built, if `subscription.checked`."""

    def end_subscription(self, subscription: Subscription) -> None:
        """The last delivery that `subscription.max_msgs` allows was made."""


# ------------------------------------------------------------------ upper layers


class Log(Protocol):
    """Where the broker's lines go; `tnats.server.log` in a server."""

    def debug(self, text: str) -> None: ...

    def info(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...

    def error(self, text: str) -> None: ...


class Gatekeeper(Protocol):
    """Who may connect. `tnats.auth.users.Authenticator` is one."""

    @property
    def no_auth_required(self) -> bool: ...

    @property
    def nonce_required(self) -> bool: ...

    @property
    def stands_in_for_nobody(self) -> bool: ...

    def check(
        self,
        connect: ConnectInfo,
        *,
        nonce: bytes = b"",
        connection_type: ConnectionType = ConnectionType.STANDARD,
        via_trusted_proxy: bool = False,
    ) -> Outcome: ...


class InterestObserver(Protocol):
    """Wants to know of an account's subscriptions as they come and go: JetStream, traces."""

    def on_subscribed(self, subscription: Subscription) -> None: ...

    def on_unsubscribed(self, subscription: Subscription) -> None: ...


class ConnectionObserver(Protocol):
    """Wants to know of client connections: traces."""

    def on_connected(self, cid: int) -> None:
        """Client `cid` has logged in."""

    def on_disconnected(self, cid: int) -> None:
        """Client `cid` has gone; its record is the newest of the closed ring."""
