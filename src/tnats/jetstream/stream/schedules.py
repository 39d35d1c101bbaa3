"""Scheduled messages (ADR-51): a stored message says when and where copies of it are published.

`@at <RFC 3339>` fires once, `@every <duration>` and cron expressions repeat. `check` judges a schedule that a
client publishes, `Schedules` is the table of those in the stream, keyed by the schedule's subject, and
`fired_message` builds the message of one firing. Repeats missed while nobody looked collapse into one.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping

from tnats.jetstream.api import errors
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.stream import headers as header
from tnats.jetstream.stream.cron import Cron, find_zone
from tnats.jetstream.stream.ttl import TTL_HEADER, parse_ttl
from tnats.limits import SECOND_NS
from tnats.moments import Moments
from tnats.notation import format_time, parse_duration, parse_time
from tnats.records import define, frozen
from tnats.subjects.tokens import is_publishable, subjects_overlap, to_text
from tnats.wire.headers import remove_headers_with_prefix, set_header

SCHEDULE = b"Nats-Schedule"
TARGET = b"Nats-Schedule-Target"
SOURCE = b"Nats-Schedule-Source"
TTL = b"Nats-Schedule-TTL"
ROLLUP = b"Nats-Schedule-Rollup"
ZONE = b"Nats-Schedule-Time-Zone"
SCHEDULER = b"Nats-Scheduler"
NEXT = b"Nats-Schedule-Next"
PURGE = b"purge"
EVERY_NS_MIN = SECOND_NS


@frozen
class Pattern:
    """When a schedule fires: one of the three forms."""

    at_ns: int | None = None
    every_ns: int = 0
    cron: Cron | None = None
    zone: datetime.tzinfo = datetime.UTC

    def next_ns(self, ts_ns: int, now_ns: int) -> int | None:
        """The firing after the time `ts_ns` of the schedule (or of its last firing); None: no more."""
        if self.at_ns is not None:
            return self.at_ns
        if self.every_ns:
            due_ns = _round_to_second(ts_ns) + self.every_ns
            return due_ns if due_ns >= now_ns else _round_to_second(now_ns) + self.every_ns
        assert self.cron is not None
        return self.cron.next_after(max(ts_ns, now_ns), self.zone)

    @property
    def repeats(self) -> bool:
        """Whether it may fire again."""
        return self.at_ns is None


def _round_to_second(ns: int) -> int:
    return (ns + SECOND_NS // 2) // SECOND_NS * SECOND_NS


def parse_pattern(value: bytes, zone_name: bytes | None) -> Pattern | ApiError:
    """The pattern of a schedule's headers."""
    invalid = errors.MESSAGE_SCHEDULES_PATTERN_INVALID()
    text = value.decode("utf-8", "replace")
    if text.startswith(("@at ", "@every ")):
        if zone_name is not None:
            return invalid
        if text.startswith("@at "):
            at_ns = parse_time(text[4:])
            return invalid if at_ns is None else Pattern(at_ns=at_ns)
        every_ns = parse_duration(text[7:])
        return invalid if every_ns is None or every_ns < EVERY_NS_MIN else Pattern(every_ns=every_ns)
    zone = find_zone("UTC" if zone_name is None else zone_name.decode("utf-8", "replace"))
    if zone is None:
        return errors.MESSAGE_SCHEDULES_TIME_ZONE_INVALID()
    cron = Cron.parse(text)
    if cron is None or cron.next_after(0, zone) is None:
        return invalid
    return Pattern(cron=cron, zone=zone)


def check(
    subject: bytes, headers: Mapping[bytes, bytes], allow_ttl: bool, is_captured: Callable[[bytes], bool]
) -> ApiError | None:
    """Why a client's schedule (a message with a non-empty Nats-Schedule) is refused, or None.

    `headers`: its first headers by key; `is_captured`: whether the stream has a subject.
    """
    pattern = parse_pattern(headers[SCHEDULE], headers.get(ZONE))
    if isinstance(pattern, ApiError):
        return pattern
    ttl = headers.get(TTL, b"")
    if ttl:
        if not allow_ttl:
            return errors.MESSAGE_TTL_DISABLED()
        if parse_ttl(ttl) is None:
            return errors.MESSAGE_SCHEDULES_TTL_INVALID()
    rollups = headers.get(ROLLUP), headers.get(header.ROLLUP, b"").lower()
    if any(rollup and rollup != header.ROLLUP_SUBJECT for rollup in rollups):
        return errors.MESSAGE_SCHEDULES_ROLLUP_INVALID()
    target = headers.get(TARGET, b"")
    if not _is_usable(target, is_captured) or subjects_overlap(target, subject):
        return errors.MESSAGE_SCHEDULES_TARGET_INVALID()
    source = headers.get(SOURCE, b"")
    if source and (not _is_usable(source, is_captured) or source in (subject, target)):
        return errors.MESSAGE_SCHEDULES_SOURCE_INVALID()
    return None


def _is_usable(subject: bytes, is_captured: Callable[[bytes], bool]) -> bool:
    return is_publishable(subject) and is_captured(subject)


def check_scheduler(subject: bytes, headers: Mapping[bytes, bytes]) -> ApiError | None:
    """Why a client may not send these scheduler headers, or None. Only "purge", which cancels, is a client's."""
    scheduler = headers.get(SCHEDULER, b"")
    if headers.get(NEXT) != PURGE or not is_publishable(scheduler) or scheduler == subject:
        return errors.MESSAGE_SCHEDULES_SCHEDULER_INVALID()
    return None


@define
class _Schedule:
    seq: int
    next_ns: int
    pattern: Pattern
    source: bytes


@frozen
class Due:
    """A schedule whose time has come. `seq`: its message; `source`: the subject to sample, empty for its own body."""

    subject: bytes
    seq: int
    source: bytes


class Schedules:
    """The schedules of a stream with their next firing."""

    def __init__(self) -> None:
        self._by_subject: dict[bytes, _Schedule] = {}
        self._moments: Moments[bytes] = Moments()

    def __len__(self) -> int:
        return len(self._by_subject)

    def add(self, subject: bytes, seq: int, ts_ns: int, headers: Mapping[bytes, bytes]) -> None:
        """A schedule was stored; it takes the place of an older one on its subject."""
        pattern = parse_pattern(headers[SCHEDULE], headers.get(ZONE))
        if isinstance(pattern, ApiError):
            return
        next_ns = pattern.next_ns(ts_ns, ts_ns)
        if next_ns is None:
            self._remove(subject)
            return
        self._by_subject[subject] = _Schedule(seq, next_ns, pattern, headers.get(SOURCE, b""))
        self._moments.set(subject, next_ns)

    def _remove(self, subject: bytes) -> None:
        self._by_subject.pop(subject, None)
        self._moments.forget(subject)

    def seq_of(self, subject: bytes) -> int:
        """The sequence of the schedule on a subject, 0 if there is none."""
        schedule = self._by_subject.get(subject)
        return schedule.seq if schedule is not None else 0

    def rearm(self, subject: bytes, next_ns: int) -> None:
        """A firing was stored that names the next one."""
        schedule = self._by_subject.get(subject)
        if schedule is not None:
            schedule.next_ns = next_ns
            self._moments.set(subject, next_ns)

    def forget(self, subject: bytes, seq: int) -> None:
        """A message was removed; if it was the schedule of its subject, that ends."""
        schedule = self._by_subject.get(subject)
        if schedule is not None and schedule.seq == seq:
            self._remove(subject)

    def forget_below(self, seq: int) -> None:
        """Every message below `seq` was removed."""
        for subject in [subject for subject, schedule in self._by_subject.items() if schedule.seq < seq]:
            self._remove(subject)

    def next_deadline_ns(self) -> int | None:
        """The earliest firing."""
        return self._moments.next_ns()

    def due(self, now_ns: int) -> list[Due]:
        """The schedules whose time has come, earliest first; each stays due until its firing is stored."""
        found: list[tuple[int, bytes]] = []
        while (subject := self._moments.pop_due(now_ns)) is not None:
            found.append((self._by_subject[subject].next_ns, subject))
        for next_ns, subject in found:
            self._moments.set(subject, next_ns)
        return [
            Due(subject, self._by_subject[subject].seq, self._by_subject[subject].source)
            for _, subject in sorted(found)
        ]

    def next_of(self, subject: bytes, now_ns: int) -> bytes:
        """The Nats-Schedule-Next of a firing now."""
        pattern = self._by_subject[subject].pattern
        next_ns = pattern.next_ns(now_ns, now_ns) if pattern.repeats else None
        return PURGE if next_ns is None else format_time(next_ns).encode()

    def snapshot(self) -> list[tuple[bytes, int, int]]:
        """(subject, sequence of the schedule, next firing) of each; patterns are in the messages."""
        return [(subject, schedule.seq, schedule.next_ns) for subject, schedule in self._by_subject.items()]


def fired_message(
    scheduler: bytes,
    schedule_headers: Mapping[bytes, bytes],
    content: tuple[bytes, bytes],
    next_value: bytes,
) -> tuple[bytes, bytes, bytes]:
    """(subject, header block, payload) of one firing.

    `content`: header block and payload of the sampled message, or of the schedule itself. The server's own headers
    do not travel along: they would set another expiry, id or schedule.
    """
    block, payload = content
    block = remove_headers_with_prefix(block, b"Nats-")
    block = set_header(block, SCHEDULER, scheduler)
    block = set_header(block, NEXT, next_value)
    ttl = schedule_headers.get(TTL)
    if ttl:
        block = set_header(block, TTL_HEADER, ttl)
    rollup = schedule_headers.get(ROLLUP)
    if rollup:
        block = set_header(block, header.ROLLUP, rollup)
    return schedule_headers[TARGET], block, payload


def parse_next(value: bytes) -> int | None:
    """The next firing that a stored firing names; None for "purge"."""
    return parse_time(to_text(value)) if value != PURGE else None
