"""Random conversations with our server and with nats-server: both tell every client the same.

`TNATS_DIFFERENTIAL_COUNT` conversations per configuration (a hundred take some ten seconds), from
`TNATS_DIFFERENTIAL_SEED` on. A difference is tried again more slowly before it counts.

Not compared, because nats-server 2.15.1 itself answers differently by where the bytes are cut, or says it twice:
a CR inside a control line (not made up), `Invalid Publish Subject` again or just before a close, and which of two
faults of one SUB is named. Messages that reach one client by several subscriptions come in any order.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.conformance.differential_talk import FENCE, Talker, Turn
from tests.conformance.nats_server import real_server
from tests.live.server_process import PATIENCE_S, serve

COUNT = int(os.environ.get("TNATS_DIFFERENTIAL_COUNT", "60"))
SEED = int(os.environ.get("TNATS_DIFFERENTIAL_SEED", "1"))
STRANGENESS = 0.07
PACES = ((0.25, 0.001), (1.0, 0.005), (10.0, 0.05))
"""Patience for an answer that may not come, and time between pieces, in seconds."""

CONFIGS = {
    "plain": ("", []),
    "small limits": ("max_payload: 100\nmax_control_line: 120\nmax_subscriptions: 3\nmax_sub_tokens: 2\n", []),
    "no headers": ("no_header_support: true\n", []),
    "login": (
        """authorization: {users: [
          {user: u1, password: p},
          {user: u2, password: p, permissions: {publish: [], subscribe: ">", allow_responses: {max: 2}}}]}""",
        ["u1", "u2", "bad"],
    ),
    "permissions": (
        """authorization: {users: [
          {user: u1, password: p, permissions: {publish: {allow: ["foo.>", "a"], deny: "foo.b"},
                                                subscribe: {allow: ["foo.>", "a.>"], deny: ["a.b", "a.a.>"]}}},
          {user: u2, password: p, permissions: {publish: {deny: ["b.*"]}, subscribe: {deny: ["foo q1", "b", "foo.a"]},
                                                allow_responses: true}},
          {user: u3, password: p}]}
        no_auth_user: u3""",
        ["u1", "u2", "u3", "bad"],
    ),
}
INFO = re.compile(rb"INFO (\{.*?\}) ?\r\n")
INFO_KEYS = ("headers", "auth_required", "max_payload", "connect_info", "remote_account", "proto", "tls_required")
PUBLISH_SUBJECT = b"-ERR 'Invalid Publish Subject'\r\n"
SUBSCRIPTION_DENIED = re.compile(rb'-ERR .Permissions Violation for Subscription to "(.*?)"(?!, too many)')


class Client:
    """One connection and what it was told."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.told = b""
        self.closed = False
        self.pongs_wanted = 0
        while b"\r\n" not in self.told and not self.closed:
            self._read(PATIENCE_S)

    def say(self, turn: Turn, patience_s: float, gap_s: float) -> None:
        """Send a turn, and read until it is answered."""
        for piece in turn.pieces:
            try:
                self.socket.sendall(piece)
            except OSError:
                break
            time.sleep(gap_s)
        self.pongs_wanted += turn.answers
        deadline = time.monotonic() + patience_s
        while not self.closed and self._pongs() < self.pongs_wanted and (left := deadline - time.monotonic()) > 0:
            if self._read(left):
                deadline = max(deadline, time.monotonic() + patience_s / 2)
        self.pongs_wanted = self._pongs()

    def hang_up(self) -> None:
        """Say no more, and wait until the server has closed too: it has forgotten us then."""
        with ExitStack() as stack:
            stack.callback(self.socket.close)
            try:
                self.socket.shutdown(socket.SHUT_WR)
                self.socket.settimeout(PATIENCE_S)
                while part := self.socket.recv(1 << 20):
                    self.told += part
            except OSError:
                pass

    def _pongs(self) -> int:
        return self.told.count(b"PONG\r\n")

    def _read(self, seconds: float) -> bool:
        self.socket.settimeout(seconds)
        try:
            part = self.socket.recv(1 << 20)
        except TimeoutError:
            return False
        except OSError:
            part = b""
        self.told += part
        self.closed = not part
        return True


def converse(port: int, turns: list[Turn], patience_s: float, gap_s: float) -> list[tuple[list[bytes], bool]]:
    """For each client what it was told, and whether the server closed on it."""
    clients = [Client(port) for _ in range(1 + max(turn.client for turn in turns))]
    for turn in [*turns, *(Turn(index, [FENCE]) for index in range(len(clients)))]:
        if not clients[turn.client].closed:
            clients[turn.client].say(turn, patience_s, gap_s)
    closed = [client.closed for client in clients]
    for client in clients:
        client.hang_up()
    return [(comparable(client.told), gone) for client, gone in zip(clients, closed, strict=True)]


def comparable(told: bytes) -> list[bytes]:
    """The operations in `told`, without what may differ."""
    operations = [one for one in split(INFO.sub(_without_names, told)) if one != b"PING\r\n"]
    kept: list[bytes] = []
    deliveries: list[bytes] = []
    for one, following in zip(operations, [*operations[1:], b""], strict=True):
        if one == PUBLISH_SUBJECT and following.startswith((b"-ERR 'U", PUBLISH_SUBJECT)):
            continue
        if b"NATS/1.0 503\r\nNats-Subject" in one:  # one of the requester's subscriptions to its reply subject
            one = re.sub(rb"^(HMSG \S+) \S+", rb"\1 ?", one)
        denied = SUBSCRIPTION_DENIED.match(one)
        if denied and (b"" in (tokens := denied[1].split(b".")) or b">" in tokens[:-1]):
            one = b"-ERR 'Invalid Subject'\r\n"
        if deliveries and _message(deliveries[0]) != _message(one):
            kept += sorted(deliveries)
            deliveries = []
        if _message(one):
            deliveries.append(one)
        else:
            kept.append(one)
    kept += sorted(deliveries)
    return kept[:-1] if kept[-1:] == [PUBLISH_SUBJECT] else kept


def split(told: bytes) -> list[bytes]:
    operations = []
    at = 0
    while at < len(told):
        end = told.find(b"\r\n", at) + 2
        if end < 2:
            end = len(told)
        words = told[at:end].split()
        if words and words[0] in (b"MSG", b"HMSG") and words[-1].isdigit():
            end += int(words[-1]) + 2
        operations.append(told[at:end])
        at = end
    return operations


def _message(operation: bytes) -> tuple[bytes, ...]:
    """What all deliveries of a message have in common; nothing for other operations."""
    verb, subject, _sid, rest = [*operation.split(b" ", 3), b"", b"", b""][:4]
    return (verb, subject, rest) if verb in (b"MSG", b"HMSG") else ()


def _without_names(found: re.Match[bytes]) -> bytes:
    info = json.loads(found[1])
    return b"INFO %b\r\n" % json.dumps({key: info.get(key) for key in INFO_KEYS}).encode()


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_both_servers_say_the_same(name: str, tmp_path: Path) -> None:
    """Whatever clients say, in whatever pieces, every client hears from ours what it hears from nats-server."""
    config, users = CONFIGS[name]
    with real_server(tmp_path, config) as real, serve(tmp_path, config) as ours:
        for seed in range(SEED, SEED + COUNT):
            turns = Talker(seed, users, STRANGENESS).conversation()
            for patience_s, gap_s in PACES:
                wanted = converse(real.port, turns, patience_s, gap_s)
                got = converse(ours.port, turns, patience_s, gap_s)
                if got == wanted:
                    break
            assert got == wanted, f"seed {seed}: {turns}"
