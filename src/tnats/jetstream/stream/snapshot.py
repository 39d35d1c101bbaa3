"""What a stream's machine keeps beside its store, as bytes: for checkpoints and for replicas that catch up.

Layout: one version byte, then JSON (arrays of numbers and base64 text; this is written once per checkpoint, not
per message). The store's messages and the configuration are saved elsewhere; schedules are saved with their next
firing, their patterns come from their messages.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import orjson

from tnats.errors import InvariantBroken
from tnats.jetstream.stream.entries import Message
from tnats.jetstream.stream.headers import nats_headers
from tnats.jetstream.stream.machine import StreamMachine

FORMAT_VERSION = 1


def save(machine: StreamMachine) -> bytes:
    """The bytes of everything that is not in the store."""
    deadlines, never, markers = machine.deadlines.snapshot()
    state = {
        "last_seq": machine.store.last_seq,
        "was_purged": machine.was_purged,
        "ids": [[_text(msg_id), seq, ts_ns] for msg_id, seq, ts_ns in machine.duplicates.items()],
        "last_id": [_text(machine.duplicates.last[0]), machine.duplicates.last[1]],
        "deadlines": [[seq, str(deadline_ns)] for seq, deadline_ns in deadlines],
        "never": never,
        "markers": markers,
        "sourced": [[_text(origin), seq, _text(identity)] for origin, (seq, identity) in machine.sourced.items()],
        "schedules": [[_text(subject), seq, next_ns] for subject, seq, next_ns in machine.schedules.snapshot()],
    }
    return bytes([FORMAT_VERSION]) + orjson.dumps(state)


def decode(data: bytes) -> dict[str, Any]:
    """What `save` gave, to be loaded."""
    if data[0] != FORMAT_VERSION:
        raise InvariantBroken(f"stream snapshot of format {data[0]}; this release reads format {FORMAT_VERSION}")
    state: dict[str, Any] = orjson.loads(data[1:])
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
        machine.duplicates.add(_bytes(msg_id), seq, ts_ns)
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
