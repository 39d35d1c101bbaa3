"""What JetStream asks of the broker, of the log and of time. `tnats.server.jetstream` puts the real things in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tnats.jetstream.stream.ports import Inbound


class Client(Protocol):
    """A client inside the server, in one account (`tnats.broker.internal`)."""

    def subscribe(self, subject: bytes, queue: bytes | None = None) -> Any:
        """Subscribe to a valid pattern; what comes goes to the client's `deliver`."""

    def end_subscription(self, subscription: Any) -> None:
        """Undo one `subscribe`."""

    def publish(self, subject: bytes, payload: bytes, *, reply: bytes = b"", headers: bytes = b"") -> int:
        """Publish; how many subscribers it reached."""

    def publish_all(self, messages: Sequence[tuple[bytes, bytes]]) -> None:
        """Publish (subject, payload) pairs in order."""

    def send_bundle(self, target: bytes, bundle: bytearray) -> int:
        """Publish to the subscribers of `target` messages (`tnats.wire.bundle`) that show their own subjects; how
        many deliveries it was.
        """

    def refuse(self, reply: bytes) -> None:
        """Tell who published with this reply subject, in the bundle that just came, that nobody answers."""

    def close(self) -> None:
        """End all subscriptions."""


class Bus(Protocol):
    """One account of the broker."""

    @property
    def account(self) -> str:
        """Its name."""

    def client(self, name: str, deliver: Callable[[list[Inbound]], None]) -> Client:
        """A new internal client; it does not get what it publishes itself."""

    def funnel(self, name: str, prefix: bytes, deliver: Callable[[bytearray], None]) -> Client:
        """The account's client that gets everything under `prefix` ("name."), in bundles."""

    def has_interest(self, subject: bytes) -> bool:
        """Whether anybody gets what is published on a literal subject."""

    def room(self, subject: bytes) -> int | None:
        """How many bytes may be published on a literal subject before all whom they reach have fallen behind.

        0: all have, and who sends more may get them cut off. None: they would reach nobody.
        """

    def on_room(self, subject: bytes, told: Callable[[bytes], None]) -> None:
        """Call `told` with a literal subject, once: soon if its `room` is not 0, else after that may have changed."""

    def forget_room(self, subject: bytes, told: Callable[[bytes], None]) -> None:
        """Do not call `told` any more; nothing happens if it was not going to be called."""

    def is_subscribed(self, subject: bytes) -> bool:
        """Whether somebody has subscribed to a literal subject itself, not to a pattern that matches it."""

    def has_listener(self, subject: bytes, group: bytes) -> bool:
        """Whether somebody has subscribed to a literal subject itself, in a queue group, or plainly for none."""

    def on_interest(self, changed: Callable[[bytes], None]) -> None:
        """Call `changed` with the pattern of every subscription that comes or goes."""


class Log(Protocol):
    """Where lines for people go."""

    def debug(self, text: str) -> None: ...

    def info(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...

    def error(self, text: str) -> None: ...
