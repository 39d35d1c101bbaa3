"""Atomic batches (ADR-50): messages wait here until the batch is committed; all of them are stored, or none.

What waits is lost with its leader: the publisher hears "incomplete" or nothing, and no reader ever sees a part.
The checks that need the stream's state run at the commit, over the whole batch at once.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from tnats.jetstream.api import errors
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.stream.entries import Message
from tnats.jetstream.stream.headers import BATCH_COMMIT, BATCH_ID, BATCH_SEQUENCE, EXPECTED_LAST_MSG_ID, parse_seq
from tnats.limits import (
    ATOMIC_BATCH_MSGS_MAX,
    ATOMIC_BATCHES_PER_SERVER_MAX,
    ATOMIC_BATCHES_PER_STREAM_MAX,
    ATOMIC_STAGED_BYTES_MAX,
    BATCH_ID_BYTES_MAX,
    BATCH_IDLE_NS_MAX,
    FAST_BATCHES_PER_SERVER_MAX,
    FAST_BATCHES_PER_STREAM_MAX,
)
from tnats.moments import Moments
from tnats.records import define, frozen
from tnats.wire.headers import set_header


@frozen
class BatchLimits:
    """The server's bounds on batches; 0 in its configuration stands for these."""

    atomic_per_stream_max: int = ATOMIC_BATCHES_PER_STREAM_MAX
    atomic_max: int = ATOMIC_BATCHES_PER_SERVER_MAX
    fast_per_stream_max: int = FAST_BATCHES_PER_STREAM_MAX
    fast_max: int = FAST_BATCHES_PER_SERVER_MAX
    atomic_msgs_max: int = ATOMIC_BATCH_MSGS_MAX
    idle_ns_max: int = BATCH_IDLE_NS_MAX


@define
class BatchBudget:
    """How many batches are open on the whole server; one object shared by all its streams."""

    limits: BatchLimits = attrs.field(factory=BatchLimits)
    atomic_count: int = 0
    fast_count: int = 0

    def has_atomic_room(self) -> bool:
        """Whether another atomic batch may begin."""
        return self.atomic_count < self.limits.atomic_max

    def has_fast_room(self) -> bool:
        """Whether another fast batch may begin."""
        return self.fast_count < self.limits.fast_max


@define
class Staged:
    """An open batch."""

    messages: list[Message] = attrs.field(factory=list)
    size_bytes: int = 0
    refusal: ApiError | None = None
    """Why it has been given up. Kept for a publisher that asks for no answer before the commit."""


@frozen
class Abandoned:
    """A batch that was given up: its id, and why (timeout, large, incomplete, unsupported)."""

    batch_id: bytes
    reason: str


@frozen
class Outcome:
    """What became of one message: refused, waiting (neither), or its batch is complete."""

    error: ApiError | None = None
    committed: list[Message] | None = None


class AtomicBatches:
    """The open atomic batches of one stream."""

    def __init__(self, budget: BatchBudget) -> None:
        self._budget = budget
        self._open: dict[bytes, Staged] = {}
        self._given_up: Moments[bytes] = Moments()
        """When each is, if it stays idle until then."""
        self._live_count = 0
        """Of those, the ones that may still be committed."""
        self._staged_bytes = 0
        self.abandoned: list[Abandoned] = []
        """Batches given up since the caller last looked."""

    def __len__(self) -> int:
        return len(self._open)

    def add(
        self, message: Message, headers: Mapping[bytes, bytes], now_ns: int, refusal: ApiError | None = None
    ) -> Outcome:
        """Take a message with a batch id. A refusal ends its batch, so that nothing of it is ever stored.

        `refusal`: why the caller does not want the message.
        """
        batch_id = headers[BATCH_ID]
        if len(batch_id) > BATCH_ID_BYTES_MAX:
            return Outcome(errors.ATOMIC_PUBLISH_INVALID_BATCH_ID())
        number = parse_seq(headers.get(BATCH_SEQUENCE, b""))
        if number is None:
            return Outcome(errors.ATOMIC_PUBLISH_MISSING_SEQ())
        batch = self._open.get(batch_id)
        commit = headers.get(BATCH_COMMIT)
        if batch is not None and batch.refusal is not None:
            if number != 1:
                if commit is not None:
                    self._close(batch_id)
                return Outcome(batch.refusal)
            self._close(batch_id)
            batch = None
        if batch is None:
            if number != 1 or commit == b"eob":
                return Outcome(self._too_large(number, commit) or errors.ATOMIC_PUBLISH_INCOMPLETE_BATCH())
            if not self._has_room():
                return Outcome(errors.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT())
            batch = self._put(batch_id, Staged(), now_ns)
        else:
            self._keep(batch_id, now_ns)
        error = refusal or self._admit(batch, number, commit, headers)
        if error is not None:
            self._abandon(batch_id, _reason(error))
            if commit is None and not errors.ATOMIC_PUBLISH_INCOMPLETE_BATCH.matches(error):
                self._put(batch_id, Staged(refusal=error), now_ns)
            return Outcome(error)
        if commit == b"eob":
            subject, block, payload = batch.messages[-1]
            batch.messages[-1] = (subject, set_header(block, BATCH_COMMIT, b"1"), payload)
        else:
            size_bytes = len(message[0]) + len(message[1]) + len(message[2])
            if self._staged_bytes + size_bytes > ATOMIC_STAGED_BYTES_MAX:
                error = errors.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT()
                self._abandon(batch_id, "large")
                if commit is None:
                    self._put(batch_id, Staged(refusal=error), now_ns)
                return Outcome(error)
            batch.messages.append(message)
            batch.size_bytes += size_bytes
            self._staged_bytes += size_bytes
        if commit is None:
            return Outcome()
        self._close(batch_id)
        return Outcome(committed=batch.messages)

    def _admit(
        self, batch: Staged, number: int, commit: bytes | None, headers: Mapping[bytes, bytes]
    ) -> ApiError | None:
        if number != len(batch.messages) + 1:
            return errors.ATOMIC_PUBLISH_INCOMPLETE_BATCH()
        if commit not in (None, b"1", b"eob"):
            return errors.ATOMIC_PUBLISH_INVALID_BATCH_COMMIT()
        too_large = self._too_large(number, commit)
        if too_large is not None:
            return too_large
        if headers.get(EXPECTED_LAST_MSG_ID):
            return errors.ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH(header=EXPECTED_LAST_MSG_ID.decode())
        return None

    def _too_large(self, number: int, commit: bytes | None) -> ApiError | None:
        msgs_max = self._budget.limits.atomic_msgs_max
        if number - (commit == b"eob") <= msgs_max:
            return None
        return errors.ATOMIC_PUBLISH_TOO_LARGE_BATCH(size=msgs_max)

    def subjects(self, batch_id: bytes) -> list[bytes]:
        """Of the messages that wait in a batch; none if there is no such batch."""
        batch = self._open.get(batch_id)
        return [message[0] for message in batch.messages] if batch is not None else []

    def next_deadline_ns(self) -> int | None:
        """When the longest idle batch is given up."""
        return self._given_up.next_ns()

    def expire(self, now_ns: int) -> None:
        """Give up idle batches."""
        while (batch_id := self._given_up.pop_due(now_ns)) is not None:
            self._abandon(batch_id, "timeout")

    def clear(self) -> None:
        """Give up all: this server leads the stream no more, or the stream takes no batches any longer."""
        for batch_id in list(self._open):
            self._abandon(batch_id, "incomplete")

    def take_abandoned(self) -> list[Abandoned]:
        """The batches given up since the last call."""
        taken, self.abandoned = self.abandoned, []
        return taken

    def _has_room(self) -> bool:
        bound = self._budget.limits.atomic_per_stream_max
        return self._live_count < bound and len(self._open) < 2 * bound and self._budget.has_atomic_room()

    def _put(self, batch_id: bytes, batch: Staged, now_ns: int) -> Staged:
        self._open[batch_id] = batch
        self._keep(batch_id, now_ns)
        if batch.refusal is None:
            self._live_count += 1
            self._budget.atomic_count += 1
        return batch

    def _keep(self, batch_id: bytes, now_ns: int) -> None:
        """A batch was heard of: it may be idle from now on."""
        self._given_up.set(batch_id, now_ns + self._budget.limits.idle_ns_max)

    def _abandon(self, batch_id: bytes, reason: str) -> None:
        if self._open[batch_id].messages:
            self.abandoned.append(Abandoned(batch_id, reason))
        self._close(batch_id)

    def _close(self, batch_id: bytes) -> None:
        batch = self._open.pop(batch_id)
        self._given_up.forget(batch_id)
        self._staged_bytes -= batch.size_bytes
        if batch.refusal is None:
            self._live_count -= 1
            self._budget.atomic_count -= 1


def _reason(error: ApiError) -> str:
    if errors.ATOMIC_PUBLISH_TOO_LARGE_BATCH.matches(error):
        return "large"
    unsupported = (errors.ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH, errors.REQUIRED_API_LEVEL)
    if any(reason.matches(error) for reason in unsupported):
        return "unsupported"
    return "incomplete"
