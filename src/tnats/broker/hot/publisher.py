"""What a client publishes: its PUB and HPUB lines, and the plans that they lead to.

Publishers repeat themselves. The last control line is kept with all that was found out about it, so that an equal one
costs a comparison; if only the subject is the same, its plan is at hand still. Otherwise the subject is looked up. A
line that is not of the plain form (single spaces, decimal size, CRLF) goes to the owner to be split.

No peer's fault raises here: the owner is told, queues its -ERR and sets `halted`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tnats.limits import SIZE_DIGITS_MAX, SLOW_WORK

if TYPE_CHECKING:
    from tnats.broker.hot.outbound import Exchange, Outbound
    from tnats.broker.hot.plan import KnownPlans, Plan
    from tnats.broker.ports import Owner

try:
    import cython
except ImportError:  # interpreted, where nobody compiles
    from tnats import speedups as cython

if not cython.compiled:
    from tnats.broker.hot.message import Funnel, Origin
    from tnats.memory import begins, decimal, find, find_last

RESERVED_REPLIES = (b"_R_.", b"$JS.ACK.", b"_GR_.")
"""Beginnings of reply subjects that clients may not publish with: service imports, JetStream acks, gateways."""

UPPER_I = 73
TAB = 9
CR = 13
SPACE = 32
PUB = b"PUB "
HPUB = b"HPUB "


class Publisher(Origin):
    """A client as an origin: the control line of what it publishes just now, and of what it published last."""

    __slots__ = (
        "ceremony", "fickle", "funnel", "headers", "irregular", "known", "line", "max_control_line", "max_payload",
        "no_responders", "plan", "prefix", "reserved", "start_offset", "subject", "unplanned",
    )  # fmt: skip

    def __init__(self, exchange: Exchange, owner: Owner, outbound: Outbound) -> None:
        super().__init__(exchange, owner, outbound)
        self.stalls = True
        self.ceremony = False
        """Every publish has to pass `Owner.on_publish` (verbose, pedantic)."""
        self.no_responders = False
        """Wants to be told when a message with a reply subject reached nobody."""
        self.headers = False
        """HPUB is allowed."""
        self.max_payload = 0
        self.max_control_line = 0
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
        self.size = decimal(data, last + 1 if last >= 0 else start, end, SIZE_DIGITS_MAX)
        self.header_size = 0
        if headers:
            if last < 0:
                return False
            end = last
            last = find_last(data, SPACE, start, end)
            self.header_size = decimal(data, last + 1 if last >= 0 else start, end, SIZE_DIGITS_MAX)
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
        """Publish data[pos:stop], whose payload begins at `first`, where no plan is at hand; the work it was.

        The plan is kept for the next one if that may be done.
        """
        if self.unplanned:
            assert self.funnel is not None
            start = pos + self.start_offset
            self.funnel.put(self, data, pos + (5 if self.header_size else 4), start - 1, data, start, stop)
            return 1
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
            tail = self.irregular + data[first:stop]
            return work + self.publish_planned(plan, tail, 0, len(tail), None)
        if plan.kept and not self.fickle:
            self.plan = plan
            self.prefix = data[pos : pos + self.start_offset]
        else:
            self.line = b""
        return work + self.publish_planned(plan, data, pos + self.start_offset, stop, buffer)

    def publish_planned(self, plan: Plan, data: bytes, start: int, stop: int, buffer: bytearray | None) -> int:
        """Publish data[start:stop] with all that the owner wants to see of it; the work it was."""
        work = 0
        if self.ceremony or self.reserved:
            work = SLOW_WORK
            if not self.owner.on_publish(plan, self.subject, data[start : start + self.reply_size]):
                return work
        delivered = plan.route(self, data, start, stop, buffer)
        if not delivered and self.reply_size and self.no_responders:
            work += self.tell_no_responders(plan, data, start)
        return work + delivered

    def tell_no_responders(self, plan: Plan, data: bytes, start: int) -> int:
        """Nobody got a message with a reply subject, which is at data[start]; the work it was to tell the client."""
        self.owner.on_no_responders(plan.subject, data[start : start + self.reply_size])
        return SLOW_WORK
