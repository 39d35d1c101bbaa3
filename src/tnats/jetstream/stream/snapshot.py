"""What a stream's machine keeps beside its store, as bytes: for checkpoints and for replicas that catch up.

Layout (little endian): one version byte; the size of the JSON and the number of message ids (4 bytes each); JSON, of
arrays of numbers and base64 text, since this is written once per checkpoint, not per message; then the message ids, of
which there may be a million: their sizes (4 bytes each), sequences and times (8 bytes each), and the ids. The store's
messages and the configuration are saved elsewhere; schedules are saved with their next firing, their patterns come from
their messages. Version 1, which is read too, was JSON alone behind the version byte, with the ids in it.
"""

from __future__ import annotations

import base64
import struct
from array import array
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import orjson

from tnats.errors import InvariantBroken
from tnats.jetstream.stream.entries import Message
from tnats.jetstream.stream.headers import nats_headers
from tnats.jetstream.stream.machine import StreamMachine

FORMAT_VERSION = 2
_HEAD = struct.Struct("<BII")
_ID_BYTES = 20
"""What a message id takes beside itself."""


def save(machine: StreamMachine) -> bytes:
    """The bytes of everything that is not in the store."""
    deadlines, never, markers = machine.deadlines.snapshot()
    state = {
        "last_seq": machine.store.last_seq,
        "was_purged": machine.was_purged,
        "last_id": [_text(machine.duplicates.last[0]), machine.duplicates.last[1]],
        "deadlines": [[seq, str(deadline_ns)] for seq, deadline_ns in deadlines],
        "never": never,
        "markers": markers,
        "sourced": [[_text(origin), seq, _text(identity)] for origin, (seq, identity) in machine.sourced.items()],
        "schedules": [[_text(subject), seq, next_ns] for subject, seq, next_ns in machine.schedules.snapshot()],
    }
    text, ids = orjson.dumps(state), machine.duplicates.items()
    parts = [_HEAD.pack(FORMAT_VERSION, len(text), len(ids)), text]
    parts.append(array("I", [len(msg_id) for msg_id, _, _ in ids]).tobytes())
    parts.append(array("Q", [seq for _, seq, _ in ids]).tobytes())
    parts.append(array("Q", [ts_ns for _, _, ts_ns in ids]).tobytes())
    return b"".join([*parts, *(msg_id for msg_id, _, _ in ids)])


def decode(data: bytes) -> dict[str, Any]:
    """What `save` gave, to be loaded."""
    state: dict[str, Any]
    if data[0] == 1:
        state = orjson.loads(data[1:])
        state["ids"] = [(_bytes(msg_id), seq, ts_ns) for msg_id, seq, ts_ns in state["ids"]]
        return state
    if data[0] != FORMAT_VERSION:
        raise InvariantBroken(f"stream snapshot of format {data[0]}; this release reads formats 1 to {FORMAT_VERSION}")
    _, size, count = _HEAD.unpack_from(data)
    at = _HEAD.size + size
    state = orjson.loads(data[_HEAD.size : at])
    sizes = array("I", data[at : at + 4 * count])
    numbers = array("Q", data[at + 4 * count : at + _ID_BYTES * count])
    ends = list(accumulate(sizes, initial=at + _ID_BYTES * count))
    ids = [data[start:end] for start, end in pairwise(ends)]
    state["ids"] = list(zip(ids, numbers[:count], numbers[count:], strict=True))
    return state


def messages_in(state: dict[str, Any]) -> list[int]:
    """The sequences of the messages that `load` will read."""
    return [seq for _, seq, _ in state["schedules"]]


def load(machine: StreamMachine, state: dict[str, Any], read: Callable[[int], tuple[int, Message] | None]) -> int:
    """Restore a machine over a store that may hold more. Returns the last sequence that the snapshot knew.

    `read` gives time and content of a message that is still there. Messages behind the returned sequence are then
    given to `StreamMachine.observe`.
    """
    machine.was_purged = state.get("was_purged", False)
    for msg_id, seq, ts_ns in state["ids"]:
        machine.duplicates.add(msg_id, seq, ts_ns)
    for origin, seq, *identity in state.get("sourced", []):
        machine.sourced[_bytes(origin)] = (seq, _bytes(*identity))
    last_id, last_id_seq = state["last_id"]
    machine.duplicates.last = (_bytes(last_id), last_id_seq)
    held = machine.store.subject_of
    machine.deadlines.restore(
        [(seq, int(deadline_ns)) for seq, deadline_ns in state["deadlines"] if held(seq) is not None],
        [seq for seq in state["never"] if held(seq) is not None],
        [seq for seq in state["markers"] if held(seq) is not None],
    )
    for subject, seq, next_ns in state["schedules"]:
        found = read(seq)
        if found is not None:
            ts_ns, message = found
            machine.schedules.add(_bytes(subject), seq, ts_ns, nats_headers(message[1]))
            machine.schedules.rearm(_bytes(subject), next_ns)
    last_seq: int = state["last_seq"]
    return last_seq


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _bytes(text: str = "") -> bytes:
    return base64.b64decode(text)
