"""Log files: rotation by size, dated backups, reopening after an outside rotation."""

from __future__ import annotations

import os
import re
from errno import EMFILE
from pathlib import Path

import pytest

from tnats.runtime.api import DiskError
from tnats.runtime.live.log_sink import STAMP, FileSink
from tnats.runtime.live.process import LiveProcess


def backups(path: Path) -> list[Path]:
    """The rotated files beside `path`, oldest first."""
    return sorted(entry for entry in path.parent.iterdir() if entry != path)


def test_lines_are_appended(tmp_path: Path) -> None:
    """Each write is one line, behind what the file had before; text that is no UTF-8 is escaped, not refused."""
    path = tmp_path / "log"
    path.write_text("before\n")
    sink = LiveProcess([]).open_log(str(path))
    sink.write("one")
    sink.write("grüße \udcff")
    sink.close()
    assert path.read_bytes() == "before\none\ngrüße \\udcff\n".encode()


def test_a_full_file_is_rotated_to_a_dated_name(tmp_path: Path) -> None:
    """Once the file exceeds its size it is renamed to NAME.<date>; no line is lost or split over two files."""
    path = tmp_path / "nats.log"
    sink = FileSink(str(path), size_max=100, backups_max=0)
    for number in range(100):
        sink.write(f"line {number:03}")
    sink.close()
    old = backups(path)
    assert len(old) == 8
    for backup in old:
        assert re.fullmatch(STAMP, backup.name.removeprefix("nats.log."))
        assert 100 < backup.stat().st_size <= 109
    together = "".join(file.read_text() for file in [*old, path])
    assert together == "".join(f"line {number:03}\n" for number in range(100))
    assert sink.dropped_count == 0


def test_only_the_newest_backups_are_kept(tmp_path: Path) -> None:
    """With `backups_max` the oldest rotated files go; files that merely look similar stay."""
    path = tmp_path / "nats.log"
    similar = tmp_path / "nats.log.old"
    similar.write_text("mine")
    sink = FileSink(str(path), size_max=50, backups_max=2)
    for number in range(100):
        sink.write(f"line {number:03}")
    sink.close()
    old = [backup for backup in backups(path) if backup != similar]
    assert len(old) == 2
    assert similar.read_text() == "mine"
    assert "line 099" in old[-1].read_text() + path.read_text()


def test_rotation_counts_what_the_file_had(tmp_path: Path) -> None:
    """The size of a file found at opening counts towards its limit."""
    path = tmp_path / "nats.log"
    path.write_text("x" * 99)
    sink = FileSink(str(path), size_max=100, backups_max=0)
    sink.write("more")
    assert len(backups(path)) == 1
    assert path.read_text() == ""
    sink.close()


def test_reopen_follows_the_name(tmp_path: Path) -> None:
    """After an outside rotation `reopen` makes a new file under the name."""
    path = tmp_path / "log"
    sink = FileSink(str(path), size_max=0, backups_max=0)
    sink.write("one")
    path.rename(tmp_path / "log.1")
    sink.write("two")
    sink.reopen()
    sink.write("three")
    sink.close()
    assert (tmp_path / "log.1").read_text() == "one\ntwo\n"
    assert path.read_text() == "three\n"


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """Opening fails with DiskError and the path."""
    with pytest.raises(DiskError, match=f"cannot open log file {tmp_path}: Is a directory"):
        LiveProcess([]).open_log(str(tmp_path))


def test_what_cannot_be_written_is_counted() -> None:
    """A full device does not raise; the lost lines are counted."""
    sink = FileSink("/dev/full", size_max=0, backups_max=0)
    sink.write("lost")
    assert sink.dropped_count == 1
    sink.close()


def test_closing_twice_is_no_error(tmp_path: Path) -> None:
    """`close` is idempotent, and a later write is counted as dropped."""
    sink = FileSink(str(tmp_path / "log"), size_max=0, backups_max=0)
    descriptor_count = len(os.listdir("/proc/self/fd"))
    sink.close()
    sink.close()
    assert len(os.listdir("/proc/self/fd")) == descriptor_count - 1
    sink.write("late")
    assert sink.dropped_count == 1


def test_bugs_go_to_the_log(tmp_path: Path) -> None:
    """`on_bug` writes the place and the trace to the log opened last, line by line."""
    path = tmp_path / "log"
    process = LiveProcess([])
    sink = process.open_log(str(path))
    try:
        int("five")
    except ValueError as exc:
        process.on_bug(exc, "connection 7")
    sink.close()
    text = path.read_text()
    assert text.startswith("[ERR] internal error in connection 7:\nTraceback")
    assert text.endswith("ValueError: invalid literal for int() with base 10: 'five'\n")


def test_a_rotation_that_found_no_descriptor_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines go to the file that was moved, until a new one can be opened: at the next line that finds a descriptor."""
    path = tmp_path / "a.log"
    sink = FileSink(str(path), size_max=5, backups_max=0)
    with monkeypatch.context() as patched:
        patched.setattr("os.open", refuse)
        sink.write("first")
        sink.write("second")
    sink.write("third")
    sink.write("4")
    sink.close()
    (moved,) = tmp_path.glob("a.log.*")
    assert moved.read_text() == "first\nsecond\nthird\n"
    assert path.read_text() == "4\n"


def refuse(*_: object) -> int:
    raise OSError(EMFILE, "Too many open files")
