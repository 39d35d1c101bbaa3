"""The few JetStream requests that workloads need, as plain requests with JSON on `tnats.client`.

Sources: JetStream wire API reference; ADR-31 (direct get), ADR-8 (key-value store).
"""

from __future__ import annotations

import json
from typing import Any

import attrs

from tnats.client import Client, Message
from tnats.client.jetstream import ApiError

API = "$JS.API."
STREAM_NOT_FOUND = 10059
NOT_FOUND_STATUS = 404
END_OF_BATCH_STATUS = 204


@attrs.frozen
class PubAck:
    stream: str
    seq: int
    duplicate: bool


@attrs.frozen
class StoredMessage:
    """A message as a stream holds it."""

    seq: int
    subject: str
    data: bytes
    headers: dict[str, list[str]] | None
    time: str


async def api_request(client: Client, subject: str, body: dict[str, Any] | None, timeout_s: float) -> dict[str, Any]:
    """One request to `$JS.API.<subject>`. Raises ApiError, and like `Client.request`."""
    data = b"" if body is None else json.dumps(body).encode()
    return _answer(await client.request(API + subject, data, timeout_s=timeout_s))


def _answer(message: Message) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(message.data)
    except ValueError:
        raise ApiError(message.status, 0, message.description or "an answer that is no JSON") from None
    error = answer.get("error")
    if error:
        raise ApiError(error.get("code", 0), error.get("err_code", 0), error.get("description", "no reason given"))
    return answer


async def publish(
    client: Client, subject: str, data: bytes, *, headers: dict[str, str] | None = None, timeout_s: float
) -> PubAck:
    """Publish and wait for the acknowledgement. Raises ApiError, and like `Client.request`."""
    answer = _answer(await client.request(subject, data, headers=headers, timeout_s=timeout_s))
    return PubAck(answer["stream"], answer["seq"], answer.get("duplicate", False))


async def create_stream(client: Client, config: dict[str, Any], timeout_s: float) -> None:
    """Create a stream, or find it as it is."""
    await api_request(client, f"STREAM.CREATE.{config['name']}", config, timeout_s)


async def stream_state(client: Client, stream: str, timeout_s: float) -> dict[str, Any]:
    """The state object of a stream's info; `lost` in it names what the server knows to be lost."""
    answer = await api_request(client, f"STREAM.INFO.{stream}", {}, timeout_s)
    state: dict[str, Any] = answer["state"]
    return state


async def direct_get(client: Client, stream: str, query: dict[str, Any], timeout_s: float) -> StoredMessage | None:
    """One message by `{"seq": n}` or `{"last_by_subj": s}` from any replica; None when there is none.

    Raises ApiError for any other answer.
    """
    reply = await client.request(f"{API}DIRECT.GET.{stream}", json.dumps(query).encode(), timeout_s=timeout_s)
    if reply.status == NOT_FOUND_STATUS:
        return None
    return stored(reply)


def stored(reply: Message) -> StoredMessage:
    """The message in an answer to a direct get. Raises ApiError when the answer is none."""
    headers = reply.headers or {}
    if "Nats-Sequence" not in headers:
        raise ApiError(reply.status, 0, reply.description or "a direct get without a message")
    return StoredMessage(
        seq=int(headers["Nats-Sequence"][0]),
        subject=headers["Nats-Subject"][0],
        data=reply.data,
        headers=headers,
        time=headers["Nats-Time-Stamp"][0],
    )


async def direct_get_batch(
    client: Client, stream: str, first_seq: int, count: int, timeout_s: float
) -> tuple[list[StoredMessage], bool]:
    """Up to `count` messages from `first_seq` on, gaps passed over, and whether the server said that this was all."""
    query = json.dumps({"seq": first_seq, "batch": count, "next_by_subj": ">"}).encode()
    found: list[StoredMessage] = []
    async with client.request_many(
        f"{API}DIRECT.GET.{stream}", query, count_max=count + 1, timeout_s=timeout_s
    ) as replies:
        async for reply in replies:
            if reply.status in (NOT_FOUND_STATUS, END_OF_BATCH_STATUS):
                return found, True
            found.append(stored(reply))
    return found, False


def delivered_seq(reply: str) -> int:
    """The stream sequence in an ack subject: of the short form with 9 tokens, or the long one with 12 (ADR-15)."""
    tokens = reply.split(".")
    return int(tokens[5] if len(tokens) == 9 else tokens[7])
