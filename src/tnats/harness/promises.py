"""What a server promised its clients about one stream and its consumer, and whether a later look at it agrees.

Pure: it is told what was acknowledged, delivered, confirmed and read, and collects `faults`, one line each. Rules
-----
* An acknowledged message stands at its sequence, and its value nowhere else. A publish of unknown fate is sent again
  under the same message id, so in the end it stands exactly once too.
* No sequence that was told is given again; the highest one never falls.
* A message whose ack was confirmed is not delivered by a request that is sent after that: one that was under way may
  have got it before, when the ack wait was over.
* The ack floor, as seen after each start, never falls, and is not below the run of confirmed messages at the front.
* A work queue holds what was acknowledged and has not been acked, and nothing whose ack was confirmed.
* A message whose termination was confirmed becomes one dead letter, any other at most one, and only if somebody tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from tnats.records import define


@define
class StreamPromises:
    """The promises about one stream. `is_queue`: it lets go of what is acked."""

    name: str
    is_queue: bool
    acked: dict[int, str] = attrs.field(factory=dict)
    """Sequences of acknowledged publishes, with their values."""
    unsure: dict[str, None] = attrs.field(factory=dict)
    """Values whose publish has not been answered."""
    confirmed: dict[int, int] = attrs.field(factory=dict)
    """Sequences whose ack or termination was confirmed, with how many there were before."""
    tried: set[int] = attrs.field(factory=set)
    """Sequences that were acked or terminated, confirmed or not."""
    lettered: set[int] = attrs.field(factory=set)
    """Sequences that were terminated: a work queue keeps them until their dead letter is stored."""
    terminated: dict[str, bool] = attrs.field(factory=dict)
    """Values that were terminated, and whether that was confirmed."""
    dead: dict[str, int] = attrs.field(factory=dict)
    """Values among the dead letters, with the sequence there."""
    faults: list[str] = attrs.field(factory=list)
    last_seq: int = 0
    """The highest sequence that anybody was told."""
    floor: int = 0
    """The ack floor after the last start."""
    _value_at: dict[int, str] = attrs.field(factory=dict)
    _seq_of: dict[str, int] = attrs.field(factory=dict)
    _run: int = 0
    """The end of the run of confirmed messages at the front."""

    def _fault(self, text: str) -> None:
        self.faults.append(f"{self.name}: {text}")

    # ------------------------------------------------------------------ while it runs

    def published(self, value: str) -> None:
        """A value was sent (again)."""
        self.unsure[value] = None

    def acknowledged(self, value: str, seq: int) -> None:
        """The answer to a publish."""
        self.unsure.pop(value, None)
        self.acked[seq] = value
        self._saw(seq, value, "acknowledged")

    def asked(self) -> int:
        """A pull request is sent; what tells its deliveries from those of others."""
        return len(self.confirmed)

    def delivered(self, seq: int, value: str, asked: int) -> None:
        """A consumer got a message by the request for which `asked` was returned."""
        if self.confirmed.get(seq, asked) < asked:
            self._fault(f"message {seq} was delivered again after its ack was confirmed")
        self._saw(seq, value, "delivered")

    def ending(self, seq: int, value: str, *, by_termination: bool) -> None:
        """An ack, or a termination, is sent; nobody knows of it yet."""
        self.tried.add(seq)
        if by_termination:
            self.terminated.setdefault(value, False)
            self.lettered.add(seq)

    def ended(self, seq: int, value: str, *, by_termination: bool) -> None:
        """It was confirmed."""
        self.confirmed.setdefault(seq, len(self.confirmed))
        if by_termination:
            self.terminated[value] = True
        while self._run + 1 in self.confirmed:
            self._run += 1

    def _saw(self, seq: int, value: str, how: str) -> None:
        self.last_seq = max(self.last_seq, seq)
        before = self._value_at.setdefault(seq, value)
        if before != value:
            self._fault(f"sequence {seq} {how} with {value!r}, before with {before!r}")
        at = self._seq_of.setdefault(value, seq)
        if at != seq:
            self._fault(f"{value!r} {how} at sequence {seq}, before at {at}")

    # ------------------------------------------------------------------ after a start

    def check_stored(self, stored: Mapping[int, str], from_seq: int, last_seq: int) -> None:
        """What the stream holds from a sequence on, and its last sequence."""
        if last_seq < self.last_seq:
            self._fault(f"the last sequence is {last_seq}, {self.last_seq} had been told")
        for seq, value in stored.items():
            self._saw(seq, value, "stored")
        for seq, value in self.acked.items():
            if seq < from_seq or seq in stored:
                continue
            if not self.is_queue or seq not in self.tried:
                self._fault(f"acknowledged message {seq} ({value!r}) is not there")
        if self.is_queue:
            for seq in stored:
                if seq in self.confirmed and seq not in self.lettered:
                    self._fault(f"message {seq} is there although its ack was confirmed")

    def check_consumer(self, floor: int, delivered_seq: int) -> None:
        """Ack floor and last delivered stream sequence that the consumer reports."""
        if floor < self.floor:
            self._fault(f"the ack floor fell from {self.floor} to {floor}")
        if floor < self._run:
            self._fault(f"the ack floor is {floor}, everything up to {self._run} was confirmed")
        if self.confirmed and delivered_seq < max(self.confirmed):
            self._fault(f"delivered up to {delivered_seq}, but {max(self.confirmed)} was acked and confirmed")
        self.floor = max(self.floor, floor)

    def check_dead(self, letters: Iterable[tuple[int, str]]) -> None:
        """Dead letters (sequence, value) that had not been looked at."""
        for seq, value in letters:
            before = self.dead.setdefault(value, seq)
            if before != seq:
                self._fault(f"{value!r} is a dead letter twice, at {before} and {seq}")
            if value not in self.terminated:
                self._fault(f"{value!r} is a dead letter, but nobody terminated it")

    def missing_dead(self) -> list[str]:
        """Values whose termination was confirmed, and that are no dead letters yet."""
        return [value for value, is_confirmed in self.terminated.items() if is_confirmed and value not in self.dead]

    def check_drained(self, *, stored: int, pending: int, ack_pending: int) -> None:
        """At the end, when consumers have had time to take everything."""
        if self.unsure:
            self._fault(f"{len(self.unsure)} publishes were never acknowledged")
        if pending or ack_pending:
            self._fault(f"{pending} messages were not delivered, {ack_pending} not acked, after everything was taken")
        if self.is_queue and stored:
            self._fault(f"{stored} messages are left in the work queue after everything was acked")
        missed = [seq for seq in self.acked if seq not in self.tried]
        if missed:
            self._fault(f"{len(missed)} acknowledged messages were never delivered, {missed[0]} among them")
        for value in self.missing_dead():
            self._fault(f"{value!r} was terminated, and that was confirmed, but it is no dead letter")
