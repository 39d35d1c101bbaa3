"""What will hold when the next entry applies: the applied state, and on top of it what is in flight.

An entry is in flight from its admission until it is applied. Entries apply in the order of admission, so sequences,
message ids, and the last message of a subject are those of the applied state continued by what is in flight, and by
the entry that is being gathered (`begin`, `add`), whatever becomes applied meanwhile.
"""

from __future__ import annotations

from collections import deque

from tnats.errors import ensure
from tnats.jetstream.stream.entries import Append, Message
from tnats.jetstream.stream.machine import StreamMachine
from tnats.records import frozen


@frozen
class Mark:
    """A state to which `InFlight.take_back` can return."""

    messages_count: int
    size_bytes: int
    added_count: int
    ids_count: int
    last_id: tuple[bytes, int]
    rolled_up_below: int


class InFlight:
    """See the module's text."""

    def __init__(self, machine: StreamMachine) -> None:
        self._machine = machine
        self._entries: deque[Append] = deque()
        self.size_bytes = 0
        """By so much the entries let the stream grow, where account is kept of it; `added_count` likewise."""
        self.added_count = 0
        self.answers_count = 0
        """Answers that go out with the entries, beside those to the messages in them."""
        self._next_seq = machine.store.last_seq + 1
        self._ids: dict[bytes, int] = {}
        """Sequences by message id, oldest first."""
        self._last_id = machine.duplicates.last
        self._rolled_up_below = 0
        """What lies below is gone, or will be when what is in flight applies: the newest roll-up of everything."""

    def __bool__(self) -> bool:
        return bool(self._entries)

    # ------------------------------------------------------------------ the entry being gathered

    def begin(self, now_ns: int) -> Append:
        """An empty entry behind all others."""
        # Times rise with sequences, although wall clocks step back.
        last_ns = self._entries[-1].ts_ns if self._entries else self._machine.store.last_ts_ns or 0
        return Append(self._next_seq, max(now_ns, last_ns), [], [])

    def add(
        self,
        entry: Append,
        message: Message,
        *,
        reply: bytes = b"",
        ack: bytes | None = None,
        is_dropped: bool = False,
        msg_id: bytes | None = None,
    ) -> None:
        """Put a message, judged, behind those of `entry`. `ack`: the answer, if it is not the plain one."""
        offset = len(entry.messages)
        if msg_id:
            self._ids[msg_id] = offset + entry.first_seq
            self._last_id = (msg_id, offset + entry.first_seq)
        assert isinstance(entry.messages, list)
        entry.messages.append(message)
        entry.replies.append(reply)
        if ack is not None:
            entry.acks[offset] = ack
        if is_dropped:
            entry.dropped[offset] = None

    def roll_up(self, seq: int) -> None:
        """The message just added takes away all below `seq`, its own."""
        self._rolled_up_below = seq

    def mark(self, entry: Append) -> Mark:
        """Where `entry` and what is known of it stand now."""
        return Mark(
            len(entry.messages),
            entry.size_bytes,
            entry.added_count,
            len(self._ids),
            self._last_id,
            self._rolled_up_below,
        )

    def take_back(self, entry: Append, mark: Mark) -> None:
        """Undo what was added to `entry` since `mark`."""
        entry.truncate(mark.messages_count)
        entry.size_bytes, entry.added_count = mark.size_bytes, mark.added_count
        for msg_id in list(self._ids)[mark.ids_count :]:
            del self._ids[msg_id]
        self._last_id, self._rolled_up_below = mark.last_id, mark.rolled_up_below

    # ------------------------------------------------------------------ its way to the machine

    def push(self, entry: Append) -> None:
        """`entry` is about to be proposed."""
        self._next_seq = entry.next_seq
        self._entries.append(entry)
        self.size_bytes += entry.size_bytes
        self.added_count += entry.added_count
        self.answers_count += len(entry.after)

    def answer_after(self, entry: Append) -> bool:
        """Let the answers of `entry`, which stores nothing, wait for what is in flight; False if nothing is."""
        if not self._entries:
            return False
        last = self._entries[-1]
        last.after.extend((len(last.messages), answer) for _, answer in entry.after)
        self.answers_count += len(entry.after)
        return True

    def applied(self, entry: Append) -> None:
        """The machine applied an entry that was pushed (or one of the leader before this one)."""
        if not self._entries or self._entries[0] is not entry:
            self.continue_from(entry.next_seq)
            return
        self._entries.popleft()
        self.size_bytes -= entry.size_bytes
        self.added_count -= entry.added_count
        self.answers_count -= len(entry.after)
        if not self._ids:
            return
        gone = []
        for msg_id, seq in self._ids.items():
            if seq >= entry.next_seq:
                break
            gone.append(msg_id)
        for msg_id in gone:
            del self._ids[msg_id]

    def continue_from(self, next_seq: int) -> None:
        """The machine applied something that uses up the sequences below `next_seq`, and was not pushed."""
        ensure(not self._entries, f"stream {self._machine.config.name}: entries applied out of order")
        self._next_seq = next_seq

    def reset(self) -> None:
        """Leadership began or ended: nothing is in flight."""
        self._entries.clear()
        self.size_bytes = 0
        self.added_count = 0
        self.answers_count = 0
        self._next_seq = self._machine.store.last_seq + 1
        self._ids.clear()
        self._last_id = self._machine.duplicates.last
        self._rolled_up_below = 0

    # ------------------------------------------------------------------ what will hold

    def last_seq_of(self, pattern: bytes, entry: Append) -> int:
        """The last sequence on a subject or pattern when the next message of `entry` applies; 0 if there is none."""
        found = entry.last_seq_of(pattern)
        for pending in reversed(self._entries):
            found = found or pending.last_seq_of(pattern)
        found = found or self._machine.store.last_seq_of(pattern)
        return found if found >= self._rolled_up_below else 0

    def count_of(self, subject: bytes, entry: Append) -> int:
        """How many messages on the subject are in flight, or in `entry`."""
        return entry.count_of(subject) + sum(pending.count_of(subject) for pending in self._entries)

    def headers_at(self, seq: int, entry: Append) -> bytes:
        """Header block of the message that has this sequence, in flight or in `entry`; empty if it is applied."""
        for pending in (entry, *self._entries):
            if pending.first_seq <= seq < pending.next_seq:
                return pending.messages[seq - pending.first_seq][1]
        return b""

    def seq_of_id(self, msg_id: bytes, now_ns: int) -> int:
        """Under which sequence a message with this id is stored or about to be, 0 if none is."""
        return self._ids.get(msg_id) or self._machine.duplicates.find(msg_id, now_ns)

    def id_at(self, seq: int) -> bytes:
        """The message id of the newest message, whose sequence is `seq`; empty if it has none."""
        return self._last_id[0] if self._last_id[1] == seq else b""
