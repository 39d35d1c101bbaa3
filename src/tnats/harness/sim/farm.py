"""Many seeds on several cores: worker processes that run their share and tell each result as a line of JSON.

A worker runs `python -m tnats sim work ...`; it writes nothing but its standard output, so that ending it at any
time leaves nothing behind. The farm ends its workers; those of a farm that was killed end at their next line.
"""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import attrs

from tnats.errors import TnatsError
from tnats.harness.sim.run import Result
from tnats.limits import MILLISECOND_NS

POLL_S = 0.2


class WorkerFailed(TnatsError):
    """A worker process ended in error; the text is what it wrote."""


def result_of(record: dict[str, object]) -> Result:
    """A result from a worker's line."""
    result = Result(**record)  # type: ignore[arg-type]
    return attrs.evolve(result, missed=tuple(result.missed))


def work(
    directory: Path, names: Sequence[str], seeds: range, *, jobs: int, budget_s: float | None
) -> Iterator[Result | None]:
    """The results of every scenario and seed, as they come, until `budget_s` is over; None now and then, to draw.

    Raises WorkerFailed.
    """
    started_s = time.monotonic()
    workers = [start(directory, names, seeds, job, jobs) for job in range(jobs)]
    try:
        with selectors.DefaultSelector() as selector:
            for worker in workers:
                selector.register(stdout_of(worker), selectors.EVENT_READ, worker)
            parts: dict[int, bytes] = {}
            while selector.get_map():
                for key, _ in selector.select(POLL_S):
                    data = key.fileobj.read1(1 << 20)  # type: ignore[union-attr]
                    if not data:
                        selector.unregister(key.fileobj)
                        check(key.data)
                        continue
                    *lines, parts[key.fd] = (parts.get(key.fd, b"") + data).split(b"\n")
                    for line in lines:
                        yield result_of(json.loads(line))
                if budget_s is not None and time.monotonic() - started_s > budget_s:
                    return
                yield None
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.communicate()


def start(directory: Path, names: Sequence[str], seeds: range, job: int, jobs: int) -> subprocess.Popen[bytes]:
    """One worker: every `jobs`-th seed from the `job`-th on."""
    command = [sys.executable, "-m", "tnats", "sim", "--dir", str(directory), "work", *names]
    command += ["--first", str(seeds.start + job), "--last", str(seeds.stop - 1), "--step", str(jobs)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def check(worker: subprocess.Popen[bytes]) -> None:
    """Wait for a worker that writes no more. Raises WorkerFailed unless it had done all of its share."""
    _, errors = worker.communicate()
    if worker.returncode:
        text = errors.decode("utf-8", "replace").strip()[-2000:] or "without a word"
        raise WorkerFailed(f"a worker ended with code {worker.returncode}: {text}")


def stdout_of(worker: subprocess.Popen[bytes]) -> IO[bytes]:
    assert worker.stdout is not None
    return worker.stdout


def elapsed_s() -> float:
    """Real time, for rates."""
    return time.monotonic()


def fresh_seed() -> int:
    """Where to begin a search that has not been made before."""
    return time.time_ns() // MILLISECOND_NS % (1 << 39)
