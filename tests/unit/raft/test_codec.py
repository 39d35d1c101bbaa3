"""Bytes of messages and records: what goes in comes out, and anything else is refused."""

from __future__ import annotations

import contextlib

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnats.raft import codec, messages
from tnats.raft.codec import Damaged, Identity, NewerFormat, Promise
from tnats.raft.effects import HardState
from tnats.raft.membership import Member, Membership
from tnats.raft.messages import Entry, EntryKind, Message, SnapshotMeta, Standing

NUMBER = st.integers(0, 2**62)
MEMBERSHIP = st.builds(
    Membership,
    NUMBER,
    st.lists(st.builds(Member, NUMBER, NUMBER, st.booleans(), st.booleans()), max_size=4).map(tuple),
)
ENTRY = st.one_of(
    st.builds(Entry, NUMBER, NUMBER, st.sampled_from((EntryKind.NOOP, EntryKind.DATA)), st.binary(max_size=40)),
    st.builds(Entry, NUMBER, NUMBER, st.just(EntryKind.CONFIG), MEMBERSHIP.map(codec.encode_membership)),
)
META = st.builds(SnapshotMeta, NUMBER, NUMBER, MEMBERSHIP, NUMBER, NUMBER)
BY_TYPE = {
    "int": NUMBER,
    "bool": st.booleans(),
    "bytes": st.binary(max_size=60),
    "list[Entry]": st.lists(ENTRY, max_size=4),
    "Membership": MEMBERSHIP,
    "SnapshotMeta": META,
}


def of_kind(kind: type[Message]) -> st.SearchStrategy[Message]:
    fields = attrs.fields(kind)
    return st.builds(kind, *[NUMBER] * 4, *[BY_TYPE[str(field.type)] for field in fields[4:]])


MESSAGE = st.one_of([of_kind(kind) for kind in codec.MESSAGE_KINDS])
OWN = Identity(b"group", 7, 5 << 16)


def test_every_message_has_a_kind() -> None:
    """No message class is missing from the wire."""
    kinds = {kind for kind in vars(messages).values() if isinstance(kind, type) and issubclass(kind, Message)}
    assert kinds - {Message} == set(codec.MESSAGE_KINDS)


@given(MESSAGE)
def test_messages_come_out_as_they_went_in(message: Message) -> None:
    """Decoding inverts encoding, for every kind and any values."""
    assert codec.decode_message(b"g", codec.encode_message(b"g", message)) == message


@given(MESSAGE, st.data())
def test_changed_bytes_are_refused(message: Message, data: st.DataObject) -> None:
    """Any flipped bit and any cut is found."""
    encoded = codec.encode_message(b"g", message)
    bit = data.draw(st.integers(0, 8 * len(encoded) - 1))
    flipped = bytearray(encoded)
    flipped[bit // 8] ^= 1 << bit % 8
    with pytest.raises((Damaged, NewerFormat)):
        codec.decode_message(b"g", bytes(flipped))
    with pytest.raises(Damaged):
        codec.decode_message(b"g", encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@given(st.binary(max_size=200))
def test_any_bytes_are_damaged_at_worst(data: bytes) -> None:
    """Bytes from anywhere raise nothing but the two operating errors."""
    with pytest.raises((Damaged, NewerFormat)):
        codec.decode_message(b"g", data)


def test_a_group_does_not_read_another_groups_messages() -> None:
    """The group is part of what is checked."""
    encoded = codec.encode_message(b"one", messages.TimeoutNow(1, 2, 3, 4))
    with pytest.raises(Damaged, match="of group"):
        codec.decode_message(b"two", encoded)


def test_a_newer_version_is_named() -> None:
    """A later format is refused by its number and is not taken for damage."""
    from crc32c import crc32c

    body = bytes([codec.VERSION + 1]) + codec.encode_message(b"g", messages.TimeoutNow(1, 2, 3, 4))[5:]
    with pytest.raises(NewerFormat, match=f"version {codec.VERSION + 1}"):
        codec.decode_message(b"g", crc32c(body).to_bytes(4, "little") + body)


@pytest.mark.parametrize("entry", [Entry(4, 1, 3, b""), Entry(4, 1, EntryKind.CONFIG, b"no configuration")])
def test_an_entry_that_nobody_can_carry_out_is_damage(entry: Entry) -> None:
    """An unknown kind, or a configuration that is none, never enters a log: neither from a peer nor from the disk."""
    with pytest.raises(Damaged):
        codec.decode_message(b"g", codec.encode_message(b"g", messages.Append(1, 2, 1, 1, 3, 1, 0, [entry])))
    with pytest.raises(Damaged):
        codec.decode_entry(b"group", 7, codec.encode_entry(OWN, entry, 1))


@given(st.lists(st.integers(0, 255), max_size=120).map(bytes), st.sampled_from([0, *range(101, 106)]))
def test_sealed_nonsense_is_damaged_at_worst(body: bytes, kind: int) -> None:
    """A right checksum over anything raises nothing but the two operating errors."""
    from crc32c import crc32c

    sealed = bytes([codec.VERSION, kind, 1]) + b"g" + body
    data = crc32c(sealed).to_bytes(4, "little") + sealed
    decoders = (
        codec.decode_entry,
        codec.decode_hard_state,
        codec.decode_stored_membership,
        codec.decode_snapshot_meta,
        codec.decode_promise,
    )
    for decoder in decoders:
        with contextlib.suppress(Damaged, NewerFormat):
            decoder(b"g", int.from_bytes(body[:8], "little"), data)
    for number in range(len(codec.MESSAGE_KINDS)):
        sealed = bytes([codec.VERSION, number, 1]) + b"g" + body
        with contextlib.suppress(Damaged, NewerFormat):
            codec.decode_message(b"g", crc32c(sealed).to_bytes(4, "little") + sealed)


@given(ENTRY, NUMBER)
def test_entries_keep_their_neighbour(entry: Entry, prev_term: int) -> None:
    """A stored entry names the term before it, and who wrote it."""
    incarnation, stored = codec.decode_entry(b"group", 7, codec.encode_entry(OWN, entry, prev_term))
    assert (incarnation, stored.entry, stored.prev_term) == (5 << 16, entry, prev_term)


@given(
    st.builds(
        HardState,
        NUMBER,
        NUMBER,
        NUMBER,
        NUMBER,
        NUMBER,
        st.sampled_from(Standing),
        NUMBER,
        st.lists(st.tuples(NUMBER, NUMBER), max_size=4).map(tuple),
    ),
    MEMBERSHIP,
    META,
    st.builds(Promise, NUMBER, NUMBER, NUMBER),
)
def test_records_come_out_as_they_went_in(
    hard: HardState, membership: Membership, meta: SnapshotMeta, promise: Promise
) -> None:
    """Each kind of record round-trips."""
    assert codec.decode_hard_state(b"group", 7, codec.encode_hard_state(OWN, hard))[1] == hard
    encoded = codec.encode_stored_membership(OWN, membership)
    assert codec.decode_stored_membership(b"group", 7, encoded)[1] == membership
    assert codec.decode_snapshot_meta(b"group", 7, codec.encode_snapshot_meta(OWN, meta))[1] == meta
    assert codec.decode_promise(b"group", 7, codec.encode_promise(OWN, promise))[1] == promise


@pytest.mark.parametrize(("group", "node"), [(b"other", 7), (b"group", 8)])
def test_a_record_in_the_wrong_place_is_damage(group: bytes, node: int) -> None:
    """A disk of another group or node is not taken for one's own."""
    record = codec.encode_hard_state(OWN, HardState(term=3))
    with pytest.raises(Damaged, match="expected HARD_STATE"):
        codec.decode_hard_state(group, node, record)


def test_kinds_are_not_mixed() -> None:
    """A promise is no hard state."""
    with pytest.raises(Damaged, match="expected HARD_STATE"):
        codec.decode_hard_state(b"group", 7, codec.encode_promise(OWN, Promise(1, 1, 1)))
