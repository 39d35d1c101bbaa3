"""`tnats serve` as a process of its own, on free ports, with files in a folder that the test owns."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import psutil

PATIENCE_S = 60.0
"""Longer than anything takes where the machine is slow and has much else to do: who waits longer, waits in vain."""
LOG_PATHS: dict[int, Path] = {}
"""Where the servers of this run log, by port."""
COMMAND = [sys.executable, "-m", "tnats", "serve"]


def wait_until(condition: Callable[[], object], what: str = "it", lacking: Callable[[], object] | None = None) -> None:
    """Look again and again until `condition` holds; fails after PATIENCE_S, with what `lacking` says then."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, (
            f"{what} did not come about within {PATIENCE_S} s{f': {lacking()}' if lacking else ''}"
        )
        time.sleep(0.01)


def held_port() -> socket.socket:
    """A socket whose port of 127.0.0.1 nobody else is given before it is closed, also while the server of that port is
    down: bound, and not listening, it is in no server's way.
    """
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind(("127.0.0.1", 0))
    return place


def log_end(port: int) -> str:
    """The end of what the server on this port has logged, to be shown with a failure."""
    path = LOG_PATHS.get(port)
    return f"\n--- log of the server on port {port} ---\n{path.read_text()[-5000:]}" if path else ""


def run_to_end(*flags: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `tnats serve` with flags that make it end by itself."""
    return subprocess.run(
        [*COMMAND, *flags], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


class ServerProcess:
    """A running server. Made by `serve`."""

    def __init__(self, folder: Path, config: str, flags: tuple[str, ...]) -> None:
        self.folder = folder
        self.config_path = folder / "server.conf"
        self._log_path = folder / "stderr.log"
        self._flags = flags
        self._place = held_port()
        self.process: subprocess.Popen[bytes]
        self.port = int(self._place.getsockname()[1])
        self.monitoring_port = -1
        self.write_config(config)

    @property
    def url(self) -> str:
        """For clients."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What it has written to standard error, in all its lives."""
        return self._log_path.read_text() if self._log_path.exists() else ""

    @property
    def texts(self) -> list[str]:
        """The lines of the log without pid and time: `[INF] Server is ready`."""
        return re.findall(r"^\[\d+\] \S+ \S+ (.*)$", self.log, re.MULTILINE)

    def write_config(self, config: str) -> None:
        """Change the configuration, to be read at the next start or reload. It listens where it did before."""
        self.config_path.write_text(f'listen: "127.0.0.1:{self.port}"\n{config}\n')

    def start(self) -> None:
        """Start it and wait until clients can connect, as told by its ports file."""
        with self._log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*COMMAND, "-c", self.config_path.name, "--ports_file_dir", ".", *self._flags],
                cwd=self.folder,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        path = self.folder / f"nats-server_{self.process.pid}.ports"
        wait_until(lambda: path.exists() or self.process.poll() is not None, "the ports file")
        assert self.process.poll() is None, "it ended at once"
        ports = json.loads(path.read_text())
        self.monitoring_port = port_of(ports["monitoring"][0]) if "monitoring" in ports else -1
        LOG_PATHS[self.port] = self._log_path

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait_for_line(self, text: str, count: int = 1) -> None:
        """Wait until a log line with `text` was written `count` times."""
        wait_until(lambda: self.log.count(text) >= count, f"log line {text!r}")

    def reload(self, config: str) -> None:
        """Change the configuration and wait until it is in force."""
        before = self.log.count("Reloaded server configuration")
        self.write_config(config)
        self.signal(signal.SIGHUP)
        self.wait_for_line("Reloaded server configuration", before + 1)

    def wait(self) -> int:
        """Wait for its end; the exit code."""
        return self.process.wait(PATIENCE_S)

    def stop(self) -> None:
        """End it, if it still runs."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise

    def close(self) -> None:
        """End it, and give its port back."""
        with closing(self._place):
            self.stop()

    def ask(self, path: str) -> Any:
        """A monitoring report."""
        status, text = self.ask_raw(path)
        assert status == 200, text
        return json.loads(text)

    def ask_raw(self, path: str) -> tuple[int, str]:
        """Status and body of a monitoring page."""
        try:
            with urlopen(f"http://127.0.0.1:{self.monitoring_port}{path}", timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode()

    def memory_bytes(self) -> int:
        """Resident memory of the process."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def processor_seconds(self) -> float:
        """Time that processors have worked for the process; what else the machine has to do does not count."""
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


@contextmanager
def serve(folder: Path, config: str = "", *flags: str) -> Iterator[ServerProcess]:
    """A server for the length of the block; if that raises, the server's log comes with the exception."""
    server = ServerProcess(folder, config, flags)
    try:
        server.start()
        yield server
    except BaseException as exc:
        exc.add_note(f"--- log of tnats serve ---\n{server.log[-20_000:]}")
        raise
    finally:
        server.close()


class RawClient:
    """A blocking connection that speaks the protocol by hand."""

    def __init__(self, port: int, connect: str = '{"verbose":false,"pedantic":false}') -> None:
        """Connects, and logs in unless `connect` is empty."""
        self._port = port
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._stream = self.socket.makefile("rb")
        self.info = json.loads(self.read_line().removeprefix(b"INFO "))
        if connect:
            self.send(f"CONNECT {connect}\r\n".encode())

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def flush(self) -> None:
        """Wait until the server has handled all that was sent; skips what it says before."""
        self.send(b"PING\r\n")
        while (line := self.read_line()) != b"PONG\r\n":
            assert line, "closed by the server" + log_end(self._port)

    def read_line(self) -> bytes:
        """The next line with its end, empty at the end of the connection; the server's PING is answered, not told."""
        try:
            while (line := self._stream.readline()) == b"PING\r\n":
                self.send(b"PONG\r\n")
        except ConnectionError:
            return b""
        return line

    def read_rest(self) -> bytes:
        """Everything up to the end of the connection."""
        received = b""
        while line := self.read_line():
            received += line
        return received

    def close(self) -> None:
        self._stream.close()
        self.socket.close()
