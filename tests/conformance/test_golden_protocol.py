"""The conversations of tests/golden/protocol with the real server: their answers are nats-server's."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.conformance.nats_server import real_server
from tests.golden.test_protocol import FOLDER, Conversation, converse, parse

PING = b"PING\r\n"
PATIENCES_S = (0.15, 1.0, 5.0)
"""How long more is waited for after each step; an answer that is not the right one is asked for again more slowly."""
AT_ONCE = 8
"""Conversations, each with a server of its own: most of their time is waiting for nothing more to come."""


def with_real_server(conversation: Conversation, port: int, patience_s: float) -> list[tuple[str, str, str]]:
    """The steps with the answers of nats-server, in real time. Its PINGs are not shown: when they come is chance."""
    sockets: dict[str, socket.socket] = {}

    async def send(name: str, data: bytes) -> None:
        if name not in sockets:
            sockets[name] = socket.create_connection(("127.0.0.1", port))
        try:
            sockets[name].sendall(data)
        except OSError:
            pass

    async def hear(name: str) -> tuple[bytes, bool]:
        data = b""
        sockets[name].settimeout(patience_s)
        try:
            while part := sockets[name].recv(1 << 20):
                data += part
        except TimeoutError:
            return data.replace(PING, b""), False
        except OSError:
            pass
        return data.replace(PING, b""), True

    async def sleep(seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 # driven by hand, nobody else waits

    coroutine = converse(conversation, send, hear, sleep)
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        for one in sockets.values():
            one.close()
    raise AssertionError("nothing here waits")


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_conversations_with_nats_server(path: Path, tmp_path: Path) -> None:
    """nats-server says what the file says."""

    def answers(conversation: Conversation) -> list[tuple[str, str, str]]:
        for patience_s in PATIENCES_S:
            with real_server(tmp_path, conversation.config) as server:
                found = with_real_server(conversation, server.port, patience_s)
            if found == conversation.steps:
                break
        return found

    conversations = parse(path.read_text())
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for conversation, found in zip(conversations, pool.map(answers, conversations), strict=True):
            assert found == conversation.steps, conversation.title
