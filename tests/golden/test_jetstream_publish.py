"""Publishing to a stream, message by message: jetstream/publish.jsonl.

One conversation a line: the stream's configuration, what is published and what was answered to each, and what the
stream holds in the end. The answers were given by nats-server 2.15.1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.unit.jetstream.desk import Desk
from tests.unit.jetstream.stores import Published

FOLDER = Path(__file__).parent / "jetstream"


def conversations() -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (FOLDER / "publish.jsonl").read_bytes().splitlines()]


@pytest.mark.parametrize("told", conversations(), ids=lambda told: told["title"])
def test_publishing(told: dict[str, Any]) -> None:
    """Answers and stored messages are nats-server's."""
    desk = Desk(**told["config"])
    for step in told["steps"]:
        block = b""
        if step["headers"]:
            lines = "".join(f"{key}: {value}\r\n" for key, value in step["headers"].items())
            block = f"NATS/1.0\r\n{lines}\r\n".encode()
        message = Published(step["subject"].encode(), block + step["data"].encode(), step["reply"].encode(), len(block))
        answers = [answer.decode() for reply, answer in desk.publish(message) if reply == message.reply]
        assert answers == step["answers"], step
    held = [
        [seq, one.subject.decode(), one.headers.decode(), one.payload.decode()] for seq, one in desk.store.held.items()
    ]
    assert held == told["held"]
    messages, first_seq, last_seq, size = told["state"]
    state = desk.machine.state()
    assert [state.messages, state.last_seq, state.bytes] == [messages, last_seq, size]
    # A stream that never held a message reports first sequence 0 there, and 1, the next sequence, here.
    assert state.first_seq == (first_seq or 1)
