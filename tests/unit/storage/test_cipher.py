"""Sealed records: only their own place, file and key open them, and nothing of their content shows."""

from __future__ import annotations

import random
from collections import Counter

import attrs
import pytest

from tnats.errors import TnatsError
from tnats.storage import hot, record, segment
from tnats.storage.cipher import OVERHEAD, FileCipher, KeyRing
from tnats.storage.encryption import Cipher, Encryption
from tnats.storage.errors import StoreRefused
from tnats.storage.segment import DATA_START, SegmentHeader, read_header

STORE_ID = b"0123456789abcdef"
SEED = 7
MESSAGE: hot.Record = (record.MESSAGE, 0, 5, 99, b"secret.subject", b"NATS/1.0\r\n\r\n", b"secret payload")
BOTH = pytest.mark.parametrize("cipher", list(Cipher))


def ring(cipher: Cipher = Cipher.CHACHA, key: str = "key", previous: str = "", store_id: bytes = STORE_ID) -> KeyRing:
    return KeyRing(Encryption(key, cipher, previous), store_id, random.Random(3).randbytes)


def header(number: int = 1, group: str = "stream/secret") -> SegmentHeader:
    return SegmentHeader(segment.STREAM, number, group, STORE_ID, SEED, 1)


def file_of(keys: KeyRing, number: int = 1) -> tuple[SegmentHeader, FileCipher]:
    return keys.enter(header(number))


def sealed(cipher: FileCipher, records: list[hot.Record], base: int = DATA_START) -> bytearray:
    return bytearray(base) + hot.pack(cipher.seal(records, base), base, SEED, base)[0]


@BOTH
def test_what_is_sealed_opens_and_does_not_show(cipher: Cipher) -> None:
    """Content of every kind comes back as it was, from a scan and one by one; none of it stands in the file."""
    _, file = file_of(ring(cipher))
    records = [MESSAGE, (record.GAP, 0, 8, 3, b"", b"", b""), (record.ENTRY, 4, 6, 0, b"", b"", b""), MESSAGE]
    data = sealed(file, records)
    assert b"secret" not in data
    scan = segment.scan(bytearray(data), SEED, "file", cipher=file)
    assert scan.holes == []
    for found, given in zip(scan.records, records, strict=True):
        taken = record.take_apart(scan.data, found, 0)
        one = record.unpack(data, found[0], 0, SEED)
        assert one is not None
        for each in (taken, file.open_record(one)):
            assert each is not None
            assert (each.kind, each.group, each.index, each.stamp, each.key, each.head, each.body) == given


@BOTH
def test_a_record_opens_at_its_place_alone(cipher: Cipher) -> None:
    """Moved, relabelled, in another file of the store, or changed with right checksums: it does not open."""
    keys = ring(cipher)
    _, file = file_of(keys)
    _, other = file_of(keys, 2)
    (kind, group, index, stamp, key, head, body) = file.seal([MESSAGE], DATA_START)[0]
    assert len(body) == OVERHEAD + sum(map(len, MESSAGE[4:]))
    bodies = bytearray(body)
    bodies[-1] ^= 1
    for place, reader, forged in (
        (DATA_START + 8, file, (kind, group, index, stamp, key, head, body)),
        (DATA_START, other, (kind, group, index, stamp, key, head, body)),
        (DATA_START, file, (kind, group, index + 1, stamp, key, head, body)),
        (DATA_START, file, (kind, group, index, stamp + 1, key, head, body)),
        (DATA_START, file, (record.ENTRY, group, index, stamp, key, head, body)),
        (DATA_START, file, (kind, group, index, stamp, key, head, bytes(bodies))),
        (DATA_START, file, (kind, group, index, stamp, key, head, body[:9])),
    ):
        data = bytearray(place) + hot.pack([forged], place, SEED, place)[0]
        found = record.unpack(data, place, 0, SEED)
        assert found is not None
        assert reader.open_record(found) is None
        scan = segment.scan(data, SEED, "file", place, cipher=reader)
        assert scan.records == []
        assert scan.holes[0][0] == place


def test_nonces_do_not_repeat() -> None:
    """Neither within a file, nor when a place is written again, nor by the same place of another file's key."""
    _, file = file_of(ring())
    sealed_bodies = [bytes(each[6]) for _ in range(50) for each in file.seal([MESSAGE] * 20, DATA_START)]
    assert max(Counter(sealed_bodies).values()) == 1
    first = [file.seal([MESSAGE], DATA_START)[0][6] for file in (file_of(ring())[1], file_of(ring(), 2)[1])]
    assert first[0] != first[1]


def test_one_flipped_bit_is_undone_before_opening() -> None:
    """Checksums run over what is stored: the bit is put right, and the record opens."""
    _, file = file_of(ring())
    for bit in range(0, 8 * 100, 13):
        data = sealed(file, [MESSAGE, MESSAGE])
        data[DATA_START + bit // 8] ^= 1 << bit % 8
        scan = segment.scan(data, SEED, "file", cipher=file)
        assert len(scan.records) == 2
        assert [finding.kind for finding in scan.findings] == ["corrected"]


@BOTH
def test_a_header_names_its_group_to_who_has_the_key(cipher: Cipher) -> None:
    """The name is sealed; both copies are equal but for their checksums; a header of another file does not pass."""
    keys = ring(cipher)
    made, _ = file_of(keys)
    area = made.area()
    assert b"secret" not in area
    found, findings = read_header(area, "file", keys)
    assert found == made
    assert found.group == "stream/secret"
    assert findings == []
    forged = attrs.evolve(made, number=2).area()
    assert read_header(forged, "file", keys)[0] is None


def test_other_keys_are_refused_by_name() -> None:
    """No key, or a wrong one: the line names the file and says what to do, and no secret."""
    made, _ = file_of(ring(key="right key"))
    for keys in (None, ring(key="wrong key")):
        with pytest.raises(StoreRefused, match=r"file is encrypted .*nothing was touched: set the key") as caught:
            read_header(made.area(), "file", keys)
        assert "wrong key" not in str(caught.value)
        assert isinstance(caught.value, TnatsError)


def test_a_file_of_another_store_is_foreign() -> None:
    """Under whatever key: it is no reason to refuse the store that it was put into."""
    made, _ = file_of(ring(key="right key"))
    for key in ("right key", "wrong key"):
        found, _ = read_header(made.area(), "file", ring(key=key, store_id=b"another store id"))
        assert found is not None
        assert (found.store_id, found.group) == (STORE_ID, "")


def test_files_of_the_previous_key_and_of_the_other_cipher_are_read() -> None:
    """Both keys with both ciphers; only what is under the present pair counts as current."""
    now = ring(Cipher.AES, "new", "old")
    for cipher in Cipher:
        for key in ("new", "old"):
            made, file = file_of(ring(cipher, key))
            found, _ = read_header(made.area(), "file", now)
            assert found is not None
            assert segment.is_current(found, now) is ((cipher, key) == (Cipher.AES, "new"))
            opened = segment.cipher_of(found, now)
            assert opened is not None
            data = sealed(file, [MESSAGE])
            assert len(segment.scan(data, SEED, "file", cipher=opened).records) == 1
    plain, _ = read_header(header().area(), "file", now)
    assert plain is not None
    assert not segment.is_current(plain, now)
    assert segment.is_current(plain, None)


def test_keys_do_not_show() -> None:
    """What a log or a traceback could print has no key in it."""
    assert "sesame" not in repr(Encryption("sesame", Cipher.AES, "sesame old"))
    assert "sesame" not in repr(vars(ring(key="sesame")))
