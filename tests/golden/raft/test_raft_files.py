"""Golden interaction files of the consensus machine: one file per rule, see docs/raft.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.golden.datadriven import files, run_file
from tests.golden.raft.stage import Stage

FOLDER = Path(__file__).parent


@pytest.mark.parametrize("path", files(FOLDER), ids=lambda path: path.stem)
def test_file(path: Path) -> None:
    """Every command of the file prints what the file says."""
    run_file(path, Stage().handle)
