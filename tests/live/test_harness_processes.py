"""Real processes: nothing outlives a run, however it ends, and what cannot run says so in one line."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from tests.live.server_process import PATIENCE_S, wait_until

from tnats.__main__ import main
from tnats.cli.jepsen import carry_out
from tnats.harness.real import warden, workplace
from tnats.harness.real.errors import CouldNotRun
from tnats.harness.real.processes import ServerProcess
from tnats.harness.real.stores import DirectoryStore, missing_for_mount, open_fault_fs
from tnats.harness.real.targets import Target, find_target
from tnats.harness.real.warden import MARK, clear, processes
from tnats.harness.real.workplace import open_workplace
from tnats.runtime.live import live_runtime

BAD_PROGRAM = "<bad program>"
"""Stands for a file that may be executed, and is no program."""
SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")

HOLDER = """
import subprocess, sys, trio
from tnats.harness.real.stores import missing_for_mount, open_fault_fs
from tnats.harness.real.workplace import open_workplace

async def main():
    async with open_workplace() as workplace:
        process = await workplace.start([sys.executable, "-c", "import time; time.sleep(600)"],
                                        log=workplace.directory / "log")
        if missing_for_mount() is None:
            async with open_fault_fs(workplace, "n1", 1, names="posix", write_back_s=0) as store:
                print(process.pid, workplace.directory, store.path, flush=True)
                await trio.sleep_forever()
        print(process.pid, workplace.directory, "-", flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_gone(pid: int, directory: Path) -> None:
    """Soon the process, the directory and the mount beneath it are gone."""
    wait_until(lambda: not is_alive(pid) and not directory.exists(), f"the end of process {pid} and {directory}")
    assert not is_mounted(directory)


def is_mounted(directory: Path) -> bool:
    """Or something beneath it."""
    return str(directory) in Path("/proc/self/mounts").read_text()


def child(word: str) -> int:
    """The child of this process that has this in its command line, which is empty for a moment while it is executed."""
    found: list[str] = []

    def is_found() -> bool:
        pids = [pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]
        found[:] = [pid for pid in pids if word in Path(f"/proc/{pid}/cmdline").read_text()]
        return bool(found)

    wait_until(is_found, word)
    [pid] = found
    return int(pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_a_harness_that_is_killed(number: signal.Signals) -> None:
    """Neither its processes nor its mount nor its directory: by its own doing on Ctrl-C, by the warden on SIGKILL."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as holder:
        assert holder.stdout is not None
        pid, directory, _ = holder.stdout.readline().split()
        assert is_alive(int(pid))
        holder.send_signal(number)
        holder.wait(PATIENCE_S)
    wait_gone(int(pid), Path(directory))


async def test_a_workplace_ends_what_it_started() -> None:
    """Also what is stopped, also after an error; with `keep` the directory stays."""
    pids: list[int] = []
    directories: list[Path] = []

    async def fail() -> None:
        async with open_workplace(keep=True) as workplace:
            directories.append(workplace.directory)
            for _ in range(2):
                process = await workplace.start(SLEEPER, log=workplace.directory / "log")
                pids.append(process.pid)
            os.kill(pids[0], signal.SIGSTOP)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert not any(is_alive(pid) for pid in pids)
    (directories[0] / "log").unlink()
    directories[0].rmdir()


def test_what_was_being_started_when_the_harness_was_killed_is_found(tmp_path: Path) -> None:
    """By its mark, though nobody has written down that it is there; what has no mark, or another's, is spared."""
    place, other = tmp_path / "place", tmp_path / "place-2"
    marked = subprocess.Popen(SLEEPER, env={**os.environ, MARK: str(place)})
    spared = subprocess.Popen(SLEEPER, env={**os.environ, MARK: str(other)})
    with marked, spared:
        try:
            wait_until(lambda: processes(str(place)) == [marked.pid], "the mark")
            place.mkdir()
            clear(str(place), keep=False)
            assert marked.wait(PATIENCE_S) == -signal.SIGKILL
            assert not place.exists()
            assert is_alive(spared.pid)
        finally:
            marked.kill()
            spared.kill()


def test_what_had_no_mark_yet_when_the_harness_was_killed_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is being started is without its mark at first: the warden looks again after a while."""
    place = tmp_path / "place"
    place.mkdir()
    started: list[subprocess.Popen[bytes]] = []

    def sleep(seconds: float) -> None:
        if seconds == warden.STARTING_S:
            started.append(subprocess.Popen(SLEEPER, env={**os.environ, MARK: str(place)}))
            wait_until(lambda: processes(str(place)) == [started[0].pid], "the mark")

    monkeypatch.setattr(warden.time, "sleep", sleep)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr("sys.argv", ["warden", str(place)])
    assert warden.main() == 0
    assert started[0].wait(PATIENCE_S) == -signal.SIGKILL
    assert not place.exists()


def test_what_is_to_be_kept_is_kept(tmp_path: Path) -> None:
    """Also when it is the warden who clears up: only the processes end."""
    (tmp_path / "log").write_text("a line")
    with subprocess.Popen(SLEEPER, env={**os.environ, MARK: str(tmp_path)}) as marked:
        wait_until(lambda: processes(str(tmp_path)) == [marked.pid], "the mark")
        clear(str(tmp_path), keep=True)
        assert marked.wait(PATIENCE_S) == -signal.SIGKILL
    assert (tmp_path / "log").read_text() == "a line"


async def test_no_two_workplaces_are_told_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one of them twice, though nobody listens there yet; what is given back may be told again."""
    monkeypatch.setattr(workplace, "PORT_MIN", 20_000)
    monkeypatch.setattr(workplace, "PORT_MAX", 20_040)
    async with open_workplace() as one, open_workplace() as another:
        told = [place.reserve_port() for place in (one, another, one, another) for _ in range(5)]
        assert len(set(told)) == len(told)
    async with open_workplace() as third:
        assert {third.reserve_port() for _ in range(25)} & set(told)


async def test_a_server_that_ends_at_once_is_reported_with_its_last_word() -> None:
    """One line with the end of its log."""
    program = (sys.executable, "-c", "raise SystemExit('cannot bind: no luck')")
    async with open_workplace() as workplace:
        server = ServerProcess(live_runtime(), workplace, Target("t", program), "n1", workplace.directory, None)
        with pytest.raises(CouldNotRun, match="ended at once; its log ends with: cannot bind: no luck"):
            await server.start()
        assert not server.is_running


async def test_damage_to_real_files(tmp_path: Path) -> None:
    """As many bits as asked for, no more, a cut of the size that is told, and both in what was written."""
    folder = tmp_path / "streams/s/msgs"
    folder.mkdir(parents=True)
    (folder / "1.blk").write_bytes(bytes(999) + b"\1" + bytes(5000))
    rng = live_runtime().chance.rng("test")
    store = DirectoryStore(tmp_path, rng)
    ((path, size),) = await store.files("block")
    assert size == 6000
    await store.flip(path, 2)
    damaged = (folder / "1.blk").read_bytes()
    assert sum(byte.bit_count() for byte in damaged) in (1, 3)
    assert not any(damaged[1000:])
    written = len(damaged.rstrip(b"\0"))
    cut = await store.truncate(path)
    assert (folder / "1.blk").stat().st_size == written - cut
    with pytest.raises(CouldNotRun, match="fault file system"):
        await store.power_loss("strict")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("redis", "use tnats, nats-server"),
        ("nats-server==x", "use tnats"),
        ("nats-server==", "use tnats"),
        ("./no-such-program", "no such program"),
        ("/tmp", "no such program"),
    ],
)
async def test_targets_that_are_none(text: str, reason: str) -> None:
    """One line, before anything is started or fetched."""
    with pytest.raises(CouldNotRun, match=reason) as caught:
        await find_target(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["run", "F9", "--target", "tnats"], "unknown finding 'F9'; known: F1, F2, F3, F4, F5, F6"),
        (["run", "F3", "--target", "tnats"], "F3 needs a cluster of 5 nodes, and tnats has no clusters yet"),
        (["run", "F1", "--target", "/bin/false", "--variant", "kill-always"], "did not start as n"),
        pytest.param(
            ["run", "F5", "--target", "/bin/false", "--variant", "part-kill"],
            "did not start as n",
            marks=pytest.mark.skipif(missing_for_mount() is not None, reason=str(missing_for_mount())),
        ),
        (["run", "F2", "--target", "tnats", "--variant", "x"], "no variant 'x'"),
        (
            ["run", "F5", "--target", "tnats", "--nodes", "3"],
            "pause-kill does not fit into a cluster of 3: targets=n4,n5",
        ),
        (["run", "F2", "--target", "tnats", "--profile", "x"], "no profile 'x'"),
        (["run", "F2", "--target", "./x"], "no such program"),
        (["run", "F2", "--target", "/bin/false", "--variant", "bitflip-kill"], "did not start: ended at once"),
        (["run", "F2", "--target", BAD_PROGRAM, "--variant", "bitflip-kill"], "did not start: Exec format error"),
        (["run", "F1", "--target", BAD_PROGRAM, "--variant", "kill-always"], "did not start: Exec format error"),
        (["kills", "--target", BAD_PROGRAM], "did not start: Exec format error"),
        (["run", "F2", "--target", "/bin/false", "--out", "/dev/null/x"], "--out /dev/null/x: Not a directory"),
        (["list", "--dir", "/nowhere"], "no such directory"),
    ],
)
def test_what_cannot_run_exits_with_2_and_one_line(
    arguments: list[str],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Unknown names, clusters, programs that do not start: never a trace, never 0 or 1."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad").write_bytes(b"\x7fELF")
    (tmp_path / "bad").chmod(0o755)
    arguments = [argument.replace(BAD_PROGRAM, str(tmp_path / "bad")) for argument in arguments]
    assert main(["jepsen", *arguments]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tnats jepsen: ")]
    assert len(lines) == 1
    assert reason in lines[0]


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ('print(\'{"error": "cannot mount at /x: no luck"}\')', "fault file system: cannot mount at /x: no luck"),
        ("", "fault file system: its process ended; its log ends with: (nothing)"),
        ("raise SystemExit('no luck')", "fault file system: its process ended; its log ends with: no luck"),
    ],
)
@pytest.mark.parametrize(("finding", "variant"), [("F4", "always"), ("F5", "part-kill")])
def test_a_mount_that_cannot_be_made_exits_with_2_and_one_line(
    program: str,
    reason: str,
    finding: str,
    variant: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before any server is started, of one node or of five; nothing is left."""
    monkeypatch.setattr("tnats.harness.real.stores.missing_for_mount", lambda: None)
    monkeypatch.setattr("tnats.harness.real.stores.FILE_SYSTEM", (sys.executable, "-c", program))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["jepsen", "run", finding, "--target", "/bin/true", "--variant", variant]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tnats jepsen: ")]
    assert lines == [f"tnats jepsen: {reason}"]
    assert list(tmp_path.iterdir()) == []


async def test_a_fault_file_system_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command ends with an error after a bounded time, though nothing else may interrupt it."""
    program = 'import sys; print(\'{"ok": "mounted"}\', flush=True); sys.stdin.read()'
    monkeypatch.setattr("tnats.harness.real.stores.missing_for_mount", lambda: None)
    monkeypatch.setattr("tnats.harness.real.stores.FILE_SYSTEM", (sys.executable, "-c", program))
    monkeypatch.setattr("tnats.harness.real.stores.COMMAND_TIMEOUT_S", 0.05)
    async with open_workplace() as workplace:
        async with open_fault_fs(workplace, "n1", 1, names="posix", write_back_s=0) as store:
            with pytest.raises(CouldNotRun, match=r"counts: no answer within 0\.05 s"):
                await store.command(do="counts")


@pytest.mark.skipif(missing_for_mount() is not None, reason=str(missing_for_mount()))
async def test_a_mount_does_not_outlive_a_fault_file_system_that_was_killed() -> None:
    """Though nobody answers there any more; what is asked of it says that it has ended."""
    async with open_workplace() as workplace:
        directory = workplace.directory
        async with open_fault_fs(workplace, "n1", 1, names="posix", write_back_s=0) as store:
            assert is_mounted(store.path)
            os.kill(child("faultfs_process"), signal.SIGKILL)
            with pytest.raises(CouldNotRun, match="counts: its process ended"):
                await store.command(do="counts")
    assert not directory.exists()
    assert not is_mounted(directory)


async def test_a_workplace_clears_up_without_its_warden() -> None:
    """Should somebody have killed that."""
    async with open_workplace() as workplace:
        os.kill(child("real.warden"), signal.SIGKILL)
        process = await workplace.start(SLEEPER, log=workplace.directory / "log")
    assert not is_alive(process.pid)
    assert not workplace.directory.exists()


def test_one_of_several_reasons_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """When tasks fail at the same time, each for a reason that has a line; anything else is no line."""

    async def fail(exc: Exception) -> None:
        raise exc

    async def work(runtime: object, *failures: Exception) -> None:
        async with trio.open_nursery() as nursery:
            for failure in failures:
                nursery.start_soon(fail, failure)

    assert carry_out(lambda runtime: work(runtime, CouldNotRun("a"), OSError("b"))) == 2
    assert capsys.readouterr().err in ("tnats jepsen: a\n", "tnats jepsen: b\n")
    with pytest.raises(ExceptionGroup):
        carry_out(lambda runtime: work(runtime, CouldNotRun("a"), ZeroDivisionError()))


def test_the_list_names_every_finding(capsys: pytest.CaptureFixture[str]) -> None:
    """With what each needs."""
    assert main(["jepsen", "list"]) == 0
    text = capsys.readouterr().out
    assert all(f"F{number} " in text for number in range(1, 7))


def test_a_missing_fuse_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thing that can be missing has a text that names it and what to do."""
    monkeypatch.setattr("tnats.harness.real.stores.find_spec", lambda name: None)
    assert missing_for_mount() == "the fault file system needs pyfuse3: pip install '.[jepsen]' in the clone"
    monkeypatch.setattr("tnats.harness.real.stores.find_spec", lambda name: "found")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert str(missing_for_mount()).startswith("the fault file system needs /dev/fuse: ")
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert missing_for_mount() == "the fault file system needs fusermount3 (Debian: apt install fuse3)"


async def test_a_nats_server_given_as_a_path_is_called_by_its_release(tmp_path: Path) -> None:
    """So that results tell which one it was; any other program goes by its name."""
    program = tmp_path / "nats-server"
    program.write_text("#!/bin/sh\necho nats-server: v2.10.22\n")
    program.chmod(0o755)
    assert (await find_target(str(program))).name == "nats-server==2.10.22"
    other = program.rename(tmp_path / "mine")
    assert (await find_target(str(other))).name == "mine"


async def test_a_program_that_does_not_tell_its_release_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is called nats-server then."""
    monkeypatch.setattr("tnats.harness.real.targets.VERSION_TIMEOUT_S", 0.1)
    program = tmp_path / "nats-server"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    assert (await find_target(str(program))).name == "nats-server"
