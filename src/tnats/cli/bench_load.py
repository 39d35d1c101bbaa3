"""The loads of `tnats bench`: what each client does, and what is measured of it. No printing here.

All clients of a run share one trio loop and so one core. To load a server from more cores, start more processes.
"""

from __future__ import annotations

from typing import Any

import attrs

from tnats.cli.output import Advance
from tnats.client import Client, Message
from tnats.limits import SECOND_NS
from tnats.records import define
from tnats.runtime.api import Runtime

STEP_COUNT = 1000
"""Messages between two progress reports."""

PERCENTILES = (50, 90, 99, 99.9)


@define
class Span:
    """What one client did between two moments."""

    start_ns: int
    end_ns: int
    message_count: int
    byte_count: int


@define
class Result:
    """One run: the clients' spans, and for requests every latency."""

    kind: str
    subject: str
    message_bytes: int
    spans: list[Span] = attrs.Factory(list)
    latencies_ns: list[int] = attrs.Factory(list)

    def total(self) -> Span:
        """All clients together, from the first start to the last end."""
        return Span(
            min(span.start_ns for span in self.spans),
            max(span.end_ns for span in self.spans),
            sum(span.message_count for span in self.spans),
            sum(span.byte_count for span in self.spans),
        )

    def record(self) -> dict[str, Any]:
        """Everything for JSON."""
        record: dict[str, Any] = {
            "kind": self.kind,
            "subject": self.subject,
            "message_bytes": self.message_bytes,
            **rates(self.total()),
            "clients": [rates(span) for span in self.spans],
        }
        if self.latencies_ns:
            record["latency_ns"] = latency_summary(self.latencies_ns)
        return record


def rates(span: Span) -> dict[str, float]:
    """Counts, seconds and rates of `span`."""
    seconds = max(span.end_ns - span.start_ns, 1) / SECOND_NS
    return {
        "messages": span.message_count,
        "bytes": span.byte_count,
        "seconds": seconds,
        "messages_per_second": span.message_count / seconds,
        "bytes_per_second": span.byte_count / seconds,
    }


def latency_summary(latencies_ns: list[int]) -> dict[str, float]:
    """Least, mean, percentiles (nearest rank) and greatest, in nanoseconds."""
    ordered = sorted(latencies_ns)
    summary: dict[str, float] = {"min": ordered[0], "mean": sum(ordered) / len(ordered)}
    for percentile in PERCENTILES:
        rank = max(1, -(-len(ordered) * percentile // 100))
        summary[f"p{percentile:g}"] = ordered[int(rank) - 1]
    summary["max"] = ordered[-1]
    return summary


def share(message_count: int, client_count: int, index: int) -> int:
    """How many of `message_count` messages client `index` sends."""
    return message_count // client_count + (index < message_count % client_count)


async def publish_load(
    runtime: Runtime, client: Client, subject: str, payload: bytes, count: int, advance: Advance
) -> Span:
    """Publish `count` messages as fast as the server takes them; the end is the server's word that it has all."""
    publish = client.publish
    start_ns = runtime.clock.mono_ns()
    left = count
    while left:
        step = min(STEP_COUNT, left)
        for _ in range(step):
            await publish(subject, payload)
        left -= step
        advance(step)
    await client.flush(timeout_s=60)
    return Span(start_ns, runtime.clock.mono_ns(), count, count * len(payload))


async def subscribe_load(runtime: Runtime, client: Client, subject: str, count: int, advance: Advance) -> Span:
    """Receive `count` messages; the clock runs from the first one."""
    subscription = client.subscribe(subject)
    byte_count = 0
    start_ns = 0
    left = count
    while left:
        batch = await subscription.next_batch(min(left, STEP_COUNT))
        if not start_ns:
            start_ns = runtime.clock.mono_ns()
        byte_count += sum(message.size for message in batch)
        left -= len(batch)
        advance(len(batch))
    end_ns = runtime.clock.mono_ns()
    subscription.unsubscribe()
    return Span(start_ns, end_ns, count, byte_count)


async def request_load(
    runtime: Runtime,
    client: Client,
    subject: str,
    payload: bytes,
    count: int,
    latencies_ns: list[int],
    advance: Advance,
) -> Span:
    """Send `count` requests one after the other and keep the time of each in `latencies_ns`."""
    now_ns = runtime.clock.mono_ns
    start_ns = before_ns = now_ns()
    for _ in range(count):
        await client.request(subject, payload)
        after_ns = now_ns()
        latencies_ns.append(after_ns - before_ns)
        before_ns = after_ns
        advance(1)
    return Span(start_ns, before_ns, count, count * len(payload))


async def serve_load(client: Client, subject: str, queue: str, payload: bytes, count: int, advance: Advance) -> None:
    """Answer requests with `payload`; for ever when `count` is 0."""
    subscription = client.subscribe(subject, queue=queue, max_messages=count)
    while batch := await subscription.next_batch():
        answer_batch(client, batch, payload)
        advance(len(batch))


def answer_batch(client: Client, batch: list[Message], payload: bytes) -> None:
    """Answer each request of `batch`."""
    for message in batch:
        if message.reply:
            client.publish_nowait(message.reply, payload)
