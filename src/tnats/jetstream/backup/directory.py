"""Archives of version 1: the directory of a stream of nats-server (2.2 to 2.14) as a tar archive.

Files, in this order: `meta.inf` and `meta.sum` (the stream's configuration, which the restoring client gives anyway),
`msgs/<number>.blk` (messages), `msgs/index.db` (the stream's state), and for each consumer `obs/<name>/meta.inf`,
`meta.sum` and `o.dat`. Nothing is written to where a name says: a name that is none of these ends the restore.

A block is a run of records: u32 length (bit 31: has headers), u64 sequence (bit 63: erased, bit 62: this is a note that
an earlier message was removed), u64 time, u16 subject length, subject, with headers u32 header length, header block,
payload, and eight bytes of a keyed hash. The hash is passed over: the archive's own checksums cover what was read, and
what was damaged before is found by a record that does not fit. A compressed block is an S2 stream behind a short head,
with the last record's hash in clear.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from tnats.jetstream.api import fields
from tnats.jetstream.api.json_text import DecodeError
from tnats.jetstream.backup import consumer_state, s2, varint
from tnats.jetstream.backup.contents import (
    ArchivedConsumer,
    ArchivedMessage,
    BadArchive,
    Bounds,
    Item,
    Removal,
)
from tnats.jetstream.backup.tar import TarReader
from tnats.jetstream.consumer.config import ConsumerConfig
from tnats.limits import BACKUP_ENTRY_BYTES_MAX

_BLOCK_NAME = re.compile(r"msgs/[0-9]+\.blk")
_CONSUMER_NAME = re.compile(r"obs/([^/]+)/(meta\.inf|meta\.sum|meta\.key|o\.dat)")
_OTHER_NAMES = frozenset({"meta.inf", "meta.sum", "meta.key", "msgs/thw.db", "msgs/sched.db", "msgs/sources.db"})
_INDEX_NAME = "msgs/index.db"

_RECORD_HEAD = struct.Struct("<IQQH")
_HAS_HEADERS = 1 << 31
_ERASED = 1 << 63
_REMOVAL = 1 << 62
_HASH_SIZE = 8
_COMPRESSED_BLOCK = b"cmp"
_S2_COMPRESSION = 1
_STATE_MAGIC = 11
_STATE_VERSIONS = range(1, 8)


class DirectoryReader:
    """Takes the files apart."""

    def __init__(self) -> None:
        self._tar = TarReader(BACKUP_ENTRY_BYTES_MAX)
        self._configs: dict[str, ConsumerConfig] = {}

    @property
    def is_complete(self) -> bool:
        """The end was read, and no consumer is without its state."""
        return self._tar.is_complete and not self._configs

    def feed(self, data: bytes) -> Iterator[Item]:
        """What is complete with `data`, in order. Raises BadArchive."""
        for name, body in self._tar.feed(data):
            if _BLOCK_NAME.fullmatch(name):
                yield from records(_plain(body))
            elif name == _INDEX_NAME:
                found = _bounds(body)
                if found is not None:
                    yield found
            elif (match := _CONSUMER_NAME.fullmatch(name)) is not None:
                consumer = self._consumer(match[1], match[2], body)
                if consumer is not None:
                    yield consumer
            elif name not in _OTHER_NAMES:
                raise BadArchive(f"a file that does not belong there: {name[:128]!r}")

    def _consumer(self, name: str, file: str, body: bytes) -> ArchivedConsumer | None:
        if file == "meta.inf":
            try:
                self._configs[name] = fields.decode(ConsumerConfig, body, strict=False)
            except DecodeError as error:
                raise BadArchive(f"consumer {name[:64]!r} is damaged ({error})") from None
        if file != "o.dat":
            return None
        config = self._configs.pop(name, None)
        if config is None:
            raise BadArchive(f"consumer {name[:64]!r} has no configuration")
        return ArchivedConsumer(name, config, consumer_state.from_bytes(body))


def _plain(block: bytes) -> bytes:
    """A block's records, decompressed."""
    if not block.startswith(_COMPRESSED_BLOCK):
        return block
    at = len(_COMPRESSED_BLOCK) + 1
    while at < len(block) and block[at] >= 0x80:  # the size before compression
        at += 1
    at += 1
    if block[len(_COMPRESSED_BLOCK)] != _S2_COMPRESSION:
        raise BadArchive("a block is compressed in an unknown way")
    reader = s2.Reader()
    plain = bytearray()
    try:
        for part in reader.feed(block[at:-_HASH_SIZE]):
            plain += part
            if len(plain) > BACKUP_ENTRY_BYTES_MAX:
                raise BadArchive("a compressed block is too large")
    except s2.CorruptInput as error:
        raise BadArchive(f"corrupt input: {error}") from None
    if not reader.is_complete:
        raise BadArchive("a compressed block ends too early")
    return bytes(plain) + block[-_HASH_SIZE:]


def records(block: bytes) -> Iterator[Item]:
    """The messages of a block, and what was removed. Raises BadArchive."""
    at = 0
    while at < len(block):
        if at + _RECORD_HEAD.size + _HASH_SIZE > len(block):
            raise BadArchive("a block ends inside a record")
        size, seq, time_ns, subject_size = _RECORD_HEAD.unpack_from(block, at)
        has_headers = size & _HAS_HEADERS != 0
        size &= ~_HAS_HEADERS
        end = at + size - _HASH_SIZE
        start = at + _RECORD_HEAD.size + subject_size
        if end < start + 4 * has_headers or at + size > len(block):
            raise BadArchive("a record of a block is damaged")
        subject = block[at + _RECORD_HEAD.size : start]
        header_end = start
        if has_headers:
            header_end = start + 4 + int.from_bytes(block[start : start + 4], "little")
            start += 4
        if header_end > end:
            raise BadArchive("a record of a block is damaged")
        at += size
        if seq & _REMOVAL:
            yield Removal(seq & ~_REMOVAL)
        elif not seq & _ERASED and seq:
            yield ArchivedMessage(seq, time_ns, subject, block[start:header_end], block[header_end:end])


def _bounds(data: bytes) -> Bounds | None:
    """What `index.db` says of the stream as a whole; None for a format that is not known: blocks tell most of it."""
    if len(data) < 2 or data[0] != _STATE_MAGIC or data[1] not in _STATE_VERSIONS:
        return None
    numbers = []
    at = 2
    for _ in range(6):
        value, at, _ = varint.decode(data, at)
        numbers.append(value)
    _, _, first_seq, _, last_seq, last_signed = numbers
    return Bounds(first_seq, last_seq, varint.to_signed(last_signed))
