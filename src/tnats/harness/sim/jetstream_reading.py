"""Reading back what a stream holds: as any client does, and, on a server that nobody talks to, from its store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tnats.client.jetstream import ApiError, JetStream
from tnats.client.message import header_values
from tnats.harness.checkers.evidence import Replica, Stored
from tnats.harness.sim.bodies import value_of
from tnats.harness.stream_reading import read_batch
from tnats.wire.headers import parse_headers

if TYPE_CHECKING:
    from tnats.jetstream.service import JetStream as Service

ACCOUNT = "$G"
BATCH_COUNT = 500
HEADERS = ("Nats-Incr", "Nats-Marker-Reason", "Nats-Msg-Id", "Nats-Stream-Source", "Value")
"""What checkers ask for; `Value` stands for the value where the body is something else."""


def stored(subject: str, time_ns: int, headers: dict[str, list[str]] | None, data: bytes) -> Stored:
    """A message as checkers want it."""
    told = {name: values[0] for name, values in (headers or {}).items() if name in HEADERS}
    body = bytes(data).decode("utf-8", "backslashreplace") if "Value" in told else ""
    return Stored(told.get("Value") or value_of(data), subject, time_ns, told or None, body)


async def read_stream(js: JetStream, name: str, label: str) -> Replica:
    """All messages of a stream, through direct gets; the stream allows them."""
    info = await js.stream(name).info()
    replica = Replica(label, {}, info.state.last_seq)
    seq = max(1, info.state.first_seq)
    while seq <= info.state.last_seq:
        batch, _ = await read_batch(js, name, seq, BATCH_COUNT)
        for message in batch:
            found = stored(message.subject, message.time_ns, message.headers, message.data)
            replica.messages[message.sequence] = found
        seq = (batch[-1].sequence if batch else info.state.last_seq) + 1
    lost = info.state.lost
    replica.named_lost = tuple(ranges(lost.msgs if lost is not None else []))
    if len(replica.messages) != info.state.messages:
        raise ApiError(0, 0, f"{name} says it has {info.state.messages} messages; {len(replica.messages)} were read")
    return replica


def ranges(sequences: list[int]) -> Iterator[tuple[int, int]]:
    """Sequences in rising order as ranges (first, last)."""
    first = before = 0
    for seq in sequences:
        if first and seq != before + 1:
            yield first, before
            first = seq
        first = first or seq
        before = seq
    if first:
        yield first, before


async def store_content(service: Service, name: str, label: str) -> Replica:
    """All messages of a stream of a JetStream in this process, from its store."""
    streams = service.accounts[ACCOUNT].streams
    if name not in streams:
        return Replica(label, {}, failure="the stream does not exist")
    store = streams[name].store
    index = store.log.index
    replica = Replica(label, {}, index.last)
    seq = index.next_live(1)
    while seq:
        message = await store.log.load(seq)
        headers = header_values(parse_headers(message.headers)) if message.headers else None
        replica.messages[seq] = stored(message.subject.decode(), message.time_ns, headers, message.payload)
        seq = index.next_live(seq + 1)
    return replica
