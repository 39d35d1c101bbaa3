"""A message as our own code sees it: who publishes it, who subscribed to it, and where it gathers for internal clients.

Messages between two connections never become objects. What is for a part of the server itself does: one `Message`
each in an `Inbox`, or, for parts that handle them by the thousand, all of one read as a bundle (`tnats.wire.bundle`)
in a `Funnel`. What comes under the prefix of an account's funnel goes there without a plan while nobody else gets any
of it.

`data[start:stop]` is everywhere a message from the part of its control line that PUB shares with MSG to its end:
"[reply ][header size ]size", line end, headers, payload, line end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tnats.limits import STAGE_BYTES
from tnats.wire.bundle import HEAD_SIZE

if TYPE_CHECKING:
    from tnats.broker.hot.outbound import Exchange, Outbound
    from tnats.broker.ports import SubscriptionOwner

try:
    import cython
except ImportError:  # interpreted, where nobody compiles
    from tnats import speedups as cython

if not cython.compiled:
    from tnats.memory import append, append_word, begins, new_stage, pin

NO_STAGE = bytearray()


class Origin:
    """Who publishes, and the shape of the message being published."""

    __slots__ = ("echo", "exchange", "header_size", "outbound", "owner", "reply_size", "size", "stalls")

    def __init__(self, exchange: Exchange, owner: Any, outbound: Outbound | None) -> None:
        self.exchange = exchange
        self.owner = owner
        """The client; None of one inside the server, and once it is gone."""
        self.outbound = outbound
        self.echo = True
        self.stalls = False
        """A client: may be made to wait for a gated target."""
        self.reply_size = 0
        self.header_size = 0
        self.size = 0

    def message(self, subject: bytes, data: bytes, start: int, stop: int) -> Message:
        """The current message as an object."""
        end = stop - 2
        return Message(subject, data[start : start + self.reply_size], self.header_size, data[end - self.size : end])

    def without_headers(self, data: bytes, start: int, stop: int) -> bytes:
        """The current message, behind "MSG subject sid ", for a client that does not know headers."""
        size = self.size - self.header_size
        payload = data[stop - 2 - size : stop]
        if self.reply_size:
            return b"%b %d\r\n%b" % (data[start : start + self.reply_size], size, payload)
        return b"%d\r\n%b" % (size, payload)


class Message:
    """A message as internal clients and special handling see it."""

    __slots__ = ("data", "header_size", "reply", "subject")

    def __init__(self, subject: bytes, reply: bytes, header_size: int, data: bytes) -> None:
        self.subject = subject
        self.reply = reply
        """Empty if there is none."""
        self.header_size = header_size
        """Bytes at the front of `data` that are headers."""
        self.data = data


class Subscription:
    """One SUB. `delivered` counts from its start; at `max_msgs` (0: no limit) the owner ends it."""

    __slots__ = ("checked", "client", "delivered", "inbox", "max_msgs", "outbound", "queue", "sid", "subject")

    def __init__(self, client: SubscriptionOwner, subject: bytes, queue: bytes | None, sid: bytes) -> None:
        self.client = client
        self.subject = subject
        self.queue = queue
        self.sid = sid
        self.checked = False
        """Its owner is to be asked about each subject (`may_receive`)."""
        self.max_msgs = 0
        self.delivered = 0
        self.outbound: Outbound | None = client.outbound
        self.inbox: Inbox | None = client.inbox

    def silence(self) -> None:
        """Deliver nothing more; taking it out may wait."""
        self.outbound = None
        self.inbox = None

    def retire(self, nobody: SubscriptionOwner) -> None:
        """It has ended: `nobody` stands in, so that a plan not yet rebuilt keeps nothing of its client alive."""
        self.client = nobody
        self.silence()


class Inbox:
    """Where messages for an internal client gather until the end of the read that brought them."""

    __slots__ = ("batch", "deliver", "exchange", "origin")

    def __init__(self, exchange: Exchange, origin: Origin, deliver: Callable[[Any], None]) -> None:
        """`deliver` gets a list of messages."""
        self.exchange = exchange
        self.origin: Origin | None = origin
        self.deliver = deliver
        self.batch: list[Message] = []

    def take(self, origin: Origin, subject: bytes, data: bytes, start: int, stop: int) -> None:
        """Add origin's message data[start:stop]."""
        if not self.batch:
            self.exchange.announce(self)
        self.batch.append(origin.message(subject, data, start, stop))

    def drain(self) -> None:
        """Hand over what has gathered."""
        batch = self.batch
        self.batch = []
        if batch:
            self.deliver(batch)


class Funnel(Inbox):
    """An inbox that gathers a bundle, and takes what comes under `prefix` without a plan, if nobody else gets it."""

    __slots__ = ("asked", "askers", "capacity", "prefix", "rivals", "stage", "used")

    def __init__(self, exchange: Exchange, origin: Origin, deliver: Callable[[Any], None], prefix: bytes) -> None:
        """`deliver` gets a bundle."""
        super().__init__(exchange, origin, deliver)
        self.prefix = prefix
        self.askers: dict[bytes, tuple[bytes, Origin]] = {}
        """Who wants to be answered: subject and origin, by reply subject."""
        self.asked: dict[bytes, tuple[bytes, Origin]] = {}
        """The same of the bundle that is being delivered."""
        self.rivals = 0
        """Subscriptions of others that overlap with the prefix."""
        self.stage = NO_STAGE
        self.used = 0
        self.capacity = 0

    def takes(self, data: bytes, start: int, end: int) -> bool:
        """Whether messages on the subject data[start:end] come here and go nowhere else."""
        return begins(data, start, end, self.prefix, len(self.prefix)) and not self.rivals

    def take(self, origin: Origin, subject: bytes, data: bytes, start: int, stop: int) -> None:
        self.put(origin, subject, 0, len(subject), data, start, stop)

    def put(
        self, origin: Origin, names: bytes, subject_start: int, subject_end: int, data: bytes, start: int, stop: int
    ) -> None:
        """Add origin's message data[start:stop], whose subject is names[subject_start:subject_end]."""
        subject_size = subject_end - subject_start
        size = HEAD_SIZE + subject_size + stop - start
        used = self.used
        if not used:
            self.exchange.announce(self)
        if used + size > self.capacity:
            old = self.stage
            self.capacity = max(self.capacity * 2, used + size, STAGE_BYTES)
            self.stage = new_stage(self.capacity)
            append(self.stage, 0, pin(old, used), 0, used)
        stage = self.stage
        if origin.reply_size:
            subject = names[subject_start:subject_end]
            self.askers[data[start : start + origin.reply_size]] = (subject, origin)
        used = append_word(stage, used, subject_size)
        used = append_word(stage, used, origin.reply_size)
        used = append_word(stage, used, origin.header_size)
        used = append_word(stage, used, origin.size)
        used = append_word(stage, used, stop - start)
        append(stage, used, names, subject_start, subject_end)
        append(stage, used + subject_size, data, start, stop)
        self.used = used + subject_size + stop - start

    def drain(self) -> None:
        bundle = self.stage
        used = self.used
        self.stage = NO_STAGE
        self.used = 0
        self.capacity = 0
        if used:
            del bundle[used:]
            self.asked = self.askers
            self.askers = {}
            self.deliver(bundle)
            self.asked = {}
