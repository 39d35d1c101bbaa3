"""Messages as streams give them: read by sequence or subject, or delivered by a consumer and to be acknowledged."""

from __future__ import annotations

from tnats.client.client import Client
from tnats.client.jetstream.errors import ApiError, JetStreamError, MessageNotFound
from tnats.client.message import Message, header_values
from tnats.client.options import nanoseconds
from tnats.jetstream.api.messages import StoredMsg
from tnats.notation import parse_time
from tnats.records import frozen
from tnats.wire.headers import parse_headers

ACK = b"+ACK"
NAK = b"-NAK"
IN_PROGRESS = b"+WPI"
TERM = b"+TERM"

NOT_FOUND_STATUS = 404


@frozen
class StoredMessage:
    """A message as a stream holds it. `time_ns`: when it was stored, since the Unix epoch."""

    subject: str
    sequence: int
    time_ns: int
    headers: dict[str, list[str]] | None
    data: bytes


@frozen
class Metadata:
    """Where a delivered message stands, out of its reply subject (ADR-15)."""

    stream: str
    consumer: str
    delivery_count: int
    """1 at the first delivery."""
    stream_sequence: int
    consumer_sequence: int
    """Counts this consumer's deliveries."""
    time_ns: int
    """When it was stored, since the Unix epoch."""
    pending_count: int
    """Messages that the consumer had not delivered yet."""
    domain: str = ""


class Delivery(Message):
    """A message delivered by a consumer. Under an explicit ack policy it comes again until it is acknowledged."""

    __slots__ = ("_metadata",)

    def __init__(self, client: Client, message: Message) -> None:
        """Takes over what `message` holds."""
        super().__init__(client, message.subject, message.reply, message.block, message.data)
        self._metadata: Metadata | None = None

    @property
    def metadata(self) -> Metadata:
        """Its place. Raises JetStreamError when the reply subject is none of a consumer."""
        if self._metadata is None:
            self._metadata = parse_metadata(self.reply)
        return self._metadata

    async def ack(self) -> None:
        """Done. Says nothing about whether the server has heard: `ack_sync` does."""
        await self.respond(ACK)

    async def ack_sync(self, *, timeout_s: float = 5.0) -> None:
        """Done, and wait until the server has noted it durably ("double ack"). Raises like `Client.request`."""
        await self._client.request(self.reply, ACK, timeout_s=timeout_s)

    async def nak(self, *, delay_s: float = 0) -> None:
        """Not done: deliver it again, at once or after `delay_s`."""
        await self.respond(NAK + (b' {"delay": %d}' % nanoseconds(delay_s) if delay_s else b""))

    async def term(self, reason: str = "") -> None:
        """Never deliver it again, although it was not handled; `reason` stands in the server's advisory."""
        await self.respond(TERM + (b" " + reason.encode() if reason else b""))

    async def in_progress(self) -> None:
        """Still at work: the time within which an acknowledgement is due begins anew."""
        await self.respond(IN_PROGRESS)


def parse_metadata(reply: str) -> Metadata:
    """What an ack subject says: 9 tokens, or more with domain and account. Raises JetStreamError."""
    tokens = reply.split(".")
    domain = ""
    if len(tokens) >= 11:
        domain = "" if tokens[2] == "_" else tokens[2]
        del tokens[2:4]
    if len(tokens) < 9 or tokens[:2] != ["$JS", "ACK"]:
        raise JetStreamError(f"reply subject {reply!r} is none of a consumer")
    try:
        deliveries, stream_sequence, consumer_sequence, time_ns, pending = map(int, tokens[4:9])
    except ValueError:
        raise JetStreamError(f"reply subject {reply!r} is none of a consumer") from None
    return Metadata(tokens[2], tokens[3], deliveries, stream_sequence, consumer_sequence, time_ns, pending, domain)


def from_answer(stored: StoredMsg | None) -> StoredMessage:
    """The message in an answer of STREAM.MSG.GET."""
    if stored is None:
        raise JetStreamError("an answer without the message that was asked for")
    return StoredMessage(
        stored.subject, stored.seq, stored.time_ns or 0, header_values(parse_headers(stored.hdrs)), stored.data
    )


PLACE_HEADERS = (
    "Nats-Stream",
    "Nats-Subject",
    "Nats-Sequence",
    "Nats-Time-Stamp",
    "Nats-Num-Pending",
    "Nats-Last-Sequence",
)
"""What a direct get adds to a message's own headers (ADR-31)."""


def from_direct(reply: Message) -> StoredMessage:
    """The message in an answer of DIRECT.GET. Raises MessageNotFound, ApiError."""
    headers = reply.headers or {}
    if "Nats-Sequence" not in headers:
        if reply.status == NOT_FOUND_STATUS:
            raise MessageNotFound(reply.status, 0, reply.description or "no message found")
        raise ApiError(reply.status, 0, reply.description or "an answer without the message that was asked for")
    own = {name: values for name, values in headers.items() if name not in PLACE_HEADERS}
    return StoredMessage(
        subject=headers["Nats-Subject"][-1],
        sequence=int(headers["Nats-Sequence"][-1]),
        time_ns=parse_time(headers["Nats-Time-Stamp"][-1]) or 0,
        headers=own or None,
        data=reply.data,
    )
