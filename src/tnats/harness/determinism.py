"""The determinism gate: one seed, two processes, the same trace.

The processes differ in everything that must not matter: PYTHONHASHSEED, the layout of the heap, the environment,
and the build of the hot loops, compiled in one (where they are built) and interpreted in the other. If their traces
differ, both runs are repeated with the trace as text, and the first event that differs is shown with its virtual
time. The hash seed is never pinned: code that depends on it must show here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path

import attrs

from tnats.errors import TnatsError
from tnats.harness.catalogue import load_scenario
from tnats.harness.scenario import run_scenario
from tnats.records import frozen

CONTEXT_LINES = 5
NOISES = (1, 7919)
"""One for each process: its hash seed, and how much it litters its heap."""

BUILDS = {1: "auto", 7919: "off"}
"""The build of the hot loops (TNATS_SPEEDUPS) that goes with each."""


@frozen
class TraceResult:
    """What one process saw."""

    trace_hash: str
    event_count: int
    time_ns: int
    error: str | None


def trace_here(directory: Path, name: str, seed: int, *, noise: int, lines_path: Path | None) -> TraceResult:
    """Run a scenario in this process on a littered heap; the trace as text goes to `lines_path` if given."""
    kind = load_scenario(directory, name)
    with littered_heap(noise):
        settings = attrs.evolve(kind.settings, keep_lines=lines_path is not None)
        outcome = run_scenario(kind, seed, settings)
    if lines_path is not None:
        assert outcome.trace_lines is not None
        lines_path.write_text("\n".join(outcome.trace_lines), encoding="utf-8")
    error = None if outcome.error is None else f"{type(outcome.error).__name__}: {outcome.error}"
    return TraceResult(outcome.trace_hash, outcome.event_count, outcome.time_ns, error)


@contextmanager
def littered_heap(noise: int) -> Iterator[None]:
    """Leave objects and holes of many sizes, so that addresses, and what is derived from them, come out differently."""
    litter = [bytearray((index * noise) % 4096) for index in range(noise % 5000)]
    del litter[:: 2 + noise % 3]
    yield
    litter.clear()


def trace_elsewhere(directory: Path, name: str, seed: int, *, noise: int, lines_path: Path | None) -> TraceResult:
    """As `trace_here`, in a process of its own with another hash seed. Raises TnatsError when that fails."""
    command = [sys.executable, "-m", "tnats", "sim", "--dir", str(directory), "trace", name, str(seed)]
    command += ["--noise", str(noise)]
    if lines_path is not None:
        command += ["--lines", str(lines_path)]
    environment = {
        **os.environ,
        "PYTHONHASHSEED": str(noise),
        "TNATS_SPEEDUPS": BUILDS[noise],
        f"TNATS_NOISE_{noise}": "x" * noise,
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TnatsError(f"the traced process failed ({done.returncode}):\n{done.stderr}")
    return TraceResult(**json.loads(done.stdout))


@frozen
class Verdict:
    """Whether the traces agree; `report` is what to print."""

    agree: bool
    report: str


def compare_processes(directory: Path, name: str, seed: int) -> Verdict:
    """The gate for one scenario and seed."""
    first, second = (trace_elsewhere(directory, name, seed, noise=noise, lines_path=None) for noise in NOISES)
    if first == second:
        end = f", ending in {first.error}" if first.error else ""
        return Verdict(
            True,
            f"{name} {seed}: {first.trace_hash} twice over "
            f"({first.event_count} events, {first.time_ns / 1e9:.3f} s{end})",
        )
    with tempfile.TemporaryDirectory() as scratch:
        paths = [Path(scratch) / f"trace-{noise}" for noise in NOISES]
        for noise, path in zip(NOISES, paths, strict=True):
            trace_elsewhere(directory, name, seed, noise=noise, lines_path=path)
        texts = [path.read_text(encoding="utf-8").split("\n") for path in paths]
    difference = first_difference(texts[0], texts[1])
    if difference is None:
        difference = "  (the repeated runs agree: what differs is rare; try again)"
    return Verdict(False, f"{name} {seed}: NOT deterministic\n{difference}")


def first_difference(one: list[str], other: list[str]) -> str | None:
    """The first place at which two traces differ, with the events before it; None if they do not."""
    for index, (line, other_line) in enumerate(zip_longest(one, other, fillvalue="(the end)")):
        if line != other_line:
            time_ns = line.partition(" ")[0]
            when = f"{int(time_ns) / 1e9:.9f} s" if time_ns.isdigit() else "the end"
            before = "\n".join(f"    {earlier}" for earlier in one[max(0, index - CONTEXT_LINES) : index])
            return f"  first difference at event {index}, {when}:\n{before}\n  - {line}\n  + {other_line}"
    return None
