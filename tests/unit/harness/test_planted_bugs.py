"""The journal scenario finds a planted bug; those of the drills stand in sim/planted.py."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

from tnats.harness.catalogue import load_scenario
from tnats.harness.scenario import Scenario, Violation, run_scenario

SCENARIOS = Path(__file__).parents[3] / "simulations"


def violations(kind: type[Scenario], seed_count: int) -> list[str]:
    """What the first seeds found."""
    errors = [run_scenario(kind, seed).error for seed in range(seed_count)]
    return [str(error) for error in errors if isinstance(error, Violation)]


async def append_without_sync(journal: Any, numbers: list[int]) -> None:
    """The scenario's `Journal.append` with its last line forgotten."""
    for number in numbers:
        packed = struct.pack("<I", number)
        journal.file.pwrite([packed + struct.pack("<I", zlib.crc32(packed))], journal.end)
        journal.end += 8


def test_the_journal_scenario_finds_a_forgotten_sync() -> None:
    """A journal that answers before it synced is found out within twenty seeds."""
    kind = load_scenario(SCENARIOS, "journal_power")
    kind.check.__globals__["Journal"].append = append_without_sync
    assert any("answered, but not in the journal" in text for text in violations(kind, 20))
