"""One end of a simulated TCP connection.

Each end owns the direction away from it: a send buffer, a receive window at the other end, the link with its delay
and bandwidth, and what has become of the bytes. Bytes are never lost inside a living connection and stay in order;
how they are cut into segments, and when they arrive, is drawn.

What trouble does
-----------------
* **Blackhole** (partition, or the other host is off): the direction stalls and tries again after 200 ms, doubling
  up to 120 s with jitter, and goes on where it stopped once something passes. After 15 minutes it gives up: timed
  out.
* **Hold**: the direction stalls until the rule goes.
* **Reject, reset chance**: the connection breaks at both ends.
* **The other host lost power and came back**: the next segment is answered with a reset. Until then: silence.
* **Window**: the sender learns at once what the reader took, except while the way back is shut, or when it waits
  for room: then the news takes the way back.

Ends of lives: a killed process leaves it to its kernel to finish (what was accepted is sent, then end of stream;
a reset if it had unread bytes); power loss takes the end away without a word.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from tnats.limits import SECOND_NS
from tnats.runtime.api import Address, Buffer, ConnectionBroken, TlsSession
from tnats.runtime.sim import trace as kinds
from tnats.runtime.sim.fabric import Fabric, Host, Link
from tnats.runtime.sim.life import Life
from tnats.runtime.sim.timeline import QUIET

if TYPE_CHECKING:
    from tnats.runtime.sim.poller import SimPoller

SEND_BUFFER_BYTES = 256 * 1024
WINDOW_BYTES = 256 * 1024
RETRY_FIRST_NS = 200_000_000
RETRY_MAX_NS = 120 * SECOND_NS
GIVE_UP_AFTER_NS = 15 * 60 * SECOND_NS

OPEN, SHUT, NEWS = range(3)
"""The receive window: has room, is full until the reader takes something, news of room is under way."""


class SimConn:
    """`tnats.runtime.api.Conn` in simulation, and the kernel's part of it."""

    __slots__ = (
        "_acked",
        "_arrival_ns",
        "_broken",
        "_consumed",
        "_fin_wanted",
        "_free_at_ns",
        "_inbox",
        "_life",
        "_queue",
        "_remote",
        "_retry_ns",
        "_sent",
        "_silent",
        "_stalled",
        "_stalled_since_ns",
        "_timeline",
        "_trace",
        "_window",
        "_writers",
        "closed",
        "eof",
        "gone",
        "host",
        "link",
        "local",
        "number",
        "peer",
        "poller",
        "remote_host",
        "tls",
    )

    def __init__(self, life: Life, fabric: Fabric, host: Host, link: Link, local: Address, peer: Address) -> None:
        fabric.conn_count += 1
        self.number = fabric.conn_count
        self.host = host
        self.link = link
        self.remote_host = link.target
        self.local = local
        self.peer = peer
        self.poller: SimPoller | None = None
        self.tls: TlsSession | None = None
        self.eof = False
        self.closed = False
        self.gone = False
        """Whether the host has forgotten this end (power loss): what arrives for it is answered with a reset."""
        self._life = life
        self._timeline = fabric.timeline
        self._trace = fabric.trace
        self._remote: SimConn | None = None
        self._broken: str | None = None
        self._inbox = bytearray()
        self._writers = trio.lowlevel.ParkingLot()
        # the direction away from here
        self._queue = bytearray()
        self._sent = 0
        self._consumed = 0
        self._acked = 0
        self._arrival_ns = 0
        self._free_at_ns = 0
        self._fin_wanted = False
        self._window = OPEN
        self._stalled = False
        self._stalled_since_ns = 0
        self._retry_ns = RETRY_FIRST_NS
        self._silent = False
        host.conns[self] = None

    def __repr__(self) -> str:
        return f"<SimConn {self.number} {self.host.name} to {self.remote_host.name} {self.peer[0]}:{self.peer[1]}>"

    def join(self, remote: SimConn) -> None:
        """Make `remote` the other end."""
        self._remote = remote
        remote._remote = self

    # ------------------------------------------------------------------ what the owner calls

    @property
    def readable(self) -> bool:
        """Whether `read_into` has something to say."""
        return bool(self._inbox) or self.eof or self._broken is not None

    def read_into(self, buffer: bytearray | memoryview) -> int | None:
        if self._life.dead:
            self._life.check()
        inbox = self._inbox
        if inbox:
            count = min(len(inbox), len(buffer))
            buffer[:count] = inbox[:count]
            del inbox[:count]
            self._trace.add(kinds.READ, self.number, count)
            if not self.readable and self.poller is not None:
                self.poller.unmark(self)
            self._took(count)
            return count
        if self._broken is not None:
            raise self._report_broken()
        return 0 if self.eof else None

    def write(self, buffers: Sequence[Buffer]) -> int:
        if self._life.dead:
            self._life.check()
        if self._broken is not None:
            raise self._report_broken()
        room = SEND_BUFFER_BYTES - len(self._queue)
        data = bytes(buffers[0]) if len(buffers) == 1 else b"".join(buffers)
        if len(data) > room:
            data = data[:room]
        if data and self.host.on_write is not None:
            self.host.on_write(data)
        if data:
            self._trace.add(kinds.WRITE, self.number, zlib.crc32(data) << 24 | len(data))
            self._queue += data
            if not self._stalled:
                self._transmit()
        return len(data)

    async def wait_writable(self) -> None:
        self._life.check()
        await trio.lowlevel.checkpoint()
        while self._broken is None and len(self._queue) >= SEND_BUFFER_BYTES:
            await self._writers.park()
            self._life.check()
        if self._broken is not None:
            raise self._report_broken()

    def close(self, *, reset: bool = False) -> None:
        self._life.check()
        self.end(reset=reset)

    # ------------------------------------------------------------------ ends

    def end(self, *, reset: bool) -> None:
        """Close as the kernel does, on behalf of the owner or when its process ended. Idempotent."""
        if self.closed:
            return
        self.closed = True
        self._trace.add(kinds.CLOSE, self.number, reset)
        if self.poller is not None:
            self.poller.remove(self)
        unread_count = len(self._inbox)
        self._inbox.clear()
        self._writers.unpark_all()
        if self._broken is not None:
            self._forget()
            return
        if unread_count and not reset:
            self._took(unread_count)  # so that who waits for room goes on writing, and hears of the end by a reset
        self._broken = "closed"
        if reset:
            self._queue.clear()
            self._forget()
            self._book(self._remote_reset)
        else:
            self._fin_wanted = True
            if not self._stalled:
                self._transmit()

    def end_of_process(self) -> None:
        """The owner's process is gone; the kernel lives."""
        self.end(reset=bool(self._inbox))

    def end_of_power(self) -> None:
        """The host lost power: no word to the other end, and nothing more from this one."""
        self.gone = self.closed = True
        self._broken = "closed"
        self._queue.clear()
        self._inbox.clear()
        self._forget()

    def break_both(self, reason: str) -> None:
        """Break the connection at both ends at once."""
        self.break_here(reason)
        if self._remote is not None:
            self._remote.break_here(reason)

    def hang_up(self) -> None:
        """Break this end alone, as if its kernel had closed it: the other end gets what was sent, then the end."""
        if self._broken is not None:
            return
        self._fin_wanted = True
        self._trace.add(kinds.BROKEN, self.number, 1)
        self._broken = "connection reset by peer"
        if not self._stalled:
            self._transmit()
        self._wake()

    def break_here(self, reason: str) -> None:
        """The kernel tells the owner that the connection is over. What was received can still be read."""
        if self._broken is None:
            self._trace.add(kinds.BROKEN, self.number, 0)
            self._broken = reason
            self._queue.clear()
            self._wake()
        elif self.closed:
            self._queue.clear()
            self._fin_wanted = False
        self._forget()

    def silence(self) -> None:
        """From now on nothing of this connection arrives, in either direction; neither end hears of it."""
        self._silent = True
        if self._remote is not None:
            self._remote._silent = True

    def _forget(self) -> None:
        self.host.conns.pop(self, None)

    def _report_broken(self) -> ConnectionBroken:
        self._inbox.clear()
        return ConnectionBroken(f"{self.peer[0]}:{self.peer[1]}: {self._broken}")

    def _wake(self) -> None:
        self._writers.unpark_all()
        if self.poller is not None:
            self.poller.mark(self)

    # ------------------------------------------------------------------ the direction away from here

    def _transmit(self) -> object:
        """Send what the window allows. Returns QUIET when that made no task runnable."""
        queue = self._queue
        was_full = len(queue) >= SEND_BUFFER_BYTES
        broke = False
        while queue:
            condition = self.link.condition
            if self._silent or not self.link.open:
                self._stall()
                break
            if condition.reject:
                self.break_both("connection reset by peer")
                broke = True
                break
            allowance = WINDOW_BYTES - (self._sent - self._acked)
            if allowance <= 0:
                if self._window == OPEN:
                    self._window = SHUT
                    if self._consumed > self._acked:
                        self._book_news()
                break
            count = min(len(queue), allowance)
            rng = self.link.rng
            if count > 1 and condition.split_chance and rng.random() < condition.split_chance:
                count = rng.randrange(1, count)
            cut = condition.reset_chance > 0 and rng.random() < condition.reset_chance
            if cut:
                count = rng.randrange(0, count)
            chunk = bytes(queue[:count])
            del queue[:count]
            self._sent += count
            self._free_at_ns = max(self._free_at_ns, self._timeline.now_ns, self._life.node.busy_until_ns)
            self._free_at_ns += count * SECOND_NS // condition.bytes_per_second
            self._book(self._remote_arrive, chunk)
            if cut:
                self._book(self._remote_reset)
                self.break_here("connection reset by peer")
                broke = True
                break
        if self._fin_wanted and not queue and not self._stalled:
            self._send_fin()
        if was_full and len(queue) < SEND_BUFFER_BYTES and self._writers:
            self._writers.unpark_all()
            return None
        return None if broke else QUIET

    def _book(self, call: object, *arguments: object) -> None:
        """Have `call` made when a segment sent now arrives, behind all sent before it."""
        start_ns = max(self._free_at_ns, self._timeline.now_ns)
        self._arrival_ns = max(self._arrival_ns, start_ns + self.link.draw_delay_ns())
        self._timeline.at(self._arrival_ns, call, *arguments)  # type: ignore[arg-type]

    def _send_fin(self) -> None:
        if self._silent or not self.link.open:
            self._stall()
            return
        self._fin_wanted = False
        self._book(self._remote_fin)
        self._forget()

    def _stall(self) -> None:
        if self._stalled:
            return
        self._stalled = True
        self._stalled_since_ns = self._timeline.now_ns
        self._retry_ns = RETRY_FIRST_NS
        self._retry_later()

    def _retry_later(self) -> None:
        if self.link.condition.hold and not self._silent:
            self.link.held[self._retry] = None
            return
        self._timeline.at(self._timeline.now_ns + int(self._retry_ns * self.link.rng.uniform(0.8, 1.2)), self._retry)
        self._retry_ns = min(2 * self._retry_ns, RETRY_MAX_NS)

    def _retry(self) -> object:
        if not self._stalled or (not self._queue and not self._fin_wanted):
            self._stalled = False
            return QUIET
        if self._timeline.now_ns - self._stalled_since_ns > GIVE_UP_AFTER_NS:
            self._stalled = False
            self._fin_wanted = False
            self.break_here("timed out")
            return None
        if self._silent or not self.link.open:
            self._retry_later()
            return QUIET
        self._stalled = False
        return self._transmit()

    def retransmit(self, retry_ns: int) -> object:
        """A segment went unanswered: send one again after `retry_ns`, to learn what became of the other end."""
        if self._broken is None and retry_ns < GIVE_UP_AFTER_NS:
            self._timeline.at(self._timeline.now_ns + retry_ns, self._probe, retry_ns)
        return QUIET

    def _probe(self, retry_ns: int) -> object:
        if self.link.open and not self._silent:
            self._book(self._remote_arrive, b"")
            return QUIET
        return self.retransmit(2 * retry_ns)

    def _remote_arrive(self, chunk: bytes) -> object:
        assert self._remote is not None
        return self._remote.arrive(chunk)

    def _remote_fin(self) -> object:
        assert self._remote is not None
        return self._remote.arrive_fin()

    def _remote_reset(self) -> object:
        if self._remote is None or self._remote.gone:
            return QUIET
        self._remote.break_here("connection reset by peer")
        return None

    # ------------------------------------------------------------------ the direction towards here

    def arrive(self, chunk: bytes) -> object:
        """A segment came in."""
        if self.closed:
            # Nobody will read it: the host answers with a reset, or not at all, and then the other end asks again.
            assert self._remote is not None
            if self.host.up and self.link.open:
                self._book(self._remote_reset)
            else:
                self._remote.retransmit(RETRY_FIRST_NS)
            return QUIET
        if self._broken is not None:
            return QUIET
        self._inbox += chunk
        return self.poller.mark(self) if self.poller is not None else QUIET

    def arrive_fin(self) -> object:
        """The other end has sent all it will send."""
        if self.closed or self._broken is not None:
            return QUIET
        self.eof = True
        return self.poller.mark(self) if self.poller is not None else QUIET

    def _took(self, count: int) -> None:
        """The owner has read `count` bytes, so the other end may send as many more."""
        sender = self._remote
        if sender is None:
            return
        sender._consumed += count
        if sender._window == OPEN:
            if self.link.open:
                sender._acked = sender._consumed
        elif sender._window == SHUT and (sender._consumed - sender._acked >= WINDOW_BYTES // 4 or not self._inbox):
            sender._book_news()

    def _book_news(self) -> None:
        """The other end's news of room in the window sets out for here."""
        assert self._remote is not None
        self._window = NEWS
        delay_ns = self._remote.link.draw_delay_ns()
        self._timeline.at(self._timeline.now_ns + delay_ns, self._remote._open_window, RETRY_FIRST_NS)

    def _open_window(self, retry_ns: int) -> object:
        """News of room reaches the other end, or is tried again later while the way back is shut."""
        sender = self._remote
        assert sender is not None
        if self._silent or not self.link.open:
            self._timeline.at(self._timeline.now_ns + retry_ns, self._open_window, min(2 * retry_ns, RETRY_MAX_NS))
            return QUIET
        sender._window = OPEN
        sender._acked = sender._consumed
        return sender._transmit() if not sender._stalled else QUIET
