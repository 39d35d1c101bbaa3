"""The scenarios find bugs: each of these is planted, and must be found within a few seeds."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tnats.harness.catalogue import load_scenario
from tnats.harness.scenario import Scenario, Violation, run_scenario
from tnats.runtime.api import Buffer
from tnats.runtime.sim.conn import SimConn

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


def test_the_core_scenario_finds_double_deliveries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that now and then sends a message twice is found out by the core scenario."""
    write = SimConn.write
    counts = [0]

    def write_twice(conn: SimConn, buffers: Sequence[Buffer]) -> int:
        taken = write(conn, buffers)
        data = b"".join(buffers)
        if data.startswith(b"MSG ") and data.endswith(b"\r\n") and taken == len(data):
            counts[0] += 1
            if counts[0] % 50 == 0:
                write(conn, buffers)
        return taken

    monkeypatch.setattr(SimConn, "write", write_twice)
    assert any("twice" in text for text in violations(load_scenario(SCENARIOS, "core_faults"), 3))


def test_the_core_scenario_finds_losses_after_the_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that forgets a message for one subscriber when all is healed is found out."""
    write = SimConn.write

    def forget(conn: SimConn, buffers: Sequence[Buffer]) -> int:
        data = b"".join(buffers)
        at = data.find(b"p1 420\r\n")
        if conn.host.name != "server" or at < 0:
            return write(conn, buffers)
        kept = data[: data.rfind(b"MSG ", 0, at)] + data[at + len(b"p1 420\r\n") :]
        assert write(conn, [kept]) == len(kept)
        return len(data)

    monkeypatch.setattr(SimConn, "write", forget)
    found = violations(load_scenario(SCENARIOS, "core_faults"), 2)
    assert any("last messages" in text for text in found)
