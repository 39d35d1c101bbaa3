"""docs/raft.md says what the code says. TNATS_REWRITE=1 writes the diagrams into it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import tnats.raft
from tnats.errors import InvariantBroken
from tnats.raft.messages import Standing
from tnats.raft.roles import STANDING_CAUSES, TRANSITIONS, Cause, Role, next_role, role_diagram, standing_diagram

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "raft.md"


@pytest.mark.parametrize(("name", "diagram"), [("roles", role_diagram), ("standings", standing_diagram)])
def test_diagrams_are_drawn_from_the_tables(name: str, diagram: object) -> None:
    """The diagram on the page is the one that the table in the code gives."""
    text = PAGE.read_text()
    drawn = f"\n```mermaid\n{diagram()}\n```\n"  # type: ignore[operator]
    found = re.search(rf"(<!-- {name}: generated[^\n]*-->)(.*?)(<!-- end -->)", text, re.DOTALL)
    assert found is not None
    if os.environ.get("TNATS_REWRITE") == "1":
        PAGE.write_text(text[: found.start(2)] + drawn + text[found.end(2) :])
    else:
        assert found.group(2) == drawn


def test_every_golden_file_is_named_and_every_name_is_a_file() -> None:
    """Each rule on the page points to its file, and no file is without a rule."""
    named = set()
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 5 and cells[3].startswith("`"):
            named |= set(re.findall(r"`(\w+)`", cells[3]))
    assert named == {path.stem for path in (ROOT / "tests" / "golden" / "raft").glob("*.txt")}


def test_every_module_is_named() -> None:
    """The table of modules has every module of the package."""
    text = PAGE.read_text()
    modules = {path.stem for path in Path(tnats.raft.__path__[0]).glob("*.py")} - {"__init__"}
    assert {module for module in modules if f"`{module}`" not in text} == set()


def test_roles_change_by_the_table_only() -> None:
    """A pair that is not in the table is a broken invariant; a leader goes nowhere but to following."""
    with pytest.raises(InvariantBroken):
        next_role(Role.FOLLOWER, Cause.VOTE_WON)
    assert {target for (role, _), target in TRANSITIONS.items() if role is Role.LEADER} == {Role.FOLLOWER}
    assert {role for (role, _), target in TRANSITIONS.items() if target is Role.LEADER} == {Role.CANDIDATE}


def test_every_standing_can_be_left() -> None:
    """From each standing but FAILED there is a way back to SOUND, and FAILED ends with the process."""
    back = {source for source, target in STANDING_CAUSES if target is Standing.SOUND}
    assert back == set(Standing) - {Standing.SOUND, Standing.FAILED}
