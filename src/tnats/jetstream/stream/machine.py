"""The stream machine: applies committed entries, the same on every replica.

Purpose. All state of a stream that its log determines: the store's messages, the duplicate window, deadlines,
schedules. Every replica that applied the same entries holds the same state; nothing here knows the time, the
consumers, or who asked.

Rules. Entries come in log order. An `Append` carries its sequences; one that does not follow on is a broken
invariant. Limits (`max_msgs`, `max_bytes`, `max_msgs_per_subject`) are enforced after each entry, oldest first,
so a message may push itself out. Age and TTL are enforced by `Expire` entries, which the leader proposes; a
message whose subject is due a delete marker stays until the marker, an ordinary message with a rollup header, takes
its place.

The host's duties: apply every committed entry once; hand `Applied` to the consumers; after a restart load the last
snapshot (`snapshot.load`), apply the entries behind it, and `observe` messages whose entry the log has lost.
"""

from __future__ import annotations

from collections import Counter

import attrs

from tnats.errors import InvariantBroken
from tnats.jetstream.api.fields import decode as decode_json
from tnats.jetstream.api.messages import StreamState
from tnats.jetstream.stream.config import Discard, StreamConfig
from tnats.jetstream.stream.dedup import DuplicateWindow
from tnats.jetstream.stream.entries import Append, Entry, Expire, Message, Purge, Remove, Skip
from tnats.jetstream.stream.headers import (
    MSG_ID,
    ROLLUP,
    ROLLUP_ALL,
    STREAM_SOURCE,
    Place,
    nats_headers,
    parse_place,
    source_alone,
)
from tnats.jetstream.stream.ports import StreamStore
from tnats.jetstream.stream.schedules import NEXT, SCHEDULE, SCHEDULER, Schedules, parse_next
from tnats.jetstream.stream.ttl import TTL_HEADER, Deadlines, is_removal, parse_ttl
from tnats.limits import EXPIRE_MSGS_PER_ENTRY_MAX
from tnats.records import define
from tnats.storage.message_run import MessageRun, subjects_of
from tnats.subjects.tokens import TAIL


@define
class Applied:
    """What applying one entry did. `first_seq`, `next_seq`: the range of sequences it added.

    `removed`: (sequence, subject) of single messages; `removed_below`: everything below this is gone, 0 if nothing;
    `removed_count`: messages that went in either way.
    `purged`: the patterns of purges and roll-ups among it, `>` for everything.
    `previous`: with republishing, the last sequence of each added message's subject before it.
    """

    first_seq: int = 0
    next_seq: int = 0
    removed: list[tuple[int, bytes]] = attrs.field(factory=list)
    removed_below: int = 0
    removed_count: int = 0
    purged: list[bytes] = attrs.field(factory=list)
    previous: list[int] = attrs.field(factory=list)


class StreamMachine:
    """The applied state of one stream."""

    def __init__(self, config: StreamConfig, store: StreamStore) -> None:
        """`store` is opened with the configuration's `first_seq`."""
        self.config = config
        self.store = store
        self.duplicates = DuplicateWindow(config.duplicate_window_ns)
        self.deadlines = Deadlines()
        self.schedules = Schedules()
        self.sourced: dict[bytes, Place] = {}
        """The place up to which each origin is taken, by `headers.parse_place`: its message may be gone by now."""
        self.was_purged = False
        """Somebody purged it: reported as first sequence 1 rather than 0 of a stream that never held a message."""
        self._has_limits = False
        self._aging_from_seq = 1
        self._configure(config)

    # ------------------------------------------------------------------ entries

    def apply(self, entry: Entry) -> Applied:
        """Apply the next committed entry."""
        applied = Applied()
        if isinstance(entry, Append):
            self._apply_append(entry, applied)
        elif isinstance(entry, Remove):
            for seq in entry.seqs:
                self._remove(seq, applied, erase=entry.erase)
        elif isinstance(entry, Purge):
            self._apply_purge(entry, applied)
        elif isinstance(entry, Expire):
            for seq in self.expired(entry.now_ns)[0]:
                self._remove(seq, applied)
        elif isinstance(entry, Skip):
            if entry.next_seq > self.store.last_seq + 1:
                self.store.skip_to(entry.next_seq, entry.ts_ns)
        else:
            self._configure(decode_json(StreamConfig, entry.config))
            self._enforce_all(applied)
        return applied

    def _configure(self, config: StreamConfig) -> None:
        self.config = config
        self.duplicates.window_ns = config.duplicate_window_ns
        self._has_limits = config.max_msgs > 0 or config.max_bytes > 0 or config.max_msgs_per_subject > 0

    @property
    def is_unlimited(self) -> bool:
        """A message without headers does nothing but be stored."""
        return not self._has_limits

    def _apply_append(self, entry: Append, applied: Applied) -> None:
        store, seq, ts_ns = self.store, entry.first_seq, entry.ts_ns
        if seq != store.last_seq + 1:
            raise InvariantBroken(f"stream {self.config.name}: entry at {seq} after {store.last_seq}")
        messages = entry.messages
        applied.first_seq, applied.next_seq = seq, seq + len(messages)
        if self.config.republish is not None:
            self._note_previous(entry, applied)
        if entry.dropped:
            self._append_some(entry, applied)
            return
        store.append_run(ts_ns, messages)
        if type(messages) is not MessageRun or messages.has_headers:
            for subject, headers, _ in messages:
                if headers and (source := source_alone(headers)):
                    self._note_source(source)
                elif headers and (b"\r\nNats-" in headers or b"\r\nKV-" in headers):
                    self._note_headers(seq, ts_ns, subject, headers, applied)
                seq += 1
        if self._has_limits:
            if self.config.max_msgs_per_subject > 0:
                for subject in dict.fromkeys(subjects_of(messages)):
                    self._enforce_subject(subject, applied)
            self._enforce_totals(applied)

    def _append_some(self, entry: Append, applied: Applied) -> None:
        for offset, (subject, headers, payload) in enumerate(entry.messages):
            seq = entry.first_seq + offset
            if offset in entry.dropped:
                self.store.skip(seq, entry.ts_ns)
                found = nats_headers(headers)
                self._rollup(seq, subject, found.get(ROLLUP, b""), applied)
                if found.get(MSG_ID):
                    self.duplicates.add(found[MSG_ID], seq, entry.ts_ns)
                if STREAM_SOURCE in found:
                    self._note_source(found[STREAM_SOURCE])
                continue
            self.store.append(seq, entry.ts_ns, subject, headers, payload)
            self._note_headers(seq, entry.ts_ns, subject, headers, applied)
            if self.config.max_msgs_per_subject > 0:
                self._enforce_subject(subject, applied)
            self._enforce_totals(applied)

    def _note_previous(self, entry: Append, applied: Applied) -> None:
        last: dict[bytes, int] = {}
        for offset, (subject, _, _) in enumerate(entry.messages):
            applied.previous.append(last.get(subject) or self.store.last_seq_of(subject))
            last[subject] = entry.first_seq + offset

    def _note_headers(self, seq: int, ts_ns: int, subject: bytes, block: bytes, applied: Applied) -> None:
        headers = self._observe_headers(seq, ts_ns, subject, block)
        rollup = headers.get(ROLLUP)
        if rollup:
            self._rollup(seq, subject, rollup, applied)
        scheduler = headers.get(SCHEDULER)
        if scheduler and headers.get(NEXT) is not None and self.config.allow_msg_schedules:
            next_ns = parse_next(headers[NEXT])
            if next_ns is not None:
                self.schedules.rearm(scheduler, next_ns)
            else:
                self._remove(self.schedules.seq_of(scheduler), applied)

    def _observe_headers(self, seq: int, ts_ns: int, subject: bytes, block: bytes) -> dict[bytes, bytes]:
        """Note what the headers of a message mean as long as it is there; those that concern JetStream."""
        if self.config.allow_msg_ttl and is_removal(block):
            self.deadlines.add_marker(seq)
        headers = nats_headers(block)
        msg_id = headers.get(MSG_ID)
        if msg_id:
            self.duplicates.add(msg_id, seq, ts_ns)
        if STREAM_SOURCE in headers:
            self._note_source(headers[STREAM_SOURCE])
        if self.config.allow_msg_ttl:
            ttl_ns = parse_ttl(headers.get(TTL_HEADER, b""))
            if ttl_ns:
                self.deadlines.add(seq, ts_ns, ttl_ns)
        if self.config.allow_msg_schedules and headers.get(SCHEDULE):
            self.schedules.add(subject, seq, ts_ns, headers)
        return headers

    def _note_source(self, value: bytes) -> None:
        parsed = parse_place(value)
        if parsed is not None:
            followed, place = parsed
            self.sourced[followed] = place

    def _rollup(self, seq: int, subject: bytes, value: bytes, applied: Applied) -> None:
        if not value or not self.config.allow_rollup_hdrs:
            return
        if value.lower() == ROLLUP_ALL:
            applied.purged.append(TAIL)
            self._remove_below(seq, applied)
        else:
            applied.purged.append(subject)
            for old_seq in list(self.store.seqs_of(subject)):
                if old_seq < seq:
                    self._remove(old_seq, applied)

    # ------------------------------------------------------------------ removal

    def _remove(self, seq: int, applied: Applied, *, erase: bool = False) -> None:
        subject = self.store.subject_of(seq)
        if subject is None:
            return
        self.store.remove(seq, erase=erase)
        self.deadlines.forget(seq)
        self.schedules.forget(subject, seq)
        applied.removed.append((seq, subject))
        applied.removed_count += 1

    def _remove_below(self, seq: int, applied: Applied) -> None:
        count = self.store.remove_before(seq)
        if count:
            applied.removed_count += count
            self.deadlines.forget_below(seq)
            self.schedules.forget_below(seq)
            applied.removed_below = max(applied.removed_below, seq)

    def _enforce_subject(self, subject: bytes, applied: Applied) -> None:
        store, subject_max = self.store, self.config.max_msgs_per_subject
        while store.count_of(subject) > subject_max:
            self._remove(store.first_seq_of(subject), applied)

    def _enforce_totals(self, applied: Applied) -> None:
        store, config = self.store, self.config
        if config.discard == Discard.NEW:
            return  # nothing that is stored goes; where a limit was lowered, there is more than it
        if config.max_msgs > 0:
            while store.messages > config.max_msgs:
                self._remove(store.first_seq, applied)
        if config.max_bytes > 0:
            while store.total_bytes > config.max_bytes:
                self._remove(store.first_seq, applied)

    def _enforce_all(self, applied: Applied) -> None:
        """Bring the store within limits that just became tighter."""
        store, subject_max = self.store, self.config.max_msgs_per_subject
        if subject_max > 0:
            seq = store.next_seq(1)
            while seq:
                subject = store.subject_of(seq)
                if subject is not None and store.count_of(subject) > subject_max:
                    self._remove(seq, applied)
                seq = store.next_seq(seq + 1)
        if store.messages:
            self._enforce_totals(applied)

    def _apply_purge(self, purge: Purge, applied: Applied) -> None:
        store = self.store
        self.was_purged = True
        applied.purged.append(purge.pattern or TAIL)
        if not purge.pattern:
            bound = purge.seq or store.last_seq + 1
            if purge.keep:
                seq, kept = store.last_seq, 0
                while seq >= store.first_seq and kept < purge.keep:
                    kept += store.subject_of(seq) is not None
                    seq -= 1
                bound = seq + 1
            self._remove_below(min(bound, store.last_seq + 1), applied)
            return
        seqs = [seq for seq in store.seqs_of(purge.pattern) if not purge.seq or seq < purge.seq]
        for seq in seqs[: len(seqs) - purge.keep] if purge.keep else seqs:
            self._remove(seq, applied)

    def expired(self, now_ns: int) -> tuple[list[int], list[int]]:
        """(messages to remove, messages to give way to a delete marker), both bounded: their TTL or age is over.

        A marker is left where nothing else is: by the last message of its subject, which goes after all others. A
        sealed stream takes in none.
        """
        overdue = self._overdue(now_ns)
        if not self.config.subject_delete_marker_ttl_ns or self.config.sealed:
            return overdue, []
        store = self.store
        subjects = [store.subject_of(seq) or b"" for seq in overdue]
        counts = Counter(subjects)
        removed: list[int] = []
        marked: list[int] = []
        for seq, subject in zip(overdue, subjects, strict=True):
            is_last = counts[subject] == store.count_of(subject) and store.last_seq_of(subject) == seq
            (marked if is_last and not self.deadlines.is_marker(seq) else removed).append(seq)
        return removed, marked

    def _overdue(self, now_ns: int) -> list[int]:
        """At most EXPIRE_MSGS_PER_ENTRY_MAX by TTL, and as many by age."""
        found = self.deadlines.due(now_ns, EXPIRE_MSGS_PER_ENTRY_MAX)
        if self.config.max_age_ns <= 0:
            return found
        due = dict.fromkeys(found)
        horizon_ns = now_ns - self.config.max_age_ns
        seq = self._first_aging()
        while seq and len(due) < 2 * EXPIRE_MSGS_PER_ENTRY_MAX:
            ts_ns = self.store.time_of(seq)
            if ts_ns is None or ts_ns > horizon_ns:
                break
            if not self.deadlines.is_never(seq):
                due[seq] = None
            seq = self.store.next_seq(seq + 1)
        return list(due)

    def next_expiry_ns(self) -> int | None:
        """When the next message ends by TTL or age; None: never."""
        ends_ns = self.deadlines.next_deadline_ns()
        if self.config.max_age_ns > 0:
            seq = self._first_aging()
            ts_ns = self.store.time_of(seq) if seq else None
            if ts_ns is not None:
                age_ends_ns = ts_ns + self.config.max_age_ns
                ends_ns = age_ends_ns if ends_ns is None else min(ends_ns, age_ends_ns)
        return ends_ns

    def _first_aging(self) -> int:
        """The oldest message that age can end, 0 if there is none; what never ends is not looked at again."""
        seq = self.store.next_seq(self._aging_from_seq)
        while seq and self.deadlines.is_never(seq):
            seq = self.store.next_seq(seq + 1)
        self._aging_from_seq = max(self._aging_from_seq, seq)
        return seq

    # ------------------------------------------------------------------ recovery and reports

    def observe(self, seq: int, ts_ns: int, message: Message) -> None:
        """A message that the store already holds: rebuild what its headers mean. In order."""
        headers = self._observe_headers(seq, ts_ns, message[0], message[1])
        scheduler = headers.get(SCHEDULER)
        next_ns = parse_next(headers[NEXT]) if scheduler and NEXT in headers else None
        if scheduler and next_ns is not None:
            self.schedules.rearm(scheduler, next_ns)

    def state(self) -> StreamState:
        """What STREAM.INFO reports, without subject and consumer details."""
        store = self.store
        first_seq = store.next_seq(1)
        return StreamState(
            messages=store.messages,
            bytes=store.total_bytes,
            first_seq=store.first_seq,
            first_ts_ns=store.time_of(first_seq) if first_seq else None,
            last_seq=store.last_seq,
            last_ts_ns=store.last_ts_ns,
            num_deleted=max(store.last_seq + 1 - store.first_seq - store.messages, 0),
        )
