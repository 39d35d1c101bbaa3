"""Backups by the NATS command line and between our server and nats-server, both ways."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from tests.conformance.nats_server import real_server
from tests.conformance.programs import NATS_CLI, needs_nats_cli
from tests.conformance.test_nats_py import connect, run
from tests.live.server_process import PATIENCE_S, serve

JETSTREAM = "jetstream {{ store_dir: {} }}"


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server of each kind."""
    folder: Path = tmp_path_factory.mktemp("servers")
    with (
        serve(folder, JETSTREAM.format("ours")) as ours,
        real_server(folder, JETSTREAM.format(folder / "theirs")) as theirs,
    ):
        yield {"ours": ours.url, "theirs": theirs.url}


async def api(client: Client, subject: str, body: object = None) -> dict[str, Any]:
    answer = await client.request(f"$JS.API.{subject}", json.dumps(body).encode() if body else b"", timeout=PATIENCE_S)
    return dict(json.loads(answer.data))


async def fill(client: Client, name: str) -> None:
    """A stream with removed messages, headers, and a consumer with acknowledged and pending messages."""
    await api(client, f"STREAM.DELETE.{name}")
    await api(client, f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "allow_msg_ttl": True})
    for number in range(400):
        headers = {"Nats-Msg-Id": f"m{number}"} if number % 3 else None
        await client.request(f"{name}.{number % 7}", os.urandom(900) + b"x" * 3000, headers=headers, timeout=PATIENCE_S)
    await client.request(f"{name}.ttl", b"x", headers={"Nats-TTL": "1h"}, timeout=PATIENCE_S)
    await api(client, f"STREAM.PURGE.{name}", {"seq": 5})
    await api(client, f"STREAM.MSG.DELETE.{name}", {"seq": 100})
    consumer = {"durable_name": "C", "ack_policy": "explicit", "filter_subjects": [f"{name}.1", f"{name}.2"]}
    await api(client, f"CONSUMER.DURABLE.CREATE.{name}.C", {"stream_name": name, "config": consumer})
    inbox = await client.subscribe(client.new_inbox())
    await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{name}.C", b"5", reply=inbox.subject)
    for number in range(5):
        message = await inbox.next_msg(PATIENCE_S)
        if number % 2:
            await client.request(message.reply, b"+ACK", timeout=PATIENCE_S)


async def look(client: Client, name: str) -> dict[str, Any]:
    """What there is of a stream, without names, times of making and what depends on the server."""
    info = await api(client, f"STREAM.INFO.{name}", {"deleted_details": True, "subjects_filter": ">"})
    found = {"state": info["state"]}
    for seq in (5, 6, 99, 401):
        found[str(seq)] = (await api(client, f"STREAM.MSG.GET.{name}", {"seq": seq})).get("message")
    consumer = await api(client, f"CONSUMER.INFO.{name}.C")
    for place in ("delivered", "ack_floor"):
        consumer[place].pop("last_active", None)
    found["C"] = [consumer[key] for key in ("delivered", "ack_floor", "num_ack_pending", "num_pending")]
    return found


async def fetch(client: Client, stream: str) -> tuple[dict[str, Any], list[bytes]]:
    inbox = await client.subscribe(client.new_inbox())
    answer = await api(client, f"STREAM.SNAPSHOT.{stream}", {"deliver_subject": inbox.subject, "window_size": 300_000})
    chunks = []
    while (message := await inbox.next_msg(PATIENCE_S)).data:
        chunks.append(message.data)
        if message.reply:
            await message.respond(b"")
    return answer, chunks


async def restore(client: Client, config: dict[str, Any], chunks: list[bytes]) -> dict[str, Any]:
    answer = await api(client, f"STREAM.RESTORE.{config['name']}", {"config": config, "state": {}})
    for chunk in chunks:
        assert (await client.request(answer["deliver_subject"], chunk, timeout=PATIENCE_S)).data == b""
    return dict(json.loads((await client.request(answer["deliver_subject"], b"", timeout=PATIENCE_S)).data))


@pytest.mark.parametrize("source", ["ours", "theirs"])
@pytest.mark.parametrize("target", ["ours", "theirs"])
def test_a_backup_moves_between_servers(urls: dict[str, str], source: str, target: str) -> None:
    """A stream is the same after a backup from one server was restored on another, consumer included."""

    async def main() -> None:
        name = f"{source}-{target}"
        one, other = await connect(urls[source]), await connect(urls[target])
        try:
            await fill(one, name)
            before = await look(one, name)
            answer, chunks = await fetch(one, name)
            assert len(chunks) > 1
            await api(one, f"STREAM.DELETE.{name}")
            told = await restore(other, answer["config"], chunks)
            assert "error" not in told, told
            assert await look(other, name) == before
            await api(other, f"STREAM.DELETE.{name}")
        finally:
            await one.close()
            await other.close()

    run(main)


@pytest.mark.slow
@needs_nats_cli
@pytest.mark.parametrize("source", ["ours", "theirs"])
def test_the_command_line_backs_up_and_restores(urls: dict[str, str], source: str, tmp_path: Path) -> None:
    """`nats backup` of a stream and of an account work with our server, and restore what the other kind has written."""
    target = "theirs" if source == "ours" else "ours"

    def command(where: str, *words: str) -> None:
        done = subprocess.run(
            [NATS_CLI, "-s", urls[where], *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    async def on(where: str, what: Any, *words: str) -> Any:
        client = await connect(urls[where])
        try:
            return await what(client, *words)
        finally:
            await client.close()

    run(lambda: on(source, fill, "CLI"))
    before: list[dict[str, Any]] = []

    async def remember(where: str) -> None:
        before.append(await on(where, look, "CLI"))

    run(lambda: remember(source))
    command(source, "backup", "stream", "CLI", str(tmp_path / "one"))
    command(source, "stream", "rm", "-f", "CLI")
    command(source, "backup", "restore", "stream", str(tmp_path / "one"))
    run(lambda: remember(source))
    command(source, "backup", "account", str(tmp_path / "all"), "--force")
    run(lambda: on(target, api, "STREAM.DELETE.CLI"))
    command(target, "backup", "restore", "account", str(tmp_path / "all"))
    run(lambda: remember(target))
    assert before[0] == before[1] == before[2]
