"""The hot loop: scan what a connection sent, route it, put it into the buffers of those who get it.

Purpose. Everything that happens once per message and nothing else. One source, two builds: Cython compiles it with
the C types of `hot.pxd` beside it, or it runs as the ordinary Python that it is. Both give the same bytes and states.

Theory of operation
-------------------
*Reading.* All connections of a reactor read into one buffer, `Exchange.buffer`. `Inbound.feed` walks it: complete
operations are handled in place, what is left of the last one is kept in `tail` and stands in front of the next read.
An operation of OWN_BODY_BYTES or more gets a buffer of its own, cut to size from its control line, into which the
rest is read directly.

*Publishing.* Publishers repeat themselves. The last control line is kept with all that was found out about it, so that
an equal one costs a comparison; if only the subject is the same, its plan is at hand still. Otherwise the subject is
looked up. A line that is not of the plain form (single spaces, decimal size, CRLF) goes to the owner to be split.

*Plans.* A `Plan` says where messages on one subject go: built by slow code (`tnats.broker.plan`), run here. It is
current while its epoch equals that of its `Epoch` cell; a change of subscriptions moves the cell, or sets the plan's
own epoch to STALE_EPOCH. What cannot be said by targets and groups (denied subjects, service imports, tracing) is the
plan's `special`.

*Delivering.* From the reply or size on, MSG repeats the bytes of PUB: a delivery is a prepared head ("MSG subject
sid ") and one range of the read buffer. Below VIEW_BYTES both are copied behind each other into the stage of the
target; from there on the range is not copied but referenced, by all targets alike. References into the shared read
buffer end before the next read: `settle` writes them out, and copies only what a slow target leaves behind.

*Bundles.* Parts of the server that handle messages by the thousand get and give them as bundles (`tnats.wire.bundle`).
What comes under the prefix of an account's `Funnel` goes there without a plan while nobody else gets any of it.

*Writing.* An `Outbound` is a queue of whole buffers and a stage, a buffer being filled, borrowed from the exchange
while there is something in it. It is written once per pass, and in between when FLUSH_BYTES have gathered.

*Bounds.* An outbound holds `max_pending` bytes, then its owner closes the connection. Above three quarters of that
it is gated: a client that publishes to it is halted for a moment (or, by configuration, the message is dropped).
`tail` never exceeds the read buffer, an own body is one operation of at most max_payload.

No peer's fault raises here: the owner is told, queues its -ERR and sets `halted`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tnats.limits import (
    BUFFERS_PER_WRITE_MAX,
    DELIVERIES_PER_FEED_MAX,
    FAMILY_SUBJECTS_MAX,
    FLUSH_BYTES,
    OWN_BODY_BYTES,
    PLANS_MAX,
    READ_BYTES,
    SETTLE_ROUNDS_MAX,
    SMALL_STAGE_BYTES,
    SMALL_STAGES_KEPT_MAX,
    STAGE_BYTES,
    STAGES_KEPT_MAX,
    VIEW_BYTES,
)
from tnats.runtime.api import Buffer, Conn, ConnectionBroken

if TYPE_CHECKING:
    from tnats.broker.ports import Owner, PlanBuilder, Special, SubscriptionOwner
    from tnats.subjects.draw import Draw

try:
    import cython
except ImportError:  # interpreted, where nobody compiles
    from tnats import speedups as cython

if not cython.compiled:
    from tnats.memory import (
        allocate,
        append,
        append_word,
        begins,
        clear_stage,
        decimal,
        equal,
        find,
        find_last,
        new_stage,
        pin,
        word,
    )

STALE_EPOCH = -1
"""Epoch of a plan to be built anew before its next use."""

RESERVED_REPLIES = (b"_R_.", b"$JS.ACK.", b"_GR_.")
"""Beginnings of reply subjects that clients may not publish with: service imports, JetStream acks, gateways."""

SLOW_WORK = 64
"""A control line or a subject not known yet takes as long as so many deliveries (measured: 5 to 8 us)."""

NO_STAGE = bytearray()

BUNDLE_HEAD_BYTES = 20
"""Five numbers before each message of a bundle."""

UPPER_C = 67
UPPER_I = 73
LOWER_C = 99
TAB = 9
LF = 10
CR = 13
SPACE = 32
PUB = b"PUB "
HPUB = b"HPUB "


class Exchange:
    """What the connections served by one reactor share."""

    __slots__ = (
        "borrowers", "buffer", "deliveries_per_feed", "dirty", "draw", "flush_bytes", "inboxes", "own_body_bytes",
        "passing", "small_stages", "stages", "view", "view_bytes", "wake",
    )  # fmt: skip

    def __init__(self, draw: Draw, wake: Callable[[], None]) -> None:
        """`wake` is called when there is something to settle and no reactor pass is under way to do so.

        The bounds are those of `tnats.limits`; simulation makes them tiny at times.
        """
        self.draw = draw
        self.wake = wake
        self.passing = False
        self.buffer = allocate(READ_BYTES)
        self.view = memoryview(self.buffer)
        self.view_bytes = VIEW_BYTES
        self.own_body_bytes = OWN_BODY_BYTES
        self.flush_bytes = FLUSH_BYTES
        self.deliveries_per_feed = DELIVERIES_PER_FEED_MAX
        self.stages: list[bytearray] = []
        self.small_stages: list[bytearray] = []
        self.dirty: list[Outbound] = []
        self.borrowers: list[Outbound] = []
        self.inboxes: list[Inbox] = []

    def release_buffer(self) -> None:
        """End all references into the read buffer, so that it can be read into again."""
        borrowers = self.borrowers
        if borrowers:
            self.borrowers = []
            for outbound in borrowers:
                outbound.flush()
                outbound.own()

    def keep_stage(self, stage: bytearray, capacity: int) -> None:
        """Take an empty stage back."""
        if capacity == STAGE_BYTES:
            if len(self.stages) < STAGES_KEPT_MAX:
                self.stages.append(stage)
        elif capacity == SMALL_STAGE_BYTES and len(self.small_stages) < SMALL_STAGES_KEPT_MAX:
            self.small_stages.append(stage)

    def settle(self) -> None:
        """Hand internal clients what waits for them, then write every outbound that has something."""
        rounds = 0
        while self.inboxes and rounds < SETTLE_ROUNDS_MAX:
            rounds += 1
            inboxes = self.inboxes
            self.inboxes = []
            for inbox in inboxes:
                inbox.drain()
        dirty = self.dirty
        self.dirty = []
        for outbound in dirty:
            outbound.dirty = False
            outbound.flush()
        if self.inboxes or self.dirty:
            self.wake()


class Outbound:
    """Bytes on their way to one connection, bounded by `max_pending`."""

    __slots__ = (
        "blocked", "borrowed", "bytes", "capacity", "closed", "dirty", "drops_when_gated", "exchange", "gated",
        "headers", "max_pending", "msgs", "owner", "queue", "queued", "sent", "stage", "tracks_replies", "used",
        "write",
    )  # fmt: skip

    def __init__(
        self, exchange: Exchange, owner: Owner, write: Callable[[Sequence[Buffer]], int], max_pending: int
    ) -> None:
        self.exchange = exchange
        self.owner: Owner | None = owner
        self.write = write
        self.max_pending = max_pending
        self.stage = NO_STAGE
        self.sent = 0
        self.used = 0
        self.capacity = 0
        self.queue: list[Any] = []
        """bytes and memoryviews"""
        self.queued = 0
        self.dirty = False
        self.blocked = False
        self.borrowed = False
        self.closed = False
        self.gated = False
        """Three quarters full."""
        self.drops_when_gated = False
        self.headers = False
        self.tracks_replies = False
        self.msgs = 0
        self.bytes = 0

    def pending(self) -> int:
        """Bytes not yet taken by the connection."""
        return self.queued + self.used - self.sent

    def put(self, head: bytes, data: bytes, start: int, end: int) -> bool:
        """Append `head` and data[start:end]; False if the outbound is, or is thereby, closed."""
        head_size = len(head)
        size = head_size + end - start
        if not self.dirty or self.used + size > self.capacity:
            if not self.make_room(size):
                return False
        used = self.used
        append(self.stage, used, head, 0, head_size)
        append(self.stage, used + head_size, data, start, end)
        self.used = used + size
        return True

    def put_bytes(self, data: bytes) -> bool:
        """Append `data`, a whole protocol message."""
        return self.put(data, b"", 0, 0)

    def put_view(self, head: bytes, view: Any, borrowed: bool) -> bool:
        """Append `head` and, by reference, `view`; `borrowed` if that lies in the shared read buffer.

        False if the outbound is, or is thereby, closed.
        """
        head_size = len(head)
        size = head_size + len(view)
        if not self.admit(size):
            return False
        self.seal()
        self.queue.append(head)
        self.queue.append(view)
        self.queued += size
        if borrowed and not self.borrowed:
            self.borrowed = True
            self.exchange.borrowers.append(self)
        if self.queued >= self.exchange.flush_bytes:
            self.flush()
        return not self.closed

    def admit(self, size: int) -> bool:
        """Make dirty, and check the bound before `size` bytes are added."""
        if self.closed:
            return False
        exchange = self.exchange
        if not self.dirty:
            self.dirty = True
            exchange.dirty.append(self)
            if not exchange.passing:
                exchange.wake()
        pending = self.queued + self.used - self.sent
        if pending + size > self.max_pending and pending:
            self.flush()
            if self.closed:
                return False
            pending = self.queued + self.used - self.sent
        if pending + size > self.max_pending:
            assert self.owner is not None
            self.owner.on_slow_consumer()
            return False
        self.gated = pending > self.max_pending // 4 * 3
        return True

    def make_room(self, size: int) -> bool:
        """Be dirty and have `size` bytes of stage free; False if closed or over the bound."""
        if not self.admit(size):
            return False
        if self.used + size <= self.capacity:
            return True
        if self.queued + self.used - self.sent >= self.exchange.flush_bytes:
            self.flush()
            if self.closed:
                return False
        stage = self.stage
        if not self.capacity:
            self.take_stage(size, size <= SMALL_STAGE_BYTES)
        elif self.used + size > self.capacity:
            if self.capacity != SMALL_STAGE_BYTES:
                self.seal()
                self.take_stage(size, False)
            else:
                sent = self.sent
                kept = self.used - sent
                self.take_stage(kept + size, False)
                append(self.stage, 0, stage, sent, sent + kept)
                self.used = kept
                self.exchange.keep_stage(stage, SMALL_STAGE_BYTES)
        return True

    def take_stage(self, size: int, small: bool) -> None:
        """Begin an empty stage for at least `size` bytes."""
        exchange = self.exchange
        if small:
            self.capacity = SMALL_STAGE_BYTES
            self.stage = exchange.small_stages.pop() if exchange.small_stages else new_stage(SMALL_STAGE_BYTES)
        elif size <= STAGE_BYTES:
            self.capacity = STAGE_BYTES
            self.stage = exchange.stages.pop() if exchange.stages else new_stage(STAGE_BYTES)
        else:
            self.capacity = size
            self.stage = new_stage(size)
        clear_stage(self.stage)
        self.sent = 0
        self.used = 0

    def seal(self) -> None:
        """Move what the stage holds to the end of the queue; there is no stage then."""
        held = self.used - self.sent
        self.queued += held
        if held * 2 > self.capacity:
            self.queue.append(memoryview(self.stage)[self.sent : self.used])
            self.lose_stage()
            return
        if held:  # a queue of nearly empty stages would hold many times what it counts
            self.queue.append(bytes(memoryview(self.stage)[self.sent : self.used]))
        self.drop_stage()

    def drop_stage(self) -> None:
        """Give the empty stage back, if there is one."""
        if self.capacity:
            self.exchange.keep_stage(self.stage, self.capacity)
        self.lose_stage()

    def lose_stage(self) -> None:
        self.stage = NO_STAGE
        self.sent = 0
        self.used = 0
        self.capacity = 0

    def flush(self) -> bool:
        """Write what the connection takes now; True if nothing is left."""
        while self.queued or self.used > self.sent:
            if not self.write_once():
                if self.owner is not None:
                    self.blocked = True
                    self.owner.on_blocked()
                return False
        self.blocked = False
        self.gated = False
        self.drop_stage()
        return True

    def write_once(self) -> bool:
        """One write; whether the connection took all that it was offered."""
        queue = self.queue
        buffers = queue[:BUFFERS_PER_WRITE_MAX]
        offered = self.used - self.sent
        if offered and len(buffers) == len(queue):
            buffers.append(memoryview(self.stage)[self.sent : self.used])
        else:
            offered = 0
        for buffer in queue[:BUFFERS_PER_WRITE_MAX]:
            offered += len(buffer)
        try:
            taken: int = self.write(buffers)
        except ConnectionBroken as broken:
            if self.owner is not None:
                self.owner.on_write_error(str(broken))
            return False
        complete = taken == offered
        index = 0
        while index < len(queue) and taken >= len(queue[index]):
            taken -= len(queue[index])
            self.queued -= len(queue[index])
            index += 1
        del queue[:index]
        if queue and taken:
            queue[0] = memoryview(queue[0])[taken:]
            self.queued -= taken
        else:
            self.sent += taken
        if self.gated and self.queued + self.used - self.sent <= self.max_pending // 4 * 3:
            self.gated = False
        return complete

    def own(self) -> None:
        """Replace references into the shared read buffer by copies."""
        self.borrowed = False
        shared = self.exchange.buffer
        queue = self.queue
        for index in range(len(queue)):
            view = queue[index]
            if isinstance(view, memoryview) and view.obj is shared:
                queue[index] = bytes(view)

    def close(self) -> None:
        """Refuse whatever is put from now on; what is inside can still be flushed."""
        self.closed = True

    def discard(self) -> None:
        """Drop what is inside and let go of the connection."""
        self.closed = True
        self.queue.clear()
        self.queued = 0
        self.sent = self.used
        self.drop_stage()
        self.blocked = False
        self.owner = None
        self.write = _write_nothing


def _write_nothing(buffers: Sequence[Buffer]) -> int:
    return 0


class Message:
    """A message as internal clients and special handling see it."""

    __slots__ = ("data", "header_size", "origin", "reply", "subject", "subscription")

    def __init__(
        self,
        subject: bytes,
        reply: bytes,
        header_size: int,
        data: bytes,
        origin: Origin,
        subscription: Subscription | None,
    ) -> None:
        self.subject = subject
        self.reply = reply
        """Empty if there is none."""
        self.header_size = header_size
        """Bytes at the front of `data` that are headers."""
        self.data = data
        self.origin = origin
        self.subscription = subscription


class Inbox:
    """Where messages for an internal client gather until the end of the read that brought them."""

    __slots__ = ("batch", "bytes", "deliver", "exchange", "msgs", "origin")

    def __init__(self, exchange: Exchange, origin: Origin, deliver: Callable[[Any], None]) -> None:
        """`deliver` gets a list of messages."""
        self.exchange = exchange
        self.origin: Origin | None = origin
        self.deliver = deliver
        self.batch: list[Message] = []
        self.msgs = 0
        self.bytes = 0

    def take(
        self, origin: Origin, subject: bytes, data: bytes, start: int, stop: int, subscription: Subscription
    ) -> None:
        """Add origin's message data[start:stop] ("[reply ][header size ]size", payload, line ends)."""
        if not self.batch:
            self.announce()
        self.batch.append(origin.message(subject, data, start, stop, subscription))
        self.msgs += 1
        self.bytes += origin.size

    def announce(self) -> None:
        """There is something to drain."""
        exchange = self.exchange
        exchange.inboxes.append(self)
        if not exchange.passing:
            exchange.wake()

    def drain(self) -> None:
        """Hand over what has gathered."""
        batch = self.batch
        self.batch = []
        if batch:
            self.deliver(batch)


class Funnel(Inbox):
    """An inbox that gathers a bundle, and takes what comes under `prefix` without a plan, if nobody else gets it."""

    __slots__ = ("asked", "askers", "capacity", "extensions", "prefix", "rivals", "stage", "used")

    def __init__(
        self, exchange: Exchange, origin: Origin, deliver: Callable[[Any], None], prefix: bytes, extensions: list[Any]
    ) -> None:
        """`deliver` gets a bundle. `extensions` are those of the account's plans: nobody knows where they send to."""
        super().__init__(exchange, origin, deliver)
        self.prefix = prefix
        self.extensions = extensions
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
        return begins(data, start, end, self.prefix, len(self.prefix)) and not self.rivals and len(self.extensions) == 0

    def take(
        self, origin: Origin, subject: bytes, data: bytes, start: int, stop: int, subscription: Subscription
    ) -> None:
        self.put(origin, subject, 0, len(subject), data, start, stop)

    def put(
        self, origin: Origin, names: bytes, subject_start: int, subject_end: int, data: bytes, start: int, stop: int
    ) -> None:
        """Add origin's message data[start:stop], whose subject is names[subject_start:subject_end]."""
        subject_size = subject_end - subject_start
        size = BUNDLE_HEAD_BYTES + subject_size + stop - start
        used = self.used
        if not used:
            self.announce()
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
        self.msgs += 1
        self.bytes += origin.size

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

    def retire(self, nobody: SubscriptionOwner) -> None:
        """Its client is gone: `nobody` stands in, so that a plan not yet rebuilt keeps nothing of it alive."""
        self.client = nobody
        self.outbound = None
        self.inbox = None


class Target:
    """One subscription in one plan."""

    __slots__ = ("head", "header_head", "subject", "subscription")

    def __init__(self, subscription: Subscription, subject: bytes) -> None:
        self.subscription = subscription
        self.show(subject)

    def show(self, subject: bytes) -> None:
        """Set what the subscriber sees as the subject."""
        self.subject = subject
        self.head = b"MSG %b %b " % (subject, self.subscription.sid)
        self.header_head = b"H" + self.head

    def deliver(self, origin: Origin, data: bytes, start: int, stop: int, view: Any, borrowed: bool) -> bool:
        """Deliver origin's message data[start:stop] ("[reply ][header size ]size", payload, line ends)."""
        subscription = self.subscription
        outbound = subscription.outbound
        if subscription.max_msgs and subscription.delivered >= subscription.max_msgs:
            return False
        if outbound is None:
            inbox = subscription.inbox
            if inbox is None or (inbox.origin is origin and not origin.echo):
                return False
            inbox.take(origin, self.subject, data, start, stop, subscription)
        else:
            if outbound is origin.outbound and not origin.echo:
                return False
            if outbound.gated and origin.stalls:
                if outbound.drops_when_gated:
                    return False
                origin.owner.on_stall()
            if origin.header_size:
                if not outbound.headers:
                    if not outbound.put_bytes(self.head + origin.without_headers(data, start, stop)):
                        return False
                elif view is not None:
                    if not outbound.put_view(self.header_head, view, borrowed):
                        return False
                elif not outbound.put(self.header_head, data, start, stop):
                    return False
            elif view is not None:
                if not outbound.put_view(self.head, view, borrowed):
                    return False
            elif not outbound.put(self.head, data, start, stop):
                return False
            outbound.msgs += 1
            outbound.bytes += origin.size
            if outbound.tracks_replies and origin.reply_size:
                assert outbound.owner is not None
                outbound.owner.on_reply_delivered(data[start : start + origin.reply_size])
        subscription.delivered += 1
        if subscription.max_msgs and subscription.delivered >= subscription.max_msgs:
            subscription.client.end_subscription(subscription)
        return True


class Epoch:
    """A number that moves when plans built before are out of date."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0


class Plan:
    """Where messages published on `subject` go: to every one of `targets` and to one member of each of `groups`."""

    __slots__ = ("builder", "cell", "epoch", "groups", "kept", "shown", "special", "subject", "targets")

    def __init__(self, subject: bytes, cell: Epoch, builder: PlanBuilder) -> None:
        self.subject = subject
        self.cell = cell
        self.epoch = STALE_EPOCH
        self.builder = builder
        self.kept = False
        """In the builder's table, so that it hears of changes: may be remembered outside."""
        self.targets: list[Target] = []
        self.groups: list[list[Target]] = []
        self.special: Special | None = None
        self.shown: Plan | None = None
        """Goes where this plan goes, to `show` subscribers other subjects; whoever builds this plan anew drops it."""

    def show(self, subject: bytes) -> None:
        """Serve `subject`, whose messages go to the same subscriptions."""
        self.subject = subject
        for target in self.targets:
            target.show(subject)
        for group in self.groups:
            for target in group:
                target.show(subject)

    def route(self, origin: Origin, data: bytes, start: int, stop: int, buffer: bytearray | None) -> int:
        """Deliver origin's current message, data[start:stop]; how many got it.

        `buffer` is what `data` is pinned to, if large messages may be referenced there.
        """
        if self.epoch != self.cell.number:
            self.builder.refresh(self)
        if self.special is not None:
            return self.special.publish(origin, self, origin.message(self.subject, data, start, stop, None))
        return self.fan_out(origin, data, start, stop, buffer)

    def route_bundle(self, origin: Origin, bundle: bytearray) -> int:
        """Deliver the messages of a bundle here, whatever their subjects are; these are shown. How many deliveries."""
        end = len(bundle)
        data = pin(bundle, end)
        delivered = 0
        at = 0
        while at < end:
            start = at + BUNDLE_HEAD_BYTES + word(data, at)
            stop = start + word(data, at + 16)
            origin.reply_size = word(data, at + 4)
            origin.header_size = word(data, at + 8)
            origin.size = word(data, at + 12)
            if self.epoch != self.cell.number:
                self.builder.refresh(self)
            if self.special is not None:
                subject = data[at + BUNDLE_HEAD_BYTES : start]
                delivered += self.special.publish(origin, self, origin.message(subject, data, start, stop, None))
            else:
                shown = self.shown
                if shown is None:
                    shown = self.shown = self.copy()
                if not equal(data, at + BUNDLE_HEAD_BYTES, start, shown.subject):
                    shown.show(data[at + BUNDLE_HEAD_BYTES : start])
                delivered += shown.fan_out(origin, data, start, stop, None)
            at = stop
        return delivered

    def copy(self) -> Plan:
        """A plan that goes where this one, which is current, goes now."""
        twin = Plan(self.subject, self.cell, self.builder)
        for target in self.targets:
            twin.targets.append(Target(target.subscription, self.subject))
        for group in self.groups:
            twin.groups.append([Target(target.subscription, self.subject) for target in group])
        return twin

    def fan_out(self, origin: Origin, data: bytes, start: int, stop: int, buffer: bytearray | None) -> int:
        """`route` for targets and groups alone."""
        delivered = 0
        view = None
        borrowed = False
        groups = self.groups  # a target that this very message closes makes the plan stale, which empties it
        if buffer is not None and stop - start >= origin.exchange.view_bytes:
            view = memoryview(buffer)[start:stop]
            borrowed = buffer is origin.exchange.buffer
        for target in self.targets:
            if target.deliver(origin, data, start, stop, view, borrowed):
                delivered += 1
        for group in groups:
            count = len(group)
            first = origin.exchange.draw.below(count) if count > 1 else 0
            for step in range(count):
                index = first + step
                if index >= count:
                    index -= count
                target = group[index]
                if target.deliver(origin, data, start, stop, view, borrowed):
                    delivered += 1
                    break
        return delivered


class KnownPlans:
    """What all connections without permissions of their own share of the plans found so far.

    A family is the plan for every subject that is its prefix and one token more, apart from those in `literals`: reply
    subjects, used once each, need no plan of their own. It is made to show the subject at each use, and a subject that
    comes again is left to get its own.
    """

    __slots__ = ("families", "literals", "plans", "served")

    def __init__(self, literals: dict[bytes, Any]) -> None:
        """`literals` is kept up to date by its owner: its keys are the literal subjects of subscriptions."""
        self.plans: dict[bytes, Plan] = {}
        self.families: dict[bytes, Plan] = {}
        """By prefix, with the dot at its end."""
        self.literals = literals
        self.served: dict[bytes, None] = {}
        """Subjects that a family was used for lately."""

    def find(self, subject: bytes) -> Plan | None:
        """The plan for `subject`, good until the next call."""
        plan = self.plans.get(subject)
        return self.find_family(subject) if plan is None else plan

    def find_family(self, subject: bytes) -> Plan | None:
        """The plan of the family of `subject`, good until the next call; None if it has none or comes again."""
        if not self.families:
            return None
        prefix_size = subject.rfind(b".") + 1
        family = self.families.get(subject[:prefix_size])
        if family is None or family.epoch != family.cell.number or prefix_size == len(subject):
            return None
        if subject in self.literals or subject in self.served:
            return None
        if len(self.served) >= FAMILY_SUBJECTS_MAX:
            self.served.clear()
        self.served[subject] = None
        family.show(subject)
        return family

    def keep(self, plan: Plan, subject: bytes) -> None:
        """Keep the plan of `subject`, as published."""
        if len(self.plans) >= PLANS_MAX:
            self.plans.clear()
        self.plans[subject] = plan

    def clear(self) -> None:
        self.plans.clear()
        self.families.clear()


class Origin:
    """Who publishes, and the shape of the message being published."""

    __slots__ = ("echo", "exchange", "header_size", "outbound", "owner", "reply_size", "size", "stalls")

    def __init__(self, exchange: Exchange, owner: Any, outbound: Outbound | None) -> None:
        self.exchange = exchange
        self.owner = owner
        """The client; None once it is gone."""
        self.outbound = outbound
        self.echo = True
        self.stalls = False
        """A client: may be made to wait for a gated target."""
        self.reply_size = 0
        self.header_size = 0
        self.size = 0

    def publish(self, plan: Plan, reply: bytes, header_size: int, data: bytes) -> int:
        """Route a message made by our own code; how many it reached."""
        self.reply_size = len(reply)
        self.header_size = header_size
        self.size = len(data)
        shape = b"%d" % len(data)
        if header_size:
            shape = b"%d %b" % (header_size, shape)
        if reply:
            shape = b"%b %b" % (reply, shape)
        return self.route_bytes(plan, b"%b\r\n%b\r\n" % (shape, data))

    def publish_bundle(self, plan: Plan, bundle: bytearray) -> int:
        """Route a bundle's messages as `plan` says, showing their own subjects; how many deliveries it were."""
        return plan.route_bundle(self, bundle)

    def route_bytes(self, plan: Plan, tail: bytes) -> int:
        """Route the message whose MSG bytes after "MSG subject sid " are `tail`."""
        return plan.route(self, tail, 0, len(tail), None)

    def message(self, subject: bytes, data: bytes, start: int, stop: int, subscription: Subscription | None) -> Message:
        """The current message as an object."""
        end = stop - 2
        return Message(
            subject,
            data[start : start + self.reply_size],
            self.header_size,
            data[end - self.size : end],
            self,
            subscription,
        )

    def without_headers(self, data: bytes, start: int, stop: int) -> bytes:
        """The current message, behind "MSG subject sid ", for a client that does not know headers."""
        size = self.size - self.header_size
        payload = data[stop - 2 - size : stop]
        if self.reply_size:
            return b"%b %d\r\n%b" % (data[start : start + self.reply_size], size, payload)
        return b"%d\r\n%b" % (size, payload)


class Inbound(Origin):
    """The receiving half of a client connection, and the origin of what it publishes."""

    __slots__ = (
        "body",
        "bytes",
        "ceremony",
        "closed",
        "deferred",
        "fickle",
        "funnel",
        "halted",
        "have",
        "headers",
        "irregular",
        "known",
        "line",
        "locked",
        "max_control_line",
        "max_payload",
        "msgs",
        "no_responders",
        "plan",
        "prefix",
        "read_into",
        "reserved",
        "start_offset",
        "subject",
        "tail",
        "unplanned",
    )  # fmt: skip

    def __init__(self, exchange: Exchange, owner: Owner, outbound: Outbound, conn: Conn) -> None:
        super().__init__(exchange, owner, outbound)
        self.read_into = conn.read_into
        self.stalls = True
        self.closed = False
        self.halted = False
        """No operation is handled until the owner calls `resume`."""
        self.ceremony = False
        """Every publish has to pass `Owner.on_publish` (verbose, pedantic)."""
        self.no_responders = False
        self.headers = False
        """HPUB is allowed."""
        self.locked = False
        """Nothing but CONNECT is allowed."""
        self.deferred = False
        """Much has been done for this connection: others come first, then `resume`."""
        self.max_payload = 0
        self.max_control_line = 0
        self.tail = b""
        self.body: bytearray | None = None
        self.have = 0
        self.msgs = 0
        self.bytes = 0
        self.line = b""
        """The last publish's control line with its end; empty if it must not be remembered. Its shape is in
        `reply_size`, `header_size`, `size`, and `start_offset`: where the part that it shares with MSG begins."""
        self.start_offset = 0
        self.reserved = False
        """Its reply subject is one that clients may not use."""
        self.irregular = b""
        """What MSG needs instead of that part, if the line was not of the plain form."""
        self.subject = b""
        self.plan: Plan | None = None
        """Of the last line, if it may be remembered."""
        self.known: KnownPlans | None = None
        """None: ask the owner."""
        self.fickle = False
        """Set by the owner in `find_plan`: the choice is for one message only."""
        self.funnel: Funnel | None = None
        """The account's, if this client may publish whatever comes under its prefix."""
        self.unplanned = False
        """The line just read goes to the funnel."""
        self.prefix = b""
        """Verb and subject of the last line, if its plan is remembered."""

    def forget(self) -> None:
        """Remember no control line: limits, permissions or the account have changed."""
        self.line = b""
        self.prefix = b""
        self.plan = None

    def receive(self) -> int:
        """Read once and handle what came. Bytes read, 0 at the end of the stream, -1 if nothing waits.

        Raises ConnectionBroken.
        """
        exchange = self.exchange
        body = self.body
        if body is not None:
            got = self.read_into(memoryview(body)[self.have :])
            if not got:
                return -1 if got is None else 0
            self.have += got
            size = len(body)
            if self.have == size or (self.have == size - 1 and body[size - 2] != CR):
                self.body = None
                self.feed(body, self.have)
            return got
        held = len(self.tail)
        if held:
            exchange.view[:held] = self.tail
        got = self.read_into(exchange.view[held:] if held else exchange.buffer)
        if not got:
            return -1 if got is None else 0
        self.feed(exchange.buffer, held + got)
        if exchange.borrowers:
            exchange.release_buffer()
        return got

    def resume(self) -> None:
        """Go on after a halt, or having been deferred, with what was read before."""
        self.halted = self.closed
        self.deferred = False
        held = len(self.tail)
        if held:
            exchange = self.exchange
            exchange.view[:held] = self.tail
            self.feed(exchange.buffer, held)
            if exchange.borrowers:
                exchange.release_buffer()

    def feed(self, buffer: bytearray, end: int) -> None:
        """Handle the operations in the first `end` bytes of `buffer`; keep the rest."""
        data = pin(buffer, end)
        if self.locked and data[0] != UPPER_C and data[0] != LOWER_C:
            self.owner.on_locked()
        line = self.line
        line_size = len(line)
        work = 0
        pos = 0
        need = 0
        work_max = self.exchange.deliveries_per_feed
        while pos < end and not self.halted and work <= work_max:
            if line_size and begins(data, pos, end, line, line_size):
                first = pos + line_size
            else:
                end_of_line = find(data, LF, pos, end)
                if end_of_line < 0:
                    break
                first = end_of_line + 1
                publish = self.read_line(data, pos, end_of_line)
                line = self.line
                line_size = len(line)
                if not publish:
                    pos = first
                    work += SLOW_WORK
                    continue
            size = self.size
            stop = first + size + 2
            if stop > end:
                need = stop - pos
                if stop - 1 == end and data[stop - 2] != CR:
                    self.owner.on_unknown_operation()
                break
            if data[stop - 2] != CR or data[stop - 1] != LF:
                self.owner.on_unknown_operation()
                break
            self.msgs += 1
            self.bytes += size
            plan = self.plan  # held here: a message that closes its own publisher makes it forget the plan
            if self.unplanned:
                assert self.funnel is not None
                start = pos + self.start_offset
                subject_start = pos + (5 if self.header_size else 4)
                self.funnel.put(self, data, subject_start, start - 1, data, start, stop)
                work += 1
            elif plan is None:
                work += self.publish_first(data, pos, first, stop, buffer)
                line = self.line
                line_size = len(line)
            elif self.ceremony or self.reserved:
                work += self.publish_checked(plan, data, pos + self.start_offset, stop, buffer)
            else:
                delivered = plan.route(self, data, pos + self.start_offset, stop, buffer)
                work += delivered
                if not delivered and self.reply_size and self.no_responders:
                    start = pos + self.start_offset
                    self.owner.on_no_responders(plan.subject, data[start : start + self.reply_size])
            pos = stop
        else:
            self.deferred = pos < end and not self.halted
        self.keep(data, pos, end, need)

    def keep(self, data: bytes, pos: int, end: int, need: int) -> None:
        """Keep data[pos:end] for the next read: the start of an operation of `need` bytes (0: not known)."""
        self.tail = b""
        if pos == end or self.closed:
            return
        if self.halted or self.deferred:
            self.tail = data[pos:end]
        elif not need:
            self.tail = self.owner.on_partial(data[pos:end])
        elif need < self.exchange.own_body_bytes:
            self.tail = data[pos:end]
        else:
            self.have = end - pos
            body = allocate(need)
            memoryview(body)[: self.have] = data[pos:end]
            self.body = body

    def read_line(self, data: bytes, pos: int, end_of_line: int) -> bool:
        """Take in the control line data[pos:end_of_line]; True if it is a publish, whose payload follows."""
        if begins(data, pos, end_of_line, PUB, 4):
            rest = pos + 4
        elif begins(data, pos, end_of_line, HPUB, 5):
            rest = pos + 5
        else:
            return self.read_other(data[pos : end_of_line + 1])
        end = end_of_line - 1
        if (
            end - rest > self.max_control_line
            or find(data, CR, pos, end_of_line) != end
            or find(data, TAB, pos, end) >= 0
        ):
            return self.read_other(data[pos : end_of_line + 1])
        headers = data[pos] == HPUB[0]
        self.line = b""
        self.unplanned = False
        prefix_size = len(self.prefix)
        if prefix_size and begins(data, pos, end, self.prefix, prefix_size):
            rest = pos + prefix_size
        else:
            self.prefix = b""
            self.plan = None
            space = find(data, SPACE, rest, end)
            if space <= rest:
                return self.read_other(data[pos : end_of_line + 1])
            funnel = self.funnel
            if funnel is None or self.ceremony or not funnel.takes(data, rest, space):
                self.subject = data[rest:space]
            else:
                self.subject = b""
            rest = space + 1
        if not self.read_shape(data, rest, end, headers):
            return self.read_other(data[pos : end_of_line + 1])
        self.irregular = b""
        self.start_offset = rest - pos
        if not self.accept_line(data, rest, headers):
            return False
        if self.subject:
            self.line = data[pos : end_of_line + 1]
        elif self.reserved:
            self.subject = data[pos + (5 if headers else 4) : rest - 1]
        else:
            self.unplanned = True
        return True

    def read_shape(self, data: bytes, start: int, end: int, headers: bool) -> bool:
        """Take in data[start:end], "[reply ][header size ]size"; False if it is anything else."""
        last = find_last(data, SPACE, start, end)
        self.size = decimal(data, last + 1 if last >= 0 else start, end)
        self.header_size = 0
        if headers:
            if last < 0:
                return False
            end = last
            last = find_last(data, SPACE, start, end)
            self.header_size = decimal(data, last + 1 if last >= 0 else start, end)
            if self.header_size < 1 or self.header_size > self.size:
                return False
        self.reply_size = 0
        if last >= 0:
            self.reply_size = last - start
            if last == start or find(data, SPACE, start, last) >= 0:
                return False
        return self.size >= 0

    def read_other(self, line: bytes) -> bool:
        """Let the owner take in a line that is no publish, or not one of plain form; True if it is a publish."""
        shape = self.owner.on_control(line)
        if shape is None:
            return False
        self.forget()
        self.unplanned = False
        self.subject, reply, self.header_size, self.size = shape
        self.reply_size = len(reply)
        words = [reply] if reply else []
        if self.header_size:
            words.append(b"%d" % self.header_size)
        self.irregular = b"%b\r\n" % b" ".join([*words, b"%d" % self.size])
        return self.accept_line(reply, 0, self.header_size > 0)

    def accept_line(self, data: bytes, start: int, headers: bool) -> bool:
        """Whether the publish just read, with its reply at data[start], is within the limits; if not, we are closed."""
        self.reserved = False
        if self.reply_size > 3 and data[start + 1] != UPPER_I:  # "_INBOX." is the usual reply, and not reserved
            self.reserved = data[start : start + self.reply_size].startswith(RESERVED_REPLIES)
        if headers and not self.headers:
            self.owner.on_headers_refused()
            return False
        if self.size > self.max_payload:
            self.owner.on_payload_too_large(self.size)
            return False
        return True

    def publish_first(self, data: bytes, pos: int, first: int, stop: int, buffer: bytearray) -> int:
        """Publish on a subject whose plan is not at hand, and keep the plan if that may be done; the work it was."""
        known = self.known
        plan = known.find(self.subject) if known is not None else None
        self.fickle = False
        work = 0
        if plan is None:
            work = SLOW_WORK
            plan = self.owner.find_plan(self.subject)
            if known is not None and plan.kept and not self.fickle:
                known.keep(plan, self.subject)
        if self.irregular:
            return work + self.publish_bytes(plan, self.irregular + data[first:stop])
        if plan.kept and not self.fickle:
            self.plan = plan
            self.prefix = data[pos : pos + self.start_offset]
        else:
            self.line = b""
        return work + self.publish_checked(plan, data, pos + self.start_offset, stop, buffer)

    def publish_bytes(self, plan: Plan, tail: bytes) -> int:
        """Publish with `tail` standing in for what was received."""
        return self.publish_checked(plan, tail, 0, len(tail), None)

    def publish_checked(self, plan: Plan, data: bytes, start: int, stop: int, buffer: bytearray | None) -> int:
        """Publish data[start:stop] with all that the owner wants to see first; how many got it."""
        if self.ceremony or self.reserved:
            if not self.owner.on_publish(plan, self.subject, data[start : start + self.reply_size]):
                return 0
        delivered = plan.route(self, data, start, stop, buffer)
        if not delivered and self.reply_size and self.no_responders:
            self.owner.on_no_responders(plan.subject, data[start : start + self.reply_size])
        return delivered

    def close(self) -> None:
        """Handle and keep nothing more."""
        self.closed = True
        self.halted = True
        self.tail = b""
        self.body = None
        self.forget()
