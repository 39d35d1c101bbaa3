"""Sending a signal to a running server (`--signal name[=target]`), by nats-server's names and texts."""

from __future__ import annotations

import glob
import os
import signal
from itertools import pairwise

from tnats.errors import TnatsError

SIGNALS_BY_NAME = {
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
    "ldm": signal.SIGUSR2,
}


def send_signal(name: str, target: str) -> None:
    """Send signal `name` to `target`: a process id, a pid file, or a pattern of pid files ending in `*`.

    An empty `target` means the one server that runs on this machine. Raises TnatsError with one line.
    """
    number = SIGNALS_BY_NAME.get(name)
    if number is None:
        raise TnatsError(f'unknown signal "{name}"')
    pids = _pids(target)
    failures = []
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError as error:
            failures.append(f'signal "{name}" {pid}: {(error.strerror or "").lower()}')
    if failures:
        raise TnatsError("\n".join(failures))


def _pids(target: str) -> list[int]:
    if not target:
        return [_only_server()]
    if target.endswith("*"):
        pids = [_pid_of(path) for path in sorted(glob.glob(target))]
        if not pids:
            raise TnatsError(f"no pid files match {target}")
        return pids
    return [int(target) if target.isdigit() else _pid_of(target)]


def _pid_of(path: str) -> int:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            text = file.read().strip()
    except OSError as error:
        raise TnatsError(f"open {path}: {(error.strerror or '').lower()}") from None
    if not text.isdigit():
        raise TnatsError(f"invalid pid in {path}: {text[:40]}")
    return int(text)


def _only_server() -> int:
    """The process id of the one `tnats serve` that runs."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue  # it ended just now
            if is_server(words):
                found.append(int(entry))
    if not found:
        raise TnatsError("no tnats server processes running")
    if len(found) > 1:
        raise TnatsError("multiple tnats server processes running:\n" + "\n".join(map(str, sorted(found))))
    return found[0]


def is_server(words: list[bytes]) -> bool:
    """Whether a command line is a server's own, and not that of a program around it (`sudo tnats serve ...`)."""
    python, *rest = words
    return os.path.basename(python).startswith(b"python") and any(
        os.path.basename(word) == b"tnats" and following == b"serve" for word, following in pairwise(rest)
    )
