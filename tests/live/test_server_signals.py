"""Signals to a running `tnats serve`, from the system and by `--signal`."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from tests.live.server_process import RawClient, run_to_end, serve, wait_until


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_end(tmp_path: Path, number: signal.Signals) -> None:
    """INT and TERM close the clients and end it with exit code 0, its files removed."""
    with serve(tmp_path, "pid_file: x.pid") as server, RawClient(server.port) as client:
        client.flush()
        server.signal(number)
        assert client.read_rest() == b""
        assert server.wait() == 0
        assert not (tmp_path / "x.pid").exists()
        assert "[ERR]" not in server.log


def test_log_file_is_reopened(tmp_path: Path) -> None:
    """After USR1 lines go to a new file under the old name, and none is lost."""
    with serve(tmp_path, "debug: true", "-l", "a.log") as server:
        (tmp_path / "a.log").rename(tmp_path / "moved.log")
        RawClient(server.port).close()
        wait_until(lambda: "Client connection closed" in (tmp_path / "moved.log").read_text())
        server.signal(signal.SIGUSR1)
        wait_until((tmp_path / "a.log").exists)
        RawClient(server.port).close()
        wait_until(lambda: "Client connection closed" in (tmp_path / "a.log").read_text())
    assert (tmp_path / "a.log").read_text().count("Client connection created") == 1
    assert "File log re-opened" in (tmp_path / "a.log").read_text()
    assert (tmp_path / "a.log").stat().st_mode & 0o777 == 0o640
    assert server.log == "", "with a log file, standard error is silent"


def test_log_file_is_rotated(tmp_path: Path) -> None:
    """At its size limit it gets a dated name; so many are kept as are asked for, and they hold whole lines."""
    with serve(tmp_path, 'debug: true\nlog_file: "a.log"\nlogfile_size_limit: 1000\nlogfile_max_num: 3') as server:
        for _ in range(40):
            with RawClient(server.port) as client:
                client.flush()
    names = sorted(path.name for path in tmp_path.glob("a.log*"))
    assert "a.log" in names
    assert len(names) == 3
    assert all(re.fullmatch(r"a\.log(\.\d{4}(\.\d\d){5}\.\d{9})?", name) for name in names)
    for name in names:
        text = (tmp_path / name).read_text()
        assert len(text) < 1400
        assert text.startswith("[")
        assert text.endswith("\n")


@pytest.mark.slow
def test_lame_duck(tmp_path: Path) -> None:
    """USR2: nobody new, clients are told, after the grace period closed, then it ends with exit code 0."""
    config = "lame_duck_duration: 30s\nlame_duck_grace_period: 4s"
    with serve(tmp_path, config) as server, RawClient(server.port, '{"verbose":false,"protocol":1}') as client:
        client.flush()
        client.read_line()
        server.signal(signal.SIGUSR2)
        assert b'"ldm":true' in client.read_line()
        server.signal(signal.SIGTERM)
        server.wait_for_line('Trapped "terminated" signal')
        with pytest.raises(ConnectionRefusedError):
            RawClient(server.port)
        client.flush()
        assert client.read_rest() == b""
        assert server.wait() == 0


@pytest.mark.parametrize(
    ("name", "line"), [("reload", "Reloaded server configuration"), ("reopen", "File log re-open ignored")]
)
def test_signal_flag(tmp_path: Path, name: str, line: str) -> None:
    """`--signal` reaches the server by process id, by pid file, and by a pattern of pid files."""
    with serve(tmp_path, "", "-P", "server_1.pid") as server:
        for count, target in enumerate((server.process.pid, "server_1.pid", "server_*"), 1):
            done = run_to_end("--signal", f"{name}={target}", folder=tmp_path)
            assert (done.returncode, done.stderr) == (0, "")
            server.wait_for_line(line, count)


def test_signal_flag_ends_it(tmp_path: Path) -> None:
    """`quit` is an orderly end, `stop` is none."""
    with serve(tmp_path, "", "-P", "x.pid") as server:
        assert run_to_end("-sl", "quit=x.pid", folder=tmp_path).returncode == 0
        assert server.wait() == 0
        server.start()
        assert run_to_end("-sl=stop=x.pid", folder=tmp_path).returncode == 0
        assert server.wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("dance=1", 'unknown signal "dance"'),
        ("term=none.pid", "open none.pid: no such file or directory"),
        ("term=none*", "none*"),
        ("term=bad.pid", "bad.pid"),
        ("term=999999999", "999999999"),
    ],
)
def test_signal_flag_says_what_is_wrong(tmp_path: Path, target: str, reason: str) -> None:
    """One line, exit code 1."""
    (tmp_path / "bad.pid").write_text("no number")
    done = run_to_end("--signal", target, folder=tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert reason in line
