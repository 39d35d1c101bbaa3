"""One run's private directory, and the list of everything that must not outlive it.

Inside `open_workplace` processes are started, mounts made; at its end, also after an error or Ctrl-C, all of it is
ended here, and `warden` does the same should this process be killed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio

from tnats.harness.real.warden import identity

WARDEN = (sys.executable, "-m", "tnats.harness.real.warden")
PREFIX = "tnats-jepsen-"
PORT_MIN, PORT_MAX = 10_000, 32_768
"""Below what Linux gives to outgoing connections."""


class Workplace:
    """Made by `open_workplace`."""

    def __init__(self, directory: Path, warden: subprocess.Popen[bytes]) -> None:
        self.directory = directory
        self._warden = warden
        self._processes: dict[trio.Process, str] = {}
        """With what the warden was told of them."""

    def note(self, kind: str, name: object) -> None:
        """Something exists now: `pid`, `mount` or `directory`."""
        assert self._warden.stdin is not None
        with suppress(BrokenPipeError):  # somebody has killed the warden: all the more must be cleared up here
            self._warden.stdin.write(f"{kind} {name}\n".encode())
            self._warden.stdin.flush()

    def forget(self, kind: str, name: object) -> None:
        """It is gone."""
        self.note(f"gone {kind}", name)

    async def start(
        self,
        command: Sequence[str],
        *,
        log: Path,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> trio.Process:
        """Start a program in a session of its own; its output is appended to `log` (`stdout`: only its errors)."""
        with log.open("ab") as sink:
            process: trio.Process = await trio.lowlevel.open_process(
                list(command),
                stdin=stdin,
                stdout=sink.fileno() if stdout is None else stdout,
                stderr=sink.fileno(),
                start_new_session=True,
                env=None if environment is None else {**os.environ, **environment},
            )
        self._processes[process] = identity(process.pid)
        self.note("pid", self._processes[process])
        return process

    async def wait(self, process: trio.Process) -> int:
        """Wait until it has ended; returns its exit status, negative for a signal."""
        status = await process.wait()
        noted = self._processes.pop(process, None)
        if noted is not None:
            self.forget("pid", noted)
        return status

    async def kill(self, process: trio.Process) -> None:
        """SIGKILL, also of a stopped process, and wait for its end."""
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        with trio.CancelScope(shield=True):
            await self.wait(process)

    async def end(self) -> None:
        """Kill what still runs."""
        for process in reversed(list(self._processes)):
            await self.kill(process)


@asynccontextmanager
async def open_workplace(*, keep: bool = False) -> AsyncIterator[Workplace]:
    """A fresh private directory and an empty list. With `keep` the directory stays for whoever wants to look."""
    directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    warden = subprocess.Popen(WARDEN, stdin=subprocess.PIPE, start_new_session=True)
    workplace = Workplace(directory, warden)
    workplace.note("directory", directory)
    try:
        yield workplace
    finally:
        with trio.CancelScope(shield=True):
            await workplace.end()
            if not keep:
                shutil.rmtree(directory, ignore_errors=True)
            workplace.forget("directory", directory)
            assert warden.stdin is not None
            with suppress(BrokenPipeError):
                warden.stdin.close()
            await trio.to_thread.run_sync(warden.wait)


def log_text(log: Path) -> str:
    """Everything that was printed so far."""
    return log.read_text(errors="replace") if log.exists() else ""


def last_line(log: Path) -> str:
    """The end of the last line of a log."""
    lines = log_text(log).strip().splitlines()
    return lines[-1][-200:] if lines else "(nothing)"


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on, and that no outgoing connection is given by itself:
    a server that was killed must find its port free when it comes back.
    """
    chance = random.SystemRandom()
    while True:
        port = chance.randrange(PORT_MIN, PORT_MAX)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
