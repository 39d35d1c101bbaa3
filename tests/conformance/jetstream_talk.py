"""JetStream spoken by hand, the same to two servers.

`side_by_side` makes a test of a scene: a function that is handed a `Talk`, asks and publishes, and asserts what is
right. It is played to nats-server and to `tnats serve`; what both answered, but for times and names of servers, must be
the same. A scene asks with `ours_alone` about what nats-server is known to do otherwise.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import orjson
from tests.conformance.nats_server import real_server
from tests.live.server_process import PATIENCE_S, log_end, serve

CONFIG = "jetstream { store_dir: %s }"
STORE_CREATE_FAILED = 10049
STORE_CREATE_PAUSES_S = (0.0, 0.1, 0.4)
TRIES = 3
"""How often a scene is played to nats-server before what it answers otherwise counts."""
NO_FILE = "no such file or directory"
ACK_TIME = re.compile(r"(?<=\.)\d{19}(?=\.)")
VARYING = {
    "created",
    "ts",
    "first_ts",
    "last_ts",
    "time",
    "cluster",
    "timestamp",
    "id",
    "active",
    "server",
    "client",
    "last_active",
    "pause_remaining",
    "pinned_client_id",
    "pinned_ts",
}
"""Members of answers that differ between two runs."""

Headers = Mapping[str, str] | Iterable[tuple[str, str]]


@attrs.frozen
class Told:
    """A message that came."""

    subject: str
    block: bytes
    data: bytes
    reply: str = ""

    @property
    def status(self) -> str:
        """What stands behind NATS/1.0: `404 Message Not Found`; empty for none."""
        return self.block.partition(b"\r\n")[0][len(b"NATS/1.0") :].decode().strip()

    @property
    def headers(self) -> dict[str, str]:
        """The first of each header."""
        found: dict[str, str] = {}
        for line in self.block.split(b"\r\n")[1:]:
            key, colon, value = line.partition(b":")
            if colon:
                found.setdefault(key.decode("latin-1"), value.decode("latin-1").strip())
        return found

    @property
    def json(self) -> Any:
        return orjson.loads(self.data)

    def comparable(self) -> object:
        """The message without what varies."""
        try:
            body: object = without_varying(orjson.loads(self.data))
        except orjson.JSONDecodeError:
            body = self.data
        headers = {key: "*" if key == "Nats-Time-Stamp" else value for key, value in self.headers.items()}
        return self.status, headers, body


def without_varying(found: Any) -> Any:
    """JSON without times, and without the server's own metadata."""
    if isinstance(found, dict):
        return {
            key: without_varying(value)
            for key, value in found.items()
            if key not in VARYING and not key.startswith("_nats.") and (key, value) != ("metadata", {})
        }
    if isinstance(found, str) and found.startswith("invalid JSON: ") and "json: " not in found:
        return "invalid JSON"  # where the fault lies is told in other words
    if isinstance(found, list):
        return [without_varying(one) for one in found]
    return found


def block_of(headers: Headers) -> bytes:
    """A header block, empty for no headers."""
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    lines = "".join(f"{key}: {value}\r\n" for key, value in pairs)
    return f"NATS/1.0\r\n{lines}\r\n".encode("latin-1") if pairs else b""


class Talk:
    """One connection to one server."""

    def __init__(self, port: int, *, streams: Path | None = None, name: str = "talk") -> None:
        """`streams`: where nats-server keeps its streams; ours has none. `name`: of its inbox, to be unlike that of
        others at the same server.
        """
        self.is_ours = streams is None
        self._streams = streams
        self._port = port
        self.log: list[object] = []
        """All answers, comparable."""
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._unread = b""
        self._numbers = itertools.count(1)
        self._sids: dict[int, str] = {}
        self._arrived: dict[str, deque[Told]] = {}
        self.inbox = f"_INBOX.{name}"
        self.send(b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n')
        self.listen(f"{self.inbox}.*")

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.settimeout(PATIENCE_S)
        self._socket.sendall(data)

    # ------------------------------------------------------------------ messages

    def listen(self, subject: str) -> None:
        """Keep what comes on a subject; ask for it with `hear(subject)`."""
        sid = len(self._sids) + 1
        self._sids[sid] = subject
        self.send(f"SUB {subject} {sid}\r\n".encode())

    def say(self, subject: str, data: bytes = b"", headers: Headers = (), reply: str = "") -> None:
        """Publish, and wait for nothing."""
        self.send(self.packed(subject, data, headers, reply))

    @staticmethod
    def packed(subject: str, data: bytes = b"", headers: Headers | bytes = (), reply: str = "") -> bytes:
        """The bytes of a publish. `headers` may be a whole block."""
        block = headers if isinstance(headers, bytes) else block_of(headers)
        to = f"{subject} {reply}" if reply else subject
        if block:
            return f"HPUB {to} {len(block)} {len(block) + len(data)}\r\n".encode() + block + data + b"\r\n"
        return f"PUB {to} {len(data)}\r\n".encode() + data + b"\r\n"

    def hear(self, subject: str, patience_s: float = PATIENCE_S) -> Told:
        """The next message that came on an inbox, or for a subject that was listened to. Raises TimeoutError."""
        deadline = time.monotonic() + patience_s
        while not self._arrived.get(subject):
            if (left := deadline - time.monotonic()) <= 0:
                raise TimeoutError
            self._read(left)
        return self._arrived[subject].popleft()

    def hear_all(self, subject: str, patience_s: float) -> list[Told]:
        """What comes until nothing has come for a while."""
        found = []
        while True:
            try:
                found.append(self.hear(subject, patience_s))
            except TimeoutError:
                return found

    def forget(self) -> None:
        """Forget what has come and was not asked for, and all answers."""
        self._arrived.clear()
        self.log.clear()

    def fence(self) -> None:
        """Return when the server has read all that was said."""
        self.send(b"PING\r\n")
        while self._read(PATIENCE_S) != b"PONG":
            pass

    def _read(self, seconds: float) -> bytes:
        """Take one operation of the server; its verb."""
        deadline = time.monotonic() + seconds
        end = 0
        while True:
            line, mark, _ = self._unread.partition(b"\r\n")
            words = line.split()
            if mark:
                is_message = words[0] in (b"MSG", b"HMSG")
                end = len(line) + 2 + (int(words[-1]) + 2 if is_message else 0)
                if len(self._unread) >= end:
                    break
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            part = self._socket.recv(1 << 20)
            assert part, "closed by the server" + log_end(self._port)
            self._unread += part
        body, self._unread = self._unread[len(line) + 2 : end - 2], self._unread[end:]
        if is_message:
            size = int(words[-2]) if words[0] == b"HMSG" else 0
            sizes = 2 if words[0] == b"HMSG" else 1
            reply = words[3].decode("utf-8", "replace") if len(words) == 4 + sizes else ""
            told = Told(words[1].decode("utf-8", "replace"), body[:size], body[size:], reply)
            wanted = self._sids[int(words[2])]
            key = told.subject if wanted == f"{self.inbox}.*" else wanted
            self._arrived.setdefault(key, deque()).append(told)
        elif words[0] == b"PING":
            self.send(b"PONG\r\n")
        else:
            assert words[0] in (b"PONG", b"INFO"), line
        return words[0]

    # ------------------------------------------------------------------ questions

    def new_inbox(self) -> str:
        return f"{self.inbox}.{next(self._numbers)}"

    def ask(self, subject: str, data: bytes = b"", headers: Headers = ()) -> Told:
        """Publish and wait for the one answer, which is compared."""
        told = self._ask(subject, data, headers)
        self.log.append((ACK_TIME.sub("*", subject), told.comparable()))
        return told

    def _ask(self, subject: str, data: bytes, headers: Headers) -> Told:
        inbox = self.new_inbox()
        self.say(subject, data, headers, inbox)
        try:
            return self.hear(inbox)
        except TimeoutError as late:
            late.add_note(f"no answer to {subject} {data[:200]!r}{log_end(self._port)}")
            raise

    def api(self, call: str, body: object = None) -> Any:
        """A call of the API: its answer. `body`: JSON to be, or bytes as they are.

        nats-server removes the files of a stream or consumer behind its deletion, and refuses one of a thousand new
        ones of the same name for it.
        What it says again and again it means: it gives the same reason for some configurations.
        """
        for pause_s in STORE_CREATE_PAUSES_S:
            answer = self.ask(f"$JS.API.{call}", encoded(body)).json
            error = answer.get("error", {})
            is_late = error.get("err_code") == STORE_CREATE_FAILED or NO_FILE in error.get("description", "")
            if self.is_ours or not is_late:
                self._clear_after(call)
                return answer
            self.log.pop()
            time.sleep(pause_s)
        return self.ask(f"$JS.API.{call}", encoded(body)).json

    def _clear_after(self, call: str) -> None:
        """Remove what nats-server leaves of a removed stream: often, where a consumer was made just before, everything.
        The next stream of that name would have the messages.
        """
        action, _, name = call.rpartition(".")
        if self._streams is not None and action == "STREAM.DELETE":
            while (left := self._streams / name).exists():
                shutil.rmtree(left, ignore_errors=True)

    def done(self, call: str, body: object = None) -> Any:
        """A call of the API that must succeed."""
        answer = self.api(call, body)
        assert "error" not in answer, answer
        return answer

    def refused(self, call: str, body: object = None) -> int:
        """A call of the API that must fail: its error code."""
        answer = self.api(call, body)
        assert "error" in answer, answer
        return int(answer["error"]["err_code"])

    def create(self, name: str, **config: object) -> Any:
        """Make a stream; on subjects `name` (in small letters) and below, unless `config` says otherwise."""
        subjects = [name.lower(), f"{name.lower()}.>"]
        return self.done(f"STREAM.CREATE.{name}", {"name": name, "subjects": subjects, **config})

    def state(self, name: str) -> tuple[int, int, int]:
        """Messages, first and last sequence."""
        found = self.done(f"STREAM.INFO.{name}")["state"]
        return found["messages"], found["first_seq"], found["last_seq"]

    def publish(self, subject: str, data: bytes = b"", headers: Headers = ()) -> Any:
        """Publish to a stream: its answer."""
        return self.ask(subject, data, headers).json

    def stored(self, subject: str, data: bytes = b"", headers: Headers = ()) -> int:
        """Publish to a stream, which must take it: the sequence."""
        answer = self.publish(subject, data, headers)
        assert "error" not in answer, answer
        return int(answer["seq"])

    def denied(self, subject: str, data: bytes = b"", headers: Headers = ()) -> int:
        """Publish to a stream, which must not take it: the error code."""
        answer = self.publish(subject, data, headers)
        assert "error" in answer, answer
        return int(answer["error"]["err_code"])

    def flood(self, subjects: Iterable[str], data: bytes = b"") -> None:
        """Publish to each subject, without waiting for one before the next; all must be stored."""
        inbox = self.new_inbox()
        parts = [self.packed(subject, data, (), inbox) for subject in subjects]
        for at in range(0, len(parts), 1000):
            self.send(b"".join(parts[at : at + 1000]))
            for _ in parts[at : at + 1000]:
                answer = self.hear(inbox).json
                assert "error" not in answer, answer

    def stored_at_once(self, *publishes: tuple[str, bytes, Headers]) -> list[int]:
        """Publish to streams without a pause in which time could pass; all must be stored: the sequences."""
        inboxes = [self.new_inbox() for _ in publishes]
        self.send(b"".join(self.packed(*one, inbox) for one, inbox in zip(publishes, inboxes, strict=True)))
        answers = [self.hear(inbox).json for inbox in inboxes]
        assert not any("error" in answer for answer in answers), answers
        return [int(answer["seq"]) for answer in answers]

    def get(self, name: str, body: object, subject: str = "") -> Told:
        """A direct get of one message."""
        return self.ask(f"$JS.API.DIRECT.GET.{name}{subject and '.' + subject}", encoded(body))

    def get_all(self, name: str, body: object) -> list[Told]:
        """A direct get of many: everything up to the end, or the one refusal."""
        inbox = self.new_inbox()
        self.say(f"$JS.API.DIRECT.GET.{name}", encoded(body), (), inbox)
        found = [self.hear(inbox)]
        while not found[-1].status:
            found.append(self.hear(inbox))
        self.log.append((name, [one.comparable() for one in found]))
        return found

    @contextmanager
    def ours_alone(self) -> Iterator[bool]:
        """What is answered within is not compared. The value: whether this is our server."""
        kept = len(self.log)
        yield self.is_ours
        del self.log[kept:]


def encoded(body: object) -> bytes:
    return body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()


@attrs.frozen
class Servers:
    """Ports of nats-server and of ours, and where nats-server keeps its streams."""

    real: int
    ours: int
    real_streams: Path

    def play(self, scene: Callable[[Talk], None]) -> None:
        """Play a scene to both at once; what they answered must be the same.

        Ours has one try. nats-server counts what is pending, lets go of messages and announces things behind its
        answers, some time on a busy machine: a difference counts if it is there again.
        """
        with ThreadPoolExecutor(1) as pool:
            ours = pool.submit(play, scene, self.ours, None)
            for _ in range(TRIES - 1):
                answers: list[object] | None = None
                with suppress(Exception):
                    answers = play(scene, self.real, self.real_streams)
                if answers == ours.result():
                    return
            for wanted, got in zip(play(scene, self.real, self.real_streams), ours.result(), strict=True):
                assert got == wanted, f"\ntnats:       {got}\nnats-server: {wanted}"


def play(scene: Callable[[Talk], None], port: int, streams: Path | None) -> list[object]:
    """Play a scene to one server; what it answered. No stream is left."""
    talk = Talk(port, streams=streams)
    try:
        scene(talk)
    except BaseException as exc:
        exc.add_note(f"played to {'tnats' if talk.is_ours else 'nats-server'}")
        raise
    finally:
        talk.close()
        with Talk(port, streams=streams) as last:
            for name in last.api("STREAM.NAMES")["streams"] or []:
                last.done(f"STREAM.DELETE.{name}")
    return talk.log


@contextmanager
def both_servers(folder: Path, more: str = "") -> Iterator[Servers]:
    """nats-server and ours with JetStream."""
    with (
        real_server(folder, CONFIG % orjson.dumps(str(folder / "real")).decode() + more) as real,
        serve(folder, CONFIG % "store" + more) as ours,
    ):
        yield Servers(real.port, ours.port, folder / "real/jetstream/$G/streams")


def wait_for_port(port: int) -> None:
    """Until somebody listens, and has JetStream."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            talk = Talk(port)
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    while talk.ask("$JS.API.INFO").status:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    talk.close()


def side_by_side(scene: Callable[[Talk], None]) -> Callable[[Servers], None]:
    """A test that plays a scene to both servers."""

    def test(servers: Servers) -> None:
        servers.play(scene)

    test.__name__, test.__qualname__, test.__doc__ = scene.__name__, scene.__qualname__, scene.__doc__
    test.__module__ = scene.__module__
    return test
