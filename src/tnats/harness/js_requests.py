"""The few JetStream requests that workloads need, as plain requests with JSON on `tnats.client`.

Sources: JetStream wire API reference; ADR-31 (direct get), ADR-8 (key-value store).
"""

from __future__ import annotations

import base64
import json
from typing import Any

import attrs

from tnats.client import Client, ClientError, Message
from tnats.ids import Nuid

API = "$JS.API."
NO_MESSAGE = 10037
STREAM_NOT_FOUND = 10059
WRONG_LAST_SEQUENCE = 10071
NOT_FOUND_STATUS = 404
END_OF_BATCH_STATUS = 204


class ApiError(ClientError):
    """The server's answer was an error: `code` as in HTTP, `err_code` its own number."""

    def __init__(self, code: int, err_code: int, text: str) -> None:
        super().__init__(f"{text} (code {code}, err_code {err_code})")
        self.code = code
        self.err_code = err_code


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


async def leader_get(client: Client, stream: str, query: dict[str, Any], timeout_s: float) -> StoredMessage | None:
    """As `direct_get`, answered by the stream's leader alone."""
    try:
        answer = await api_request(client, f"STREAM.MSG.GET.{stream}", query, timeout_s)
    except ApiError as exc:
        if exc.err_code == NO_MESSAGE:
            return None
        raise
    found = answer["message"]
    headers = None
    if "hdrs" in found:
        headers = {"": [base64.b64decode(found["hdrs"]).decode(errors="replace")]}
    return StoredMessage(
        found["seq"], found["subject"], base64.b64decode(found.get("data", "")), headers, found["time"]
    )


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


async def create_ephemeral_consumer(client: Client, stream: str, subject: str, timeout_s: float) -> str:
    """A pull consumer from the first message on, with explicit acks; returns its name."""
    config = {"deliver_policy": "all", "ack_policy": "explicit", "filter_subject": subject, "max_ack_pending": -1}
    body = {"stream_name": stream, "config": config}
    answer = await api_request(client, f"CONSUMER.CREATE.{stream}", body, timeout_s)
    name: str = answer["name"]
    return name


def delivered_seq(reply: str) -> int:
    """The stream sequence in an ack subject: of the short form with 9 tokens, or the long one with 12 (ADR-15)."""
    tokens = reply.split(".")
    return int(tokens[5] if len(tokens) == 9 else tokens[7])


async def fetch(client: Client, stream: str, consumer: str, count: int, timeout_s: float) -> list[tuple[int, bytes]]:
    """Up to `count` waiting messages as (sequence, data), acknowledged.

    They come under their own subjects, so the inbox is a subscription and not the one of requests.
    """
    inbox = f"_INBOX.{Nuid(client.runtime.chance.rng('harness.inbox')).next()}"
    query = json.dumps({"batch": count, "no_wait": True}).encode()
    found: list[tuple[int, bytes]] = []
    async with client.subscribe(inbox) as subscription:
        await client.publish(f"{API}CONSUMER.MSG.NEXT.{stream}.{consumer}", query, reply=inbox)
        while len(found) < count:
            message = await subscription.next_message(timeout_s)
            if message.status:
                break
            found.append((delivered_seq(message.reply), message.data))
            await message.respond(b"+ACK")
    return found
