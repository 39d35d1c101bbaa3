"""The bytes of the format, written out: a change here is a new format version, not an edit."""

from __future__ import annotations

import zlib

from crc32c import crc32c

from tnats.storage import record, segment
from tnats.storage.segment import JOURNAL, SegmentHeader


def test_the_bytes_of_a_record() -> None:
    """Every field of a record stands where docs/storage.md says, little endian, padded to eight bytes."""
    fields = {"group": 7, "index": 258, "stamp": 2**63}
    packed = record.pack_one(record.MESSAGE, offset=8200, seed=0xFFFFFFFF, **fields, key=b"a.b", head=b"H", body=b"xyz")
    covered = bytes.fromhex(
        "2f000000"  # size 47
        "0300 0100"  # key, head
        "06 000000"  # kind, distance back
        "07000000"  # group
        "0201000000000000"  # index
        "0000000000000080"  # stamp
    ) + b"a.bHxyz"  # fmt: skip
    start = (0xFFFFFFFF + 8200) & 0xFFFFFFFF
    second = zlib.crc32(covered, start).to_bytes(4, "little")
    assert bytes(packed) == crc32c(second + covered, start).to_bytes(4, "little") + second + covered + b"\0"


def test_the_layout_of_a_header_area() -> None:
    """The header stands at 0 and 4096, the slots at 1024 and 5120, data from 8192; version 1."""
    header = SegmentHeader(JOURNAL, 3, "journal", b"0123456789abcdef", 99, 1234, 65536)
    area = header.area(8192)
    assert len(area) == 8192
    for offset in (0, 4096):
        found = record.unpack(area, offset, 0, 0x544E4154)
        assert found is not None
        assert (found.kind, found.index, found.stamp, found.key, found.head) == (
            record.HEADER,
            3,
            1234,
            b"journal",
            b"0123456789abcdef",
        )
        assert found.body == bytes.fromhex("0100 01 00 63000000 0000010000000000")
    for offset in (1024, 5120):
        slot = record.unpack(area, offset, 0, 99)
        assert slot is not None
        assert (slot.kind, slot.index) == (record.SLOT, 8192)
    assert segment.read_header(area, "x") == (header, [])
