"""JetStream in a real process on a real disk: killed, restarted, refused."""

from __future__ import annotations

import signal
from pathlib import Path

import orjson
from tests.live.patient_client import connect
from tests.live.server_process import PATIENCE_S, ServerProcess, run_to_end, serve

from tnats.client import Client

CONFIG = "jetstream { store_dir: store }"


async def call(client: Client, subject: str, body: object = None) -> dict[str, object]:
    answer = await client.request(f"$JS.API.{subject}", orjson.dumps(body) if body else b"", timeout_s=PATIENCE_S)
    found: dict[str, object] = orjson.loads(answer.data)
    assert "error" not in found, found
    return found


async def fill(server: ServerProcess, count: int) -> None:
    async with connect(server.url) as client:
        await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        for number in range(count):
            ack = orjson.loads((await client.request("s", b"%d" % number, timeout_s=PATIENCE_S)).data)
            assert ack["seq"] == number + 1


async def state(server: ServerProcess) -> tuple[object, object]:
    async with connect(server.url) as client:
        found = (await call(client, "STREAM.INFO.S"))["state"]
        assert isinstance(found, dict)
        return found["messages"], found["last_seq"]


async def test_a_killed_process_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    """Every acknowledged message is there after SIGKILL, again after an orderly end, and numbers go on."""
    with serve(tmp_path, CONFIG) as server:
        await fill(server, 50)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        server.start()
        assert await state(server) == (50, 50)
        server.process.send_signal(signal.SIGTERM)
        server.process.wait()
        server.start()
        assert await state(server) == (50, 50)
        async with connect(server.url) as client:
            assert orjson.loads((await client.request("s", b"", timeout_s=PATIENCE_S)).data)["seq"] == 51


def test_a_store_of_another_program_is_refused(tmp_path: Path) -> None:
    """A directory with nats-server's layout is named and not touched."""
    streams = tmp_path / "store" / "jetstream" / "$G" / "streams"
    streams.mkdir(parents=True)
    ended = run_to_end("-js", "-sd", str(tmp_path / "store"), "-p", "-1", folder=tmp_path)
    assert ended.returncode == 1
    assert "holds a store of nats-server" in ended.stderr
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["jetstream"]


def test_a_store_serves_one_server(tmp_path: Path) -> None:
    """A second server on the same directory does not start."""
    with serve(tmp_path, CONFIG):
        ended = run_to_end("-js", "-sd", str(tmp_path / "store"), "-p", "-1", folder=tmp_path)
    assert ended.returncode == 1
    assert "store" in ended.stderr
