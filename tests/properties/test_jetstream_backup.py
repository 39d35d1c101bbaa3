"""Backups under random contents, random pieces, and random damage."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tnats.jetstream.api.messages import StreamState
from tnats.jetstream.backup import archive, consumer_state, s2
from tnats.jetstream.backup.contents import ArchivedConsumer, ArchivedMessage, BadArchive, Bounds, Item
from tnats.jetstream.backup.receiving import Unpacker
from tnats.jetstream.consumer.config import ConsumerConfig
from tnats.jetstream.consumer.letters import Letter
from tnats.jetstream.consumer.state import ConsumerState

CONTENTS = st.one_of(
    st.binary(max_size=3000),
    st.builds(lambda part, count: part * count, st.binary(min_size=1, max_size=9), st.integers(0, 60_000)),
)
MESSAGES = st.lists(
    st.tuples(
        st.integers(1, 2**40),
        st.integers(0, 2**62),
        st.binary(min_size=1, max_size=40),
        st.binary(max_size=60),
        st.binary(max_size=300),
    ),
    max_size=8,
)
CONSUMERS = st.dictionaries(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=9), st.integers(0, 9), max_size=3
)


def consumer_at(start: int) -> ConsumerState:
    state = ConsumerState(start + 1)
    for seq in range(start + 1, start + 6):
        state.deliver(seq, 1, seq, 10**15 + seq, tracks_acks=True)
    state.deliver(start + 2, 1, start + 7, 10**15, tracks_acks=True)
    state.ack(start + 3)
    state.hold(start + 8)
    state.outbox[start + 1] = Letter(start + 1, "letters.here", "über", 3, 10**18)
    return state


def packed(messages: list[tuple[int, int, bytes, bytes, bytes]], consumers: dict[str, int]) -> bytes:
    plain = archive.begin(StreamState(first_seq=3, last_seq=2**41), 5)
    for name, start in consumers.items():
        plain += archive.consumer(name, ConsumerConfig(name=name), consumer_at(start), 5)
    plain += b"".join(archive.message(*message) for message in messages) + archive.end()
    writer = s2.Writer()
    return writer.write(plain) + writer.finish()


def unpacked(data: bytes, rng: random.Random) -> list[Item]:
    unpacker, at = Unpacker(), 0
    items: list[Item] = []
    while at < len(data):
        size = rng.choice([1, 3, 50, 1000, 100_000])
        for step in unpacker.feed(data[at : at + size]):
            items += step
        at += size
    unpacker.finish()
    return items


@given(CONTENTS, st.integers())
def test_what_is_compressed_comes_back(content: bytes, seed: int) -> None:
    """Compression loses nothing, in whatever pieces it is written and read."""
    rng, writer, data, at = random.Random(seed), s2.Writer(), b"", 0
    while at < len(content):
        size = rng.randint(1, 100_000)
        data += writer.write(content[at : at + size])
        at += size
    data += writer.finish()
    reader, plain, step = s2.Reader(), b"", rng.randint(1, 50_000)
    for start in range(0, len(data), step):
        plain += b"".join(reader.feed(data[start : start + step]))
    assert plain == content
    assert reader.is_complete == bool(data)


@given(MESSAGES, CONSUMERS, st.integers())
def test_an_archive_comes_back(
    messages: list[tuple[int, int, bytes, bytes, bytes]], consumers: dict[str, int], seed: int
) -> None:
    """Messages and consumers are read as they were written, in whatever pieces."""
    items = unpacked(packed(messages, consumers), random.Random(seed))
    assert items[0] == Bounds(3, 2**41, 0)
    found = [item for item in items if isinstance(item, ArchivedConsumer)]
    assert {one.name: one.state.encode() for one in found} == {
        name: consumer_at(start).encode() for name, start in consumers.items()
    }
    assert [item for item in items if isinstance(item, ArchivedMessage)] == [ArchivedMessage(*one) for one in messages]


@given(MESSAGES, CONSUMERS, st.integers())
def test_damage_is_found(
    messages: list[tuple[int, int, bytes, bytes, bytes]], consumers: dict[str, int], seed: int
) -> None:
    """An archive with a byte changed or without its end is refused, or still says what it said; it never fails
    otherwise.
    """
    rng = random.Random(seed)
    data = packed(messages, consumers)
    whole = unpacked(data, random.Random(seed))
    damaged = bytearray(data)
    at = rng.randrange(len(data))
    if rng.random() < 0.3:
        del damaged[at:]
    else:
        damaged[at] ^= rng.randint(1, 255)
    try:
        found = unpacked(bytes(damaged), random.Random(seed))
    except BadArchive:
        return
    assert len(found) == len(whole)
    assert [one for one in found if not isinstance(one, ArchivedConsumer)] == [
        one for one in whole if not isinstance(one, ArchivedConsumer)
    ]


@given(st.binary(max_size=400), st.booleans(), st.integers())
def test_any_bytes_are_refused_or_read(data: bytes, is_framed: bool, seed: int) -> None:
    """Bytes that nobody wrote never lead to another error than the one for bad archives."""
    if is_framed:
        writer = s2.Writer()
        data = writer.write(random.Random(seed).choice([b"", archive.MAGIC]) + data) + writer.finish()
    try:
        unpacked(data, random.Random(seed))
    except BadArchive:
        pass


@given(st.binary(max_size=80))
def test_any_block_is_refused_or_decoded(block: bytes) -> None:
    """The decoder of blocks ends with a block of the size that is told, or with the one error."""
    try:
        plain = s2.decode_block(block)
    except s2.CorruptInput:
        return
    size = shift = 0
    for byte in block:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    assert len(plain) == size


@given(st.binary(max_size=60))
def test_any_consumer_state_is_refused_or_read(data: bytes) -> None:
    """Bytes in place of `o.dat` never lead to another error than the one for bad archives."""
    for body in (data, b"\x16\x02" + data, b"\x16\x01" + data):
        try:
            consumer_state.from_bytes(body)
        except BadArchive:
            pass
