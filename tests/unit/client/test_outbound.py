"""The outgoing buffer, against a connection that takes as much as hypothesis likes."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tnats.client.outbound import JOIN_BYTES_MAX, Outbound
from tnats.runtime.api import Buffer

operations = st.lists(st.binary(min_size=1, max_size=40) | st.just(b"L" * (JOIN_BYTES_MAX + 1)), max_size=12)


class Taker:
    """Stands for `Conn.write`: takes the given numbers of bytes, one call each, then nothing."""

    def __init__(self, room: list[int]) -> None:
        self.room = room
        self.taken = b""

    def write(self, buffers: Sequence[Buffer]) -> int:
        if not self.room:
            return 0
        accepted = b"".join(buffers)[: self.room.pop(0)]
        self.taken += accepted
        return len(accepted)


@given(operations, st.lists(st.integers(0, 20_000), max_size=20), operations)
def test_bytes_leave_in_order_however_they_are_taken(first: list[bytes], room: list[int], second: list[bytes]) -> None:
    """Partial writes at any byte, with more appended between: nothing lost, doubled or swapped."""
    outbound = Outbound()
    taker = Taker(room)
    for operation in first:
        outbound.append(operation)
    outbound.write_to(taker)  # type: ignore[arg-type]
    for operation in second:
        outbound.append(operation)
    everything = b"".join(first + second)
    assert outbound.byte_count == len(everything) - len(taker.taken)
    taker.room = [1 << 30] * 10
    assert outbound.write_to(taker)  # type: ignore[arg-type]
    assert outbound.byte_count == 0
    assert taker.taken == everything


@given(operations, operations)
def test_taking_over_another_buffer(first: list[bytes], second: list[bytes]) -> None:
    """Its bytes come after ours, once, and it is empty then."""
    ours, theirs = Outbound(), Outbound()
    for operation in first:
        ours.append(operation)
    for operation in second:
        theirs.append(operation)
    ours.take_over(theirs)
    taker = Taker([1 << 30] * 10)
    assert ours.write_to(taker)  # type: ignore[arg-type]
    assert theirs.write_to(taker)  # type: ignore[arg-type]
    assert theirs.byte_count == 0
    assert taker.taken == b"".join(first + second)
