"""A stream's message log as the stream and consumer machines see it: `StreamStore` and `StreamIndex` over `MessageLog`.

Everything is answered from the log's index.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, compress

from tnats import limits
from tnats.storage.errors import DataDamaged
from tnats.storage.index_columns import PLACE_MIN
from tnats.storage.index_subjects import SubjectFilter
from tnats.storage.message_log import Content, Message, MessageLog, Stored
from tnats.storage.message_run import MessageRun
from tnats.storage.stream_log import StreamLog
from tnats.subjects.matcher import Matcher
from tnats.subjects.tokens import has_wildcard, subject_matches

RECENT_COST_BYTES = 300
"""Memory that each of the newest messages takes beside its bytes."""
SHORT_RANGE = 512
"""Sequences that are looked at one by one rather than through the table of subjects."""
NEAR_RANGE = 4096
"""Sequences that are looked at before subjects with few messages are asked for all of them, which takes as long: who
reads message after message, each near the last, must not pay for all of them each time.
"""


class IndexedStore:
    """See the module's text."""

    def __init__(self, log: MessageLog) -> None:
        self.log = log
        self.index = log.index
        self.last_time_ns = log.last_time_ns
        self._matchers: dict[tuple[bytes, ...], Matcher] = {}
        """By filters: those of consumers, which ask again and again."""
        self._recent: dict[int, Content] = {}
        """The newest messages of a log in files, since its checkpoint: consumers mostly want what has just come."""
        self._recent_bytes_max = limits.RECENT_BYTES_MAX if isinstance(log, StreamLog) else 0
        self._recent_bytes = 0

    # ------------------------------------------------------------------ figures

    @property
    def first_seq(self) -> int:
        return self.index.first

    @property
    def last_seq(self) -> int:
        return self.index.last

    @property
    def last_ts_ns(self) -> int | None:
        return self.last_time_ns or None

    @property
    def messages(self) -> int:
        return self.index.messages

    @property
    def total_bytes(self) -> int:
        return self.index.bytes

    @property
    def subject_count(self) -> int:
        return self.index.subject_count

    def message_bytes(self, subject: bytes, headers: bytes, payload: bytes) -> int:
        return self.log.size_of(subject, headers, payload)

    # ------------------------------------------------------------------ changes

    def append(self, seq: int, ts_ns: int, subject: bytes, headers: bytes, payload: bytes) -> None:
        self.last_time_ns = ts_ns
        content = (subject, headers, payload)
        self.log.hold((Message(seq, ts_ns, *content),))
        if self._recent_bytes_max:
            self._remember(seq, (content,))

    def append_run(self, ts_ns: int, messages: Sequence[Content]) -> None:
        self.last_time_ns = ts_ns
        first = self.index.last + 1
        self.log.hold_run(ts_ns, messages)
        if self._recent_bytes_max and not self.log.is_recovering:  # what is replayed did not just come
            self._remember(first, messages)

    def append_replayed(self, times_ns: array[int], messages: MessageRun) -> None:
        """`append_run` for messages of several entries, at the times in `times_ns`."""
        self.last_time_ns = times_ns[-1]
        self.log.hold_replayed(times_ns, messages)

    def _remember(self, first: int, messages: Sequence[Content]) -> None:
        recent = self._recent
        if len(messages) == 1:
            recent[first] = content = messages[0]
            self._recent_bytes += len(content[1]) + len(content[2]) + RECENT_COST_BYTES
            if self._recent_bytes > self._recent_bytes_max:
                self._forget_half()
            return
        recent.update(zip(range(first, first + len(messages)), messages, strict=True))
        self._recent_bytes += sum([len(head) + len(body) for _, head, body in messages]) + RECENT_COST_BYTES * len(
            messages
        )
        if self._recent_bytes > self._recent_bytes_max:
            self._forget_half()

    def _forget_half(self) -> None:
        """The older half goes at once: taking the first of a dictionary again and again is slow."""
        kept = list(self._recent.items())[len(self._recent) // 2 :]
        self._recent = dict(kept)
        self._recent_bytes = sum([len(head) + len(body) + RECENT_COST_BYTES for _, (_, head, body) in kept])

    def forget_recent(self) -> None:
        """Keep no messages that the files have."""
        self._recent, self._recent_bytes = {}, 0

    def skip(self, seq: int, ts_ns: int) -> None:
        self.last_time_ns = ts_ns
        self.log.skip(seq, seq)

    def skip_to(self, next_seq: int, ts_ns: int) -> None:
        self.last_time_ns = ts_ns
        self.log.skip(self.index.last + 1, next_seq - 1)

    def remove(self, seq: int, *, erase: bool = False) -> bool:
        return self.log.remove((seq,), erase=erase) > 0

    def remove_before(self, seq: int) -> int:
        return self.log.raise_start(seq)

    # ------------------------------------------------------------------ one message

    def subject_of(self, seq: int) -> bytes | None:
        return self.index.subject(seq) if self.index.place(seq) >= PLACE_MIN else None

    def time_of(self, seq: int) -> int | None:
        return self.index.time_ns(seq) if self.index.place(seq) >= PLACE_MIN else None

    def size_of(self, seq: int) -> int:
        return self.index.size(seq) if self.index.place(seq) >= PLACE_MIN else 0

    def sizes_of(self, seqs: Sequence[int]) -> Sequence[int]:
        """Bytes of subject, header block and payload of each message (a few more in files, where the index does not
        tell whether there are headers).
        """
        cost = self.log.size_of(b"", b"", b"")
        if len(seqs) == 1:
            return (self.index.size(seqs[0]) - cost,)
        return [size - cost for size in self.index.sizes_of(seqs)]

    def headers_size_of(self, seq: int) -> int | None:
        """Bytes of the message's header block, None if it would have to be read first or cannot be."""
        try:
            message = self.load_nowait(seq)
        except (KeyError, DataDamaged):
            return None
        return None if message is None else len(message.headers)

    # ------------------------------------------------------------------ search

    def next_seq(self, seq: int) -> int:
        return self.index.next_live(seq)

    def last_seq_of(self, pattern: bytes) -> int:
        return self.index.last_of(_wanted((pattern,)))

    def first_seq_of(self, subject: bytes) -> int:
        return self.index.next(subject, 1)

    def count_of(self, subject: bytes) -> int:
        return self.index.count(subject, 1)

    def seqs_of(self, pattern: bytes) -> Iterator[int]:
        return self.matching((pattern,), 1)

    def matching(self, filters: tuple[bytes, ...], seq: int) -> Iterator[int]:
        """The messages from `seq` on that match, rising."""
        run = self.next_run(filters, seq, SHORT_RANGE)
        while run:
            yield from run
            run = self.next_run(filters, run[-1] + 1, SHORT_RANGE)

    def next_matching(self, filters: tuple[bytes, ...], seq: int) -> int:
        run = self.next_run(filters, seq, 1)
        return run[0] if run else 0

    def next_run(self, filters: tuple[bytes, ...], seq: int, count_max: int) -> Sequence[int]:
        if not filters:
            return self.index.live_run(seq, count_max)
        if len(filters) == 1 and not has_wildcard(filters[0]):
            found: list[int] = []
            seq = self.index.next(filters[0], seq)
            while seq and len(found) < count_max:
                found.append(seq)
                seq = self.index.next(filters[0], seq + 1)
            return _as_range(found)
        matches = self._matcher(filters)
        far_seq = seq + NEAR_RANGE
        found = self._look(matches, seq, far_seq, count_max)
        if not found and far_seq <= self.index.last:
            few = self.index.few_from(matches, far_seq)
            found = few[:count_max] if few is not None else self._look(matches, far_seq, self.index.last + 1, count_max)
        return _as_range(found)

    def _look(self, matches: Matcher, seq: int, end_seq: int, count_max: int) -> list[int]:
        """The first matches of those from `seq` on and below `end_seq`, which are looked at one by one."""
        found: list[int] = []
        look = count_max
        while len(found) < count_max and seq < end_seq:
            live = self.index.live_run(seq, min(look, end_seq - seq))
            if not live:
                break
            subjects = self.index.subjects_at(live)
            different = list(dict.fromkeys(subjects))
            wanted = set(compress(different, matches.verdicts(different)))
            found += [seq for seq, subject in zip(live, subjects, strict=True) if subject in wanted]
            seq = live.stop
            look = min(2 * look, SHORT_RANGE)
        return found[:count_max]

    def count_matching(self, filters: tuple[bytes, ...], from_seq: int, to_seq: int) -> int:
        index = self.index
        if to_seq >= index.last and to_seq - from_seq > SHORT_RANGE:
            return index.count(_wanted(filters), from_seq)
        matches = self._matcher(filters) if filters else None
        count = 0
        while run := index.live_run(from_seq, to_seq + 1 - from_seq):
            run = run[: max(to_seq + 1 - run.start, 0)]
            count += len(run) if matches is None else sum(map(bool, matches.verdicts(index.subjects_at(run))))
            from_seq = run.stop
        return count

    def last_matching(self, filters: tuple[bytes, ...]) -> int:
        return self.index.last_of(_wanted(filters))

    def last_per_subject(self, filters: tuple[bytes, ...], until: int = 0) -> Iterator[int]:
        """`until`: the last sequence that counts, if given."""
        return iter(self.index.lasts(_wanted(filters), until))

    def wants(self, filters: tuple[bytes, ...], subject: bytes) -> bool:
        if len(filters) > 1:
            return self._matcher(filters)(subject)
        return not filters or subject_matches(filters[0], subject)

    def seq_at_time(self, ts_ns: int) -> int:
        index = self.index
        low, high = index.first, index.last + 1
        while low < high:
            middle = (low + high) // 2
            seq = index.next_live(middle)
            if not seq or seq >= high or index.time_ns(seq) >= ts_ns:
                high = middle
            else:
                low = seq + 1
        return index.next_live(low) or index.last + 1

    def subjects(self, pattern: bytes) -> dict[bytes, int]:
        """Number of messages by subject, for those that match."""
        return {name: state.messages for name, state in self.index.subjects(_wanted((pattern,))).items()}

    def _matcher(self, filters: tuple[bytes, ...]) -> Matcher:
        found = self._matchers.get(filters)
        if found is None:
            if len(self._matchers) >= limits.MATCHERS_MAX:
                self._matchers.clear()
            found = self._matchers[filters] = Matcher(filters)
        return found

    # ------------------------------------------------------------------ contents

    def load_nowait(self, seq: int) -> Message | None:
        """The message if it can be had without waiting. Raises as `MessageLog.load_nowait`."""
        content = self._recent.get(seq)
        if content is not None and self.index.place(seq) >= PLACE_MIN:
            return Message(seq, self.index.time_ns(seq), *content)
        return self.log.load_nowait(seq)

    def load_run_nowait(self, seqs: Sequence[int]) -> list[Stored | None]:
        """As `MessageLog.load_run_nowait`."""
        recent = self._recent
        content = recent.get(seqs[0])
        if content is None:
            return self.log.load_run_nowait(seqs)
        if len(seqs) == 1:
            is_there = self.index.place(seqs[0]) >= PLACE_MIN
            return [(seqs[0], self.index.time_ns(seqs[0]), *content) if is_there else None]
        found: list[Stored | None] = []
        index = self.index
        for seq, place, time_ns in zip(seqs, index.places_of(seqs), index.times_of(seqs), strict=True):
            content = recent.get(seq)
            if content is None:
                found += self.log.load_run_nowait(seqs[len(found) :])
                break
            found.append((seq, time_ns, *content) if place >= PLACE_MIN else None)
        return found

    async def load(self, seq: int) -> Message:
        """The message. Raises KeyError, DataDamaged, DiskError."""
        return self.load_nowait(seq) or await self.log.load(seq)

    async def load_some(
        self, filters: tuple[bytes, ...], seq: int, count_max: int, bytes_max: int
    ) -> tuple[list[Stored], int]:
        """Messages from `seq` on, within bounds, and where to read on; 0: there are no others.

        Raises DataDamaged, DiskError for the first one.
        """
        wanted = self.next_run(filters, seq, count_max)
        if not wanted:
            return [], 0
        sizes = list(accumulate(self.sizes_of(wanted)))
        if sizes[-1] > bytes_max:
            wanted = wanted[: max(bisect_right(sizes, bytes_max), 1)]
        found = self.load_run_nowait(wanted)
        if found:
            return [one for one in found if one is not None], wanted[len(found) - 1] + 1
        try:
            message = await self.log.load(wanted[0])
        except KeyError:  # removed meanwhile
            return [], wanted[0] + 1
        return [(message.sequence, message.time_ns, *content(message))], wanted[0] + 1


def _as_range(seqs: list[int]) -> Sequence[int]:
    """Rising sequences, as a range if they are one."""
    if seqs and seqs[-1] - seqs[0] == len(seqs) - 1:
        return range(seqs[0], seqs[-1] + 1)
    return seqs


def _wanted(filters: tuple[bytes, ...]) -> SubjectFilter:
    """Filters as the index takes them."""
    if not filters or filters == (b">",):
        return None
    if len(filters) == 1 and not has_wildcard(filters[0]):
        return filters[0]
    return Matcher(filters)


def content(message: Message) -> Content:
    """A stored message as the stream machine takes it."""
    return message.subject, message.headers, message.payload
