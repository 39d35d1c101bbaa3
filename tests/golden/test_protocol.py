r"""Conversations with the broker, byte for byte: protocol/*.txt.

A file is a list of conversations. Each begins with `== what it shows`, may go on with `config` lines (in the syntax of
the configuration file), and then has steps:

    > a PING\r\n        client `a` sends these bytes; it connects first if it has not yet
    < a PONG\r\n        what `a` was told once all was quiet again
    < a (closed)        ... and that the server closed the connection
    = 2.5               seconds pass

Bytes are written as in Python; `<x*5000>` stands for a run. Of INFO only the keys in INFO_KEYS are shown.

`TNATS_REWRITE=1` writes the answers that come from our broker. tests/conformance/test_golden_protocol.py holds the
same files against the real server, so a rewritten answer that is not nats-server's is found out there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import orjson
import pytest
from tests.unit.broker.stage import RawClient, Stage, broker_options, play

from tnats.server.config.load import read_options
from tnats.server.config.options import NO_CONNECTIONS, Options

FOLDER = Path(__file__).parent / "protocol"
REWRITE = os.environ.get("TNATS_REWRITE") == "1"
INFO_KEYS = ("auth_required", "headers", "max_payload", "client_id", "nonce", "connect_info", "remote_account")
RUN = re.compile(r"<(.)\*(\d+)>")


@attrs.define
class Conversation:
    """One `==` of a file. Steps are (mark, client, text)."""

    title: str
    config: str
    steps: list[tuple[str, str, str]]


def parse(text: str) -> list[Conversation]:
    conversations: list[Conversation] = []
    for line in text.splitlines():
        if line.startswith("== "):
            conversations.append(Conversation(line[3:], "", []))
        elif line.startswith("config "):
            conversations[-1].config += line[7:] + "\n"
        elif line.startswith("= "):
            conversations[-1].steps.append(("=", "", line[2:]))
        elif line[:2] in ("> ", "< "):
            mark, client, rest = (line + " ").split(" ", 2)
            conversations[-1].steps.append((mark, client, rest[:-1]))
        elif line and not line.startswith("#"):
            raise ValueError(f"what is {line!r}?")
    return conversations


def to_bytes(text: str) -> bytes:
    expanded = RUN.sub(lambda run: run[1] * int(run[2]), text)
    return expanded.encode("latin-1").decode("unicode_escape").encode("latin-1")


def to_text(data: bytes) -> str:
    text = repr(data)[2:-1].replace("\\'", "'")
    text = re.sub(r"((.)\2{39,})", lambda run: f"<{run[2]}*{len(run[1])}>", text)
    return re.sub(r"INFO (\{.*?\}) ?\\r\\n", _info, text)


def _info(found: re.Match[str]) -> str:
    info = orjson.loads(found[1])
    shown = {key: info[key] for key in INFO_KEYS if key in info}
    if "nonce" in shown:
        shown["nonce"] = len(shown["nonce"])
    shown.pop("client_id")
    return f"INFO {orjson.dumps(shown).decode()}\\r\\n"


async def converse(
    conversation: Conversation,
    send: Callable[[str, bytes], Awaitable[None]],
    hear: Callable[[str], Awaitable[tuple[bytes, bool]]],
    sleep: Callable[[float], Awaitable[None]],
) -> list[tuple[str, str, str]]:
    """The steps, with the answers that came."""
    steps: list[tuple[str, str, str]] = []
    clients: dict[str, bool] = {}

    async def listen() -> None:
        for client, closed in clients.items():
            if closed:
                continue
            data, clients[client] = await hear(client)
            if data:
                steps.append(("<", client, to_text(data)))
            if clients[client]:
                steps.append(("<", client, "(closed)"))

    for mark, client, text in conversation.steps:
        if mark == ">":
            clients.setdefault(client, False)
            await send(client, to_bytes(text))
        elif mark == "=":
            await sleep(float(text))
        else:
            continue
        steps.append((mark, client, text))
        await listen()
    return steps


def with_broker(conversation: Conversation) -> list[tuple[str, str, str]]:
    options = read_options("golden.conf", read=lambda path: conversation.config or "debug: false\n", env={})
    steps: list[tuple[str, str, str]] = []

    async def scene(stage: Stage) -> None:
        clients: dict[str, RawClient] = {}

        async def send(name: str, data: bytes) -> None:
            if name not in clients:
                clients[name] = await stage.connect(None)
            await clients[name].send(data)

        async def hear(name: str) -> tuple[bytes, bool]:
            return await clients[name].read(), clients[name].closed

        steps.extend(await converse(conversation, send, hear, stage.sleep))

    play(scene, credentials=options.credentials(), **broker_changes(options))
    return steps


def broker_changes(options: Options) -> dict[str, object]:
    """What of `options` a broker is told, as far as the conversations configure it."""
    block = options.authorization
    changes = {
        name: getattr(options, name)
        for name in (
            "max_control_line",
            "max_payload",
            "max_pending",
            "ping_interval_ns",
            "ping_max",
            "no_header_support",
        )
    }
    return changes | {
        "max_connections": 0 if options.max_connections == NO_CONNECTIONS else options.max_connections,
        "max_subscriptions": options.max_subscriptions or -1,
        "max_subscription_tokens": options.max_sub_tokens or -1,
        "auth_timeout_ns": block.timeout_ns
        if block is not None and block.timeout_ns
        else broker_options().auth_timeout_ns,
    }


def render(conversations: list[Conversation], text: str) -> str:
    head = text[: text.index("== ")]
    parts = [head]
    for one in conversations:
        parts.append(f"== {one.title}\n")
        parts += [f"config {line}\n" for line in one.config.splitlines()]
        parts += [f"= {text}\n" if mark == "=" else f"{mark} {client} {text}\n" for mark, client, text in one.steps]
        parts.append("\n")
    return "".join(parts).rstrip("\n") + "\n"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_conversations(path: Path) -> None:
    """The broker says what the file says."""
    text = path.read_text()
    conversations = parse(text)
    for conversation in conversations:
        answers = with_broker(conversation)
        if REWRITE:
            conversation.steps = answers
        assert answers == conversation.steps, conversation.title
    if REWRITE:
        path.write_text(render(conversations, text))


def test_runs_of_bytes_are_written_and_read_alike() -> None:
    """Long runs survive the way through the text form."""
    assert to_bytes(to_text(b"a" * 50 + b"\r\n\x00\xff'")) == b"a" * 50 + b"\r\n\x00\xff'"
