"""Where the server's log goes, and how that changes while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tnats.runtime.api import DiskError
from tnats.runtime.live import live_runtime
from tnats.server.config.options import Options
from tnats.server.log import ServerLog


def options(path: Path, **changes: object) -> Options:
    made = Options()
    made.log_file, made.logtime = str(path), False
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def texts(path: Path) -> list[str]:
    return [line.split("] ", 2)[2] for line in path.read_text().splitlines()]


def test_levels_follow_the_options(tmp_path: Path) -> None:
    """Debug and trace lines are written only while they are asked for."""
    path = tmp_path / "a.log"
    log = ServerLog(live_runtime(), options(path), colors=True)
    log.debug("no")
    log.trace("no")
    with log.changing_to(options(path, debug=True, trace=True)):
        pass
    assert log.traces
    log.debug("yes")
    log.trace("yes")
    log.close()
    assert texts(path) == ["yes", "yes"]
    assert "\x1b" not in path.read_text(), "colours are for terminals"


def test_a_change_that_fails_leaves_the_log_alone(tmp_path: Path) -> None:
    """Neither a file that cannot be opened nor a fault in what is done meanwhile moves the log."""
    path = tmp_path / "a.log"
    log = ServerLog(live_runtime(), options(path), colors=False)
    with pytest.raises(DiskError), log.changing_to(options(tmp_path / "none" / "b.log")):
        raise AssertionError("entered")
    with pytest.raises(KeyError), log.changing_to(options(tmp_path / "b.log", debug=True)):
        raise KeyError
    log.debug("no")
    log.info("here")
    with log.changing_to(options(tmp_path / "b.log")):
        pass
    log.info("there")
    log.close()
    assert texts(path) == ["here"]
    assert texts(tmp_path / "b.log") == ["there"]


def test_a_moved_file_is_begun_anew(tmp_path: Path) -> None:
    """After `reopen` lines go to a new file under the old name, beginning with one that says so."""
    path = tmp_path / "a.log"
    log = ServerLog(live_runtime(), options(path), colors=False)
    log.info("old")
    path.rename(tmp_path / "a.log.1")
    log.reopen()
    log.close()
    assert texts(tmp_path / "a.log.1") == ["old"]
    assert texts(path) == ["File log re-opened"]


def test_a_file_that_cannot_be_begun_anew_is_written_on(tmp_path: Path) -> None:
    """The log says so, and the server goes on: it does not stop for its log."""
    path = tmp_path / "logs" / "a.log"
    path.parent.mkdir()
    log = ServerLog(live_runtime(), options(path), colors=False)
    path.parent.rename(tmp_path / "moved")
    log.reopen()
    log.info("on")
    path.parent.mkdir()
    log.reopen()
    log.close()
    said = f"File log not re-opened: cannot open log file {path}: No such file or directory"
    assert texts(tmp_path / "moved" / "a.log") == [said, "on"]
    assert texts(path) == ["File log re-opened"]
