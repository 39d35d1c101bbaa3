"""Clears up after a harness that died: `python -m tnats.harness.real.warden`, started by `Workplace`.

The harness writes down, one line each, what exists on its behalf: `pid 123:4567` (with the time of its start, so that
nobody else who got the number later is meant), `mount /path`, `directory /path`. It takes back what it has ended
itself: `gone pid 123:4567`. When standard input ends, whatever is still on the list is killed, unmounted and removed.
So nothing is left behind even by SIGKILL. Runs in a session of its own, out of reach of Ctrl-C.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path


def remaining(lines: Iterable[str]) -> list[tuple[str, str]]:
    """What was noted and not taken back, newest first."""
    noted: dict[tuple[str, str], None] = {}
    for line in lines:
        kind, _, name = line.strip().partition(" ")
        if kind == "gone":
            kind, _, name = name.partition(" ")
            noted.pop((kind, name), None)
        else:
            noted[(kind, name)] = None
    return list(reversed(noted))


def start_time(pid: int) -> str:
    """When a process started, in ticks since boot; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def identity(pid: int) -> str:
    """What is noted of a process."""
    return f"{pid}:{start_time(pid)}"


def clear(kind: str, name: str) -> None:
    """End one thing, whatever its state."""
    if kind == "pid":
        pid = int(name.partition(":")[0])
        if identity(pid) == name:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    elif kind == "mount":
        subprocess.run(["fusermount3", "-u", "-z", name], check=False, stderr=subprocess.DEVNULL)
    elif kind == "directory":
        shutil.rmtree(name, ignore_errors=True)


def main() -> int:
    """Wait for the end of standard input, then clear."""
    left = remaining(sys.stdin)
    order = ("pid", "mount", "directory")  # a mount is free once its users are dead
    for kind, name in sorted(left, key=lambda item: order.index(item[0])):
        clear(kind, name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
