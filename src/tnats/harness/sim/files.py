"""What the simulator keeps on the real disk: scenario files, the corpus, results. Nothing here runs in a simulation."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import tnats
from tnats.errors import TnatsError
from tnats.harness.catalogue import load_scenario, scenario_names
from tnats.harness.scenario import Scenario
from tnats.harness.sim.drill import Drill
from tnats.harness.sim.plan import Plan, PlanError, parse_plan
from tnats.harness.sim.token import PREFIX, Token, TokenError, parse_token

CORPUS = "corpus"
CODE_DIGITS = 10


def find_directory(given: str | None) -> Path:
    """The directory of scenario files: the given one, else `simulations/` here, above, or in the clone we run from.

    Raises TnatsError.
    """
    if given is not None:
        directory = Path(given)
        if not directory.is_dir():
            raise TnatsError(f"--dir {given}: no such directory")
        if not scenario_names(directory):
            raise TnatsError(f"--dir {given}: no scenario files (*.py) there")
        return directory
    for place in (Path.cwd(), *Path.cwd().parents, *Path(__file__).parents):
        if (place / "simulations" / "__main__.py").is_file():
            return place / "simulations"
    raise TnatsError("no directory simulations/ with scenario files here or above; run this in a clone or give --dir")


@cache
def code_hash(directory: Path) -> str:
    """A hash over the sources that a run is made of: the package and the scenario files."""
    digest = hashlib.blake2b(digest_size=16)
    package = Path(tnats.__file__).parent
    for root in (package, directory):
        for path in sorted(root.rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:CODE_DIGITS]


def load_drill(directory: Path, name: str) -> type[Drill]:
    """The scenario `name` if it follows plans. Raises TnatsError."""
    kind = load_scenario(directory, name)
    if not issubclass(kind, Drill):
        raise TnatsError(f"{name} decides as it goes and has no plan: only its seed can be run again")
    return kind


def resolve(directory: Path, text: str, *, stale_too: bool) -> tuple[type[Scenario], str, Plan | int]:
    """The run that `text` names: its scenario, and its plan or (without one) its seed.

    `text` is a token, SCENARIO:SEED, or the path of a scenario.json.

    Raises TnatsError: unknown scenario, stale token (unless `stale_too`), no such file, no plan.
    """
    scenario, colon, seed = text.rpartition(":")
    if colon and seed.isdecimal():
        kind = load_scenario(directory, scenario)
        return kind, scenario, kind.draw(int(seed)) if issubclass(kind, Drill) else int(seed)
    if not text.startswith(PREFIX):
        plan = read_plan(Path(text))
        return load_drill(directory, plan.scenario), plan.scenario, plan
    token = parse_token(text)
    kind = load_scenario(directory, token.scenario)
    if token.code != code_hash(directory) and not stale_too:
        raise TokenError(
            f"stale token: made by code {token.code}, this is {code_hash(directory)}; replay its scenario.json, "
            "or give --stale to run the seed with this code all the same"
        )
    return kind, token.scenario, kind.draw(token.seed) if issubclass(kind, Drill) else token.seed


def token_of(directory: Path, scenario: str, seed: int) -> str:
    """The word that names a run of the present code."""
    return str(Token(scenario, seed, code_hash(directory)))


def read_plan(path: Path) -> Plan:
    """A scenario.json. Raises PlanError."""
    try:
        return parse_plan(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise PlanError(
            f"{path}: {exc.strerror}; a run is SCENARIO:SEED, a token (sim1-...), or the path of a scenario.json"
        ) from None
    except UnicodeDecodeError as exc:
        raise PlanError(f"{path}: no plan: not UTF-8 at byte {exc.start}") from None
    except PlanError as exc:
        raise PlanError(f"{path}: {exc}") from None


def write_plan(path: Path, record: dict[str, Any]) -> None:
    """Write a plan, or a plan with what was found, one fault and operation a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_text(path: Path, text: str) -> None:
    """Write a report or result file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def corpus(directory: Path) -> list[tuple[Path, Plan]]:
    """The regression corpus, by name. Raises PlanError."""
    return [(path, read_plan(path)) for path in sorted((directory / CORPUS).glob("*.json"))]


def read_found(path: Path) -> dict[str, Any]:
    """What a scenario.json says was found with it: rule, text, needs."""
    found = json.loads(path.read_text(encoding="utf-8")).get("found", {})
    return found if isinstance(found, dict) else {}
