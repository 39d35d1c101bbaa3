"""Bytes of messages and of what is persisted: checksummed, versioned, and bound to their identity.

Everything is little-endian and begins with

    crc32c u32 | version u8 | kind u8 | group length u8 | group | ...

where the checksum covers all that follows it, the identity included: bytes of another group, another replica or
another kind are refused like damaged ones. A record says besides which node wrote it, in which incarnation, so that a
disk put into the wrong machine, and a hard state older than the log beside it, are noticed.

    message   source u64 | target u64 | term u64 | incarnation u64 | fields in the order of the class
    record    node u64 | incarnation u64 | body
    entry     index u64 | term u64 | previous term u64 | kind u8 | data
              The previous term names the neighbour: if that one is damaged, its identity is known from here.

A version above ours is refused by name; it never is taken for damage.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import attrs
from crc32c import crc32c

from tnats.errors import TnatsError
from tnats.raft import messages as m
from tnats.raft.effects import HardState
from tnats.raft.membership import Member, Membership
from tnats.records import frozen

VERSION = 1


class Damaged(TnatsError):
    """These bytes are not what was written: checksum, length or identity do not fit."""


class NewerFormat(TnatsError):
    """Written by a later release; this one must not guess."""


class RecordKind(IntEnum):
    ENTRY = 101
    HARD_STATE = 102
    MEMBERSHIP = 103
    SNAPSHOT_META = 104
    PROMISE = 105


@frozen
class Identity:
    """Who writes: group, node and incarnation."""

    group: bytes
    node: int
    incarnation: int


@frozen
class StoredEntry:
    entry: m.Entry
    prev_term: int


@frozen
class Promise:
    """Durable was the log up to (`index`, `term`), and the hard state of version `hard_version`.

    Written after the sync that made it true.
    """

    index: int
    term: int
    hard_version: int


_U8 = struct.Struct("<B")
_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")
_ENTRY = struct.Struct("<QQBI")
_STORED_ENTRY = struct.Struct("<QQQB")
_HEAD = struct.Struct("<BBB")
_SPEAKER = struct.Struct("<QQQQ")
_WRITER = struct.Struct("<QQ")
_MEMBER = struct.Struct("<QQ??")
_PAIR = struct.Struct("<QQ")
_HARD = struct.Struct("<QQQQQBQI")
_PROMISE = struct.Struct("<QQQ")


class _Reader:
    """A cursor that knows where the bytes end."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        at = self.at
        self.at = at + layout.size
        if self.at > len(self.data):
            raise Damaged("raft bytes end too early")
        return layout.unpack_from(self.data, at)

    def take(self, size: int) -> bytes:
        at = self.at
        self.at = at + size
        if self.at > len(self.data):
            raise Damaged("raft bytes end too early")
        return self.data[at : self.at]

    def rest(self) -> bytes:
        at, self.at = self.at, len(self.data)
        return self.data[at:]

    def done(self) -> None:
        if self.at != len(self.data):
            raise Damaged("raft bytes go on after their end")


# Parts


def _put_entries(entries: list[m.Entry]) -> bytes:
    parts = [_U32.pack(len(entries))]
    pack = _ENTRY.pack
    for entry in entries:
        parts.append(pack(entry.index, entry.term, entry.kind, len(entry.data)))
        parts.append(entry.data)
    return b"".join(parts)


def _get_entries(reader: _Reader) -> list[m.Entry]:
    (count,) = reader.unpack(_U32)
    if count * _ENTRY.size > len(reader.data):
        raise Damaged("raft bytes announce more entries than they hold")
    entries = []
    for _ in range(count):
        index, term, kind, size = reader.unpack(_ENTRY)
        data = reader.take(size)
        if kind > m.EntryKind.DATA:
            _check_kind(kind, data, index)
        entries.append(m.Entry(index, term, kind, data))
    return entries


def _check_kind(kind: int, data: bytes, index: int) -> None:
    """A log must not take in what cannot be carried out: nobody could undo it."""
    if kind != m.EntryKind.CONFIG:
        raise Damaged(f"raft entry {index} is of the unknown kind {kind}")
    decode_membership(data, index)


def _put_members(membership: Membership) -> bytes:
    parts = [_U32.pack(len(membership.members))]
    parts += [_MEMBER.pack(x.node, x.incarnation, x.voter, x.returning) for x in membership.members]
    return b"".join(parts)


def _get_members(reader: _Reader, index: int) -> Membership:
    (count,) = reader.unpack(_U32)
    if count * _MEMBER.size > len(reader.data):
        raise Damaged("raft bytes announce more members than they hold")
    return Membership(index, tuple(Member(*reader.unpack(_MEMBER)) for _ in range(count)))


def encode_membership(membership: Membership) -> bytes:
    """The data of a CONFIG entry. Its index is the entry's."""
    return _put_members(membership)


def decode_membership(data: bytes, index: int) -> Membership:
    reader = _Reader(data)
    membership = _get_members(reader, index)
    reader.done()
    return membership


def _put_membership(membership: Membership) -> bytes:
    return _I64.pack(membership.index) + _put_members(membership)


def _get_membership(reader: _Reader) -> Membership:
    (index,) = reader.unpack(_I64)
    return _get_members(reader, index)


def _put_meta(meta: m.SnapshotMeta) -> bytes:
    return _SPEAKER.pack(meta.index, meta.term, meta.size, meta.digest) + _put_membership(meta.membership)


def _get_meta(reader: _Reader) -> m.SnapshotMeta:
    index, term, size, digest = reader.unpack(_SPEAKER)
    return m.SnapshotMeta(index, term, _get_membership(reader), size, digest)


def _put_bytes(data: bytes) -> bytes:
    return _U32.pack(len(data)) + data


def _get_bytes(reader: _Reader) -> bytes:
    return reader.take(reader.unpack(_U32)[0])


_Put = Callable[[Any], bytes]
_Get = Callable[[_Reader], Any]

_NUMBER: tuple[_Put, _Get] = (_I64.pack, lambda reader: reader.unpack(_I64)[0])
_FIELDS: dict[str, tuple[_Put, _Get]] = {
    "int": _NUMBER,
    "bool": (lambda value: _U8.pack(bool(value)), lambda reader: bool(reader.unpack(_U8)[0])),
    "bytes": (_put_bytes, _get_bytes),
    "list[Entry]": (_put_entries, _get_entries),
    "Membership": (_put_membership, _get_membership),
    "SnapshotMeta": (_put_meta, _get_meta),
}

MESSAGE_KINDS: tuple[type[m.Message], ...] = (
    m.VoteRequest,
    m.VoteReply,
    m.Append,
    m.AppendReply,
    m.Heartbeat,
    m.HeartbeatReply,
    m.SnapshotChunk,
    m.SnapshotReply,
    m.TimeoutNow,
    m.ReadIndex,
    m.ReadIndexReply,
    m.Relearn,
    m.RelearnReply,
    m.RepairRequest,
    m.RepairReply,
    m.Forgotten,
)
"""The kind byte on the wire is the position here: append only."""

_KIND_OF = {kind: number for number, kind in enumerate(MESSAGE_KINDS)}
_LAYOUTS: list[list[tuple[str, _Put, _Get]]] = [
    [(field.name, *_FIELDS[str(field.type)]) for field in attrs.fields(kind)[4:]] for kind in MESSAGE_KINDS
]


# Envelopes


def _seal(kind: int, group: bytes, parts: list[bytes]) -> bytes:
    body = b"".join([_HEAD.pack(VERSION, kind, len(group)), group, *parts])
    return _U32.pack(crc32c(body)) + body


def _open(data: bytes) -> tuple[int, bytes, _Reader]:
    if len(data) < _U32.size + _HEAD.size:
        raise Damaged("raft bytes are shorter than their head")
    if crc32c(data[_U32.size :]) != _U32.unpack_from(data)[0]:
        raise Damaged("raft bytes do not fit their checksum")
    reader = _Reader(data, _U32.size)
    version, kind, size = reader.unpack(_HEAD)
    if version > VERSION:
        raise NewerFormat(
            f"raft format version {version} is newer than {VERSION}, which this release reads; upgrade it"
        )
    return kind, reader.take(size), reader


def encode_message(group: bytes, message: m.Message) -> bytes:
    kind = _KIND_OF[type(message)]
    parts = [_SPEAKER.pack(message.source, message.target, message.term, message.incarnation)]
    parts += [put(getattr(message, name)) for name, put, _ in _LAYOUTS[kind]]
    return _seal(kind, group, parts)


def decode_message(group: bytes, data: bytes) -> m.Message:
    """Raises Damaged for anything but a whole message of `group`, NewerFormat for one of a later release."""
    kind, named, reader = _open(data)
    if named != group:
        raise Damaged(f"raft message is of group {named!r}, not {group!r}")
    if kind >= len(MESSAGE_KINDS):
        raise Damaged(f"raft message kind {kind} is unknown")
    speaker = reader.unpack(_SPEAKER)
    fields = [get(reader) for _, _, get in _LAYOUTS[kind]]
    reader.done()
    return MESSAGE_KINDS[kind](*speaker, *fields)


def _record(kind: RecordKind, identity: Identity, body: bytes) -> bytes:
    return _seal(kind, identity.group, [_WRITER.pack(identity.node, identity.incarnation), body])


def _open_record(kind: RecordKind, group: bytes, node: int, data: bytes) -> tuple[int, _Reader]:
    """Incarnation of the writer and the body of a record of `kind`, of this group and node."""
    found, named, reader = _open(data)
    writer, incarnation = reader.unpack(_WRITER)
    if (found, named, writer) != (kind, group, node):
        raise Damaged(
            f"raft record is kind {found} of group {named!r}, node {writer}; "
            f"expected {kind.name} of group {group!r}, node {node}"
        )
    return incarnation, reader


def encode_entry(identity: Identity, entry: m.Entry, prev_term: int) -> bytes:
    """One log entry as it lies on disk."""
    return _record(
        RecordKind.ENTRY,
        identity,
        _STORED_ENTRY.pack(entry.index, entry.term, prev_term, entry.kind) + entry.data,
    )


def encode_entries(identity: Identity, entries: list[m.Entry], prev_term: int) -> list[bytes]:
    """A run of entries, each naming the one before it."""
    records = []
    for entry in entries:
        records.append(encode_entry(identity, entry, prev_term))
        prev_term = entry.term
    return records


def decode_entry(group: bytes, node: int, data: bytes) -> tuple[int, StoredEntry]:
    incarnation, reader = _open_record(RecordKind.ENTRY, group, node, data)
    index, term, prev_term, kind = reader.unpack(_STORED_ENTRY)
    data = reader.rest()
    if kind > m.EntryKind.DATA:
        _check_kind(kind, data, index)
    return incarnation, StoredEntry(m.Entry(index, term, kind, data), prev_term)


def encode_hard_state(identity: Identity, hard: HardState) -> bytes:
    body = _HARD.pack(
        hard.version, hard.term, hard.vote, hard.commit, hard.incarnation, hard.standing, hard.since, len(hard.seen)
    )
    return _record(RecordKind.HARD_STATE, identity, body + b"".join(_PAIR.pack(*pair) for pair in hard.seen))


def decode_hard_state(group: bytes, node: int, data: bytes) -> tuple[int, HardState]:
    incarnation, reader = _open_record(RecordKind.HARD_STATE, group, node, data)
    version, term, vote, commit, own, standing, since, count = reader.unpack(_HARD)
    seen = tuple(reader.unpack(_PAIR) for _ in range(count))
    reader.done()
    if standing > max(m.Standing):
        raise Damaged(f"raft hard state names the unknown standing {standing}")
    return incarnation, HardState(version, term, vote, commit, own, m.Standing(standing), since, seen)


def encode_stored_membership(identity: Identity, membership: Membership) -> bytes:
    return _record(RecordKind.MEMBERSHIP, identity, _put_membership(membership))


def decode_stored_membership(group: bytes, node: int, data: bytes) -> tuple[int, Membership]:
    incarnation, reader = _open_record(RecordKind.MEMBERSHIP, group, node, data)
    membership = _get_membership(reader)
    reader.done()
    return incarnation, membership


def encode_snapshot_meta(identity: Identity, meta: m.SnapshotMeta) -> bytes:
    return _record(RecordKind.SNAPSHOT_META, identity, _put_meta(meta))


def decode_snapshot_meta(group: bytes, node: int, data: bytes) -> tuple[int, m.SnapshotMeta]:
    incarnation, reader = _open_record(RecordKind.SNAPSHOT_META, group, node, data)
    meta = _get_meta(reader)
    reader.done()
    return incarnation, meta


def encode_promise(identity: Identity, promise: Promise) -> bytes:
    return _record(RecordKind.PROMISE, identity, _PROMISE.pack(promise.index, promise.term, promise.hard_version))


def decode_promise(group: bytes, node: int, data: bytes) -> tuple[int, Promise]:
    incarnation, reader = _open_record(RecordKind.PROMISE, group, node, data)
    promise = Promise(*reader.unpack(_PROMISE))
    reader.done()
    return incarnation, promise
