"""Encryption at rest: the content of records is sealed, their place is part of the seal.

What is sealed is everything that users or owners put into a record (`SEALED`), and the group's name in a file's header.
What stands in the clear is what the storage needs to find and check records: kind, size, group number, index or
sequence, stamp. Checksums run over the sealed bytes, so damage is found, and a flipped bit undone, without a key.

Keys. A file's key is derived (HKDF-SHA256) from the configured key, the store's id, a random salt in the file's header,
its role and number: no two files share one, and a file put in another's place opens nothing. The header names the
configured key and the cipher by a short id, so a wrong key is told from damage before anything is touched.

Nonces. 96 bits: the record's offset in units of 8, and 64 random bits that stand in front of the sealed bytes. Two
records of a file differ in the offset; an offset that is written a second time (after an unfinished write was lost)
draws anew. Kind, group, index and stamp are authenticated, so a record that is moved or relabelled does not open.

Changing keys. Files under the previous key, under another cipher, or in the clear are read as they are, and written
anew one by one (`rewrite`, and the journal's checkpoints): each file is whole under one key at any moment.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import attrs
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tnats.records import frozen
from tnats.storage import hot, record
from tnats.storage.encryption import Cipher, Encryption
from tnats.storage.segment import SegmentHeader

SEALED = frozenset(
    {record.ENTRY, record.GROUP, record.MESSAGE, record.PACKED, record.DICTIONARY, record.CHUNK, record.USED}
)
KEY_ID_SIZE = 8
FILE_SALT_SIZE = 16
RANDOM_SIZE = 8
TAG_SIZE = 16
SIZES = struct.Struct("<HH")
"""In front of the sealed content: sizes of key and head."""
OVERHEAD = SIZES.size + RANDOM_SIZE + TAG_SIZE
"""Bytes that a sealed record takes more than one in the clear, before padding."""

_PLACE = struct.Struct("<BIQQ")
_LABEL_NONCE = bytes(12)
_AEADS: dict[Cipher, type[ChaCha20Poly1305] | type[AESGCM]] = {Cipher.CHACHA: ChaCha20Poly1305, Cipher.AES: AESGCM}


@frozen
class _Key:
    """One configured key with one cipher, for one store."""

    secret: bytes = attrs.field(repr=False)
    cipher: Cipher
    store_id: bytes

    def derive(self, size: int, purpose: bytes, salt: bytes = b"") -> bytes:
        info = b"tnats %s %s" % (self.cipher.encode(), purpose)
        return HKDF(SHA256(), size, self.store_id + salt, info).derive(self.secret)


class KeyRing:
    """The keys that a store may be read with, and the one that it is written with."""

    def __init__(self, encryption: Encryption, store_id: bytes, entropy: Callable[[int], bytes]) -> None:
        self._entropy = entropy
        self.store_id = store_id
        ciphers = [encryption.cipher, *(cipher for cipher in Cipher if cipher is not encryption.cipher)]
        self._keys: dict[bytes, _Key] = {}
        for secret in filter(None, (encryption.key, encryption.previous_key)):
            for cipher in ciphers:
                key = _Key(secret.encode(), cipher, store_id)
                self._keys.setdefault(key.derive(KEY_ID_SIZE, b"id"), key)
        self.current = next(iter(self._keys))
        """Id of the key that new files are under."""

    def __contains__(self, key_id: bytes) -> bool:
        return key_id in self._keys

    def enter(self, header: SegmentHeader) -> tuple[SegmentHeader, FileCipher]:
        """The header of a new file, under the current key, and what seals its records."""
        salt = self._entropy(FILE_SALT_SIZE)
        header = attrs.evolve(header, key_id=self.current, salt=salt, version=record.FORMAT_VERSION)
        label = self._label_cipher(header).encrypt(_LABEL_NONCE, header.group.encode(), _identity(header))
        return attrs.evolve(header, label=label), self.cipher_of(header)

    def cipher_of(self, header: SegmentHeader) -> FileCipher:
        """What opens the records of a file. Raises KeyError when its key is not known."""
        return FileCipher(self._file_aead(header, b"records"), self._entropy)

    def group_of(self, header: SegmentHeader) -> str | None:
        """The group's name in a sealed header; None if the header does not verify. Raises KeyError."""
        try:
            return self._label_cipher(header).decrypt(_LABEL_NONCE, header.label, _identity(header)).decode()
        except InvalidTag:
            return None

    def _label_cipher(self, header: SegmentHeader) -> ChaCha20Poly1305 | AESGCM:
        # Its key seals this one name and nothing else, so one nonce will do, and both copies of a header are equal.
        return self._file_aead(header, b"name")

    def _file_aead(self, header: SegmentHeader, purpose: bytes) -> ChaCha20Poly1305 | AESGCM:
        key = self._keys[header.key_id]
        file = b"%s %d %d" % (purpose, header.role, header.number)
        return _AEADS[key.cipher](key.derive(32, file, header.salt))


def _identity(header: SegmentHeader) -> bytes:
    return struct.pack("<BQI", header.role, header.number, header.seed) + header.store_id


class FileCipher:
    """Seals and opens the records of one file."""

    __slots__ = ("_aead", "_entropy")

    def __init__(self, aead: ChaCha20Poly1305 | AESGCM, entropy: Callable[[int], bytes]) -> None:
        self._aead = aead
        self._entropy = entropy

    def seal(self, records: list[hot.Record], base: int) -> list[hot.Record]:
        """The records as they are to be packed for the file offset `base`."""
        out: list[hot.Record] = []
        chance = self._entropy(RANDOM_SIZE * len(records))
        encrypt, position = self._aead.encrypt, base
        for number, each in enumerate(records):
            kind, group, index, stamp, key, head, body = each
            if kind in SEALED:
                salt = chance[RANDOM_SIZE * number : RANDOM_SIZE * (number + 1)]
                plain = b"".join((SIZES.pack(len(key), len(head)), key, head, body))
                sealed = encrypt(_nonce(position, salt), plain, _PLACE.pack(kind, group, index, stamp))
                each = (kind, group, index, stamp, b"", b"", salt + sealed)
            out.append(each)
            position += record.record_size(*each[4:])
        return out

    def open_record(self, found: record.Record) -> record.Record | None:
        """A record with its content in the clear; None if it was not sealed in this file at this place."""
        if found.kind not in SEALED:
            return found
        opened = self._open(found.body, found.offset, found.kind, found.group, found.index, found.stamp)
        if opened is None:
            return None
        key_end, head_end = opened[1], opened[1] + opened[2]
        plain = opened[0]
        return attrs.evolve(
            found,
            size=hot.HEADER_SIZE + len(plain),
            key=plain[:key_end],
            head=plain[key_end:head_end],
            body=plain[head_end:],
        )

    def open_all(self, data: bytearray, found: list[hot.Found]) -> tuple[list[hot.Found], list[tuple[int, int]]]:
        """Put the content of scanned records in the clear within `data`, the bytes of the whole file.

        Returns the records as `hot.scan` would have found them in the clear, and the ranges of those that do not open.
        """
        opened: list[hot.Found] = []
        broken = []
        for each in found:
            position, size, kind, group, index, stamp, _, _, durable = each
            if kind in SEALED:
                start = position + hot.HEADER_SIZE
                content = self._open(bytes(data[start : position + size]), position, kind, group, index, stamp)
                if content is None:
                    broken.append((position, position + record.aligned(size)))
                    continue
                plain, key_size, head_size = content
                data[start : start + len(plain)] = plain
                each = (position, hot.HEADER_SIZE + len(plain), kind, group, index, stamp, key_size, head_size, durable)
            opened.append(each)
        return opened, broken

    def _open(
        self, sealed: bytes, offset: int, kind: int, group: int, index: int, stamp: int
    ) -> tuple[bytes, int, int] | None:
        if len(sealed) < OVERHEAD:
            return None
        nonce = _nonce(offset, sealed[:RANDOM_SIZE])
        try:
            plain = self._aead.decrypt(nonce, sealed[RANDOM_SIZE:], _PLACE.pack(kind, group, index, stamp))
        except InvalidTag:
            return None
        key_size, head_size = SIZES.unpack_from(plain)
        return plain[SIZES.size :], key_size, head_size


def _nonce(offset: int, chance: bytes) -> bytes:
    return (offset >> 3).to_bytes(4, "little") + chance
