"""The place of a consumer as backups hold it: JSON in archives of version 2, nats-server's bytes in those of version 1.

Redelivery counts there are deliveries after the first. What nats-server does not know of, messages held back for their
subject and dead letters that wait, stands under a key of its own, which it passes over.
"""

from __future__ import annotations

from typing import Any

import attrs

from tnats.jetstream.backup import varint
from tnats.jetstream.backup.contents import BadArchive
from tnats.jetstream.consumer.letters import Letter
from tnats.jetstream.consumer.state import ConsumerState
from tnats.limits import SECOND_NS
from tnats.subjects.tokens import is_valid_literal

OWN_KEY = "tnats"
_MAGIC = 22
_VERSIONS = (1, 2)


def to_json(state: ConsumerState) -> dict[str, Any]:
    """The JSON object of a state."""
    found: dict[str, Any] = {
        "delivered": {"consumer_seq": state.delivered_consumer_seq, "stream_seq": state.delivered_stream_seq},
        "ack_floor": {"consumer_seq": state.floor_consumer_seq, "stream_seq": state.floor_stream_seq},
    }
    if len(state.pending):
        found["pending"] = {
            str(seq): {"Sequence": consumer_seq, "Timestamp": sent_ns}
            for seq, consumer_seq, sent_ns in state.pending.items()
        }
    if state.redelivered:
        found["redelivered"] = {str(seq): count - 1 for seq, count in state.redelivered.items()}
    if state.held or state.per_subject_until or state.outbox:
        letters = [attrs.astuple(letter) for letter in state.outbox.values()]
        found[OWN_KEY] = {"held": list(state.held), "per_subject_until": state.per_subject_until, "letters": letters}
    return found


def from_json(given: Any) -> ConsumerState:
    """The state of a JSON object. Raises BadArchive."""
    try:
        own = given.get(OWN_KEY, {})
        state = _build(
            (given["delivered"]["consumer_seq"], given["delivered"]["stream_seq"]),
            (given["ack_floor"]["consumer_seq"], given["ack_floor"]["stream_seq"]),
            [(int(seq), one["Sequence"], one["Timestamp"]) for seq, one in (given.get("pending") or {}).items()],
            {int(seq): count for seq, count in (given.get("redelivered") or {}).items()},
            own.get("held", []),
            own.get("per_subject_until", 0),
        )
        letters = [Letter(*letter) for letter in own.get("letters", ())]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BadArchive(f"the state of a consumer is damaged ({error!r})") from None
    for letter in letters:
        numbers, texts = (letter.seq, letter.deliveries, letter.died_ns), (letter.target, letter.reason)
        is_sound = all(type(one) is int and 0 <= one < 2**63 for one in numbers) and letter.deliveries < 2**31
        if not is_sound or not all(type(one) is str for one in texts) or not is_valid_literal(letter.target):
            raise BadArchive("a dead letter of a consumer is damaged")
    state.outbox = {letter.seq: letter for letter in letters}
    return state


def from_bytes(data: bytes) -> ConsumerState:
    """The state in a file `o.dat` of nats-server. Raises BadArchive."""
    numbers = _Numbers(data)
    if len(data) < 2 or data[0] != _MAGIC or data[1] not in _VERSIONS:
        raise BadArchive("the state of a consumer has an unknown format")
    floor = (numbers.unsigned(), numbers.unsigned())
    delivered = (numbers.unsigned(), numbers.unsigned())
    if data[1] == 1:  # relative to the floor then, and one too high
        base = [max(value - 1, 0) if any(floor) and value else value for value in floor]
        delivered = (delivered[0] + base[0], delivered[1] + base[1])
    pending = []
    count = numbers.unsigned()
    newest_s = numbers.signed() if count else 0
    for _ in range(count):
        seq = numbers.unsigned() + floor[1]
        consumer_seq = numbers.unsigned() + floor[0] if data[1] == 2 else 0
        pending.append((seq, consumer_seq or seq, (newest_s - numbers.signed()) * SECOND_NS))
    redelivered = {}
    for _ in range(numbers.unsigned()):
        seq = numbers.unsigned() + floor[1]
        redelivered[seq] = numbers.unsigned()
    return _build(delivered, floor, pending, redelivered, [], 0)


def _build(
    delivered: tuple[int, int],
    floor: tuple[int, int],
    pending: list[tuple[int, int, int]],
    redelivered: dict[int, int],
    held: list[int],
    per_subject_until: int,
) -> ConsumerState:
    numbers = [*delivered, *floor, per_subject_until, *held, *redelivered, *redelivered.values()]
    numbers += [number for one in pending for number in one]
    if any(type(number) is not int or not 0 <= number < 2**63 for number in numbers):
        raise BadArchive("the state of a consumer holds impossible numbers")
    if floor[1] > delivered[1] or any(seq > delivered[1] for seq, _, _ in pending):
        raise BadArchive("the state of a consumer contradicts itself")
    state = ConsumerState()
    state.delivered_consumer_seq, state.delivered_stream_seq = delivered
    state.floor_consumer_seq, state.floor_stream_seq = floor
    state.per_subject_until = per_subject_until
    for seq, consumer_seq, sent_ns in sorted(pending):
        state.pending.add(seq, max(consumer_seq, 1), sent_ns)
    state.redelivered = {seq: count + 1 for seq, count in redelivered.items() if count > 0}
    state.held = dict.fromkeys(held)
    return state


class _Numbers:
    """Variable-length integers behind the two bytes of a head."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 2

    def unsigned(self) -> int:
        value, self._at, is_whole = varint.decode(self._data, self._at)
        if not is_whole:
            raise BadArchive("the state of a consumer ends too early")
        return value

    def signed(self) -> int:
        return varint.to_signed(self.unsigned())
