"""The entries of a stream's log: what the leader decided, and every replica applies alike.

An entry is complete: times, sequences, dropped messages stand in it, so that applying needs no clock and no
knowledge of consumers. `encode` and `decode` give its bytes in the log: one version byte, one kind byte, then
fixed little-endian integers and the raw bytes.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable

from tnats.errors import InvariantBroken
from tnats.records import frozen
from tnats.runtime.api import Buffer
from tnats.storage import hot
from tnats.storage.message_run import MessageRun
from tnats.subjects.tokens import has_wildcard, subject_matches

FORMAT_VERSION = 1
FEW = 4
"""Fewer messages of an entry are taken apart when it is decoded."""
GATHERED_MAX = 16_384
"""Messages that are replayed as one, but for the last entry among them."""

Message = tuple[bytes, bytes, bytes]
"""Subject, header block, payload."""

Reply = tuple[bytes, bytes]
"""Reply subject, payload."""

_APPEND, _REMOVE, _PURGE, _EXPIRE, _CONFIGURE, _SKIP = range(1, 7)
_PREFIX = struct.Struct("<BB")
_APPEND_HEAD = struct.Struct("<BBQQII")
_PURGE_HEAD = struct.Struct("<QQH")


class Append:
    """Consecutive messages of one time. `dropped`: offsets of those nobody is interested in (they use a sequence).

    The leader's copy also knows whom to answer: `replies` runs parallel to `messages` (empty: nobody), `acks`
    holds the answers that are not the plain PubAck, by offset (None: no answer), and `after` what else is to be
    sent once this entry is committed, each with the offset of the message before whose answer it goes out.
    `size_bytes`, `added_count`: by how much its messages let the stream grow, where the leader keeps account.
    """

    __slots__ = (
        "_count_by_subject",
        "_indexed_count",
        "_last_by_subject",
        "acks",
        "added_count",
        "after",
        "dropped",
        "first_seq",
        "messages",
        "replies",
        "size_bytes",
        "ts_ns",
    )

    def __init__(self, first_seq: int, ts_ns: int, messages: list[Message] | MessageRun, replies: list[bytes]) -> None:
        self.first_seq = first_seq
        self.ts_ns = ts_ns
        self.messages = messages
        """A list while the leader gathers them; as they were written, where the entry comes from the log."""
        self.replies = replies
        self.acks: dict[int, bytes | None] = {}
        self.after: list[tuple[int, Reply]] = []
        self.dropped: dict[int, None] = {}
        self.size_bytes = 0
        self.added_count = 0
        self._last_by_subject: dict[bytes, int] = {}
        self._count_by_subject: dict[bytes, int] = {}
        self._indexed_count = 0

    @property
    def next_seq(self) -> int:
        """The sequence after the last message."""
        return self.first_seq + len(self.messages)

    def last_seq_of(self, pattern: bytes) -> int:
        """The newest message here on the subject or pattern, 0 if there is none."""
        self._index()
        found = self._last_by_subject.get(pattern, 0)
        if not found and has_wildcard(pattern):
            found = max(
                (seq for subject, seq in self._last_by_subject.items() if subject_matches(pattern, subject)), default=0
            )
        return found

    def answer_after(self, reply: bytes, payloads: Iterable[bytes]) -> None:
        """Send these, once committed, behind the answers to the messages that are here by now."""
        offset = len(self.messages)
        self.after.extend((offset, (reply, payload)) for payload in payloads)

    def count_of(self, subject: bytes) -> int:
        """How many messages on the subject are here."""
        self._index()
        return self._count_by_subject.get(subject, 0)

    def truncate(self, count: int) -> None:
        """Take back all messages from offset `count` on."""
        assert isinstance(self.messages, list)
        del self.messages[count:]
        del self.replies[count:]
        for offset in [offset for offset in self.dropped if offset >= count]:
            del self.dropped[offset]
        for offset in [offset for offset in self.acks if offset >= count]:
            del self.acks[offset]
        self._last_by_subject.clear()
        self._count_by_subject.clear()
        self._indexed_count = 0

    def _index(self) -> None:
        # Built on first use and continued: most entries are never asked.
        last, count = self._last_by_subject, self._count_by_subject
        for offset in range(self._indexed_count, len(self.messages)):
            if offset not in self.dropped:
                subject = self.messages[offset][0]
                last[subject] = self.first_seq + offset
                count[subject] = count.get(subject, 0) + 1
        self._indexed_count = len(self.messages)


@frozen
class Remove:
    """These messages go: acknowledged by all, or deleted by a user (`erase` overwrites their bytes)."""

    seqs: tuple[int, ...]
    erase: bool = False


@frozen
class Purge:
    """Messages on `pattern` (empty: all) go: those below `seq`, or all but the last `keep`, or, with neither, all."""

    pattern: bytes = b""
    seq: int = 0
    keep: int = 0


@frozen
class Expire:
    """Messages whose age or TTL ended by `now_ns` go."""

    now_ns: int


@frozen
class Configure:
    """From here on this configuration (its JSON) holds."""

    config: bytes


@frozen
class Skip:
    """A mirror's origin has nothing below `next_seq` any more: the sequences up to there are used up."""

    next_seq: int
    ts_ns: int


Entry = Append | Remove | Purge | Expire | Configure | Skip


def encode(entry: Entry) -> bytes:
    """The bytes of an entry in the log."""
    if isinstance(entry, Append):
        return _encode_append(entry)
    if isinstance(entry, Remove):
        body = struct.pack(f"<BI{len(entry.seqs)}Q", entry.erase, len(entry.seqs), *entry.seqs)
        return _PREFIX.pack(FORMAT_VERSION, _REMOVE) + body
    if isinstance(entry, Purge):
        head = _PURGE_HEAD.pack(entry.seq, entry.keep, len(entry.pattern))
        return _PREFIX.pack(FORMAT_VERSION, _PURGE) + head + entry.pattern
    if isinstance(entry, Expire):
        return _PREFIX.pack(FORMAT_VERSION, _EXPIRE) + struct.pack("<Q", entry.now_ns)
    if isinstance(entry, Skip):
        return _PREFIX.pack(FORMAT_VERSION, _SKIP) + struct.pack("<QQ", entry.next_seq, entry.ts_ns)
    return _PREFIX.pack(FORMAT_VERSION, _CONFIGURE) + entry.config


def _encode_append(entry: Append) -> bytes:
    front = _APPEND_HEAD.pack(
        FORMAT_VERSION, _APPEND, entry.first_seq, entry.ts_ns, len(entry.messages), len(entry.dropped)
    )
    if entry.dropped:
        front += struct.pack(f"<{len(entry.dropped)}I", *entry.dropped)
    return hot.join_messages(front, entry.messages)


def decode(data: bytes) -> Entry:
    """The entry that `encode` wrote. Raises InvariantBroken for bytes that are none: the log is checksummed."""
    version, kind = _PREFIX.unpack_from(data)
    if version != FORMAT_VERSION:
        raise InvariantBroken(f"stream log entry of format {version}; this release reads format {FORMAT_VERSION}")
    at = _PREFIX.size
    if kind == _APPEND:
        return _decode_append(data)
    if kind == _REMOVE:
        erase, count = struct.unpack_from("<BI", data, at)
        return Remove(struct.unpack_from(f"<{count}Q", data, at + 5), bool(erase))
    if kind == _PURGE:
        seq, keep, size = _PURGE_HEAD.unpack_from(data, at)
        at += _PURGE_HEAD.size
        return Purge(data[at : at + size], seq, keep)
    if kind == _EXPIRE:
        return Expire(*struct.unpack_from("<Q", data, at))
    if kind == _SKIP:
        return Skip(*struct.unpack_from("<QQ", data, at))
    if kind == _CONFIGURE:
        return Configure(data[at:])
    raise InvariantBroken(f"stream log entry of unknown kind {kind}")


def _decode_append(data: bytes) -> Append:
    _, _, first_seq, ts_ns, count, dropped_count = _APPEND_HEAD.unpack_from(data)
    at = _APPEND_HEAD.size
    dropped = dict.fromkeys(struct.unpack_from(f"<{dropped_count}I", data, at)) if dropped_count else {}
    messages: list[Message] | MessageRun = _run(first_seq, data, at + 4 * dropped_count, count)
    entry = Append(first_seq, ts_ns, list(messages) if count < FEW else messages, [])
    entry.dropped = dropped
    return entry


def _run(first_seq: int, data: bytes, at: int, count: int) -> MessageRun:
    try:
        return MessageRun(data, at, count)
    except ValueError as wrong:
        raise InvariantBroken(f"stream log entry at {first_seq}: {wrong}") from wrong


class PlainAppends:
    """Encoded `Append` entries that follow on each other and drop nothing, gathered to be replayed as one."""

    def __init__(self) -> None:
        self.bodies: list[Buffer] = []
        self.first_seq = 0
        self.next_seq = 0
        self._times_ns = array("Q")

    def add(self, body: Buffer, next_seq: int) -> bool:
        """Take in an entry, if it is one that follows on (the first: on `next_seq`), and there is room."""
        if len(body) < _APPEND_HEAD.size or len(self._times_ns) >= GATHERED_MAX:
            return False
        version, kind, first_seq, ts_ns, count, dropped_count = _APPEND_HEAD.unpack_from(body)
        if (version, kind, dropped_count) != (FORMAT_VERSION, _APPEND, 0):
            return False
        if first_seq != (self.next_seq if self.bodies else next_seq):
            return False
        if not self.bodies:
            self.first_seq = first_seq
        self.bodies.append(body)
        self.next_seq = first_seq + count
        self._times_ns += array("Q", (ts_ns,)) * count
        return True

    def take(self) -> tuple[list[Buffer], array[int], MessageRun]:
        """The entries, the time of each of their messages, and all messages."""
        bodies, times_ns = self.bodies, self._times_ns
        at = _APPEND_HEAD.size
        joined = b"".join([bodies[0], *[memoryview(body)[at:] for body in bodies[1:]]])
        run = _run(self.first_seq, joined, at, len(times_ns))
        self.bodies, self._times_ns = [], array("Q")
        return bodies, times_ns, run
