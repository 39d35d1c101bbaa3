"""What `tnats serve` logs of its clients."""

from __future__ import annotations

import re
from pathlib import Path

from tests.live.server_process import RawClient, serve, wait_until


def lines_about_clients(texts: list[str]) -> list[str]:
    return [re.sub(r'127\.0\.0\.1:\d+ - cid:\d+ - ("\$G/user:u" - )?', "", line) for line in texts if " - cid:" in line]


def test_trace_and_debug(tmp_path: Path) -> None:
    """`-DV`: operations as nats-server shows them, secrets taken out, and the reason of the end."""
    with serve(tmp_path, "", "-DV") as server:
        with RawClient(server.port, '{"verbose":false,"user":"u","pass":"hush","auth_token":"hush"}') as client:
            client.send(b"SUB foo.* 1\r\n")
            client.send(b"PUB foo.a 5\r\nhello\r\nUNSUB 1\r\n")
            client.flush()
        wait_until(lambda: "Client connection closed" in server.log)
    lines = lines_about_clients(server.texts)
    assert lines[0] == "[DBG] Client connection created"
    assert '[TRC] <<- [CONNECT {"verbose":false,"user":"u","pass":"[REDACTED]","auth_token":"[REDACTED]"}]' in lines
    for line in (
        "<<- [SUB foo.* 1]",
        "<<- [PUB foo.a 5]",
        '<<- MSG_PAYLOAD: ["hello"]',
        "->> [MSG foo.a 1 5]",
        '->> MSG_PAYLOAD: ["hello"]',
        "<<- [UNSUB 1]",
        "<-> [DELSUB 1]",
        "<<- [PING]",
        "->> [PONG]",
    ):
        assert lines.count(f"[TRC] {line}") == 1, line
    assert lines[-1] == "[DBG] Client connection closed: Client Closed"
    assert "hush" not in server.log


def test_payloads_can_be_cut(tmp_path: Path) -> None:
    """`max_traced_msg_len` counts bytes."""
    with serve(tmp_path, "trace: true\nmax_traced_msg_len: 3") as server:
        with RawClient(server.port) as client:
            client.send(b"PUB a 5\r\nhello\r\n")
            client.flush()
        assert '<<- MSG_PAYLOAD: ["hel..."]' in server.log


def test_nothing_is_traced_unless_asked(tmp_path: Path) -> None:
    """An ordinary log does not speak of ordinary clients, and reloads switch both ways."""
    with serve(tmp_path) as server, RawClient(server.port) as client:
        client.flush()
        assert "cid:" not in server.log
        server.reload("trace: true")
        client.send(b"SUB traced 1\r\n")
        client.flush()
        server.wait_for_line("<<- [SUB traced 1]")
        server.reload("trace: false")
        client.send(b"SUB untraced 2\r\n")
        client.flush()
    assert "untraced" not in server.log
