"""Distributed counters (ADR-49): each message adds an increment, its stored body is the subject's new total.

Totals are whole numbers of any size. The total before a message is that of the subject's last message; the recent
ones are kept here, others must be read from the store before admission (`CounterTotals.wanted_seq`, `learn`).
"""

from __future__ import annotations

import itertools
import re
from collections import OrderedDict
from collections.abc import Mapping

import attrs
import orjson

from tnats.jetstream.api import errors
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.stream.headers import (
    EXPECTED_LAST_MSG_ID,
    EXPECTED_LAST_SEQ,
    EXPECTED_LAST_SUBJECT_SEQ,
    EXPECTED_LAST_SUBJECT_SEQ_SUBJECT,
    EXPECTED_STREAM,
    ROLLUP,
    STREAM_SOURCE,
)
from tnats.jetstream.stream.machine import StreamMachine
from tnats.limits import COUNTER_TOTALS_MAX
from tnats.records import frozen
from tnats.subjects.tokens import to_text
from tnats.wire.headers import get_header, remove_header, set_header

INCREMENT_HEADER = b"Nats-Incr"
SOURCES_HEADER = b"Nats-Counter-Sources"
FORBIDDEN_HEADERS = (
    ROLLUP,
    EXPECTED_STREAM,
    EXPECTED_LAST_SEQ,
    EXPECTED_LAST_SUBJECT_SEQ,
    EXPECTED_LAST_SUBJECT_SEQ_SUBJECT,
    EXPECTED_LAST_MSG_ID,
)
"""An increment is neither conditional nor does it take others away."""

PLACE_WORDS = 5
"""Words of a Nats-Stream-Source header up to the subject at the origin."""

_DECIMAL = re.compile(rb"[+-]?[0-9]+")
DIGITS_MAX = 4000
"""Digits of an increment: a header cannot hold more than 64 KiB, and work on a number grows with its square."""

TOTAL_DIGITS_MAX = DIGITS_MAX + 200
"""Digits of a total: more than can ever come together."""


@frozen
class Total:
    """A subject's total, and the header that says what of it came from other streams."""

    value: int = 0
    sources: bytes = b""


def parse_increment(value: bytes) -> int | None:
    """The increment of a header, None if it is no decimal number."""
    if not _DECIMAL.fullmatch(value) or len(value) > DIGITS_MAX:
        return None
    return int(value)


def parse_total(headers: bytes, payload: bytes) -> Total | None:
    """The total that a stored message holds, None if it holds none (the counter is broken)."""
    try:
        value = orjson.loads(payload)["val"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    if type(value) is not str or not _DECIMAL.fullmatch(value.encode()) or len(value) > TOTAL_DIGITS_MAX:
        return None
    return Total(int(value), get_header(headers, SOURCES_HEADER) or b"")


def counted_message(headers: bytes, total: Total) -> tuple[bytes, bytes]:
    """(header block, body) of the message that stores a new total. What a client says of other streams is dropped."""
    if total.sources:
        headers = set_header(headers, SOURCES_HEADER, total.sources)
    elif SOURCES_HEADER in headers:
        headers = remove_header(headers, SOURCES_HEADER)
    return headers, b'{"val":"%d"}' % total.value


def merge_sourced(headers: bytes, payload: bytes, place: bytes, old: Total | None) -> tuple[bytes, bytes, Total] | None:
    """(header block, body, new total) of another stream's message, None if it, or the total here, cannot be read.

    `place`: its Nats-Stream-Source header. Origins tell totals, so what counts is by how much the origin's is more than
    what it told last; a message that comes again changes nothing, and what was missed is made up for.
    """
    told = parse_total(b"", payload)
    words = place.split(b" ")
    if told is None or old is None or len(words) < PLACE_WORDS:
        return None
    origin, subject = (words[at].decode("utf-8", "backslashreplace") for at in (0, 4))
    try:
        known = orjson.loads(old.sources) if old.sources else {}
        increment = told.value - int(known.get(origin, {}).get(subject, "0"))
    except (orjson.JSONDecodeError, AttributeError, TypeError, ValueError):
        return None
    known.setdefault(origin, {})[subject] = str(told.value)
    new = Total(old.value + increment, orjson.dumps(known, option=orjson.OPT_SORT_KEYS))
    block, body = counted_message(set_header(headers, INCREMENT_HEADER, b"%d" % increment), new)
    return block, body, new


Counted = tuple[bytes, bytes, Total]
"""Header block and body of a message as it is stored, and the total that it makes."""


class CounterTotals:
    """The totals of subjects as their newest messages make them, admitted or applied.

    A total is known with the sequence of its message: it is out of date once another message is the subject's last.
    """

    def __init__(self, machine: StreamMachine) -> None:
        self._machine = machine
        self._known: OrderedDict[bytes, tuple[int, Total | None]] = OrderedDict()
        """Sequence and total by subject, the longest unused first; no total: the message was unreadable."""
        self._replaced: list[tuple[bytes, tuple[int, Total | None] | None]] | None = None
        """What `take_back` puts back, latest last; None while there is no mark."""

    def count(self, subject: bytes, headers: Mapping[bytes, bytes], block: bytes, payload: bytes) -> Counted | ApiError:
        """What becomes of a client's message with these `headers`, or why it does not count."""
        text = headers.get(INCREMENT_HEADER)
        if not text:
            return errors.MESSAGE_INCR_MISSING()
        if payload:
            return errors.MESSAGE_INCR_PAYLOAD()
        increment = parse_increment(text)
        if increment is None:
            return errors.MESSAGE_INCR_INVALID()
        if self.wanted_seq(subject):  # not what was asked for before, as where the stream's transform draws at random
            return errors.STREAM_STORE_FAILED(err=f"the total of {to_text(subject)} is not at hand")
        old = self._total_of(subject)
        if old is None:
            return errors.MESSAGE_COUNTER_BROKEN()
        new = attrs.evolve(old, value=old.value + increment)
        return *counted_message(block, new), new

    def count_sourced(
        self, subject: bytes, headers: Mapping[bytes, bytes], block: bytes, payload: bytes
    ) -> Counted | None:
        """What becomes of another stream's message; None if it is not one of a counter."""
        if not headers.get(INCREMENT_HEADER):
            return None
        return merge_sourced(block, payload, headers.get(STREAM_SOURCE, b""), self._total_of(subject))

    def wanted_seq(self, subject: bytes) -> int:
        """The sequence of the message to `learn` the subject's total from before it is counted; 0: none."""
        seq = self._known.get(subject, (0, None))[0]
        if seq > self._machine.store.last_seq:
            return 0  # in flight
        last_seq = self._machine.store.last_seq_of(subject)
        return 0 if seq == last_seq else last_seq

    def learn(self, subject: bytes, seq: int, total: Total | None) -> None:
        """The subject's newest message, at `seq`, makes it `total`."""
        if self._replaced is not None:
            self._replaced.append((subject, self._known.get(subject)))
        self._known[subject] = (seq, total)
        self._known.move_to_end(subject)

    def mark(self) -> None:
        """From here on `take_back` may be called, until `settle`."""
        self._replaced = []

    def take_back(self) -> None:
        """Undo what was learnt since `mark`."""
        assert self._replaced is not None
        for subject, known in reversed(self._replaced):
            if known is None:
                del self._known[subject]
            else:
                self._known[subject] = known

    def settle(self) -> None:
        """What was learnt since `mark` stays as it is now."""
        self._replaced = None

    def trim(self) -> None:
        """Forget the longest unused beyond COUNTER_TOTALS_MAX, but for what is in flight, which nothing else knows."""
        excess = len(self._known) - COUNTER_TOTALS_MAX
        if excess <= 0:
            return
        last_seq = self._machine.store.last_seq
        for subject in list(itertools.islice(self._known, excess)):
            if self._known[subject][0] > last_seq:
                self._known.move_to_end(subject)
            else:
                del self._known[subject]

    def clear(self) -> None:
        """Forget all: leadership changed."""
        self._known.clear()

    def _total_of(self, subject: bytes) -> Total | None:
        seq, total = self._known.get(subject, (0, None))
        if not seq or (seq <= self._machine.store.last_seq and not self._machine.store.last_seq_of(subject)):
            return Total()  # nothing yet, or nothing any more
        self._known.move_to_end(subject)
        return total
