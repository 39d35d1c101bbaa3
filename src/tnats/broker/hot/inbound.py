"""Bytes on their way in: read, cut into operations, each handled as it is found.

All connections of a reactor read into one buffer, `Exchange.buffer`. `Inbound.feed` walks it: complete operations are
handled in place, what is left of the last one is kept in `tail` and stands in front of the next read. An operation of
OWN_BODY_BYTES or more gets a buffer of its own, into which the rest is read directly. `tail` never exceeds the read
buffer; an own body is one operation of at most max_payload, and not much more than BODY_AHEAD times what has come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tnats.limits import BODY_AHEAD, OWN_BODY_BYTES, SLOW_WORK

if TYPE_CHECKING:
    from tnats.broker.hot.outbound import Exchange, Outbound
    from tnats.broker.ports import Owner
    from tnats.runtime.api import Conn

try:
    import cython
except ImportError:  # interpreted, where nobody compiles
    from tnats import speedups as cython

if not cython.compiled:
    from tnats.broker.hot.publisher import Publisher
    from tnats.memory import allocate, begins, find, pin

UPPER_C = 67
LOWER_C = 99
LF = 10
CR = 13


class Inbound(Publisher):
    """The receiving half of a client connection."""

    __slots__ = (
        "body", "bytes", "closed", "deferred", "halted", "have", "locked", "msgs", "need", "read_into", "tail",
    )  # fmt: skip

    def __init__(self, exchange: Exchange, owner: Owner, outbound: Outbound, conn: Conn) -> None:
        super().__init__(exchange, owner, outbound)
        self.read_into = conn.read_into
        self.closed = False
        self.halted = False
        """No operation is handled until the owner calls `resume`."""
        self.deferred = False
        """Much has been done for this connection: others come first, then `resume`."""
        self.locked = False
        """Nothing but CONNECT is allowed."""
        self.tail = b""
        self.body: bytearray | None = None
        self.have = 0
        """Bytes of `body` that have come, of `need` that the operation has."""
        self.need = 0
        self.msgs = 0
        self.bytes = 0

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
            need = self.need
            if self.have == need or (self.have == need - 1 and body[need - 2] != CR):
                self.body = None
                self.feed(body, self.have)
            elif self.have == len(body):
                self.begin_body(body)
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
            if plan is None:
                work += self.publish_first(data, pos, first, stop, buffer)
                line = self.line
                line_size = len(line)
            elif self.ceremony or self.reserved:
                work += self.publish_planned(plan, data, pos + self.start_offset, stop, buffer)
            else:
                delivered = plan.route(self, data, pos + self.start_offset, stop, buffer)
                work += delivered
                if not delivered and self.reply_size and self.no_responders:
                    work += self.tell_no_responders(plan, data, pos + self.start_offset)
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
            self.need = need
            self.begin_body(data[pos:end])

    def begin_body(self, held: bytes | bytearray) -> None:
        """Go on reading the operation that begins with `held` into a buffer of its own, with room for more of it."""
        self.body = allocate(min(self.need, max(OWN_BODY_BYTES, self.have * BODY_AHEAD)))
        memoryview(self.body)[: self.have] = held

    def close(self) -> None:
        """Handle and keep nothing more."""
        self.closed = True
        self.halted = True
        self.tail = b""
        self.body = None
        self.forget()
