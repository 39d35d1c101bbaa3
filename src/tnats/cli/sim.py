"""`tnats sim`: search simulated worlds for bugs, replay what was found, make it small, show it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

from tnats.cli.output import json_option, print_json
from tnats.cli.progress import Steps, drawing
from tnats.cli.values import show_counted
from tnats.errors import TnatsError
from tnats.harness.catalogue import load_scenario, scenario_names, summary_of
from tnats.harness.determinism import compare_processes, trace_here
from tnats.harness.faults import FaultError, parse_duration
from tnats.harness.scenario import Scenario
from tnats.harness.sim import farm, files, report
from tnats.harness.sim.batch import Batch
from tnats.harness.sim.corpus import run_corpus
from tnats.harness.sim.drill import Drill
from tnats.harness.sim.export import export
from tnats.harness.sim.plan import Plan
from tnats.harness.sim.run import Played, Result, run_plan, run_seed
from tnats.harness.sim.shrink import Shrinker, Shrunk
from tnats.limits import SECOND_NS

EXIT_GOOD, EXIT_VIOLATION, EXIT_MISUSE = 0, 1, 2
SEED_MAX = 1 << 40
FAILURES_MAX = 5

F = TypeVar("F", bound=Callable[..., Any])


def misuse_is_2(command: F) -> F:
    """Decorator: what cannot be done is one line on standard error and exit code 2."""

    @wraps(command)
    def guarded(*arguments: Any, **keywords: Any) -> Any:
        try:
            return command(*arguments, **keywords)
        except BrokenPipeError:
            raise  # who reads has gone: that is said nowhere
        except (TnatsError, OSError) as exc:
            print(f"tnats sim: {in_words(exc)}", file=sys.stderr)
        return EXIT_MISUSE

    return guarded  # type: ignore[return-value]


def in_words(exc: Exception) -> str:
    """An error for people: a file's name and what is wrong with it, without a number."""
    return f"{exc.filename}: {exc.strerror}" if isinstance(exc, OSError) and exc.filename else str(exc)


class Seeds(click.ParamType[range]):
    """`N` or `FIRST-LAST`, both included."""

    name = "seeds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> range:
        if isinstance(value, range):
            return value
        first, _, last = str(value).partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) < int(first):
            self.fail(f"{value!r} is neither a seed nor FIRST-LAST", param, ctx)
        return range(int(first), int(last or first) + 1)


class Duration(click.ParamType[float]):
    """`5m`, `30s`; seconds as a float."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return parse_duration(value) / SECOND_NS
        except FaultError as exc:
            self.fail(str(exc), param, ctx)


out_option = click.option("--out", default="sim-results", show_default=True, help="Directory for what is written.")
stale_option = click.option("--stale", is_flag=True, help="Also take a token that other code made.")
jobs_option = click.option("--jobs", default=2, show_default=True, type=click.IntRange(1, 64), help="Processes.")


@click.group("sim")
@click.option("--dir", "directory", help="Scenario files. [default: simulations/ of the clone]")
@click.pass_context
def command(ctx: click.Context, directory: str | None) -> None:
    """Run this server in simulated worlds where network, disk, clocks and processes fail.

    Exit codes: 0 all held, 1 something was violated, 2 it could not be run, 130 interrupted.
    """
    ctx.obj = directory


# ------------------------------------------------------------------ list, run, swarm


@command.command("list")
@json_option
@click.pass_obj
@misuse_is_2
def list_scenarios(directory: str | None, as_json: bool) -> int:
    """Show the scenarios."""
    place = files.find_directory(directory)
    names = scenario_names(place)
    width = max(map(len, names), default=0)
    for name in names:
        kind = load_scenario(place, name)
        if as_json:
            is_drill = issubclass(kind, Drill)
            print_json({"name": name, "summary": summary_of(kind), "plan": is_drill, "must_fail": kind.must_fail})
        else:
            click.echo(f"{name:{width}} {summary_of(kind)}{'  (a canary: must fail)' if kind.must_fail else ''}")
    return EXIT_GOOD


@command.command("run")
@click.argument("scenario", required=False)
@click.argument("seeds", type=Seeds(), required=False)
@click.option("--all", "everything", is_flag=True, help="The corpus, then all scenarios.")
@click.option("--seed", type=click.IntRange(0), help="One seed.")
@click.option("--seeds", "count", type=click.IntRange(1), help="How many, from 1 on.")
@jobs_option
@click.option("--junit", help="Write results as JUnit XML to this file.")
@out_option
@json_option
@click.pass_obj
@misuse_is_2
def run(
    directory: str | None,
    scenario: str | None,
    seeds: range | None,
    everything: bool,
    seed: int | None,
    count: int | None,
    jobs: int,
    junit: str | None,
    out: str,
    as_json: bool,
) -> int:
    """Run SCENARIO for SEEDS (N or FIRST-LAST), 1 if not given."""
    place = files.find_directory(directory)
    if everything == (scenario is not None):
        raise click.UsageError("name one scenario, or give --all")
    if sum(given is not None for given in (seeds, seed, count)) > 1:
        raise click.UsageError("say once which seeds: SEEDS, --seed or --seeds")
    names = scenario_names(place) if everything else [str(scenario)]
    chosen = seeds or (range(seed, seed + 1) if seed is not None else range(1, (count or 1) + 1))
    search = Search(place, names, out, junit, as_json=as_json)
    if everything:
        search.take_corpus()
    if len(names) * len(chosen) == 1:
        result = run_seed(search.batch.kinds[names[0]], names[0], chosen[0]).result
        search.take(result)
        if result.passed and not as_json:
            print(describe(result))
    else:
        search.farm(chosen, jobs=jobs, budget_s=None)
    return search.conclude()


@command.command("swarm")
@click.argument("scenarios", nargs=-1)
@click.option("--budget", default="5m", show_default=True, type=Duration(), help="How long to search.")
@click.option("--first", type=click.IntRange(0, SEED_MAX), help="First seed. [default: one not tried before]")
@jobs_option
@click.option("--junit", help="Write results as JUnit XML to this file.")
@out_option
@json_option
@click.pass_obj
@misuse_is_2
def swarm(
    directory: str | None,
    scenarios: tuple[str, ...],
    budget: float,
    first: int | None,
    jobs: int,
    junit: str | None,
    out: str,
    as_json: bool,
) -> int:
    """Run the corpus, then new seeds of SCENARIOS (all, if none is named) until the budget is spent."""
    place = files.find_directory(directory)
    search = Search(place, list(scenarios) or scenario_names(place), out, junit, as_json=as_json)
    search.take_corpus()
    start = farm.fresh_seed() if first is None else first
    search.farm(range(start, SEED_MAX), jobs=jobs, budget_s=budget)
    return search.conclude()


class Search:
    """A batch under way: what runs it, shows it, and keeps what it found."""

    def __init__(self, directory: Path, names: list[str], out: str, junit: str | None, *, as_json: bool) -> None:
        self.directory = directory
        self.names = names
        self.out = Path(out)
        self.junit = Path(junit) if junit else None
        self.as_json = as_json
        self.batch = Batch({name: load_scenario(directory, name) for name in names})
        self.commands: dict[tuple[str, int], str] = {}
        self.started_s = farm.elapsed_s()
        if self.junit:
            files.write_text(self.junit, "")  # before anything that takes long

    def take_corpus(self) -> None:
        """Run the corpus."""
        with drawing(TextColumn("{task.description}"), TimeElapsedColumn()) as bar:
            task = bar.add_task("corpus")
            for result in run_corpus(self.directory):
                self.take(result)
                bar.update(task, description=f"{result.scenario}: {self.batch.run_count} plans")
            Steps(bar)(1, f"corpus: {self.batch.run_count} plans")

    def take(self, result: Result) -> None:
        """Count a result; show it if it is a failure."""
        if not self.batch.add(result):
            self._show_failure(result)

    def farm(self, seeds: range, *, jobs: int, budget_s: float | None) -> None:
        """Run the seeds in worker processes behind a progress bar."""
        total = budget_s if budget_s is not None else float(len(seeds) * len(self.names))
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        started_s = farm.elapsed_s()
        with drawing(*columns) as bar:
            task, steps = bar.add_task("starting", total=total), Steps(bar)
            before = self.batch.run_count
            for result in farm.work(self.directory, self.names, seeds, jobs=jobs, budget_s=budget_s):
                if result is not None:
                    self.take(result)
                    if len(self.batch.failures) >= FAILURES_MAX:
                        return
                    continue
                count, passed_s = self.batch.run_count - before, max(0.001, farm.elapsed_s() - started_s)
                text = f"{count} seeds, {count / passed_s:.1f}/s, {self.batch.fault_count} faults"
                text += f", {self.batch.missing()} probes open, {len(self.batch.failures)} failed"
                completed = passed_s if budget_s is not None else count
                bar.update(task, description=text, completed=completed)
                steps(completed / total, text)

    def conclude(self) -> int:
        """The end of the batch: figures, results, exit code."""
        batch = self.batch
        if self.junit:
            files.write_text(self.junit, batch.junit(self.commands))
        if self.as_json:
            print_json(batch.record())
        else:
            passed_s = max(0.001, farm.elapsed_s() - self.started_s)
            counts: dict[str, int] = {}
            for name, count in batch.counts.items():
                place = name.partition("/")[0]  # the plans of the corpus in one line
                counts[place] = counts.get(place, 0) + count
            for name, count in counts.items():
                caught = batch.caught.get(name)
                must = "" if caught is None else f", {caught} failed as they must"
                print(f"{name:24} {show_counted(count, 'run')}{must}")
            for problem in batch.problems():
                print(f"FAILED: {problem}")
            print(
                f"{show_counted(batch.run_count, 'run')} in {passed_s:.1f} s ({batch.run_count / passed_s:.1f}/s), "
                f"{show_counted(batch.event_count, 'event')}, {show_counted(batch.fault_count, 'fault')}: "
                f"{'all held' if batch.passed else f'{len(batch.failures)} failed'}"
                f"{', and the search ended there' if len(batch.failures) >= FAILURES_MAX else ''}"
            )
        return EXIT_GOOD if batch.passed else EXIT_VIOLATION

    def _show_failure(self, result: Result) -> None:
        command = f"{program()} replay {files.token_of(self.directory, result.scenario, result.seed)}"
        path = self._keep(result)
        if path is not None and "/" in result.scenario:
            command = f"{program()} replay {path}"
        self.commands[result.scenario, result.seed] = command
        if self.as_json:
            return
        print(describe(result))
        if result.trace:
            print(result.trace.rstrip())
        print(f"  replay: {command}")
        if path is not None:
            print(f"  shrink: {program()} shrink {path}")

    def _keep(self, result: Result) -> Path | None:
        """Where its plan is kept. That it cannot be kept is said, and hides nothing of what was found."""
        if result.plan is None:
            return None
        path = self.out / f"{result.scenario.replace('/', '-')}-{result.seed}.json"
        try:
            files.write_plan(path, {**result.plan, "found": {"rule": result.rule, "text": result.text}})
        except OSError as exc:
            print(f"tnats sim: the plan is not kept: {in_words(exc)}", file=sys.stderr)
            return None
        return path


def program() -> str:
    """The command line up to the sub-command, to go on with another one."""
    directory = click.get_current_context().obj
    return "tnats sim" if directory is None else f"tnats sim --dir {shlex.quote(directory)}"


def describe(result: Result) -> str:
    """One line on a run."""
    verdict = "ok" if result.passed else f"FAILED {result.rule}: {result.text}"
    return (
        f"{result.scenario} seed {result.seed}: {verdict}"
        f" ({result.time_ns / SECOND_NS:.3f} s, {result.event_count} events, trace {result.trace_hash})"
    )


# ------------------------------------------------------------------ replay, shrink, report


@command.command("replay")
@click.argument("run_name", metavar="RUN")
@stale_option
@json_option
@click.pass_obj
@misuse_is_2
def replay(directory: str | None, run_name: str, stale: bool, as_json: bool) -> int:
    """Run once more what RUN names: SCENARIO:SEED, a token, or a scenario.json."""
    played = play(files.find_directory(directory), run_name, stale=stale)
    if as_json:
        print_json(attrs.asdict(played.result))
    else:
        print(describe(played.result))
        print(played.result.trace, end="")
        for text in played.result.missed:
            print(f"  never struck: {text}")
    return EXIT_GOOD if played.result.passed else EXIT_VIOLATION


def play(place: Path, run_name: str, *, stale: bool) -> Played:
    """The run that a token or file names."""
    kind, name, what = files.resolve(place, run_name, stale_too=stale)
    if isinstance(what, Plan):
        assert issubclass(kind, Drill)
        return run_plan(kind, what)
    return run_seed(kind, name, what)


@command.command("shrink")
@click.argument("run_name", metavar="RUN")
@click.option("--runs", "runs_max", default=1000, show_default=True, type=click.IntRange(1), help="How many to spend.")
@stale_option
@out_option
@json_option
@click.pass_obj
@misuse_is_2
def shrink(directory: str | None, run_name: str, runs_max: int, stale: bool, out: str, as_json: bool) -> int:
    """Make a failing run small, and say which of its faults it needs."""
    place = files.find_directory(directory)
    kind, name, what = files.resolve(place, run_name, stale_too=stale)
    if not isinstance(what, Plan) or not issubclass(kind, Drill):
        raise TnatsError(f"{name} decides as it goes and has no plan: there is nothing to leave out")
    shrunk, result = shrink_plan(kind, what, runs_max)
    if shrunk is None or result is None:
        if as_json:
            print_json({**what.record(), "found": None})
        else:
            print(f"{name} seed {what.seed}: nothing is violated, so there is nothing to shrink")
        return EXIT_GOOD
    path = Path(out) / f"{name}-{what.seed}-small.json"
    found = {"rule": result.rule, "text": result.text, "needs": shrunk.needs}
    files.write_plan(path, {**shrunk.plan.record(), "found": found})
    if as_json:
        print_json({**shrunk.plan.record(), "found": found, "runs": shrunk.run_count, "file": str(path)})
        return EXIT_VIOLATION
    print(f"{result.rule}: {result.text}")
    print(f"after {shrunk.run_count} runs: {size_of(what)} became {size_of(shrunk.plan)}")
    for number, fault in enumerate(shrunk.plan.faults, 1):
        print(f"  F{number} {fault}")
    for operation in shrunk.plan.operations:
        print(f"  {operation}")
    print(f"needs: {shrunk.needs}\nreplay: {program()} replay {path}")
    return EXIT_VIOLATION


def size_of(plan: Plan) -> str:
    return f"{show_counted(len(plan.faults), 'fault')} and {show_counted(len(plan.operations), 'operation')}"


def shrink_plan(kind: type[Drill], plan: Plan, runs_max: int) -> tuple[Shrunk | None, Result | None]:
    """The shrunk plan with what it violates; None when `plan` violates nothing."""
    first = run_plan(kind, plan).result
    if first.passed:
        return None, None
    with drawing(TextColumn("{task.description}")) as bar:
        task = bar.add_task(f"shrinking {size_of(plan)}")

        def on_step(smaller: Plan, run_count: int) -> None:
            bar.update(task, description=f"{run_count} runs: {size_of(smaller)}")

        shrinker = Shrinker(
            plan,
            lambda candidate: run_plan(kind, candidate).result.rule == first.rule,
            calm=kind.calm,
            on_step=on_step,
            runs_max=runs_max,
        )
        shrunk = shrinker.run()
    return shrunk, run_plan(kind, shrunk.plan).result


@command.command("report")
@click.argument("run_name", metavar="RUN")
@stale_option
@out_option
@click.pass_obj
@misuse_is_2
def make_report(directory: str | None, run_name: str, stale: bool, out: str) -> int:
    """Write one HTML page that shows a run, whether it failed or not."""
    place = files.find_directory(directory)
    played = play(place, run_name, stale=stale)
    result = played.result
    if played.drill is None:
        raise TnatsError(f"{result.scenario} decides as it goes: there is no recording to show")
    plan = Path(run_name)
    name, needs, run = f"{result.scenario}-{result.seed}", "", files.token_of(place, result.scenario, result.seed)
    if plan.is_file():  # which need not be what its seed draws
        name, needs, run = plan.stem, str(files.read_found(plan).get("needs", "")), shlex.quote(run_name)
    path = Path(out) / f"{name}.html"
    files.write_text(path, report.page(played, replay=f"{program()} replay {run}", needs=needs))
    print(path)
    return EXIT_GOOD if result.passed else EXIT_VIOLATION


@command.command("export")
@click.argument("run_name", metavar="RUN")
@stale_option
@out_option
@click.pass_obj
@misuse_is_2
def write_export(directory: str | None, run_name: str, stale: bool, out: str) -> int:
    """Write a run for other programs: its history as Jepsen's EDN, its events, its trace."""
    kind, name, what = files.resolve(files.find_directory(directory), run_name, stale_too=stale)
    if not isinstance(what, Plan) or not issubclass(kind, Drill):
        raise TnatsError(f"{name} decides as it goes: there is no recording to write")
    played, paths = export(kind, what, Path(out) / f"{name}-{what.seed}")
    print("\n".join(map(str, paths)))
    return EXIT_GOOD if played.result.passed else EXIT_VIOLATION


# ------------------------------------------------------------------ meta, and what the commands start themselves


@command.command("meta")
@click.argument("scenario", required=False)
@click.argument("seeds", type=Seeds(), required=False)
@click.option("--all", "everything", is_flag=True, help="All scenarios.")
@click.option("--seeds", "count", type=click.IntRange(1), help="How many, from 1 on.")
@click.pass_obj
@misuse_is_2
def meta(directory: str | None, scenario: str | None, seeds: range | None, everything: bool, count: int | None) -> int:
    """Show that a seed gives the same run in two different processes."""
    place = files.find_directory(directory)
    if everything == (scenario is not None):
        raise click.UsageError("name one scenario, or give --all")
    names = scenario_names(place) if everything else [str(scenario)]
    for name in names:
        load_scenario(place, name)
    code = EXIT_GOOD
    for name in names:
        for seed in seeds or range(1, (count or 1) + 1):
            verdict = compare_processes(place, name, seed)
            print(verdict.report, flush=True)
            code = code if verdict.agree else EXIT_VIOLATION
    return code


@command.command("trace", hidden=True)
@click.argument("scenario")
@click.argument("seed", type=int)
@click.option("--noise", default=0, help="How much the heap is stirred before.")
@click.option("--lines", type=Path, help="Write every line of the trace to this file.")
@click.pass_obj
@misuse_is_2
def trace(directory: str | None, scenario: str, seed: int, noise: int, lines: Path | None) -> int:
    """Run once and print the trace's hash as JSON."""
    place = files.find_directory(directory)
    print_json(attrs.asdict(trace_here(place, scenario, seed, noise=noise, lines_path=lines)))
    return EXIT_GOOD


@command.command("work", hidden=True)
@click.argument("scenarios", nargs=-1)
@click.option("--first", type=int, required=True, help="First seed.")
@click.option("--last", type=int, required=True, help="Last seed.")
@click.option("--step", type=int, required=True, help="Distance between seeds of this share.")
@click.pass_obj
@misuse_is_2
def work(directory: str | None, scenarios: tuple[str, ...], first: int, last: int, step: int) -> int:
    """Run a share of a batch and print each result as a line of JSON."""
    place = files.find_directory(directory)
    kinds = {name: load_scenario(place, name) for name in scenarios}
    for result in results(kinds, range(first, last + 1, step)):
        print_json(attrs.asdict(result))
    return EXIT_GOOD


def results(kinds: dict[str, type[Scenario]], seeds: range) -> Iterator[Result]:
    """Every scenario for every seed, the scenarios in turn."""
    for seed in seeds:
        for name, kind in kinds.items():
            yield run_seed(kind, name, seed).result
