"""Distributed counters (ADR-49): each message adds an increment, its stored body is the subject's new total.

Totals are whole numbers of any size. The total before a message is that of the subject's last message; the recent
ones are kept here, others must be read from the store before admission (`CounterTotals.is_known`, `learn`).
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable

import attrs
import orjson

from tnats.jetstream.stream.headers import (
    EXPECTED_LAST_MSG_ID,
    EXPECTED_LAST_SEQ,
    EXPECTED_LAST_SUBJECT_SEQ,
    EXPECTED_LAST_SUBJECT_SEQ_SUBJECT,
    EXPECTED_STREAM,
    ROLLUP,
)
from tnats.limits import COUNTER_TOTALS_MAX
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


@attrs.frozen
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
    origin, subject = to_text(words[0]), to_text(words[4])
    try:
        known = orjson.loads(old.sources) if old.sources else {}
        increment = told.value - int(known.get(origin, {}).get(subject, "0"))
    except (orjson.JSONDecodeError, AttributeError, TypeError, ValueError):
        return None
    known.setdefault(origin, {})[subject] = str(told.value)
    new = Total(old.value + increment, orjson.dumps(known, option=orjson.OPT_SORT_KEYS))
    block, body = counted_message(set_header(headers, INCREMENT_HEADER, b"%d" % increment), new)
    return block, body, new


class CounterTotals:
    """The last totals by subject, as of the newest admitted message; None: the stored message was unreadable."""

    def __init__(self) -> None:
        self._totals: OrderedDict[bytes, Total | None] = OrderedDict()

    def is_known(self, subject: bytes) -> bool:
        """Whether `get` can answer."""
        return subject in self._totals

    def get(self, subject: bytes) -> Total | None:
        """The total of a known subject."""
        self._totals.move_to_end(subject)
        return self._totals[subject]

    def learn(self, subject: bytes, total: Total | None) -> None:
        """Remember the subject's newest total."""
        self._totals[subject] = total
        self._totals.move_to_end(subject)
        if len(self._totals) > COUNTER_TOTALS_MAX:
            self._totals.popitem(last=False)

    def retain(self, is_kept: Callable[[bytes], bool]) -> None:
        """Forget the totals of other subjects: messages were removed."""
        for subject in [subject for subject in self._totals if not is_kept(subject)]:
            del self._totals[subject]

    def clear(self) -> None:
        """Forget all: leadership changed."""
        self._totals.clear()
