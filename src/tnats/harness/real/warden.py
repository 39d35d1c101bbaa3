"""Clears up after a harness that died: `python -m tnats.harness.real.warden DIRECTORY [keep]`, started by `Workplace`.

It waits for the end of its standard input, which comes with the end of the harness, however that ends. Then it clears
the workplace, by what the kernel knows of it and not by a list that the harness would have to keep: the processes that
carry its mark in their environment, the mounts beneath its directory, and the directory. So what was being started in
the very moment of a SIGKILL is found too, if it is looked for twice: the mark is there when the program is. Nothing is
left to do after the word that all has been cleared. Runs in a session of its own, out of reach of Ctrl-C.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "TNATS_WORKPLACE"
"""The variable in the environment of every process of a workplace: its directory."""
KEEP = "keep"
DONE = "done"
CLEAR_TIMEOUT_S = 20.0
POLL_S = 0.02
STARTING_S = 0.5
"""Longer than a process that has begun to be started goes without its mark."""


def processes(directory: str) -> list[int]:
    """Process ids of those that carry the mark of the workplace at `directory` and have not ended."""
    mark = os.fsencode(f"{MARK}={directory}")
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended meanwhile, or is not ours
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def mounts(directory: str) -> list[str]:
    """What is mounted beneath `directory`, newest first."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    paths = [line.split()[1].replace(r"\040", " ") for line in reversed(lines)]
    return [path for path in paths if path.startswith(f"{directory}/")]


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def unmount(path: str) -> None:
    """Also if nobody answers there any more, and if nothing is mounted there."""
    subprocess.run(["fusermount3", "-u", "-z", path], check=False, stderr=subprocess.DEVNULL)


def clear(directory: str, *, keep: bool) -> bool:
    """Kill, unmount and, unless it is to be kept, remove, until nothing is left or the time for it is over; whether
    nothing is left.

    More than once: a process takes its time to die, and may put a file into a directory that is being removed.
    """
    deadline = time.monotonic() + CLEAR_TIMEOUT_S
    while time.monotonic() < deadline:
        for pid in processes(directory):
            kill(pid)
        for path in mounts(directory):  # not free before its users are dead
            unmount(path)
        if not processes(directory) and not mounts(directory):
            if not keep:
                shutil.rmtree(directory, ignore_errors=True)
            if (keep or not os.path.exists(directory)) and not processes(directory):
                return True
        time.sleep(POLL_S)
    return False


def main() -> int:
    """Wait for the end of standard input, then clear."""
    if sys.stdin.read() == DONE:
        return 0
    directory, *words = sys.argv[1:]
    clear(directory, keep=KEEP in words)
    time.sleep(STARTING_S)
    clear(directory, keep=KEEP in words)
    return 0


if __name__ == "__main__":
    sys.exit(main())
