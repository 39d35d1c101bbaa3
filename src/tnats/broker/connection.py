"""One client connection: its states, its control lines, its end. Logging in is in `login`, SUB in `subscriptions`.

Theory of operation
-------------------
The reactor reads and `hot.Inbound` handles publishes; everything else a client says arrives here as `on_...`, a plain
function inside the reactor's pass. What takes time is done by the connection's own task, `run`, which is woken for it:
waiting for room to write (with the write deadline), comparing a bcrypt password, making a fast producer wait.

A connection moves through the states of `MOVES` and no others. It is closed by `close`, from anywhere, once: from then
on nothing is delivered to it, it is not read, and its task writes what is left (within LINGER_NS) and ends.

A client's fault is never an exception: it is answered with its documented `-ERR`, and closes where documented.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from tnats.auth.users import ConnectionType
from tnats.broker.account import Account, Traffic
from tnats.broker.control import WITHOUT_ARGUMENTS, Verb, could_begin_verb, split_verb
from tnats.broker.hot.inbound import Inbound
from tnats.broker.hot.message import Subscription
from tnats.broker.hot.outbound import Outbound
from tnats.broker.hot.plan import Plan
from tnats.broker.identity import Publishing
from tnats.broker.login import Login
from tnats.broker.plan_table import DENIED, special_plan
from tnats.broker.state import MOVES, State
from tnats.broker.subscriptions import Subscriptions
from tnats.errors import ensure
from tnats.limits import (
    CONTROL_LINE_BYTES_MAX,
    LINGER_NS,
    PAYLOAD_SIZE_MAX,
    SECOND_NS,
    STALL_NS,
    STALL_PER_READ_NS,
)
from tnats.notation import quote
from tnats.runtime.api import Conn, ConnectionBroken
from tnats.subjects.tokens import is_valid_literal, to_text
from tnats.wire import errors
from tnats.wire.client import OK_LINE, PING_LINE, PONG_LINE, parse_hpub_arguments, parse_pub_arguments
from tnats.wire.errors import ClosedReason, WireError
from tnats.wire.info import encode_info

if TYPE_CHECKING:
    from tnats.broker.broker import Broker

RESERVED_SUBJECTS = (b"_GR_.", b"$NRG.")
"""Published to between servers only."""


class Connection:
    """See the module's text. An `Owner` and a `SubscriptionOwner` (`tnats.broker.ports`)."""

    __slots__ = (
        "_first_pong_sent", "_stall_budget_ns", "_stalled", "_wake", "_writing", "account", "broker", "cid", "conn",
        "connection_type", "inbound", "inbox", "last_in_ns", "login", "outbound", "ping_sent_ns", "pings_outstanding",
        "reason", "rtt_measured_ns", "rtt_ns", "stall_count", "started_ns", "state", "stopped_ns", "subscriptions",
    )  # fmt: skip

    def __init__(self, broker: Broker, conn: Conn, cid: int, connection_type: ConnectionType, now_ns: int) -> None:
        options = broker.options
        self.broker = broker
        self.conn = conn
        self.cid = cid
        self.connection_type = connection_type
        self.state = State.GREETED
        self.reason: ClosedReason | None = None
        self.outbound = Outbound(broker.exchange, self, conn.write, options.max_pending)
        self.inbound = Inbound(broker.exchange, self, self.outbound, conn)
        self.inbox = None
        self.account: Account = broker.account()
        self.login = Login(self)
        self.subscriptions = Subscriptions(self)
        self.started_ns = now_ns
        self.last_in_ns = now_ns
        self.stopped_ns = 0
        self.rtt_ns = 0
        self.rtt_measured_ns = 0
        """When; 0 for not at all."""
        self.ping_sent_ns = 0
        self.pings_outstanding = 0
        self.stall_count = 0
        self._first_pong_sent = False
        self._stalled = False
        self._stall_budget_ns = STALL_PER_READ_NS
        self._wake = trio.Event()
        self._writing: trio.CancelScope | None = None
        """What `_write_rest` waits in."""
        self.apply_limits()

    # ------------------------------------------------------------------ beginning, supervising, ending

    def greet(self) -> None:
        """Send INFO, and decide what may come before CONNECT."""
        self.login.begin()
        self.outbound.put_bytes(self._info_line())

    async def run(self) -> None:
        """The connection's task: everything that has to wait."""
        try:
            while self.state is not State.CLOSED:
                await self._wake.wait()
                self._wake = trio.Event()
                if self.login.is_pending:
                    await self.login.finish()
                if self._stalled:
                    await self._sit_out_stall()
                while self.subscriptions.leave_some():
                    await trio.lowlevel.checkpoint()
                if self.outbound.blocked:
                    await self._write_rest()
            await self._linger()
        except Exception as bug:
            self.broker.report_bug(bug, self)
        finally:
            self.close(ClosedReason.SERVER_SHUTDOWN)
            self.outbound.flush()
            self.outbound.discard()
            self.conn.close()
        while self.subscriptions.leave_some():
            await trio.lowlevel.checkpoint()
        self.inbound.owner = None  # no cycle is left for the collector
        del self.login, self.subscriptions

    def close(self, reason: ClosedReason, *, flush: bool = True) -> None:
        """End the connection. What is already queued is written, unless `flush` is False."""
        if self.state is State.CLOSED:
            return
        self.move_to(State.CLOSED)
        self.reason = reason
        self.inbound.close()
        self.outbound.close()
        if not flush:
            self.outbound.discard()
        self.broker.on_closed(self)
        self.subscriptions.leave()
        if self._writing is not None:
            self._writing.cancel()
        self.wake()

    def wake(self) -> None:
        """There is something for the connection's task to do."""
        self._wake.set()

    def move_to(self, state: State) -> None:
        """Change the state, in a way that there is."""
        ensure(state in MOVES[self.state], f"cid {self.cid}: no way from {self.state.value} to {state.value}")
        self.state = state

    async def _write_rest(self) -> None:
        """Write as the connection makes room; cut it off when it makes none for the write deadline.

        With `write_deadline_is_total`, also when it makes some but not enough for all that waits.
        """
        clock, options = self.broker.runtime.clock, self.broker.options
        deadline_ns = clock.mono_ns() + options.write_deadline_ns
        while self.outbound.blocked and self.state is not State.CLOSED:
            if not options.write_deadline_is_total:
                deadline_ns = clock.mono_ns() + options.write_deadline_ns
            with clock.deadline(deadline_ns) as self._writing:
                try:
                    await self.conn.wait_writable()
                except ConnectionBroken as broken:
                    self.on_write_error(str(broken))
                    return
            if not self._writing.cancelled_caught:
                self.outbound.flush()
            elif self.reason is None:  # the deadline it was, and not `close`
                limit_s = options.write_deadline_ns / SECOND_NS
                self.broker.count_slow_consumer(self, f"WriteDeadline of {limit_s:g}s exceeded")
                self.close(ClosedReason.SLOW_CONSUMER_WRITE_DEADLINE, flush=False)

    async def _linger(self) -> None:
        """Give the peer a moment to take what was said last."""
        clock = self.broker.runtime.clock
        with clock.deadline(clock.mono_ns() + LINGER_NS):
            try:
                while not self.outbound.flush() and self.outbound.pending():
                    await self.conn.wait_writable()
            except ConnectionBroken:
                pass

    def apply_limits(self) -> None:
        """Take over the limits of the broker's options."""
        options = self.broker.options
        self.inbound.max_payload = PAYLOAD_SIZE_MAX if options.max_payload < 0 else options.max_payload
        self.inbound.max_control_line = min(options.max_control_line, CONTROL_LINE_BYTES_MAX)
        self.inbound.forget()
        self.outbound.drops_when_gated = options.no_fast_producer_stall

    # ------------------------------------------------------------------ what is said to the client

    def send_error(self, error: WireError) -> None:
        """Queue an -ERR, and close where it closes."""
        self.outbound.put_bytes(error.line)
        if error.reason is not None:
            self.close(error.reason)

    def send_info(self) -> None:
        """Tell the client of changes, if it understands that (client protocol, "INFO fields")."""
        if self.login.options.protocol >= 1 and self._first_pong_sent and self.state is State.OPEN:
            self.outbound.put_bytes(self._info_line())

    def ping(self, now_ns: int) -> None:
        self.pings_outstanding += 1
        self.ping_sent_ns = now_ns
        self.outbound.put_bytes(PING_LINE)

    def _info_line(self, *, connected: bool = False) -> bytes:
        gatekeeper = self.broker.gatekeeper
        # The greeting alone does not ask for a log-in that a stand-in user would make up for.
        excused = gatekeeper.stands_in_for_nobody and not self._first_pong_sent
        info = attrs.evolve(
            self.broker.info,
            auth_required=not gatekeeper.no_auth_required and not excused,
            client_id=self.cid,
            client_ip=self.conn.peer[0],
            nonce=self.login.nonce,
        )
        if connected:
            info.connect_info = True
            info.remote_account = self.account.name
        return encode_info(info)

    # ------------------------------------------------------------------ control lines

    def on_control(self, line: bytes) -> tuple[bytes, bytes, int, int] | None:
        found = split_verb(line)
        if found is None:
            self.on_unknown_operation()
            return None
        verb, arguments = found
        if len(arguments) > self.inbound.max_control_line and verb not in WITHOUT_ARGUMENTS:
            self.send_error(errors.MAX_CONTROL_LINE_EXCEEDED)
            return None
        if verb is Verb.SUB:
            self.subscriptions.on_sub(arguments)
        elif verb is Verb.UNSUB:
            self.subscriptions.on_unsub(arguments)
        elif verb is Verb.PUB or verb is Verb.HPUB:
            return self._on_publish_line(verb, arguments)
        elif verb is Verb.PING:
            self._on_ping()
        elif verb is Verb.PONG:
            self._on_pong()
        elif verb is Verb.CONNECT:
            self.login.on_connect(arguments)
        elif verb is Verb.ERR:
            self.broker.log.error(f"{self} - Client Error {to_text(arguments)}")
            self.close(ClosedReason.PARSE_ERROR)
        return None

    def on_partial(self, line: bytes) -> bytes:
        if not could_begin_verb(line):
            self.on_unknown_operation()
            return b""
        found = split_verb(line)
        if found is not None:
            verb, arguments = found
            if verb in WITHOUT_ARGUMENTS:
                return verb.value
            if len(arguments) > self.inbound.max_control_line:
                self.send_error(errors.MAX_CONTROL_LINE_EXCEEDED)
                return b""
            return verb.value + b" " + arguments  # any number of blanks is as good as one
        return line

    def on_unknown_operation(self) -> None:
        self.broker.log.error(f"{self} - Client parser ERROR: not an operation, or a payload of another size than said")
        self.send_error(errors.UNKNOWN_PROTOCOL_OPERATION)

    def on_locked(self) -> None:
        self.login.on_locked()

    def violate(self, what: str) -> None:
        """Close without a word; only the log tells."""
        self.broker.log.error(f"{self} - {what}")
        self.close(ClosedReason.PROTOCOL_VIOLATION)

    def say_ok(self) -> None:
        """Queue +OK, for a client that wants it."""
        if self.login.options.verbose:
            self.outbound.put_bytes(OK_LINE)

    def _on_ping(self) -> None:
        self.outbound.put_bytes(PONG_LINE)
        if not self._first_pong_sent and self.state is State.OPEN:
            self._first_pong_sent = True
            if self.login.options.protocol >= 1:
                self.outbound.put_bytes(self._info_line(connected=True))

    def _on_pong(self) -> None:
        self.pings_outstanding = 0
        if self.ping_sent_ns:
            self.rtt_measured_ns = self.broker.now_ns()
            self.rtt_ns = max(1, self.rtt_measured_ns - self.ping_sent_ns)
            self.ping_sent_ns = 0

    # ------------------------------------------------------------------ subscriptions

    def end_subscription(self, subscription: Subscription) -> None:
        self.subscriptions.end(subscription)

    def may_receive(self, subscription: Subscription, subject: bytes) -> bool:
        return self.login.identity.may_receive(subject, subscription.queue)

    # ------------------------------------------------------------------ PUB, HPUB

    def _on_publish_line(self, verb: Verb, arguments: bytes) -> tuple[bytes, bytes, int, int] | None:
        """A publish that is not of the plain form."""
        if verb is Verb.HPUB:
            if not self.inbound.headers:
                self.on_headers_refused()
                return None
            shape = parse_hpub_arguments(arguments)
        else:
            plain = parse_pub_arguments(arguments)
            shape = plain and (plain[0], plain[1], 0, plain[2])
        if shape is None:
            self.violate(f"bad {verb.name} arguments")
        return shape

    def on_payload_too_large(self, size: int) -> None:
        self.broker.log.error(f"{self} - maximum payload exceeded: {size} vs {self.inbound.max_payload}")
        self.send_error(errors.MAX_PAYLOAD_VIOLATION)

    def on_headers_refused(self) -> None:
        self.violate("message headers not supported")

    def forget_plans(self) -> None:
        """Permissions, account or its mappings have changed."""
        identity = self.login.identity
        self.inbound.forget()
        self.inbound.known = None if identity.is_restricted else self.account.plans.known
        self.inbound.funnel = self.account.funnel_for(identity.may_publish_all)

    def find_plan(self, subject: bytes) -> Plan:
        mapped, always = self.account.map_subject(subject)
        publishing = self.login.identity.may_publish(mapped, self.broker.now_ns()) if mapped else Publishing.ALLOWED
        if publishing is Publishing.DENIED or mapped.startswith(RESERVED_SUBJECTS):
            return special_plan(mapped, DENIED)
        self.inbound.fickle = not always or publishing is Publishing.ONCE
        return self.account.find_plan(mapped)

    def on_denied(self, subject: bytes) -> None:
        self.outbound.put_bytes(errors.publish_violation(subject))
        self.broker.log.error(f"{self} - Publish Violation - subject {to_text(subject)!r}")

    def on_publish(self, plan: Plan, subject: bytes, reply: bytes) -> bool:
        if self.login.options.pedantic and not is_valid_literal(subject):
            self.send_error(errors.INVALID_PUBLISH_SUBJECT)
        if plan.special is DENIED:
            return True
        if self.inbound.reserved:
            self.outbound.put_bytes(errors.reply_violation(reply))
            self.broker.log.error(f"{self} - Publish Violation - reply {to_text(reply)!r}")
            return False
        self.say_ok()
        return True

    def on_no_responders(self, subject: bytes, reply: bytes) -> None:
        headers = b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % subject
        for subscription in self.account.sublist.match(reply).plain:
            if subscription.client is self:
                self.outbound.put_bytes(
                    b"HMSG %b %b %d %d\r\n%b\r\n" % (reply, subscription.sid, len(headers), len(headers), headers)
                )
                return

    def on_reply_delivered(self, reply: bytes) -> None:
        self.login.identity.note_reply(reply, self.broker.now_ns())

    # ------------------------------------------------------------------ falling behind

    def on_stall(self) -> None:
        if not self._stalled and self._stall_budget_ns > 0:
            self._stalled = True
            self._stall_budget_ns -= STALL_NS
            self.stall_count += 1
            self.broker.stall_count += 1
            self.halt()

    async def _sit_out_stall(self) -> None:
        await self.broker.runtime.clock.sleep_ns(STALL_NS)
        self._stalled = False
        self.go_on()

    def start_read(self, now_ns: int) -> None:
        """The reactor is about to read."""
        self.last_in_ns = now_ns
        self._stall_budget_ns = STALL_PER_READ_NS

    def halt(self) -> None:
        """Handle nothing more until `go_on`; bytes wait in the kernel. The connection's task is woken."""
        self.inbound.halted = True
        self.broker.poller.pause(self.conn)
        self.wake()

    def go_on(self) -> None:
        """Handle again what comes."""
        if self.state is not State.CLOSED:
            self.broker.poller.resume(self.conn)
            self.broker.reactor.resume(self)

    def on_blocked(self) -> None:
        self.wake()

    def on_slow_consumer(self) -> None:
        self.broker.count_slow_consumer(self, f"MaxPending of {self.outbound.max_pending} Exceeded")
        self.close(ClosedReason.SLOW_CONSUMER_PENDING_BYTES, flush=False)

    def on_write_error(self, reason: str) -> None:
        self.close(ClosedReason.WRITE_ERROR, flush=False)

    # ------------------------------------------------------------------ figures

    def traffic(self) -> Traffic:
        return Traffic(self.inbound.msgs, self.inbound.bytes, self.outbound.msgs, self.outbound.bytes)

    def __str__(self) -> str:
        name = self.login.identity.name
        user = f" - {quote(f'{self.account.name}/user:{name}')}" if name else ""
        return f"{self.conn.peer[0]}:{self.conn.peer[1]} - cid:{self.cid}{user}"
