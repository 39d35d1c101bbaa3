"""What the consumer machine wants done."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from tnats.jetstream.api.advisories import Advisory
from tnats.jetstream.consumer.letters import Letter
from tnats.jetstream.consumer.state import Op
from tnats.records import define, frozen
from tnats.storage.message_log import Stored
from tnats.wire.headers import set_header


@define
class Delivery:
    """Send messages of the stream, each under its own subject, with a reply subject to acknowledge it.

    They go to `targets` in turns. The reply subjects carry `deliveries`, and for the first message `consumer_seq` and
    `pending`: how many are not yet delivered then; for each further one these are one more and one less. `pin_id`:
    value of a Nats-Pin-Id header to add, empty for none.
    """

    targets: tuple[bytes, ...]
    seqs: Sequence[int]
    deliveries: int
    consumer_seq: int
    pending: int
    headers_only: bool = False
    pin_id: str = ""

    def behind(self, count: int) -> Delivery:
        """What is left when the first `count` messages are sent."""
        first = count % len(self.targets)
        return attrs.evolve(
            self,
            targets=self.targets[first:] + self.targets[:first],
            seqs=self.seqs[count:],
            consumer_seq=self.consumer_seq + count,
            pending=self.pending - count,
        )


@frozen
class Status:
    """Send a header block without payload to `target`."""

    target: bytes
    block: bytes
    reply: bytes = b""


@define
class Effects:
    """In this order: append `ops` with `letters` to the consumer's log; send `sends` in order; when the ops are
    durable, send an empty message to each of `acked_replies`, tell the stream about `done`, and send `letters`.

    `behind`: subjects that there is no room for, to be told of when there may be (`ConsumerMachine.caught_up`).
    """

    ops: list[Op] = attrs.field(factory=list)
    sends: list[Delivery | Status] = attrs.field(factory=list)
    acked_replies: list[bytes] = attrs.field(factory=list)
    done: list[int] = attrs.field(factory=list)
    letters: list[Letter] = attrs.field(factory=list)
    behind: list[bytes] = attrs.field(factory=list)
    advisories: list[Advisory] = attrs.field(factory=list)
    is_inactive: bool = False
    """The consumer was unused for its inactive threshold: delete it."""


def status_block(line: str, *headers: tuple[str, object]) -> bytes:
    """A header block with a status, as clients expect it: "NATS/1.0 404 No Messages"."""
    fields = "".join(f"{key}: {value}\r\n" for key, value in headers)
    return f"NATS/1.0 {line}\r\n{fields}\r\n".encode()


def deliverable(delivery: Delivery, message: Stored) -> Stored:
    """A stored message as it is sent for this delivery."""
    seq, time_ns, subject, block, payload = message
    if delivery.headers_only:
        block, payload = set_header(block, b"Nats-Msg-Size", b"%d" % len(payload)), b""
    if delivery.pin_id:
        block = set_header(block, b"Nats-Pin-Id", delivery.pin_id.encode())
    return seq, time_ns, subject, block, payload
