"""The accesses on a NATS server: `tnats.client` and plain JetStream requests.

What an error means for the operation is decided here, once. Definite: the connection was down before anything was
sent, nobody listens, or an error number that is given before anything is stored. All else is indeterminate.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from tnats.client import Client, ClientError, ConnectOptions, NoResponders, Status, connect
from tnats.harness import js_requests
from tnats.harness.js_requests import ApiError
from tnats.harness.workloads.access import Acknowledged, Delivered, Indeterminate, Refused
from tnats.harness.workloads.register import DELETED
from tnats.runtime.api import Runtime

STREAM = "jepsen-stream"
SUBJECT = "jepsen.0"
BUCKET = "jepsen"

LOG_CONFIG = {"name": STREAM, "subjects": ["jepsen.*"], "storage": "file", "discard": "new", "allow_direct": True}
BUCKET_CONFIG = {
    "name": f"KV_{BUCKET}",
    "subjects": [f"$KV.{BUCKET}.>"],
    "storage": "file",
    "discard": "new",
    "max_msgs_per_subject": 64,
    "allow_direct": True,
    "allow_rollup_hdrs": True,
    "deny_delete": True,
}

DEFINITE_ERRORS = {
    10008: "jetstream temporarily unavailable",
    10059: "stream not found",
    10060: "expected stream does not match",
    10070: "wrong last message id",
    js_requests.WRONG_LAST_SEQUENCE: "wrong last sequence",
    10164: "wrong last sequence",
}
CREATE_TRIES_MAX = 10
CONFLICTS = (js_requests.WRONG_LAST_SEQUENCE, 10164)

CONNECT_OPTIONS: ConnectOptions = {
    "name": "jepsen",
    "discover_servers": False,
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
    except ApiError as exc:
        if exc.err_code in DEFINITE_ERRORS:
            raise Refused(str(exc), is_conflict=exc.err_code in CONFLICTS) from None
        raise Indeterminate(str(exc)) from None
    except ClientError as exc:
        raise Indeterminate(f"{type(exc).__name__}: {exc}") from None


class JetStreamLog:
    """`LogAccess` on one connection; its consumer is ephemeral and made when first fetched from."""

    def __init__(self, client: Client, node: str, timeout_s: float) -> None:
        self.node = node
        self._client = client
        self._timeout_s = timeout_s
        self._consumer: str | None = None

    async def publish(self, value: str) -> Acknowledged:
        with outcome(self._client):
            ack = await js_requests.publish(self._client, SUBJECT, encode(value), timeout_s=self._timeout_s)
        return Acknowledged(ack.stream, ack.seq, ack.duplicate)

    async def fetch(self, count: int) -> list[Delivered]:
        with outcome(self._client):
            if self._consumer is None:
                self._consumer = await js_requests.create_ephemeral_consumer(
                    self._client, STREAM, SUBJECT, self._timeout_s
                )
            messages = await js_requests.fetch(self._client, STREAM, self._consumer, count, self._timeout_s)
        return [Delivered(seq, decode(data)) for seq, data in messages]


class JetStreamRegister:
    """`RegisterAccess` on one connection (ADR-8, "JetStream based Key-Value Stores")."""

    def __init__(self, client: Client, node: str, timeout_s: float) -> None:
        self.node = node
        self._client = client
        self._timeout_s = timeout_s

    async def _write(self, key: str, data: bytes, headers: dict[str, str]) -> int:
        with outcome(self._client):
            ack = await js_requests.publish(
                self._client, f"$KV.{BUCKET}.{key}", data, headers=headers, timeout_s=self._timeout_s
            )
        return ack.seq

    async def put(self, key: str, value: str) -> int:
        return await self._write(key, encode(value), {})

    async def create(self, key: str, value: str) -> int:
        """As clients do it: expect no message at all; if there is one and it is a marker, expect that."""
        revision = 0
        for _ in range(CREATE_TRIES_MAX):
            try:
                return await self.update(key, value, revision)
            except Refused as exc:
                if not exc.is_conflict:
                    raise
                found, revision = await self.get(key, direct=False)
                if found is not None and not found.startswith(DELETED):
                    raise
        raise Refused("the key was deleted anew at every try")

    async def update(self, key: str, value: str, revision: int) -> int:
        return await self._write(key, encode(value), {"Nats-Expected-Last-Subject-Sequence": str(revision)})

    async def delete(self, key: str, marker: str) -> int:
        return await self._write(key, encode(marker), {"KV-Operation": "DEL"})

    async def get(self, key: str, *, direct: bool) -> tuple[str | None, int]:
        get = js_requests.direct_get if direct else js_requests.leader_get
        query = {"last_by_subj": f"$KV.{BUCKET}.{key}"}
        with outcome(self._client):
            found = await get(self._client, f"KV_{BUCKET}", query, self._timeout_s)
        if found is None:
            return None, 0
        return decode(found.data), found.seq


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
