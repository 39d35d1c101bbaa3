"""Backups that nats-server made, and what is in them: jetstream/backups/.

`v2.s2` is from nats-server 2.15.1, the others from 2.12.1: with removed messages and a consumer in the middle of
redeliveries, with compressed blocks, and after purges of a stream with TTLs. One item of the archive a line, payloads
as size and checksum. `TNATS_REWRITE=1` writes what comes out.
"""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest
from crc32c import crc32c

from tnats.jetstream.api.fields import to_object
from tnats.jetstream.backup import consumer_state
from tnats.jetstream.backup.contents import ArchivedConsumer, ArchivedMessage, Bounds, Item, Removal
from tnats.jetstream.backup.receiving import Unpacker

FOLDER = Path(__file__).parent / "jetstream" / "backups"
REWRITE = os.environ.get("TNATS_REWRITE") == "1"


def told(item: Item) -> list[object]:
    if isinstance(item, Bounds):
        return ["bounds", item.first_seq, item.last_seq, item.last_time_ns]
    if isinstance(item, Removal):
        return ["removed", item.seq]
    if isinstance(item, ArchivedConsumer):
        return ["consumer", item.name, to_object(item.config), consumer_state.to_json(item.state)]
    assert isinstance(item, ArchivedMessage)
    payload = f"{len(item.payload)} {crc32c(item.payload):08x}"
    return [item.seq, item.time_ns, item.subject.decode(), item.headers.decode(), payload]


@pytest.mark.parametrize("name", ["v2", "v1_deletes", "v1_compressed", "v1_purged"])
@pytest.mark.parametrize("piece", [1_000_000, 97])
def test_backups_of_nats_server(name: str, piece: int) -> None:
    """Every item of a foreign backup is found, whatever pieces it comes in."""
    data = (FOLDER / f"{name}.s2").read_bytes()
    unpacker = Unpacker()
    pieces = [data[at : at + piece] for at in range(0, len(data), piece)]
    items = [item for one in pieces for step in unpacker.feed(one) for item in step]
    unpacker.finish()
    lines = b"".join(orjson.dumps(told(item)) + b"\n" for item in items)
    expected = FOLDER / f"{name}.jsonl"
    if REWRITE:
        expected.write_bytes(lines)
    assert lines == expected.read_bytes()
