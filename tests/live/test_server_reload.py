"""Changing the configuration of a running `tnats serve`."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.live.server_process import RawClient, serve

TWO_USERS = "authorization { timeout: 60, users: [ {user: a, password: x}, {user: b, password: y} ] }"
A = '{"user":"a","pass":"x","verbose":false,"protocol":1}'
B = '{"user":"b","pass":"y","verbose":false,"protocol":1}'


def test_users(tmp_path: Path) -> None:
    """Who is no longer let in is told so and closed; who still is does not notice; newcomers are judged anew."""
    with serve(tmp_path, TWO_USERS) as server, RawClient(server.port, A) as a, RawClient(server.port, B) as b:
        a.flush()
        b.flush()
        server.reload("authorization { timeout: 60, users: [ {user: a, password: x}, {user: c, password: z} ] }")
        assert b"-ERR 'Authorization Violation'\r\n" in b.read_rest()
        a.flush()
        with RawClient(server.port, '{"user":"c","pass":"z"}') as c:
            c.flush()
        with RawClient(server.port, B) as again:
            assert b"Authorization Violation" in again.read_rest()


def test_permissions(tmp_path: Path) -> None:
    """A subscription that is no longer allowed is ended with -ERR; a publish is refused from then on."""
    with serve(tmp_path, TWO_USERS) as server, RawClient(server.port, A) as client:
        client.send(b"SUB secret 1\r\nSUB open 2\r\n")
        client.flush()
        server.reload(TWO_USERS.replace("password: x", "password: x, permissions: { subscribe: open, publish: open }"))
        while b"Permissions Violation" not in (line := client.read_line()):
            assert line
        assert line == b'-ERR \'Permissions Violation for Subscription to "secret" (sid "1")\'\r\n'
        client.send(b"PUB secret 1\r\nx\r\nPUB open 1\r\ny\r\n")
        assert client.read_line() == b"-ERR 'Permissions Violation for Publish to \"secret\"'\r\n"
        assert [client.read_line(), client.read_line()] == [b"MSG open 2 1\r\n", b"y\r\n"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("server_name: other", "config reload not supported for server_name"),
        ("http: -1", "config reload not supported for http_port"),
        ("nonsense: 1", 'unknown field "nonsense"'),
        ("max_payload: {", "server.conf"),
        ("log_file: none/x.log", "none/x.log"),
    ],
)
def test_failure_changes_nothing(tmp_path: Path, change: str, reason: str) -> None:
    """With one fault in it nothing of a file is applied, and the log says what the fault is."""
    with serve(tmp_path, TWO_USERS) as server, RawClient(server.port, A) as client:
        client.flush()
        server.write_config(f"max_payload: 5\n{change}")
        server.signal(signal.SIGHUP)
        server.wait_for_line("[ERR] Failed to reload server configuration: ")
        assert reason in server.log
        client.send(b"SUB a 1\r\nPUB a 6\r\nlonger\r\n")
        while b"MSG" not in (line := client.read_line()):
            assert line
        with RawClient(server.port, "{}") as nobody:
            assert b"Authorization Violation" in nobody.read_rest()
