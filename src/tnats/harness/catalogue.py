"""Finds scenario files in a directory."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from pathlib import Path

from tnats.errors import TnatsError
from tnats.harness.scenario import Scenario


def scenario_names(directory: Path) -> list[str]:
    """The scenarios of `directory`, by name: its Python files, apart from those that begin with an underscore."""
    return sorted(path.stem for path in directory.glob("*.py") if not path.name.startswith("_"))


def load_scenario(directory: Path, name: str) -> type[Scenario]:
    """The scenario `name` of `directory`. Raises TnatsError when there is none."""
    path = directory / f"{name}.py"
    if not path.is_file():
        raise TnatsError(f"no scenario {name} in {directory}; there are: {', '.join(scenario_names(directory))}")
    spec = importlib.util.spec_from_file_location(f"simulations.{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    place = str(directory.resolve().parent)
    if place not in sys.path:
        sys.path.append(place)  # scenario files may share helpers: `from simulations._echo import ...`
    try:
        spec.loader.exec_module(module)
    except Exception as exc:  # whatever a file of somebody may raise
        last = traceback.extract_tb(exc.__traceback__)[-1]
        where = "" if isinstance(exc, SyntaxError) else f" ({last.filename}, line {last.lineno})"
        raise TnatsError(f"{path} does not load: {type(exc).__name__}: {exc}{where}") from exc
    kind = getattr(module, "scenario", None)
    if not (inspect.isclass(kind) and issubclass(kind, Scenario)):
        raise TnatsError(f"{path} must name its subclass of Scenario `scenario`")
    return kind


def summary_of(kind: type[Scenario]) -> str:
    """The first line of a scenario's docstring."""
    return (inspect.getdoc(kind) or "").partition("\n")[0]
