"""Bytes on their way out: the queue of each connection, and what the connections of a reactor share.

An `Outbound` is a queue of whole buffers and a stage, a buffer being filled, borrowed from the exchange while there is
something in it. What is put is copied behind each other into the stage; large messages are not copied but referenced,
by all their targets alike. References into the shared read buffer end before the next read: `release_buffer` writes
them out, and copies only what a slow target leaves behind. It is written once per pass (`settle`), and in between when
FLUSH_BYTES have gathered.

*Bounds.* An outbound holds `max_pending` bytes, then its owner closes the connection. Above three quarters of that it
is gated: a client that publishes to it is halted for a moment (or, by configuration, the message is dropped). While it
is not, it takes one message more, however large, and a quarter of `max_pending` behind that: who waits until there is
`room` is never cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tnats.limits import (
    BUFFERS_PER_WRITE_MAX,
    DELIVERIES_PER_FEED_MAX,
    FLUSH_BYTES,
    OWN_BODY_BYTES,
    READ_BYTES,
    SETTLE_ROUNDS_MAX,
    SMALL_STAGE_BYTES,
    SMALL_STAGES_KEPT_MAX,
    STAGE_BYTES,
    STAGES_KEPT_MAX,
    VIEW_BYTES,
)
from tnats.runtime.api import Buffer, ConnectionBroken

if TYPE_CHECKING:
    from tnats.broker.ports import Drain, Owner
    from tnats.subjects.draw import Draw

try:
    import cython
except ImportError:  # interpreted, where nobody compiles
    from tnats import speedups as cython

if not cython.compiled:
    from tnats.memory import allocate, append, clear_stage, new_stage

NO_STAGE = bytearray()


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
        """Set where a pass begins; `settle` ends it."""
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
        self.inboxes: list[Drain] = []

    def release_buffer(self) -> None:
        """End all references into the read buffer, so that it can be read into again."""
        borrowers = self.borrowers
        if borrowers:
            self.borrowers = []
            for outbound in borrowers:
                outbound.flush()
                outbound.own()

    def announce(self, inbox: Drain) -> None:
        """There is something in `inbox`: have it drained at the end of this pass, or soon."""
        self.inboxes.append(inbox)
        if not self.passing:
            self.wake()

    def keep_stage(self, stage: bytearray, capacity: int) -> None:
        """Take an empty stage back."""
        if capacity == STAGE_BYTES:
            if len(self.stages) < STAGES_KEPT_MAX:
                self.stages.append(stage)
        elif capacity == SMALL_STAGE_BYTES and len(self.small_stages) < SMALL_STAGES_KEPT_MAX:
            self.small_stages.append(stage)

    def settle(self) -> None:
        """End a pass: hand internal clients what waits for them, then write every outbound that has something."""
        self.passing = True
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
        self.passing = False
        if self.inboxes or self.dirty:
            self.wake()


class Outbound:
    """Bytes on their way to one connection, bounded by `max_pending`."""

    __slots__ = (
        "blocked", "borrowed", "bound", "bytes", "capacity", "closed", "dirty", "drops_when_gated", "exchange", "gated",
        "headers", "max_pending", "msgs", "on_room", "owner", "queue", "queued", "sent", "stage", "tracks_replies",
        "used", "write",
    )  # fmt: skip

    def __init__(
        self, exchange: Exchange, owner: Owner, write: Callable[[Sequence[Buffer]], int], max_pending: int
    ) -> None:
        self.exchange = exchange
        self.owner: Owner | None = owner
        self.write = write
        self.max_pending = max_pending
        self.bound = max_pending
        """More bytes than so many do not wait, as things stand."""
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
        self.on_room: Callable[[Outbound], None] | None = None
        """Called after each write that leaves room; None: nobody waits for it."""
        self.headers = False
        self.tracks_replies = False
        self.msgs = 0
        self.bytes = 0

    def pending(self) -> int:
        """Bytes not yet taken by the connection."""
        return self.queued + self.used - self.sent

    def room(self) -> int:
        """Bytes that may be put before it is gated, 0 if there are none."""
        return max(self.gate() - self.pending(), 0)

    def gate(self) -> int:
        """With more bytes than so many it is gated."""
        return self.max_pending // 4 * 3

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
        gate = self.gate()
        self.gated = pending > gate
        if not self.gated:
            above = self.max_pending - gate
            self.bound = self.max_pending if size <= above else pending + size + above
        elif pending + size > self.bound:
            assert self.owner is not None
            self.owner.on_slow_consumer()
            return False
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
        if (self.gated or self.on_room is not None) and self.queued + self.used - self.sent <= self.gate():
            self.gated = False
            if self.on_room is not None:
                self.on_room(self)
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
