"""Fast batches (ADR-50): each message is stored at once, acknowledgements come every so many messages.

What a message is stands in its reply subject, `<prefix>.<id>.<flow>.<gap>.<number>.<operation>.$FI`, so plain
messages need no headers. Flow: messages between two acks that the publisher asks for; the server begins with that
if the batch is the only one, with 1 otherwise, and doubles up to the fair share. Gap `fail` ends the batch at a
missing number, `ok` reports it and goes on. A refused message is reported; in `fail` mode it ends the batch.
"""

from __future__ import annotations

from tnats.jetstream.api import errors
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.stream.batches import BatchBudget
from tnats.jetstream.stream.headers import parse_seq
from tnats.limits import (
    BATCH_ID_BYTES_MAX,
    FAST_BATCH_WINDOW_MSGS,
    FAST_BATCH_WINDOW_MSGS_MAX,
)
from tnats.moments import Moments
from tnats.records import define, frozen
from tnats.subjects.tokens import to_text
from tnats.wire.documents import encode_document

SUFFIX = b".$FI"
START, APPEND, COMMIT, COMMIT_END, PING = range(5)
_OPERATIONS = {b"0": START, b"1": APPEND, b"2": COMMIT, b"3": COMMIT_END, b"4": PING}


@frozen
class Control:
    """What a reply subject says."""

    batch_id: bytes
    window: int
    fails_on_gap: bool
    number: int
    operation: int


def parse_control(reply: bytes) -> Control | ApiError:
    """The control part of a reply subject that ends with SUFFIX."""
    tokens = reply.split(b".")
    invalid = errors.BATCH_PUBLISH_INVALID_PATTERN()
    if len(tokens) < 7:
        return invalid
    batch_id, flow_text, gap, number_text, operation_text, _ = tokens[-6:]
    if len(batch_id) > BATCH_ID_BYTES_MAX:
        return errors.BATCH_PUBLISH_INVALID_BATCH_ID()
    operation = _OPERATIONS.get(operation_text)
    number = parse_seq(number_text)
    if operation is None or gap not in (b"ok", b"fail") or not number or number == 2**64 - 1:
        return invalid
    if (number == 1) != (operation == START) and operation not in (COMMIT, PING):
        return invalid
    flow = int(flow_text[:9]) if flow_text.isdigit() else 0
    return Control(batch_id, flow or FAST_BATCH_WINDOW_MSGS, gap == b"fail", number, operation)


@define
class _Open:
    """A batch in progress. Numbers count its messages from 1, stored or not."""

    number: int
    window: int
    window_max: int
    next_ack: int
    last_ack: int = 0
    last_seq: int = 0


class FastBatches:
    """The open fast batches of one stream. Answers are payloads for the message's own reply subject."""

    def __init__(self, stream_name: str, budget: BatchBudget) -> None:
        self._stream_name = stream_name
        self._budget = budget
        self._open: dict[bytes, _Open] = {}
        self._given_up: Moments[bytes] = Moments()
        """When each is, if it stays idle until then."""

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, control: Control, now_ns: int) -> tuple[list[bytes], bool]:
        """(answers before its own, whether the message is to be stored). Before the message's own checks."""
        batch = self._open.get(control.batch_id)
        if batch is None:
            if control.number != 1 or control.operation not in (START, COMMIT):
                return [self._error(errors.BATCH_PUBLISH_UNKNOWN_BATCH_ID())], False
            if len(self._open) >= self._budget.limits.fast_per_stream_max or not self._budget.has_fast_room():
                return [self._error(errors.BATCH_PUBLISH_TOO_MANY_INFLIGHT())], False
            window = min(control.window, self._share()) if not self._open else 1
            self._open[control.batch_id] = _Open(0, window, control.window, window)
            self._budget.fast_count += 1
            batch = self._open[control.batch_id]
            answers = [] if control.operation == COMMIT else [_ack(0, window)]
        else:
            answers = []
        self._given_up.set(control.batch_id, now_ns + self._budget.limits.idle_ns_max)
        expected = batch.number + 1
        received = control.number + 1 if control.operation == PING else control.number
        if received > expected or (received < expected and control.operation != PING):
            answers.append(b'{"type":"gap","last_seq":%d,"seq":%d}' % (expected, received))
            if control.fails_on_gap or received < expected:
                answers.append(self.end(control.batch_id))
                return answers, False
            batch.number = received - 1
        if control.operation == PING:
            return [*answers, _ack(batch.last_ack, batch.window)], False
        if control.operation == COMMIT_END:
            return [*answers, self.end(control.batch_id)], False
        batch.number = received
        return answers, True

    def stored(self, control: Control, seq: int, *, is_duplicate: bool = False) -> bytes | None:
        """The message will be stored with this sequence: the answer that is due when it is, if one is due.

        `is_duplicate`: it has been stored with this sequence before.
        """
        batch = self._open[control.batch_id]
        batch.last_seq = max(batch.last_seq, seq)
        if control.operation == COMMIT:
            return self.end(control.batch_id, is_duplicate=is_duplicate and control.number == 1)
        if batch.number < batch.next_ack:
            return None
        batch.window = max(1, min(batch.window * 2, batch.window_max, self._share()))
        batch.last_ack = batch.number
        batch.next_ack = batch.number + batch.window
        return _ack(batch.number, batch.window)

    def refused(self, control: Control, error: ApiError) -> list[bytes]:
        """The answers to a message that is not stored."""
        batch = self._open[control.batch_id]
        if batch.number == 1:
            self.end(control.batch_id)
            return [self._error(error)]
        answers = [encode_document({"type": "err", "seq": control.number, "error": error.to_json()})]
        if control.operation == COMMIT or control.fails_on_gap:
            batch.number -= 1
            answers.append(self.end(control.batch_id))
        return answers

    def end(self, batch_id: bytes, *, is_duplicate: bool = False) -> bytes:
        """Close a batch: its PubAck."""
        batch = self._open.pop(batch_id)
        self._given_up.forget(batch_id)
        self._budget.fast_count -= 1
        return encode_document(
            {
                "stream": self._stream_name,
                "seq": batch.last_seq,
                **({"duplicate": True} if is_duplicate else {}),
                "batch": to_text(batch_id),
                "count": batch.number,
            }
        )

    def next_deadline_ns(self) -> int | None:
        """When the longest idle batch is given up."""
        return self._given_up.next_ns()

    def expire(self, now_ns: int) -> None:
        """Give up idle batches (their messages are stored; the publisher finds out by its next message)."""
        while (batch_id := self._given_up.pop_due(now_ns)) is not None:
            self.end(batch_id)

    def clear(self) -> None:
        """Give up all."""
        for batch_id in list(self._open):
            self.end(batch_id)

    def _share(self) -> int:
        return max(1, FAST_BATCH_WINDOW_MSGS_MAX // max(1, len(self._open)))

    def _error(self, error: ApiError) -> bytes:
        return encode_document({"error": error.to_json(), "stream": self._stream_name, "seq": 0})


def _ack(number: int, window: int) -> bytes:
    return b'{"type":"ack","seq":%d,"msgs":%d}' % (number, window)
