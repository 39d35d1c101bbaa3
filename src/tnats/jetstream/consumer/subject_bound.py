"""The bound per subject (`tnats.max_ack_pending_per_subject`): which messages have to wait for others of their subject.

A message whose subject has enough pending ones is held: passed over, and released in order as acknowledgements of its
subject come in. Without a bound nothing is counted or held.
"""

from __future__ import annotations

from collections import deque

from tnats.jetstream.consumer import extensions, state
from tnats.jetstream.consumer.ahead import Ahead
from tnats.jetstream.consumer.config import ConsumerConfig
from tnats.jetstream.consumer.core import Core
from tnats.limits import CONSUMER_HELD_MSGS_MAX


class SubjectBound:
    """See the module's text."""

    def __init__(self, core: Core, ahead: Ahead) -> None:
        self._core = core
        self._ahead = ahead
        self.max_pending = 0
        """Of one subject; 0: any number."""
        self.released: dict[int, bytes] = {}
        """Held messages, with their subjects, that may be sent now, in order."""
        self._pending_of: dict[bytes, int] = {}
        self._subject_of: dict[int, bytes] = {}
        """Of pending messages: they may be gone from the stream when they are counted out."""
        self._held_of: dict[bytes, deque[int]] = {}

    def use(self, config: ConsumerConfig) -> None:
        """Take over a configuration; `recount` follows when the machine is whole."""
        self.max_pending = extensions.ack_pending_per_subject_max(config)

    def clear(self) -> None:
        """The consumer begins anew."""
        self.released.clear()
        self._pending_of.clear()
        self._subject_of.clear()
        self._held_of.clear()

    def restore(self) -> None:
        """After a start: what was held then is held now, if it is still there."""
        core = self._core
        for seq in list(core.state.held):
            subject = core.index.subject_of(seq)
            if subject is None:
                core.op(state.SKIPPED, seq)
            else:
                self._held_of.setdefault(subject, deque()).append(seq)

    def recount(self) -> None:
        """After a start, or when the bound changed."""
        core = self._core
        self._subject_of.clear()
        self._pending_of.clear()
        if self.max_pending:
            for seq in core.state.pending.seqs():
                self.count(seq)
        for subject in list(self._held_of):
            self._release(subject)

    def holds_back(self, seq: int) -> bool:
        """Whether a new message has to wait for its subject; it is put aside, if there is room."""
        core = self._core
        if not self.max_pending:
            return False
        subject = core.index.subject_of(seq)
        assert subject is not None
        if self._pending_of.get(subject, 0) < self.max_pending:
            return False
        if len(core.state.held) < CONSUMER_HELD_MSGS_MAX:
            self._ahead.passed((seq,))
            core.op(state.HELD, seq)
            self._held_of.setdefault(subject, deque()).append(seq)
        return True

    def count(self, seq: int) -> None:
        """A message is pending."""
        if self.max_pending:
            subject = self._core.index.subject_of(seq) or b""
            self._subject_of[seq] = subject
            self._pending_of[subject] = self._pending_of.get(subject, 0) + 1

    def uncount(self, seq: int) -> None:
        """A message is pending no more."""
        subject = self._subject_of.pop(seq, None)
        if subject is None:
            return
        count = self._pending_of[subject] - 1
        if count:
            self._pending_of[subject] = count
        else:
            del self._pending_of[subject]
        self._release(subject)

    def drop(self, seq: int) -> None:
        """A held message is gone from the stream."""
        self._core.op(state.SKIPPED, seq)
        released = self.released.pop(seq, None)
        if released is not None:
            self._release(released)
            return
        for subject, held in list(self._held_of.items()):
            if seq in held:
                held.remove(seq)
                if not held:
                    del self._held_of[subject]

    def _release(self, subject: bytes) -> None:
        """Let held messages of a subject go, as many as it has room for."""
        held = self._held_of.get(subject)
        if not held:
            return
        free_count = len(held)
        if self.max_pending:
            free_count = self.max_pending - self._pending_of.get(subject, 0)
            free_count -= sum(1 for released in self.released.values() if released == subject)
        while held and free_count > 0:
            self.released[held.popleft()] = subject
            free_count -= 1
        if not held:
            del self._held_of[subject]
