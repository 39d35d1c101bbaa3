"""One run's private directory, and everything that must not outlive it.

Inside `open_workplace` processes are started, mounts made; at its end, also after an error or Ctrl-C, all of it is
ended here, and `warden` does the same should this process be killed.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import trio

from tnats.harness.real.warden import DONE, KEEP, MARK, clear

WARDEN = (sys.executable, "-m", "tnats.harness.real.warden")
PREFIX = "tnats-jepsen-"
HOST = "127.0.0.1"
PORT_MIN, PORT_MAX = 10_000, 32_768
"""Below what Linux gives to outgoing connections."""


class Workplace:
    """Made by `open_workplace`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._processes: list[trio.Process] = []
        self._reserved: list[socket.socket] = []

    def reserve_port(self) -> int:
        """A TCP port of the loopback interface that nobody listens on, that no outgoing connection is given by itself,
        and that no workplace is told again while this one is there: a server that was killed must find its port free
        when it comes back. What says so to other workplaces is the UDP port of the same number.
        """
        chance = random.SystemRandom()
        while True:
            port = chance.randrange(PORT_MIN, PORT_MAX)
            with socket.socket() as probe, ExitStack() as unless_free:
                token = unless_free.enter_context(socket.socket(type=socket.SOCK_DGRAM))
                with suppress(OSError):
                    token.bind((HOST, port))
                    probe.bind((HOST, port))
                    unless_free.pop_all()
                    self._reserved.append(token)
                    return port

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
                env={**os.environ, **(environment or {}), MARK: str(self.directory)},
            )
        self._processes.append(process)
        return process

    async def wait(self, process: trio.Process) -> int:
        """Wait until it has ended; returns its exit status, negative for a signal."""
        status = await process.wait()
        if process in self._processes:
            self._processes.remove(process)
        return status

    async def kill(self, process: trio.Process) -> None:
        """SIGKILL, also of a stopped process, and wait for its end."""
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        with trio.CancelScope(shield=True):
            await self.wait(process)

    async def end(self) -> None:
        """Kill what still runs, and give the ports back."""
        for process in reversed(self._processes[:]):
            await self.kill(process)
        for token in self._reserved:
            token.close()


@asynccontextmanager
async def open_workplace(*, keep: bool = False) -> AsyncIterator[Workplace]:
    """A fresh private directory. With `keep` it stays for whoever wants to look."""
    directory = os.path.realpath(tempfile.mkdtemp(prefix=PREFIX))  # what the kernel calls it
    command = [*WARDEN, directory, *([KEEP] if keep else [])]
    warden = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    workplace = Workplace(Path(directory))
    try:
        yield workplace
    finally:
        with trio.CancelScope(shield=True):
            await workplace.end()
            is_clear = await trio.to_thread.run_sync(partial(clear, directory, keep=keep))
            await trio.to_thread.run_sync(warden.communicate, DONE.encode() if is_clear else b"")


def log_text(log: Path) -> str:
    """Everything that was printed so far."""
    return log.read_text(errors="replace") if log.exists() else ""


def last_line(log: Path) -> str:
    """The end of the last line of a log."""
    lines = log_text(log).strip().splitlines()
    return lines[-1][-200:] if lines else "(nothing)"
