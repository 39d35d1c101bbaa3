"""Reads what a server holds at the end of a run, message by message, for the checkers."""

from __future__ import annotations

from collections.abc import Iterable

from tnats.client import Client, ClientError, TimedOut
from tnats.client.jetstream import ApiError, JetStream, MessageNotFound, StoredMessage, StreamState
from tnats.harness.checkers.evidence import Evidence, Replica, Stored
from tnats.harness.real.processes import ServerProcess
from tnats.harness.stream_reading import read_batch, told_lost
from tnats.harness.workloads.jetstream import STREAM, decode

TIMEOUT_S = 5.0
BATCH_COUNT = 500
MISSING_ASKED_MAX = 2_000
"""Acknowledged sequences that are not served, of which each is asked for once more by itself."""
SILENCES_MAX = 4
"""Reads without an answer after which no further ones of their kind are tried."""


async def read_replica(
    client: Client, server: ServerProcess, evidence: Evidence, reports: Iterable[str] = ()
) -> Replica:
    """Everything that `server` serves of the stream. A failure to read is noted, not raised.

    `reports`: what its health check has said before.
    """
    replica = Replica(server.name, {}, health=(await server.health()).complaint)
    try:
        js = JetStream(client, timeout_s=TIMEOUT_S)
        state = (await js.stream(STREAM).info()).state
        replica.last_seq = state.last_seq
        replica.named_lost = named_lost(state, [*reports, replica.health])
        await read_messages(js, replica)
        await ask_missing(js, replica, evidence)
    except ClientError as exc:
        replica.failure = f"{type(exc).__name__}: {exc}"
    return replica


def named_lost(state: StreamState, reports: Iterable[str]) -> tuple[tuple[int, int], ...]:
    """Ranges that the server names as lost: one by one in the stream's state, from first to last in health checks."""
    single = state.lost.msgs if state.lost is not None else []
    return tuple(dict.fromkeys([*((seq, seq) for seq in single), *told_lost(STREAM, reports)]))


async def read_messages(js: JetStream, replica: Replica) -> None:
    """All messages, in batches. Where a batch stops without an end, the next one starts a sequence further."""
    seq = 1
    stall_count = 0
    while seq <= replica.last_seq and stall_count < SILENCES_MAX:
        batch, complete = await read_batch(js, STREAM, seq, BATCH_COUNT)
        for message in batch:
            replica.messages[message.sequence] = stored(message)
        if complete and not batch:
            return
        stall_count += not complete
        seq = (batch[-1].sequence + 1 if batch else seq) + (not complete)


async def ask_missing(js: JetStream, replica: Replica, evidence: Evidence) -> None:
    """What the server answers for acknowledged sequences that the batches did not bring."""
    acked = sorted({int(operation.told("seq")) for operation in evidence.acked()})
    for seq in [seq for seq in acked if seq not in replica.messages][:MISSING_ASKED_MAX]:
        try:
            replica.messages[seq] = stored(await js.stream(STREAM).direct_get(seq))
        except MessageNotFound:
            replica.missing[seq] = ""
        except ApiError as exc:
            replica.missing[seq] = str(exc)
        except TimedOut:
            replica.unanswered_count += 1
            if replica.unanswered_count >= SILENCES_MAX:
                return


def stored(message: StoredMessage) -> Stored:
    """A message as checkers want it."""
    return Stored(decode(message.data), message.subject, message.time_ns)
