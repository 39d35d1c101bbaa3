"""`tnats.testing` as its users have it: from plain code, trio, asyncio and pytest."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.live.patient_client import connect
from tests.live.server_process import PATIENCE_S

import tnats.client
import tnats.testing
from tnats.runtime.api import NetworkError
from tnats.server.config.problems import ConfigError
from tnats.testing import EmbeddedServer, ServerFailed

pytest_plugins = ["pytester"]


def greeting(server: EmbeddedServer) -> bytes:
    """The first bytes that the server sends."""
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as conn:
        return conn.recv(4096)


def test_plain_code() -> None:
    """The server is ready when the block begins, and gone with its thread and folder when it ends."""
    threads = set(threading.enumerate())
    with tnats.testing.serve() as server:
        assert server.running
        assert server.url == f"nats://127.0.0.1:{server.port}"
        assert greeting(server).startswith(b"INFO {")
        assert server.folder.is_dir()
        assert "Server is ready" in server.logs
    assert not server.running
    assert not server.folder.exists()
    assert set(threading.enumerate()) <= threads
    with pytest.raises(ConnectionRefusedError):
        greeting(server)


async def test_trio_code() -> None:
    """It serves a client in the caller's own trio run."""
    with tnats.testing.serve() as server:
        async with connect(server.url) as client:
            subscription = client.subscribe("a")
            await client.publish("a", b"x")
            assert (await subscription.next_message(PATIENCE_S)).data == b"x"


def test_asyncio_code() -> None:
    """It serves a client in the caller's asyncio loop."""

    async def main(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"CONNECT {}\r\nPING\r\n")
        lines = [await reader.readline() for _ in range(3)]
        writer.close()
        await writer.wait_closed()
        return b"".join(lines[1:])

    with tnats.testing.serve() as server:
        assert asyncio.run(main(server.port)) == b"+OK\r\nPONG\r\n"


def test_several_at_once() -> None:
    """Each has a port and a folder of its own."""
    with tnats.testing.serve() as one, tnats.testing.serve() as two:
        assert one.port != two.port
        assert one.folder != two.folder
        assert greeting(one) != greeting(two)


def test_restart_keeps_the_port() -> None:
    """After a stop nobody answers; after the start the same port does, and the log goes on."""
    with tnats.testing.serve() as server:
        port = server.port
        server.stop()
        server.stop()
        assert not server.running
        with pytest.raises(ConnectionRefusedError):
            greeting(server)
        server.start()
        server.start()
        assert server.port == port
        assert greeting(server).startswith(b"INFO {")
        server.restart()
        assert greeting(server).startswith(b"INFO {")
        assert server.logs.count("Server is ready") == 3


async def test_configuration_and_options() -> None:
    """Text in the server's language, and keys as arguments, work together."""
    config = "authorization { user: u, password: p }\nserver_name: from-text"
    with tnats.testing.serve(config, max_payload=100) as server:
        async with connect(server.url, user="u", password="p") as client:
            assert client.server_info.max_payload == 100
            assert client.server_info.server_name == "from-text"
        with pytest.raises(tnats.client.AuthorizationFailed):
            async with connect(server.url):
                raise AssertionError("let in")
        assert server.monitoring_url is None


def test_monitoring() -> None:
    """With a monitoring port, its pages are at `monitoring_url`."""
    with tnats.testing.serve(http_port=-1) as server:
        assert server.monitoring_url is not None
        with urlopen(f"{server.monitoring_url}/varz", timeout=PATIENCE_S) as answer:
            assert f'"port": {server.port}'.encode() in answer.read()


def test_configuration_file(tmp_path: Path) -> None:
    """A Path is read as a file, with what it includes beside it."""
    (tmp_path / "main.conf").write_text("include ./name.conf\n")
    (tmp_path / "name.conf").write_text("server_name: included\n")
    with tnats.testing.serve(tmp_path / "main.conf", max_payload=50) as server:
        assert b'"server_name":"included"' in greeting(server)
        assert b'"max_payload":50' in greeting(server)


def test_wrong_options_are_named() -> None:
    """An unknown key raises before any thread is started."""
    with pytest.raises(ConfigError, match='unknown field "nonsense"'), tnats.testing.serve(nonsense=1):
        raise AssertionError("served")


def test_port_in_use_is_named() -> None:
    """The reason why it cannot listen is raised as it is."""
    with tnats.testing.serve() as one:
        with pytest.raises(NetworkError, match="address already in use"), tnats.testing.serve(port=one.port):
            raise AssertionError("served")


def test_log_comes_with_the_failure() -> None:
    """What the block raises keeps its type and gets the server's log as a note."""
    with pytest.raises(KeyError) as caught, tnats.testing.serve():
        raise KeyError("mine")
    assert "Server is ready" in "".join(caught.value.__notes__)


def test_internal_errors_fail_the_test() -> None:
    """A bug that the server survived is raised when it is stopped, with its trace."""
    with pytest.raises(ServerFailed, match="planted"), tnats.testing.serve() as server:
        server._node.runtime.process.on_bug(ValueError("planted"), "a test")


def test_plugin(pytester: pytest.Pytester) -> None:
    """The fixture gives each test a server, the marker configures it, and a failure shows its log."""
    pytester.makepyfile(
        """
        import socket
        import pytest

        seen = []

        def test_fixture(tnats_server):
            socket.create_connection(("127.0.0.1", tnats_server.port), 5).close()
            seen.append(tnats_server.url)

        @pytest.mark.tnats_server("server_name: marked", max_payload=77)
        def test_marker(tnats_server):
            with socket.create_connection(("127.0.0.1", tnats_server.port), 5) as conn:
                info = conn.recv(4096)
            assert b'"server_name":"marked"' in info and b'"max_payload":77' in info
            assert tnats_server.url not in seen

        def test_failing(tnats_server):
            raise AssertionError
        """
    )
    result = pytester.runpytest_subprocess("-p", "tnats.testing.plugin", "--strict-markers")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*log of the tnats server*", "*Server is ready*"])
