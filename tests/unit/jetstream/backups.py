"""A client's side of backup and restore, and archives made by hand."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import orjson

from tnats.client import Client, ClientError
from tnats.jetstream.api.messages import StreamState
from tnats.jetstream.backup import archive, s2

STALLED_S = 7
"""Longer than the server waits."""


async def fetch(client: Client, stream: str, **wanted: object) -> tuple[dict[str, Any], bytes, int]:
    """(answer to the request, archive, status at the end)."""
    subscription = client.subscribe(client.new_inbox())
    async with subscription:
        body = orjson.dumps({"deliver_subject": subscription.subject, **wanted})
        answer = orjson.loads((await client.request(f"$JS.API.STREAM.SNAPSHOT.{stream}", body)).data)
        parts = []
        async for message in subscription:
            if not message.data:
                return answer, b"".join(parts), message.status or 0
            parts.append(message.data)
            if message.reply:
                await client.publish(message.reply, b"")
    raise AssertionError("the subscription has ended")


async def restore(
    client: Client, config: dict[str, Any], data: bytes, *, chunk_size: int = 100_000, ends: bool = True
) -> dict[str, Any] | None:
    """The last answer; None if the upload was to stop before its end, or was not answered."""
    body = orjson.dumps({"config": config, "state": {}})
    answer = orjson.loads((await client.request(f"$JS.API.STREAM.RESTORE.{config['name']}", body)).data)
    if "error" in answer:
        return dict(answer)
    chunks = [data[at : at + chunk_size] for at in range(0, len(data), chunk_size)]
    for chunk in [*chunks, b""] if ends else chunks:
        try:
            told = await client.request(answer["deliver_subject"], chunk, timeout_s=STALLED_S)
        except ClientError:
            return None
        if told.data:
            return dict(orjson.loads(told.data))
    return None


def compressed(plain: bytes) -> bytes:
    writer = s2.Writer()
    return writer.write(plain) + writer.finish()


def archived(*messages: tuple[int, bytes], first_seq: int = 1, last_seq: int = 0) -> bytes:
    """An archive of version 2 with messages (sequence, subject)."""
    last_seq = last_seq or max((seq for seq, _ in messages), default=0)
    state = StreamState(messages=len(messages), first_seq=first_seq, last_seq=last_seq)
    entries = [archive.message(seq, 1_000 + seq, subject, b"", b"%d" % seq) for seq, subject in messages]
    return archive.begin(state, 1) + b"".join(entries) + archive.end()


def tarred(files: list[tuple[str, bytes]], **kinds: bytes) -> bytes:
    """A tar archive; `kinds`: types of files that are none, by name."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.type = kinds.get(name, tarfile.REGTYPE)
            tar.addfile(entry, io.BytesIO(content))
    return target.getvalue()
