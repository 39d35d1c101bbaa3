"""What the benchmarks of servers share: a server process of either side, and a raw connection to it.

The connection speaks the wire protocol in prepared pieces, so that it costs far less than the server that it loads.
"""

from __future__ import annotations

import json
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
PATIENCE_S = 120.0
CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}\r\nPING\r\n'


class Client:
    """A raw connection."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection((HOST, port), timeout=PATIENCE_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(CONNECT)
        self.wait_for(b"PONG\r\n")

    def receive(self) -> bytes:
        """What has come, answering keep-alives."""
        data = self.sock.recv(1 << 20)
        if not data:
            raise ConnectionError("closed by the server")
        if b"PING\r\n" in data:
            self.sock.sendall(b"PONG\r\n")
        return data

    def wait_for(self, mark: bytes, count: int = 1) -> None:
        """Read until `mark` has come `count` times."""
        tail, seen = b"", 0
        while seen < count:
            text = tail + self.receive()
            seen += text.count(mark)
            tail = text[len(text) - len(mark) + 1 :]

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
    """A server process in a directory of its own; with JetStream, if a `sync_interval` is given."""

    def __init__(self, command: str, sync_interval: str | None = None) -> None:
        self._command = command
        self._folder = tempfile.TemporaryDirectory(prefix="bench-")
        with socket.socket() as free:
            free.bind((HOST, 0))
            self.port = free.getsockname()[1]
        self._config = Path(self._folder.name, "server.conf")
        text = f'listen: "{HOST}:{self.port}"\nmax_pending: 256MB\n'
        if sync_interval is not None:
            limits = "max_mem: 4GB, max_file: 50GB"
            text += f'jetstream {{ store_dir: "{self._folder.name}", {limits}, sync_interval: {sync_interval} }}\n'
        self._config.write_text(text)
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
        """End it as a crash does."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """End it, and remove its directory."""
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
        self._folder.cleanup()
