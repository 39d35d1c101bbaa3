"""Publishing with acknowledgement: the headers that say what is expected, and a window of publishes on their way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

from tnats.client.client import Client
from tnats.client.errors import NoResponders
from tnats.client.jetstream.answers import PubAck, decode_answer
from tnats.client.message import HeadersLike, Message
from tnats.client.options import nanoseconds
from tnats.notation import format_duration

NO_RESPONDERS_RETRIES = 2
NO_RESPONDERS_WAIT_S = 0.25
"""When nobody listens, a publish is tried again this often, after this wait (ADR-22)."""


class Conditions(TypedDict, total=False):
    """What may be said with a publish: see `JetStream.publish`."""

    message_id: str
    ttl_s: float
    expected_stream: str
    expected_last_sequence: int
    expected_last_subject_sequence: int
    expected_last_subject: str
    expected_last_message_id: str


NAMES = {
    "message_id": "Nats-Msg-Id",
    "ttl_s": "Nats-TTL",
    "expected_stream": "Nats-Expected-Stream",
    "expected_last_sequence": "Nats-Expected-Last-Sequence",
    "expected_last_subject_sequence": "Nats-Expected-Last-Subject-Sequence",
    "expected_last_subject": "Nats-Expected-Last-Subject-Sequence-Subject",
    "expected_last_message_id": "Nats-Expected-Last-Msg-Id",
}
"""Condition to header (JetStream documentation, "Publish headers")."""


def with_conditions(headers: HeadersLike | None, conditions: Conditions) -> HeadersLike | None:
    """`headers` and those that say `conditions`; None for none."""
    if not conditions:
        return headers
    merged: dict[str, str | Sequence[str]] = dict(headers or {})
    for name, value in conditions.items():
        merged[NAMES[name]] = format_ttl(conditions["ttl_s"]) if name == "ttl_s" else str(value)
    return merged


def format_ttl(ttl_s: float) -> str:
    """A lifetime as Nats-TTL says it; infinity is "never" (ADR-43)."""
    return "never" if ttl_s == math.inf else format_duration(nanoseconds(ttl_s))


def publish_call(subject: str) -> str:
    """How errors name a publish."""
    return f"publish on {subject!r}"


def no_stream(subject: str) -> NoResponders:
    """What a publish raises that nobody answers."""
    return NoResponders(f"{publish_call(subject)}: no stream listens on this subject")


async def ask_stream(
    client: Client, subject: str, data: bytes, headers: HeadersLike | None, timeout_s: float
) -> Message:
    """One publish, and the answer to it as it came. Raises NoResponders, and like `Client.request`."""
    try:
        return await client.request(subject, data, headers=headers, timeout_s=timeout_s)
    except NoResponders:
        raise no_stream(subject) from None


async def publish_once(
    client: Client, subject: str, data: bytes, headers: HeadersLike | None, timeout_s: float
) -> PubAck:
    """One publish and its acknowledgement. Raises ApiError, and like `ask_stream`."""
    answer = await ask_stream(client, subject, data, headers, timeout_s)
    return decode_answer(answer, PubAck, publish_call(subject))


async def publish(
    client: Client, subject: str, data: bytes, headers: HeadersLike | None, timeout_s: float, retries: int
) -> PubAck:
    """As `publish_once`, tried again while nobody listens: then nothing was stored, so nothing can be stored twice."""
    for _ in range(retries):
        try:
            return await publish_once(client, subject, data, headers, timeout_s)
        except NoResponders:
            await client.runtime.clock.sleep_ns(nanoseconds(NO_RESPONDERS_WAIT_S))
    return await publish_once(client, subject, data, headers, timeout_s)
