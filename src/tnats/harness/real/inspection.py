"""Reads what a server holds at the end of a run, message by message, for the checkers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from tnats.client import Client, ClientError, TimedOut
from tnats.client.jetstream import ApiError
from tnats.harness import js_requests
from tnats.harness.checkers.evidence import Evidence, Replica, Stored
from tnats.harness.js_requests import StoredMessage
from tnats.harness.real.processes import ServerProcess
from tnats.harness.workloads.jetstream import STREAM, decode
from tnats.limits import SECOND_NS

TIMEOUT_S = 5.0
BATCH_COUNT = 500
MISSING_ASKED_MAX = 2_000
"""Acknowledged sequences that are not served, of which each is asked for once more by itself."""
SILENCES_MAX = 4
"""Reads without an answer after which no further ones of their kind are tried."""
HEALTHY_STATUS = 200
LOST_RANGE = re.compile(rf"lost \S*/{STREAM} ([0-9]+)-([0-9]+) messages")
"""How our health check names what a stream has lost."""


async def read_replica(
    client: Client, server: ServerProcess, evidence: Evidence, reports: Iterable[str] = ()
) -> Replica:
    """Everything that `server` serves of the stream. A failure to read is noted, not raised.

    `reports`: what its health check has said before.
    """
    replica = Replica(server.name, {})
    health = await server.health()
    if health.status != HEALTHY_STATUS:
        replica.health = f"{health.status} {health.text}"
    try:
        state = await js_requests.stream_state(client, STREAM, TIMEOUT_S)
        replica.last_seq = state["last_seq"]
        replica.named_lost = named_lost(state, [*reports, replica.health])
        await read_messages(client, replica)
        await ask_missing(client, replica, evidence)
    except ClientError as exc:
        replica.failure = f"{type(exc).__name__}: {exc}"
    return replica


def named_lost(state: dict[str, Any], reports: Iterable[str]) -> tuple[tuple[int, int], ...]:
    """Ranges that the server names as lost: one by one in the stream's state, from first to last in health checks."""
    single = [int(seq) for seq in (state.get("lost") or {}).get("msgs") or ()]
    told = (pair for report in reports for pair in LOST_RANGE.findall(report))
    return tuple(dict.fromkeys([*((seq, seq) for seq in single), *((int(first), int(last)) for first, last in told)]))


async def read_messages(client: Client, replica: Replica) -> None:
    """All messages, in batches. Where a batch stops without an end, the next one starts a sequence further."""
    seq = 1
    stall_count = 0
    while seq <= replica.last_seq and stall_count < SILENCES_MAX:
        batch, complete = await js_requests.direct_get_batch(client, STREAM, seq, BATCH_COUNT, TIMEOUT_S)
        for message in batch:
            replica.messages[message.seq] = Stored(decode(message.data), message.subject, timestamp_ns(message))
        if complete and not batch:
            return
        stall_count += not complete
        seq = (batch[-1].seq + 1 if batch else seq) + (not complete)


async def ask_missing(client: Client, replica: Replica, evidence: Evidence) -> None:
    """What the server answers for acknowledged sequences that the batches did not bring."""
    acked = sorted({int(operation.told("seq")) for operation in evidence.acked()})
    for seq in [seq for seq in acked if seq not in replica.messages][:MISSING_ASKED_MAX]:
        try:
            found = await js_requests.direct_get(client, STREAM, {"seq": seq}, TIMEOUT_S)
        except ApiError as exc:
            replica.missing[seq] = str(exc)
        except TimedOut:
            replica.unanswered_count += 1
            if replica.unanswered_count >= SILENCES_MAX:
                return
        else:
            if found is None:
                replica.missing[seq] = ""
            else:
                replica.messages[seq] = Stored(decode(found.data), found.subject, timestamp_ns(found))


def timestamp_ns(message: StoredMessage) -> int:
    """RFC 3339 with up to nine decimals, in nanoseconds since the epoch."""
    text = message.time.rstrip("Z")
    seconds, _, fraction = text.partition(".")
    return int(datetime.fromisoformat(seconds + "+00:00").timestamp()) * SECOND_NS + int(fraction.ljust(9, "0") or 0)
