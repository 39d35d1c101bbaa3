"""Records: round trips, identity in the checksums, correction of every single bit, in both builds."""

from __future__ import annotations

import random
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnats import speedups
from tnats.storage import hot, record

INTERPRETED = speedups.load_source("tnats.storage.hot", "tests.storage.hot_interpreted")
SEED = 0x9E3779B9
BASE = 8192

Fields = tuple[int, int, int, int, bytes, bytes, bytes]
fields = st.tuples(
    st.sampled_from([record.ENTRY, record.MESSAGE, record.GROUP]),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=40),
    st.binary(max_size=40),
    st.binary(max_size=300),
)


@pytest.fixture(params=[hot, INTERPRETED], ids=["selected", "interpreted"])
def build(request: pytest.FixtureRequest) -> ModuleType:
    module: ModuleType = request.param
    return module


@given(st.lists(fields, max_size=8), st.integers(0, 1000))
def test_what_is_packed_is_scanned(records: list[Fields], distance: int) -> None:
    """Both builds pack the same bytes, and both scans give back every field, the offsets and the promise."""
    packed, offsets = hot.pack(records, BASE, SEED, BASE - 8 * distance)
    assert (packed, offsets) == INTERPRETED.pack(records, BASE, SEED, BASE - 8 * distance)
    assert len(packed) % 8 == 0
    found, end = hot.scan(packed, 0, BASE, SEED)
    assert (found, end) == INTERPRETED.scan(packed, 0, BASE, SEED)
    assert end == len(packed)
    taken = [record.take_apart(packed, each, BASE) for each in found]
    assert [(r.kind, r.group, r.index, r.stamp, r.key, r.head, r.body) for r in taken] == records
    assert [r.offset for r in taken] == offsets
    assert all(r.durable == BASE - 8 * distance for r in taken)


def sample(kind: int = record.MESSAGE, body: bytes = b"payload") -> bytearray:
    where = {"offset": BASE, "seed": SEED, "group": 5, "index": 77, "stamp": 123456789}
    return record.pack_one(kind, **where, key=b"orders.new", head=b"NATS/1.0\r\n\r\n", body=body)  # type: ignore[arg-type]


def test_a_record_is_bound_to_its_place(build: ModuleType) -> None:
    """The same bytes at another offset, or in a segment of another seed, are no record, nor corrected into one."""
    data = sample()
    for base, seed in ((BASE + 8, SEED), (0, SEED), (BASE, SEED ^ 1), (BASE, 0)):
        assert build.scan(data, 0, base, seed) == ([], 0)
        assert record.correct(data, 0, base, seed) is None


def test_zeros_and_cuts_are_no_records(build: ModuleType) -> None:
    """A scan stops at zeros and at a record that runs past the end."""
    data = sample()
    assert build.scan(bytes(64), 0, BASE, SEED) == ([], 0)
    assert build.scan(b"", 0, BASE, SEED) == ([], 0)
    for size in range(len(data)):
        assert build.scan(data[:size], 0, BASE, SEED)[0] == []
    found, end = build.scan(data + bytes(16), 0, BASE, SEED)
    assert (len(found), end) == (1, len(data))


@pytest.mark.parametrize("kind", [record.MESSAGE, record.ERASED])
def test_every_single_bit_is_corrected(kind: int) -> None:
    """Whichever bit of a record flips, lengths and checksums too, the record comes back and the bit is named."""
    good = sample(kind)
    size = int.from_bytes(good[8:12], "little")
    checked = record.HEADER_SIZE if kind == record.ERASED else size
    for bit in range(checked * 8):
        bad = bytearray(good) + bytes(200)
        bad[bit // 8] ^= 1 << bit % 8
        assert record.unpack(bad, 0, BASE, SEED) is None
        corrected = record.correct(bad, 0, BASE, SEED)
        assert corrected is not None, bit
        assert corrected == (bytes(good[:size]), bit)


def test_corrections_of_long_records(build: ModuleType) -> None:
    """A bit far from the end of a long record is found too, in both builds alike."""
    good = sample(body=random.Random(1).randbytes(20_000))
    for bit in (40 * 8, 64, len(good) * 4, 130):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        corrected = record.correct(bad, 0, BASE, SEED)
        assert corrected is not None
        assert corrected[1] == bit
    assert build.find_flip(record.TABLE[1 << 3], 100, record.TABLE, record.INVERSE) == 99 * 8 + 3


def test_wider_damage_is_not_corrected() -> None:
    """Two flipped bits, changed bytes and cut tails never pass for one flipped bit."""
    rng = random.Random(7)
    good = sample()
    size = int.from_bytes(good[8:12], "little")
    for _ in range(3000):
        bad = bytearray(good)
        if rng.random() < 0.5:
            for bit in rng.sample(range(size * 8), 2):
                bad[bit // 8] ^= 1 << bit % 8
        else:
            position = rng.randrange(size - 4)
            new = rng.randbytes(4)
            difference = bytes(a ^ b for a, b in zip(new, bad[position : position + 4], strict=True))
            if sum(byte.bit_count() for byte in difference) < 2:
                continue
            bad[position : position + 4] = new
        assert record.unpack(bad, 0, BASE, SEED) is None
        assert record.correct(bad, 0, BASE, SEED) is None
    for cut in range(1, size):
        assert record.correct(good[:cut], 0, BASE, SEED) is None


def test_an_erased_record_survives_its_body() -> None:
    """The checksums of an erased record do not cover the body, which may be half overwritten after a crash."""
    data = sample(record.ERASED)
    for value in (0, 255):
        changed = bytearray(data)
        changed[record.HEADER_SIZE :] = bytes([value]) * (len(data) - record.HEADER_SIZE)
        taken = record.unpack(changed, 0, BASE, SEED)
        assert taken is not None
        assert (taken.kind, taken.index, taken.stamp) == (record.ERASED, 77, 123456789)
