"""Packed messages: they come back as they were, each on its own, and are smaller where there is something to gain."""

from __future__ import annotations

import json
import random

from hypothesis import given
from hypothesis import strategies as st
from tests.properties.storage_bench import run
from tests.properties.test_storage_store import open_and_replay, propose, store_on

from tnats.runtime.sim.disk import SimDrive
from tnats.storage import hot, record
from tnats.storage.message_log import Message
from tnats.storage.packing import DICTIONARY_BYTES_MAX, DICTIONARY_SHARE, Packer, dictionary_of

HEADERS = st.one_of(st.just(b""), st.binary(max_size=300))


def stored(packed: hot.Record) -> record.Record:
    kind, group, index, stamp, key, head, body = packed
    return record.Record(8192, 0, kind, group, index, stamp, bytes(key), bytes(head), bytes(body), 0)


@given(st.binary(max_size=200), HEADERS, st.binary(max_size=2000).map(lambda part: part * 3), st.binary(max_size=500))
def test_a_message_comes_back(subject: bytes, headers: bytes, payload: bytes, dictionary: bytes) -> None:
    """Any subject, headers and payload, against any dictionary; a record that would not be smaller is not made."""
    packer = Packer(dictionary)
    packed = packer.pack((record.MESSAGE, 0, 7, 8, subject, headers, payload))
    if packed is None:
        return
    assert len(packed[6]) < len(headers) + len(payload)
    assert Packer(dictionary).expand(stored(packed)) == Message(7, 8, subject, headers, payload)


def test_small_messages_of_one_kind_get_smaller() -> None:
    """A dictionary of the first ones makes the others less than half as long, which they are not on their own."""
    rng = random.Random(1)
    bodies = [
        json.dumps(
            {"id": number, "user": f"user-{rng.randrange(999)}", "state": rng.choice(("open", "closed"))}
        ).encode()
        for number in range(2000)
    ]
    dictionary, count = dictionary_of(bodies, sum(map(len, bodies)))
    assert 0 < count < 300
    assert len(dictionary) == sum(map(len, bodies)) // DICTIONARY_SHARE < DICTIONARY_BYTES_MAX
    sizes = []
    for packer in (Packer(b""), Packer(dictionary)):
        packed = [packer.pack((record.MESSAGE, 0, 1, 1, b"s", b"", body)) for body in bodies]
        sizes.append(sum(len(body if each is None else each[6]) for body, each in zip(bodies, packed, strict=True)))
    raw = sum(map(len, bodies))
    assert sizes[1] < raw / 2 < sizes[0]


def test_what_does_not_expand_is_no_message() -> None:
    """Another dictionary, cut bytes, or a size that is not what comes out: None, and never another content."""
    body = b"".join(b"line %d of a text, " % number for number in range(30))
    packed = Packer(body[:200]).pack((record.MESSAGE, 0, 1, 1, b"s", b"h" * 20, body))
    assert packed is not None
    found = stored(packed)
    kind, group, index, stamp, key, head, content = packed
    for wrong in (
        (kind, group + 1, index, stamp, key, head, content),
        (kind, group - 1, index, stamp, key, head, content),
        (kind, group, index, stamp, key, head, bytes(content)[:-1]),
        (kind, group, index, stamp, key, head, b""),
    ):
        assert Packer(body[:200]).expand(stored(wrong)) is None
    other = Packer(bytes(200)).expand(found)
    assert other is None or len(other.payload) == len(body)


def test_a_packed_segment_is_as_full_after_a_start() -> None:
    """What keeps the copies of its dictionary apart is no content, for lack of which messages would be moved."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        async with store_on(drive) as store:
            stream = await open_and_replay(store, "s")
            stream.log.is_packing = True
            for sequence in range(1, 9):
                await propose(stream, b"%d %b" % (sequence, b"abcd" * 50))
            await stream.checkpoint()
            await propose(stream, b"-2")
            await stream.checkpoint()
            before = {each.path: each.seed for each in stream.log.files.segments.values() if each.is_packed}
            assert before
        async with store_on(drive, seed=2) as store:
            stream = await open_and_replay(store, "s")
            stream.log.is_packing = True
            await stream.checkpoint()
            files = stream.log.files.segments.values()
            assert before.items() <= {each.path: each.seed for each in files}.items()

    run(test)
