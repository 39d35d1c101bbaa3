"""The commands over scenarios: list, run, meta (the determinism gate). Used by `python -m simulations`."""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import attrs

from tnats.errors import TnatsError
from tnats.harness.catalogue import load_scenario, scenario_names, summary_of
from tnats.harness.determinism import compare_processes, trace_here
from tnats.harness.scenario import run_scenario
from tnats.runtime.sim.world import Outcome

DIRECTORY_DEFAULT = Path("simulations")


def main(argv: Sequence[str], directory: Path = DIRECTORY_DEFAULT) -> int:
    """Run one command; returns the exit code (0 good, 1 a violation or difference, 2 misuse)."""
    parser = argparse.ArgumentParser(prog="simulations", description="Simulated runs of tnats")
    parser.add_argument("--dir", type=Path, default=directory, help="where the scenario files are")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="name the scenarios")
    for name, help_text in (
        ("run", "run scenarios, each up to the first seed that fails"),
        ("meta", "show that a seed gives the same run in two different processes"),
    ):
        command = commands.add_parser(name, help=help_text)
        command.add_argument("scenario", nargs="?")
        command.add_argument("seed", nargs="?", type=seed_range, help="N or FIRST-LAST; 1 if not given")
        command.add_argument("--all", action="store_true", help="all scenarios")
        command.add_argument("--seeds", type=first_seeds, help="how many, from 1 on")
    trace = commands.add_parser("trace", help="run once and print the trace's hash as JSON")
    trace.add_argument("scenario")
    trace.add_argument("seed", type=int)
    trace.add_argument("--noise", type=int, default=0)
    trace.add_argument("--lines", type=Path)
    options = parser.parse_args(argv)
    try:
        if options.command == "list":
            return list_scenarios(options.dir)
        if options.command in ("run", "meta"):
            if options.all == (options.scenario is not None):
                parser.error("name one scenario, or give --all")
            names = scenario_names(options.dir) if options.all else [options.scenario]
            each = run_seeds if options.command == "run" else check_determinism
            seeds = options.seed or options.seeds or range(1, 2)
            return max(each(options.dir, name, seeds) for name in names)
        result = trace_here(options.dir, options.scenario, options.seed, noise=options.noise, lines_path=options.lines)
        write(json.dumps(attrs.asdict(result)))
    except TnatsError as exc:
        sys.stderr.write(f"{exc}\n")
        return 2
    return 0


def write(line: str) -> None:
    """One line to standard output."""
    sys.stdout.write(line + "\n")


def seed_range(text: str) -> range:
    """`N` or `FIRST-LAST` (both included)."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def first_seeds(text: str) -> range:
    """The first `N` seeds."""
    return range(1, int(text) + 1)


def list_scenarios(directory: Path) -> int:
    """Print each scenario with its summary."""
    for name in scenario_names(directory):
        write(f"{name:28} {summary_of(load_scenario(directory, name))}")
    return 0


def run_seeds(directory: Path, name: str, seeds: range) -> int:
    """Run a scenario for each seed up to the first that fails; say how to repeat that."""
    kind = load_scenario(directory, name)
    for seed in seeds:
        outcome = run_scenario(kind, seed)
        write(f"{name} {describe(outcome)}")
        if outcome.error is not None:
            sys.stderr.write("".join(traceback.format_exception(outcome.error)))
            sys.stderr.write(f"repeat with: python -m simulations run {name} {seed}\n")
            return 1
    return 0


def describe(outcome: Outcome[None]) -> str:
    """One line on a run."""
    return (
        f"seed {outcome.seed}: {'FAILED' if outcome.error else 'ok'}, {outcome.time_ns / 1e9:.3f} s, "
        f"{outcome.step_count} steps, {outcome.event_count} events, trace {outcome.trace_hash}"
    )


def check_determinism(directory: Path, name: str, seeds: range) -> int:
    """The determinism gate for each seed; reports all, and fails if any differs."""
    verdicts = [compare_processes(directory, name, seed) for seed in seeds]
    for verdict in verdicts:
        write(verdict.report)
    return 0 if all(verdict.agree for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
