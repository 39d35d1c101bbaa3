"""Mirrors and sources: what they take, and those whose origins are streams of the same account on this server.

Theory of operation
-------------------
An `Intake` follows one origin. Its task reads what the origin has stored, in order, from where the stream left off,
and hands it to the stream; then it waits until the origin has more. It asks for no more before the stream has stored
what it has got, so a slow stream holds nothing in memory but one batch.

*A mirror* keeps sequences and times: its entries are made here, not judged by the leader, and gaps of the origin become
`Skip` entries. Where it left off is its last sequence.

*A source* gets sequences of the stream, after its own publishes and those of other sources as they come; each message
says in a header where it comes from. Where it left off is kept by the stream's machine, which reads these headers: the
messages themselves may be gone by then.

An intake is a consumer in the eyes of the origin's retention: what it has not stored yet is needed, and when it has,
a work queue or an interest stream may let go of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tnats.ids import name_hash
from tnats.jetstream.api import errors
from tnats.jetstream.api.messages import StreamSourceInfo
from tnats.jetstream.store import content
from tnats.jetstream.stream.config import StreamSource
from tnats.jetstream.stream.entries import Append, Message, Skip
from tnats.jetstream.stream.headers import SOURCE_START, STREAM_SOURCE
from tnats.jetstream.stream.machine import Applied
from tnats.limits import SECOND_NS, SOURCING_BATCH_BYTES_MAX, SOURCING_BATCH_MSGS_MAX
from tnats.runtime.api import DiskError
from tnats.storage.errors import StorageError
from tnats.storage.message_log import Stored
from tnats.subjects.tokens import to_bytes
from tnats.subjects.transforms import Transform
from tnats.wire.headers import remove_headers_with_prefix, set_header

if TYPE_CHECKING:
    from tnats.jetstream.stream.service import StreamService

RETRY_NS = 2 * SECOND_NS
"""How long an intake rests when its origin is not there, or its stream could not store."""
ROOM_NS = SECOND_NS // 4
"""Time between two attempts to store what a stream that discards new messages has no room for."""

NOT_TAKEN = (b"Nats-Expected-", b"Nats-Batch-")
"""Headers that meant something to the origin alone."""


def quoted(text: bytes) -> bytes:
    """Text as a format that stands for itself."""
    return text.replace(b"%", b"%%")


class Intake(ABC):
    """What all intakes share: what they take, how it is stored, where they left off, and what they report."""

    def __init__(self, stream: StreamService, source: StreamSource, *, is_mirror: bool) -> None:
        self.source = source
        self.next_seq = 0
        """Where it reads on in the origin; 0: not known yet."""
        self._stream = stream
        self._is_mirror = is_mirror
        self._last_active_ns: int | None = None
        self._error: dict[str, object] | None = None
        """Why nothing comes, as an error of the API."""
        transforms = [(one.src, one.dest) for one in source.subject_transforms]
        rules = transforms or [(source.filter_subject, "")]
        self.filters = tuple(to_bytes(src or ">") for src, _ in rules)
        """The patterns of what is taken."""
        self._transforms = [Transform(src or ">", dest) for src, dest in rules if dest]
        filters = b"\f".join(self.filters)
        targets = b"\f".join(to_bytes(dest or ">") for _, dest in rules)
        self._name = to_bytes(source.name)
        if source.external is not None and source.external.api:
            self._name += b":" + name_hash(source.external.api).encode()
        self._label = b"%b %b" % (filters, targets)
        self._place = b"%b %b" % (self._name, self._label)
        self._identity = b""
        """Which of the streams that have had this name the origin is, empty as long as that is not known."""

    @abstractmethod
    async def run(self) -> None:
        """Until cancelled."""

    def join(self) -> None:  # noqa: B027
        """An origin of this server keeps for it what it has not taken, from now on."""

    def leave(self) -> None:  # noqa: B027
        """An origin of this server need keep nothing for it any more."""

    @abstractmethod
    def lag(self) -> int:
        """How many messages the origin has that were not taken."""

    # ------------------------------------------------------------------ storing

    async def _put(self, stored: list[Stored]) -> None:
        """Store messages of the origin. Raises StorageError, DiskError."""
        self._last_active_ns = self._stream.host.mono_ns()
        await self._stream.backlog.wait_short(self._stream)
        await (self._mirror(stored) if self._is_mirror else self._take_in(stored))

    async def _mirror(self, stored: list[Stored]) -> None:
        """Store messages at their own sequences and times. All are on their way before one is waited for."""
        stream = self._stream
        next_seq = stream.store.last_seq + 1
        proposals: list[Append | Skip] = []
        messages: list[Message] = []
        run_time_ns = -1
        for one in stored:
            seq, time_ns = one[0], one[1]
            if seq < next_seq:
                continue
            if seq > next_seq:
                proposals.append(Skip(seq, time_ns))
            if seq > next_seq or time_ns != run_time_ns:
                messages, run_time_ns = [], time_ns
                proposals.append(Append(seq, time_ns, messages, []))
            messages.append(self._changed(one))
            next_seq = seq + 1
        if not proposals:
            return
        failures: list[StorageError] = []

        def done(_: Applied | None, error: StorageError | None) -> None:
            if error is not None:
                failures.append(error)

        for proposal in proposals[:-1]:
            stream.propose(proposal, done)
            if failures:  # at once, so that what comes behind it has no place either
                raise failures[0]
        await stream.commit(proposals[-1])

    async def _take_in(self, stored: list[Stored]) -> None:
        """Store messages behind what the stream has, each with a word on where it comes from."""
        place = b" ".join((quoted(self._name), b"%d", quoted(self._label), b"%b"))
        if self._identity:
            place += b" " + self._identity
        block = SOURCE_START + place + b"\r\n\r\n"
        messages = []
        for one in stored:
            subject, headers, payload = self._changed(one)
            seq, origin_subject = one[0], one[2]
            if headers:
                headers = remove_headers_with_prefix(headers, STREAM_SOURCE + b":")
            if headers:
                headers = set_header(headers, STREAM_SOURCE, place % (seq, origin_subject))
            else:
                headers = block % (seq, origin_subject)
            messages.append((subject, headers, payload))
        await self._store(messages)

    async def _store(self, messages: list[Message]) -> None:
        """Returns when they are applied, which may need room. Raises StorageError, DiskError."""
        stream = self._stream
        while messages:
            if stream.config.allow_msg_counter:
                await self._learn_totals(messages)
            admission, count = stream.leader.admit_sourced(messages, stream.host.wall_ns())
            if admission.entry is not None:
                await stream.commit(admission.entry)
            messages = messages[count:]
            if messages:
                await stream.host.runtime.clock.sleep_ns(ROOM_NS)

    async def _learn_totals(self, messages: list[Message]) -> None:
        """Read the counter totals that the leader needs for these messages."""
        stream = self._stream
        for subject in dict.fromkeys(message[0] for message in messages):
            while (seq := stream.leader.wanted_total(subject)) != 0:
                try:
                    found = await stream.store.load(seq)
                except KeyError:
                    continue  # removed meanwhile: there is another last one, or none
                stream.leader.learn_total(seq, content(found))

    def _changed(self, stored: Stored) -> Message:
        """As it is stored: the source's transforms first, then, as with what is published, the stream's."""
        _, _, subject, headers, payload = stored
        if headers:
            for prefix in NOT_TAKEN:
                headers = remove_headers_with_prefix(headers, prefix)
        for transform in self._transforms:
            if transform.matches(subject):
                subject = transform.apply(subject, self._stream.host.draw)
                break
        return self._stream.leader.stored_subject(subject), headers, payload

    # ------------------------------------------------------------------ places

    def _last_taken(self) -> int:
        """The origin's sequence up to which everything is taken; 0: nothing yet, or of another stream of that name.

        A mirror, whose sequences are its origin's, goes on behind them.
        """
        if self._is_mirror:
            return self._stream.store.last_seq
        seq, identity = self._stream.machine.sourced.get(self._place, (0, b""))
        return seq if not identity or self._identity in (b"", identity) else 0

    def _is_early(self) -> bool:
        """Whether its start lies ahead: what comes until then is not wanted."""
        start_ns = self.source.opt_start_time_ns
        return start_ns is not None and start_ns > self._stream.host.wall_ns() and not self._last_taken()

    def info(self) -> StreamSourceInfo:
        """How far it has come."""
        active_ns = -1
        if self._last_active_ns is not None:
            active_ns = self._stream.host.mono_ns() - self._last_active_ns
        return StreamSourceInfo(
            name=self.source.name,
            external=self.source.external,
            lag=self.lag(),
            seq=0 if self._is_mirror else self._last_taken(),
            active_ns=active_ns,
            error=self._error,
            filter_subject=self.source.filter_subject,
            subject_transforms=self.source.subject_transforms,
        )


class LocalIntake(Intake):
    """An intake whose origin is a stream of the same account on this server. A `ConsumerView` of it."""

    def __init__(self, stream: StreamService, source: StreamSource, *, is_mirror: bool) -> None:
        super().__init__(stream, source, is_mirror=is_mirror)
        self._origin: StreamService | None = None

    def lag(self) -> int:
        origin = self._named()
        return max(origin.store.last_seq + 1 - self.next_seq, 0) if origin is not None and self.next_seq else 0

    def _named(self) -> StreamService | None:
        """The stream that has the origin's name now."""
        return self._stream.account.streams.get(self.source.name)

    def _resume_at(self, origin: StreamService) -> int:
        last = self._last_taken()
        if last:
            return last + 1
        if self.source.opt_start_time_ns is not None:
            return max(origin.store.seq_at_time(self.source.opt_start_time_ns), 1)
        return max(self.source.opt_start_seq, 1)

    @property
    def _key(self) -> str:
        return f"intake {self._stream.record.number} {self._label!r}"

    # ------------------------------------------------------------------ the origin's retention

    def needs(self, seq: int) -> bool:
        return seq >= self.next_seq

    # ------------------------------------------------------------------ running

    async def run(self) -> None:
        """Until cancelled."""
        clock = self._stream.host.runtime.clock
        try:
            while True:
                self.join()
                self._error = errors.STREAM_NOT_FOUND().to_json() if self._named() is None else None
                origin = self._origin
                if origin is not None:
                    if self._identity != origin.identity:
                        self._identity, self.next_seq = origin.identity, 0
                    self.next_seq = self.next_seq or self._resume_at(origin)
                    try:
                        await self._follow(origin)
                    except (StorageError, DiskError) as failure:
                        self._stream.host.log.warn(f"{self._stream.record.label} cannot source: {failure}")
                    else:  # otherwise what it could not store is needed still
                        self.leave()
                await clock.sleep_ns(RETRY_NS)
        finally:
            self.leave()

    def join(self) -> None:
        origin = self._named()
        if origin is None or origin is self._stream or self._is_early():
            self.leave()
            return
        self._origin = origin
        origin.interest.put(self._key, self)

    def leave(self) -> None:
        if self._origin is not None:
            self._origin.interest.discard(self._key)
            self._origin = None

    async def _follow(self, origin: StreamService) -> None:
        while self._named() is origin:
            stored, next_seq = await self._read(origin)
            if next_seq == self.next_seq:
                await origin.wait_advanced()
                continue
            if stored:
                await self._put(stored)
            self.next_seq = next_seq
            origin.done_with([message[0] for message in stored], None, is_copied=True)

    async def _read(self, origin: StreamService) -> tuple[list[Stored], int]:
        """Wanted messages of the origin, a bounded number, and where to read on. Raises DiskError."""
        store, seq = origin.store, self.next_seq
        found: list[Stored] = []
        size = 0
        wanted = () if b">" in self.filters else self.filters
        while seq and len(found) < SOURCING_BATCH_MSGS_MAX and size < SOURCING_BATCH_BYTES_MAX:
            room = SOURCING_BATCH_MSGS_MAX - len(found)
            try:
                some, seq = await store.load_some(wanted, seq, room, SOURCING_BATCH_BYTES_MAX)
            except DiskError:  # it may be read later
                if found:
                    break
                raise
            except StorageError:  # damaged, which the origin has reported
                seq = store.next_matching(wanted, store.next_matching(wanted, seq) + 1)
                continue
            found += some
            size += sum([len(one[3]) + len(one[4]) for one in some])
        return found, seq or max(self.next_seq, store.last_seq + 1)
