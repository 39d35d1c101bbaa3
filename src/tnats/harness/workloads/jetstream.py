"""The accesses on a NATS server: `tnats.client` with its JetStream and key-value buckets, live or in a simulated world.

What an error means for the operation is decided here, once. Definite: the connection was down before anything was
sent, nobody listens, or an error that is given before anything is stored. All else is indeterminate.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from tnats.client import Client, ClientError, ConnectOptions, NoResponders, Status, connect
from tnats.client.jetstream import AckPolicy, ApiError, Consumer, ConsumerConfig, Discard, JetStream, StreamConfig
from tnats.client.kv import BucketConfig, KeyDeleted, KeyExists, KeyNotFound, KeyValue
from tnats.client.kv.config import to_stream
from tnats.harness.workloads.access import Acknowledged, Delivered, Indeterminate, Refused
from tnats.runtime.api import Runtime

STREAM = "jepsen-stream"
SUBJECT = "jepsen.0"
BUCKET = "jepsen"

LOG_CONFIG = StreamConfig(STREAM, subjects=["jepsen.*"], discard=Discard.NEW, allow_direct=True)
BUCKET_CONFIG = to_stream(BucketConfig(BUCKET, history=64))

DEFINITE_ERRORS = {
    10008: "jetstream temporarily unavailable",
    10059: "stream not found",
    10060: "expected stream does not match",
    10070: "wrong last message id",
    10071: "wrong last sequence",
    10164: "wrong last sequence",
    10047: "no room in the store",
    10167: "too many requests",
}
FULL = ("maximum messages exceeded", "maximum bytes exceeded", "maximum messages per subject exceeded")
"""What a stream that discards new messages says where it has no room: its number (10077) says too little."""
CONFLICTS = (10071, 10164)

CONNECT_OPTIONS: ConnectOptions = {
    "name": "jepsen",
    "discover_servers": False,
    "connect_timeout_s": 10.0,
    "reconnect_attempts_max": None,
    "reconnect_wait_min_s": 0.05,
    "reconnect_wait_max_s": 0.5,
    "ping_interval_s": 5.0,
}


def encode(value: str) -> bytes:
    """A value on the wire: between quotation marks, so that no value is a part of another."""
    return json.dumps(value).encode()


def decode(data: bytes) -> str:
    """The value; for bytes that are none, a text that no client ever wrote."""
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    return value if isinstance(value, str) else f"unreadable {data!r}"


@contextmanager
def outcome(client: Client) -> Iterator[None]:
    """Sort what a request raises into `Refused` and `Indeterminate`."""
    if client.status is not Status.CONNECTED:
        raise Refused("not connected")
    try:
        yield
    except NoResponders:
        raise Refused("no responders") from None
    except KeyExists as exc:
        raise Refused(str(exc), is_conflict=True) from None
    except ApiError as exc:
        if exc.err_code in DEFINITE_ERRORS or exc.description in FULL:
            raise Refused(str(exc), is_conflict=exc.err_code in CONFLICTS) from None
        raise Indeterminate(str(exc)) from None
    except ClientError as exc:
        raise Indeterminate(f"{type(exc).__name__}: {exc}") from None


class JetStreamLog:
    """`LogAccess` on one connection; its consumer is ephemeral and made when first fetched from."""

    def __init__(self, client: Client, node: str, timeout_s: float) -> None:
        self.node = node
        self._js = JetStream(client, timeout_s=timeout_s)
        self._consumer: Consumer | None = None

    async def publish(self, value: str) -> Acknowledged:
        with outcome(self._js.client):
            ack = await self._js.publish(SUBJECT, encode(value), retries=0)
        return Acknowledged(ack.stream, ack.seq, ack.duplicate)

    async def fetch(self, count: int) -> list[Delivered]:
        with outcome(self._js.client):
            if self._consumer is None:
                config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, filter_subject=SUBJECT, max_ack_pending=-1)
                self._consumer = await self._js.stream(STREAM).create_consumer(config)
            messages = await self._consumer.fetch(count, no_wait=True)
            for message in messages:
                await message.ack()
        return [Delivered(message.metadata.stream_sequence, decode(message.data)) for message in messages]


class JetStreamRegister:
    """`RegisterAccess` on one connection (ADR-8, "JetStream based Key-Value Stores")."""

    def __init__(self, client: Client, node: str, timeout_s: float, bucket: str = BUCKET) -> None:
        self.node = node
        self._js = JetStream(client, timeout_s=timeout_s)
        self.kv = KeyValue(self._js, bucket, to_stream(BucketConfig(bucket)))

    async def put(self, key: str, value: str) -> int:
        with outcome(self._js.client):
            return await self.kv.put(key, encode(value))

    async def create(self, key: str, value: str) -> int:
        with outcome(self._js.client):
            return await self.kv.create(key, encode(value))

    async def update(self, key: str, value: str, revision: int) -> int:
        with outcome(self._js.client):
            return await self.kv.update(key, encode(value), revision)

    async def delete(self, key: str, marker: str) -> int:
        """A mark as clients leave it, but with a body, so that it can be told from every other."""
        with outcome(self._js.client):
            subject, headers = f"$KV.{self.kv.bucket}.{key}", {"KV-Operation": "DEL"}
            return (await self._js.publish(subject, encode(marker), headers=headers, retries=0)).seq

    async def get(self, key: str, *, direct: bool) -> tuple[str | None, int]:
        with outcome(self._js.client):
            try:
                entry = await self.kv.get(key, from_leader=not direct)
            except KeyDeleted as exc:
                entry = exc.entry
            except KeyNotFound:
                return None, 0
        return decode(entry.value), entry.revision


@asynccontextmanager
async def open_log(runtime: Runtime, url: str, node: str, timeout_s: float) -> AsyncIterator[JetStreamLog]:
    """A connection of its own that follows no other server and never gives up."""
    async with connect(url, runtime=runtime, **CONNECT_OPTIONS) as client:
        yield JetStreamLog(client, node, timeout_s)


@asynccontextmanager
async def open_register(runtime: Runtime, url: str, node: str, timeout_s: float) -> AsyncIterator[JetStreamRegister]:
    """As `open_log`."""
    async with connect(url, runtime=runtime, **CONNECT_OPTIONS) as client:
        yield JetStreamRegister(client, node, timeout_s)
