"""JetStream where it is large: many streams at once, a million subjects, ten million messages; server A and B in turns.

    python benchmarks/jetstream.py --a ".venv/bin/tnats serve" --b .venv/bin/nats-server [--parts durable,subjects]
                                   [--scale 0.01] [--json FILE]

`durable`: acknowledged publishes a second with `sync_interval: always`, over 1, 100 and 1,000 streams at once, each
with one publish of 128 bytes in flight. `subjects`: a stream with 1,000,000 subjects, one message of 32 bytes each.
`messages`: a stream with 10,000,000 messages of 128 bytes on one subject. Of the last two: publishes a second (window
of 1,000, `sync_interval: 2m`), median time of STREAM.INFO, memory that the server has grown by, and time from the start
after a kill until STREAM.INFO tells the right count. `--scale` makes the last two smaller. The figure to quote is the
ratio, turned so that above 1.00 A is ahead; absolute figures hold for one run on one machine only.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

HOST = "127.0.0.1"
CONNECT = (
    b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"lang":"raw","version":"1",'
    b'"protocol":1}\r\nPING\r\n'
)
ACK = b'"seq":'
WINDOW = 1000
SECONDS = 3.0
STREAMS = (1, 100, 1000)
SUBJECTS = 1_000_000
MESSAGES = 10_000_000
PATIENCE_S = 120.0


@attrs.frozen
class Figure:
    """One measured value; `more` tells whether more is better."""

    name: str
    value: float
    unit: str
    more: bool


Tick = Callable[[float], None]
"""Told of the share of a part's work that is done."""


class Client:
    """A raw connection."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection((HOST, port), timeout=PATIENCE_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(CONNECT)
        self._wait_for(b"PONG\r\n")

    def _wait_for(self, mark: bytes) -> bytes:
        data = b""
        while mark not in data:
            data += self.receive()
        return data

    def receive(self) -> bytes:
        """What has come, answering keep-alives."""
        data = self.sock.recv(1 << 20)
        if not data:
            raise ConnectionError("closed by the server")
        if b"PING\r\n" in data:
            self.sock.sendall(b"PONG\r\n")
        return data

    def request(self, subject: str, body: object = None) -> dict[str, Any]:
        """The JSON answer to one request. Raises LookupError for an error, or when nobody answers."""
        data = b"" if body is None else json.dumps(body).encode()
        self.sock.sendall(
            b"SUB _INBOX.q 77\r\nPUB %b _INBOX.q %d\r\n%b\r\nUNSUB 77 1\r\n" % (subject.encode(), len(data), data)
        )
        text = b""
        while True:
            text += self.receive()
            if b"HMSG _INBOX.q 77 " in text:
                raise LookupError(f"nobody answers {subject}")
            at = text.find(b"MSG _INBOX.q 77 ")
            end = text.find(b"\r\n", at)
            if at < 0 or end < 0:
                continue
            size = int(text[at:end].split()[-1])
            if len(text) >= end + 4 + size:
                answer: dict[str, Any] = json.loads(text[end + 2 : end + 2 + size])
                if "error" in answer:
                    raise LookupError(f"{subject}: {answer['error']}")
                return answer


class Server:
    """A server process in a directory of its own."""

    def __init__(self, command: str, sync_interval: str) -> None:
        self._command = command
        self._folder = tempfile.TemporaryDirectory(prefix="bench-")
        with socket.socket() as free:
            free.bind((HOST, 0))
            self.port = free.getsockname()[1]
        self._config = Path(self._folder.name, "server.conf")
        self._config.write_text(
            f'listen: "{HOST}:{self.port}"\nmax_pending: 256MB\n'
            f'jetstream {{ store_dir: "{self._folder.name}/store", max_mem: 4GB, max_file: 50GB, '
            f"sync_interval: {sync_interval} }}\n"
        )
        self.start()

    def start(self) -> None:
        """Start it, and wait until it takes clients."""
        log = open(Path(self._folder.name, "log"), "ab")  # noqa: SIM115 - the process has it
        self._process = subprocess.Popen([*shlex.split(self._command), "-c", str(self._config)], stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                self.stop()
                raise TimeoutError(f"{self._command} does not answer")
            time.sleep(0.002)

    def _answers(self) -> bool:
        try:
            with closing(Client(self.port).sock):
                return True
        except OSError:
            return False

    def rss_mib(self) -> float:
        """Resident memory."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
        self._folder.cleanup()


def make_stream(client: Client, name: str, subject: str) -> None:
    config = {"name": name, "subjects": [subject], "storage": "file", "num_replicas": 1}
    client.request(f"$JS.API.STREAM.CREATE.{name}", config)


def durable_rate(port: int, streams: int, tick: Tick) -> float:
    """Acknowledged publishes a second with one in flight on each stream."""
    client = Client(port)
    for number in range(streams):
        make_stream(client, f"D{number}", f"d.{number}")
    client.sock.sendall(b"SUB _INBOX.d.* 1\r\n")
    body = b" 128\r\n" + b"x" * 128 + b"\r\n"
    publish = {b"_INBOX.d.%d" % number: b"PUB d.%d _INBOX.d.%d" % (number, number) + body for number in range(streams)}
    client.sock.sendall(b"".join(publish.values()))
    began = time.perf_counter()
    acknowledged, rest = 0, b""
    while True:
        elapsed = time.perf_counter() - began
        tick(min(elapsed / SECONDS, 1.0))
        if elapsed >= SECONDS:
            return acknowledged / elapsed
        *lines, rest = (rest + client.receive()).split(b"\r\n")
        due = []
        for line in lines:
            if line.startswith(b"MSG _INBOX.d."):
                due.append(publish[line.split(b" ", 2)[1]])
            elif b'"error"' in line:
                raise RuntimeError(line.decode())
        acknowledged += len(due)
        client.sock.sendall(b"".join(due))


def fill(port: int, count: int, block_of: Callable[[int], bytes], tick: Tick) -> float:
    """Publish `count` messages, WINDOW to 2 * WINDOW in flight; acknowledged a second."""
    client = Client(port)
    make_stream(client, "B", "b.>")
    client.sock.sendall(b"SUB _INBOX.b 1\r\n")
    began = time.perf_counter()
    sent = acknowledged = 0
    tail = b""
    while acknowledged < count:
        while sent - acknowledged <= WINDOW and sent < count:
            client.sock.sendall(block_of(sent))
            sent += WINDOW
        data = tail + client.receive()
        acknowledged += data.count(ACK)
        if b'"error"' in data:
            raise RuntimeError(data[:300].decode(errors="replace"))
        last = data.rfind(ACK)
        tail = data[max(last + len(ACK), len(data) - len(ACK) + 1) :]
        tick(acknowledged / count)
    return acknowledged / (time.perf_counter() - began)


def large(command: str, name: str, count: int, block_of: Callable[[int], bytes], tick: Tick) -> list[Figure]:
    """Fill one stream, then see what the server makes of it."""
    server = Server(command, "2m")
    try:
        before = server.rss_mib()
        rate = fill(server.port, count, block_of, tick)
        client = Client(server.port)
        times = []
        for _ in range(21):
            began = time.perf_counter()
            info = client.request("$JS.API.STREAM.INFO.B")
            times.append(time.perf_counter() - began)
        if info["state"]["messages"] != count:
            raise RuntimeError(f"{count} published, {info['state']['messages']} stored")
        grown = server.rss_mib() - before
        server.kill()
        began = time.perf_counter()
        server.start()
        while Client(server.port).request("$JS.API.STREAM.INFO.B")["state"]["messages"] != count:
            time.sleep(0.01)
        restart = time.perf_counter() - began
        return [
            Figure(f"{name}: publishes", rate, "/s", more=True),
            Figure(f"{name}: STREAM.INFO, median", statistics.median(times) * 1e6, "us", more=False),
            Figure(f"{name}: memory", grown, "MiB", more=False),
            Figure(f"{name}: restart after a kill", restart * 1e3, "ms", more=False),
            Figure(f"{name}: memory after it", server.rss_mib() - before, "MiB", more=False),
        ]
    finally:
        server.stop()


def durable(command: str, scale: float, tick: Tick) -> list[Figure]:
    """The part of the same name."""
    figures = []
    for done, streams in enumerate(STREAMS):
        server = Server(command, "always")
        try:
            rate = durable_rate(server.port, streams, lambda share, done=done: tick((done + share) / len(STREAMS)))  # type: ignore[misc]
        finally:
            server.stop()
        figures.append(Figure(f"durable: {streams:,} streams at once", rate, "/s", more=True))
    return figures


def subjects(command: str, scale: float, tick: Tick) -> list[Figure]:
    """The part of the same name."""
    count = max(1, int(SUBJECTS * scale) // WINDOW) * WINDOW
    body = b" _INBOX.b 32\r\n" + b"x" * 32 + b"\r\n"

    def block_of(first: int) -> bytes:
        return b"".join([b"PUB b.key.%d" % number + body for number in range(first, first + WINDOW)])

    return large(command, f"{count:,} subjects", count, block_of, tick)


def messages(command: str, scale: float, tick: Tick) -> list[Figure]:
    """The part of the same name."""
    count = max(1, int(MESSAGES * scale) // WINDOW) * WINDOW
    block = (b"PUB b.one _INBOX.b 128\r\n" + b"x" * 128 + b"\r\n") * WINDOW
    return large(command, f"{count:,} messages", count, lambda first: block, tick)


PARTS = {"durable": durable, "subjects": subjects, "messages": messages}


def main() -> None:
    """Run the parts that were asked for, A and B in turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--a", required=True, help="command of server A")
    parser.add_argument("--b", help="command of server B, the reference; without it, A alone")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}, by commas")
    parser.add_argument("--scale", type=float, default=1.0, help="of the two large streams")
    parser.add_argument("--json", help="also write the figures to this file")
    given = parser.parse_args()
    commands = {"A": given.a, **({"B": given.b} if given.b else {})}
    unknown = [part for part in given.parts.split(",") if part not in PARTS]
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}: there are {', '.join(PARTS)}")
    console = Console()
    table = Table("", *commands, *(["A ahead"] if given.b else []))
    rows: dict[str, dict[str, object]] = {}
    with Progress(console=console, transient=True) as progress:
        for part in given.parts.split(","):
            found: dict[str, list[Figure]] = {}
            for side, command in commands.items():
                task = progress.add_task(f"{part} {side}", total=1.0)
                try:
                    found[side] = PARTS[part](
                        command,
                        given.scale,
                        lambda share, task=task: progress.update(task, completed=share),  # type: ignore[misc]
                    )
                except (OSError, LookupError, RuntimeError) as failure:  # reported, never counted
                    console.print(f"{part} cannot run: {side}: {type(failure).__name__}: {failure}")
                    break
                finally:
                    progress.remove_task(task)
            if len(found) < len(commands):
                continue
            for position, figure in enumerate(found["A"]):
                values = {side: figures[position].value for side, figures in found.items()}
                row: dict[str, object] = {"unit": figure.unit, **values}
                if given.b:
                    row["ahead"] = values["A"] / values["B"] if figure.more else values["B"] / max(values["A"], 1e-9)
                rows[figure.name] = row
                cells = [f"{value:,.0f} {figure.unit}" for value in values.values()]
                table.add_row(figure.name, *cells, *([f"{row['ahead']:.2f}"] if given.b else []))
    console.print(table)
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
