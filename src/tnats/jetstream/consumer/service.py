"""The service of one consumer: carries out what its machine wants, between clients, the stream's store and the journal.

Theory of operation
-------------------
*Sending.* A message that is at hand is sent at once, in the call that brought the reason to. If one must be read from
the disk, it and all behind it wait in `_sending` for a task that lives as long as something waits; nothing is added
but the rest of a pass, and status messages.

*The log.* What the machine did (`ops`) goes to the consumer's log in batches: at once if somebody waits for it (a
confirmed ack, a dead letter, a message that its stream may let go of), else when enough has gathered or a moment has
passed. So a crash forgets the last unconfirmed acks and deliveries, and the messages come again. Confirmations go out
when the log has what they confirm. The consumer of a memory stream has no log.

*Time.* Whatever happens ends in `settle`, which writes the log if it must and sets the next moment to look again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs

from tnats.jetstream.api.advisories import ConsumerIdentity
from tnats.jetstream.api.levels import REQUIRED_LEVEL_HEADER, supports
from tnats.jetstream.api.messages import ConsumerInfo
from tnats.jetstream.consumer.acks import AckRun, Said, reply_prefix, reply_size_max
from tnats.jetstream.consumer.config import ConsumerConfig
from tnats.jetstream.consumer.effects import Delivery, Effects, Status, deliverable, status_block
from tnats.jetstream.consumer.hot import bundle_of
from tnats.jetstream.consumer.letters import Letter
from tnats.jetstream.consumer.machine import ConsumerMachine
from tnats.jetstream.consumer.outbox import Outbox, Post
from tnats.jetstream.consumer.requests import Asked
from tnats.jetstream.consumer.state import ConsumerState, Op, encode_ops
from tnats.jetstream.host import Host
from tnats.jetstream.meta.catalogue import ConsumerRecord
from tnats.jetstream.ports import Client
from tnats.jetstream.room import begin_within, load_for
from tnats.jetstream.stream.config import Retention
from tnats.jetstream.stream.machine import Applied
from tnats.jetstream.stream.ports import Inbound
from tnats.limits import CONSUMER_OPS_DELAY_NS, CONSUMER_OPS_UNWRITTEN_MAX, READER_PATIENCE_NS
from tnats.records import define
from tnats.runtime.api import DiskError
from tnats.storage.errors import StorageError, StoreFull
from tnats.storage.group import Group, Ticket
from tnats.storage.message_log import Stored
from tnats.subjects.tokens import to_bytes
from tnats.wire.headers import get_header

if TYPE_CHECKING:
    from tnats.jetstream.stream.service import StreamService


@define(eq=False)
class _After:
    """What waits for operations to be in the log."""

    ops: list[Op] = attrs.field(factory=list)
    """The operations, once they are on their way."""
    replies: list[bytes] = attrs.field(factory=list)
    done: list[int] = attrs.field(factory=list)
    letters: list[Letter] = attrs.field(factory=list)
    is_removing: bool = False
    """The stream lets go of messages: the rest follows that."""

    def is_urgent(self) -> bool:
        return bool(self.replies or self.done or self.letters)


class ConsumerService:
    """See the module's text."""

    def __init__(
        self,
        host: Host,
        stream: StreamService,
        record: ConsumerRecord,
        state: ConsumerState,
        group: Group | None,
        client: Client,
        post: Post,
    ) -> None:
        """`client` is the one that publishes for all consumers of the account, `post` the one for dead letters."""
        self.host = host
        self.stream = stream
        self.record = record
        self.is_stopped = False
        self.loss = ""
        """What damage has cost it, for the health check; empty: nothing."""
        self._group = group
        self._client = client
        self._ack_prefix = reply_prefix(stream.name, record.name)
        self._ops: list[Op] = []
        self._unwritten: list[Op] = []
        """Older ones, which found the disk full: nothing that rests on them is confirmed before they are written."""
        self._ops_due_ns = 0
        self._after = _After()
        self._in_flight: deque[_After] = deque()
        self._sending: deque[Delivery | Status] = deque()
        self._behind: dict[bytes, None] = {}
        """Subjects that there is no room for; the bus tells when there is."""
        self._outbox = Outbox(post)
        identity = ConsumerIdentity(
            stream.account.name, stream.name, record.name, record.created_ns, host.options.domain
        )
        now_ns = host.mono_ns()
        self.machine = ConsumerMachine(
            identity,
            record.config,
            state,
            stream.store,
            now_ns=now_ns,
            wall_offset_ns=host.wall_ns() - now_ns,
            room=stream.account.bus.room,
            is_sending=partial(bool, self._sending),
            new_id=host.nuid.next,
        )

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def label(self) -> str:
        """What people are told of it by."""
        return f"JetStream consumer '{self.stream.account.name} > {self.stream.name} > {self.name}'"

    @property
    def config(self) -> ConsumerConfig:
        return self.record.config

    def start(self) -> None:
        """Begin to serve."""
        self._outbox.put(self, self.machine.state.outbox.values())
        if self.config.is_push:
            self.look_for_interest()
        else:
            self.stream_advanced()

    def finish_removal(self, seqs: list[int]) -> None:
        """Before the start: messages that the log was done with, but the stream still has. The end came in between."""
        self._after.done += [seq for seq in seqs if not self.machine.needs(seq)]

    def stop(self, line: str = "") -> None:
        """Serve no more; waiting requests are told `line`."""
        self.is_stopped = True
        self.host.timers.set(self, None)
        for subject in self._behind:
            self.stream.account.bus.forget_room(subject, self._on_room)
        unsent = list(self._sending)
        self._sending.clear()
        effects = self.machine.end_requests(line) if line else Effects()
        ended = [send.target for send in effects.sends if isinstance(send, Status)]
        for send in unsent:
            if isinstance(send, Status):
                self._send_status(send)
            elif line and not self.config.is_push:  # those whose messages were still to be read
                targets = [target for target in dict.fromkeys(send.targets) if target not in ended]
                effects.sends += [Status(target, status_block(line)) for target in targets]
                ended += targets
        self._take(effects)

    # ------------------------------------------------------------------ what clients send

    def pulls(self, messages: Iterable[Inbound]) -> None:
        """MSG.NEXT requests."""
        self.carry_out(self.machine.pulls(map(_asked, messages), self.host.mono_ns()))

    def acks(self, items: Iterable[AckRun | Said]) -> None:
        """Acknowledgements."""
        self.carry_out(self.machine.acks(items, self.host.mono_ns()))

    def flow_answered(self, subject: bytes, headers: bytes) -> None:
        """An answer to flow control."""
        self.carry_out(self.machine.flow_answered(subject, headers, self.host.mono_ns()))

    def letter_stored(self, seq: int) -> None:
        """A dead letter has arrived, or its message is gone (`Outbox`)."""
        self.carry_out(self.machine.letter_stored(seq, self.host.mono_ns()))

    def look_for_interest(self) -> None:
        """Subscriptions have changed."""
        if self.config.is_push and not self.is_stopped:
            # Whoever listens to a pattern, or in another group, looks on: a delivery to it alone would be lost.
            target, group = to_bytes(self.config.deliver_subject), to_bytes(self.config.deliver_group)
            is_bound = self.stream.account.bus.has_listener(target, group)
            self.carry_out(self.machine.set_bound(is_bound, self.host.mono_ns()))

    def _on_room(self, subject: bytes) -> None:
        """There may be room for somebody who was behind."""
        del self._behind[subject]
        self.carry_out(self.machine.caught_up(subject, self.host.mono_ns()))

    # ------------------------------------------------------------------ what the stream does

    def stream_advanced(self) -> None:
        """Messages were stored."""
        self.carry_out(self.machine.stream_advanced(self.host.mono_ns()))

    def stream_removed(self, removed: Iterable[tuple[int, bytes]]) -> None:
        """Single messages are gone."""
        self.carry_out(self.machine.stream_removed(removed, self.host.mono_ns()))

    def stream_purged(self, begin_seq: int, *, is_counted: bool) -> None:
        """All that it wants below is gone (`ConsumerMachine.stream_purged`)."""
        self.carry_out(self.machine.stream_purged(begin_seq, self.host.mono_ns(), is_counted=is_counted))

    # ------------------------------------------------------------------ administration

    def reconfigure(self, config: ConsumerConfig) -> None:
        """An update that the catalogue already has."""
        self.record.config = config
        self._take(self.machine.reconfigure(config, self.host.mono_ns()))
        self.look_for_interest()
        self.settle()

    def info(self) -> ConsumerInfo:
        """What CONSUMER.INFO reports."""
        return self.machine.info(self.host.mono_ns())

    # ------------------------------------------------------------------ effects

    def carry_out(self, effects: Effects) -> None:
        """Do what the machine wants, and whatever is due after it."""
        self._take(effects)
        self.settle()

    def _take(self, effects: Effects) -> None:
        """Send what is to be sent, and keep the rest for `settle`."""
        if effects.ops and self._group is not None:
            self._ops += effects.ops
        if effects.sends:
            for send in effects.sends:
                self._send(send)
        if effects.behind and not self.is_stopped:
            self._behind.update(dict.fromkeys(effects.behind))
            for subject in effects.behind:
                self.stream.account.bus.on_room(subject, self._on_room)
        after = self._after
        after.replies += effects.acked_replies
        after.letters += effects.letters
        if effects.done and self.stream.config.retention != Retention.LIMITS:
            after.done += effects.done
        if effects.advisories:
            self.stream.account.advise(effects.advisories)
        if effects.is_inactive and not self.is_stopped:
            self.is_stopped = True
            self.host.spawn(self.stream.account.delete_consumer, self.stream, self)

    def settle(self) -> None:
        """Write the log if that is due, and set the next moment. Ends everything that happens to a consumer."""
        if self._after.is_urgent() or len(self._ops) >= CONSUMER_OPS_UNWRITTEN_MAX:
            self.flush()
        elif (self._ops or self._unwritten) and not self._ops_due_ns:
            self._ops_due_ns = self.host.mono_ns() + CONSUMER_OPS_DELAY_NS
        if self.is_stopped:
            return
        wake_ns = self.machine.next_deadline_ns()
        if self._ops_due_ns and (wake_ns is None or self._ops_due_ns < wake_ns):
            wake_ns = self._ops_due_ns
        self.host.timers.set(self, wake_ns)

    def tick(self, now_ns: int) -> None:
        """A moment has come (`Sleeper`)."""
        if self._ops_due_ns and self._ops_due_ns <= now_ns:
            self.flush()
        self.machine.wall_offset_ns = self.host.wall_ns() - now_ns
        self.carry_out(self.machine.tick(now_ns))

    # ------------------------------------------------------------------ the log

    def flush(self) -> None:
        """Put what the machine did into the log."""
        after, self._after = self._after, _After()
        self._ops_due_ns = 0
        if self._group is not None and (self.stream.trouble is not None or self._group.is_dropped):
            self._ops = []
            return  # nothing is written any more, so nothing can be confirmed
        if self._group is None or not (self._ops or self._unwritten):
            self._let_go(after)
            if after.is_removing:
                return
            if self._in_flight:
                # Nothing new to be made durable, but what is on its way may matter to the confirmation.
                self._in_flight[-1].replies += after.replies
                self._in_flight[-1].letters += after.letters
            else:
                self._follow(after)
            return
        ops = after.ops = self._unwritten + self._ops
        self._unwritten, self._ops = [], []
        self._in_flight.append(after)
        try:
            frees_space = bool(after.done)
            body = encode_ops(ops, after.letters)
            self._group.append_nowait((body,), callback=self._on_ticket, frees_space=frees_space, wake=False)
        except StorageError as error:
            self._in_flight.pop()
            self._on_failure(error, after)
            return
        self._let_go(after)
        self.host.store.journal.write_nowait()

    def _on_ticket(self, ticket: Ticket) -> None:
        after = self._in_flight.popleft()
        if ticket.error is not None:
            self._on_failure(ticket.error, after)
        elif not after.is_removing:
            self._follow(after)

    def _let_go(self, after: _After) -> None:
        """Have the stream remove what nobody needs any more: in the journal right behind this consumer's log."""

        def done(applied: Applied | None, error: StorageError | None) -> None:
            if error is None:
                self._follow(after)
            else:
                self._try_again(after)

        if after.done:
            after.is_removing = self.stream.done_with(after.done, done)

    def _on_failure(self, error: StorageError, after: _After) -> None:
        """Nobody hears of a confirmation; what found the disk full is written later."""
        if isinstance(error, StoreFull):
            self._unwritten += after.ops
            if not after.is_removing:  # the removal was refused with them, and says so itself
                self._try_again(after)
        else:
            self.stream.fail(error)
        self.host.log.warn(f"{self.label}: {error}")

    def _try_again(self, after: _After) -> None:
        """What is to follow the log was refused with a full disk: it follows what is written next."""
        self._after.done[:0] = after.done
        self._after.letters[:0] = after.letters
        self._ops_due_ns = self.host.mono_ns() + CONSUMER_OPS_DELAY_NS
        if not self.is_stopped:
            self.host.timers.set(self, self._ops_due_ns)

    def _follow(self, after: _After) -> None:
        if after.replies:
            self._client.publish_all([(reply, b"") for reply in after.replies])
        if after.letters:
            self._outbox.put(self, after.letters)

    async def checkpoint(self) -> None:
        """Let the journal forget what is in the state. Raises StorageError."""
        if self._group is None or self._group.is_dropped:
            return
        self.flush()
        # With the log flushed, the state is what the entries up to here have made of it.
        index, state = self._group.proposed, self.machine.state.encode()
        await self.host.store.journal.flush()
        if self._unwritten or self._after.done:
            return  # the disk is full: the log tells what is still to go from the stream
        if index > self._group.floor and self._group.last >= index and not self._group.is_dropped:
            await self._group.set_state_nowait(index, state).wait()

    # ------------------------------------------------------------------ sending

    def _send(self, send: Delivery | Status) -> None:
        if self._sending:
            self._sending.append(send)
        elif isinstance(send, Status):
            self._send_status(send)
        else:
            left = self._send_nowait(send, send.seqs)
            if left is not None:
                self._sending.append(left)
                self.host.spawn(self._send_rest)

    async def _send_rest(self) -> None:
        """Send what waits, reading what must be read."""
        sending, bus, clock = self._sending, self.stream.account.bus, self.host.runtime.clock
        patience_ends_ns = clock.mono_ns() + READER_PATIENCE_NS
        while sending:
            send = sending[0]
            if isinstance(send, Status):
                self._send_status(send)
                sending.popleft()
                continue
            left = self._send_nowait(send, self._fitting(send))
            if left is not None:
                load = partial(self.stream.store.load, left.seqs[0])
                found: list[Stored | None] = [None]
                try:
                    found = [attrs.astuple(await load_for(left.targets[0], load, bus, clock, patience_ends_ns))]
                except (KeyError, StorageError, DiskError):
                    pass  # removed meanwhile, or damaged, which the store has reported
                if self.is_stopped:
                    return
                self._deliver(left, found)
                left = left.behind(1)
            if left is not None and len(left.seqs):
                sending[0] = left
            else:
                sending.popleft()
        if not self.is_stopped:
            self.stream_advanced()

    def _send_status(self, status: Status) -> None:
        self._client.publish(status.target, b"", reply=status.reply, headers=status.block)

    def _fitting(self, send: Delivery) -> Sequence[int]:
        """As many of a delivery as all its readers have room for now, which may be less than when it was made."""
        bus, seqs = self.stream.account.bus, send.seqs
        rooms = [room for target in send.targets if (room := bus.room(target)) is not None]
        room = min(rooms, default=None)
        if room is None:
            return seqs  # nobody is there
        if not room:
            return ()
        sizes = self.stream.store.sizes_of(seqs)
        return seqs[: begin_within(sizes, room, beside=reply_size_max(self._ack_prefix))]

    def _send_nowait(self, send: Delivery, seqs: Sequence[int]) -> Delivery | None:
        """Send what of `seqs`, with which a delivery begins, is at hand; what is left of it, None if nothing is."""
        found = self.stream.store.load_run_nowait(seqs) if seqs else []
        if found:
            self._deliver(send, found)
        return None if len(found) == len(send.seqs) else send.behind(len(found))

    def _deliver(self, send: Delivery, messages: list[Stored | None]) -> None:
        """Send the first messages of a delivery; None is one that is gone."""
        if send.headers_only or send.pin_id:
            messages = [message and deliverable(send, message) for message in messages]
        targets = send.targets
        if len(targets) == 1:
            self._send_bundle(send, targets[0], 0, 1, messages)
            return
        if len(set(targets)) < len(targets):  # several requests of one client: it gets its messages in order
            for place, message in enumerate(messages):
                self._send_bundle(send, targets[place % len(targets)], place, 1, [message])
            return
        for place, target in enumerate(targets[: len(messages)]):
            self._send_bundle(send, target, place, len(targets), messages[place :: len(targets)])

    def _send_bundle(self, send: Delivery, target: bytes, place: int, step: int, messages: list[Stored | None]) -> None:
        """Send those of a delivery's messages, from the one at `place` on each `step`-th, that go to one target."""
        bundle = bundle_of(
            self._ack_prefix, send.deliveries, send.consumer_seq + place, send.pending - place, step, messages
        )
        self._client.send_bundle(target, bundle)


def _asked(message: Inbound) -> Asked:
    size = message.header_size
    if not size:
        return Asked(message.reply, message.data)
    return Asked(message.reply, message.data[size:], supports(get_header(message.data[:size], REQUIRED_LEVEL_HEADER)))
