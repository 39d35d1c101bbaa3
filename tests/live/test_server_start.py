"""Starting `tnats serve`: what it writes, where it listens, and how it fails."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from pathlib import Path

import pytest
from tests.live.server_process import COMMAND, PATIENCE_S, RawClient, run_to_end, serve, wait_until

from tnats import NATS_VERSION

LOCAL = ("-a", "127.0.0.1", "-p", "-1")


def test_log_of_a_start_and_an_end(tmp_path: Path) -> None:
    """The lines that scripts wait for are there, in order, with the real port."""
    with serve(tmp_path) as server:
        port = server.port
        server.wait_for_line("Server is ready")  # the ports file is there a moment before
    texts = server.texts
    expected = [
        "[INF] Starting nats-server",
        f"[INF] Listening for client connections on 127.0.0.1:{port}",
        "[INF] Server is ready",
        '[INF] Trapped "terminated" signal',
        "[INF] Initiating Shutdown...",
        "[INF] Server Exiting..",
    ]
    assert [line for line in texts if line in expected] == expected
    assert re.match(r"^\[\d+\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} \[INF\] Starting", server.log)
    assert server.process.returncode == 0


def test_a_start_without_standard_streams(tmp_path: Path) -> None:
    """What the process was started without stands for nothing: no file of the store gets the number of the log."""
    config = tmp_path / "x.conf"
    config.write_text('listen: "127.0.0.1:-1"\njetstream { store_dir: store }\nports_file_dir: "."\n')
    command = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *COMMAND, "-c", config.name]
    with subprocess.Popen(command, cwd=tmp_path) as process:
        ports = tmp_path / f"nats-server_{process.pid}.ports"
        try:
            wait_until(lambda: ports.exists() or process.poll() is not None, "the ports file")
            assert [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in range(3)] == ["/dev/null"] * 3
        finally:
            process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert not ports.exists()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "0.0.0.0", "::"])
def test_hosts(tmp_path: Path, host: str) -> None:
    """Addresses of both kinds and names can be listened on; an IPv6 address is shown in brackets."""
    with serve(tmp_path, "", "-a", host) as server:
        with socket.create_connection(("::1" if ":" in host else "127.0.0.1", server.port), PATIENCE_S) as conn:
            assert conn.recv(9).startswith(b"INFO ")
    shown = re.search(r"Listening for client connections on (\S+):\d+", server.log)
    assert shown is not None
    assert shown[1].startswith("[") == (":" in host)


def test_flags_override_the_file(tmp_path: Path) -> None:
    """Also in Go's other spellings: two dashes, `=`, and a value apart."""
    config = "server_name: file\nmax_payload: 7\ndebug: true\nauthorization { user: x, password: y }"
    with serve(tmp_path, config, "--name=flag", "-D=false", "--user", "u", "-pass=p") as server:
        with RawClient(server.port, '{"user":"u","pass":"p"}') as client:
            client.flush()
            assert (client.info["server_name"], client.info["max_payload"]) == ("flag", 7)
        with RawClient(server.port, '{"user":"x","pass":"y"}') as client:
            assert b"Authorization Violation" in client.read_rest()
    assert "[DBG]" not in server.log


def test_token_flag(tmp_path: Path) -> None:
    """`--auth` wants the token of everybody."""
    with serve(tmp_path, "", "--auth", "hush") as server:
        with RawClient(server.port, '{"auth_token":"hush"}') as client:
            client.flush()
        with RawClient(server.port, '{"auth_token":"loud"}') as client:
            assert b"Authorization Violation" in client.read_rest()
    assert "hush" not in server.log


def test_files_of_a_running_server(tmp_path: Path) -> None:
    """Pid file and ports file exist while it serves, name the process itself, and are removed at the end."""
    with serve(tmp_path, "", "-P", "x.pid", "-m", "-1") as server:
        pid = server.process.pid
        assert (tmp_path / "x.pid").read_text() == str(pid)
        path = tmp_path / f"nats-server_{pid}.ports"
        assert json.loads(path.read_text()) == {
            "nats": [f"nats://127.0.0.1:{server.port}"],
            "monitoring": [f"http://127.0.0.1:{server.monitoring_port}"],
        }
    assert not (tmp_path / "x.pid").exists()
    assert not path.exists()


def test_the_port_is_free_after_the_end(tmp_path: Path) -> None:
    """A server with clients can be started on the same port as soon as it has ended."""
    with serve(tmp_path) as server:
        with RawClient(server.port) as client:
            client.flush()
            port = server.port
            server.stop()
            server.write_config("")
            server.start()
            assert server.port == port


def test_port_in_use(tmp_path: Path) -> None:
    """One line says which address and why, and the exit code is 1."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_to_end("-a", "127.0.0.1", "-p", str(taken.getsockname()[1]), folder=tmp_path)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "[INF]" not in line]
    assert f"[FTL] Error listening on port: {address}" in line
    assert "address already in use" in line


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["-a", "999.1.1.1", "-p", "-1"], "Error listening on port: 999.1.1.1:0"),
        (["-a", "127.0.0.1", "-p", "70000"], "Error listening on port: 127.0.0.1:70000, not a port"),
        ([*LOCAL, "-m", "70000"], "Error listening on monitoring port: 127.0.0.1:70000, not a port"),
        ([*LOCAL, "-P", "none/x.pid"], "Could not write pidfile (none/x.pid)"),
        ([*LOCAL, "-l", "none/x.log"], "none/x.log"),
        (["-c", "none.conf"], "open none.conf: no such file or directory"),
        (["-c", "."], "open .: is a directory"),
        (["-c", "bad.conf"], 'bad.conf:2:1: unknown field "nonsense"'),
        (["-c", "broken.conf"], "broken.conf:1"),
        (["-c", "bad.conf", "-t"], 'bad.conf:2:1: unknown field "nonsense"'),
        (["-t"], "must specify [-c, --config] option"),
        ([*LOCAL, "--cluster", "nats://127.0.0.1:-1"], "clustering: not available"),
        (["serve"], 'unrecognized command: "serve"'),
    ],
)
def test_failures_are_one_clear_line(tmp_path: Path, flags: list[str], text: str) -> None:
    """Exit code 1, the reason on standard error once, and no trace of Python."""
    (tmp_path / "bad.conf").write_text('listen: "127.0.0.1:-1"\nnonsense: 1\n')
    (tmp_path / "broken.conf").write_text("accounts {")
    done = run_to_end(*flags, folder=tmp_path)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "[INF]" not in line]
    assert text in line
    assert not (tmp_path / "x.pid").exists()


def test_a_failure_shows_although_the_log_is_a_file(tmp_path: Path) -> None:
    """Whoever starts it looks at standard error, not yet at the log."""
    done = run_to_end("-a", "127.0.0.1", "-p", "70000", "-l", "x.log", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("nats-server: Error listening on port: 127.0.0.1:70000")
    assert "[FTL] Error listening on port" in (tmp_path / "x.log").read_text()


def test_unwritable_ports_folder_does_not_stop_the_start(tmp_path: Path) -> None:
    """It is logged; as with nats-server, the server serves."""
    command = [*COMMAND, *LOCAL, "--ports_file_dir", "none"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "Server is ready" in line:
                process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert [line for line in lines if "[ERR] Error writing ports file (none/nats-server_" in line]


def test_version_and_check(tmp_path: Path) -> None:
    """The first line of the version is nats-server's; a valid file is said to be so, with its digest."""
    for flag in ("-v", "--version", "version"):
        done = run_to_end(flag, folder=tmp_path)
        assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"nats-server: v{NATS_VERSION}")
    (tmp_path / "a.conf").write_text("port: 4222\n")
    done = run_to_end("-c", "a.conf", "-t", folder=tmp_path)
    assert done.returncode == 0
    assert re.fullmatch(r"nats-server: configuration file a\.conf is valid \(sha256:[0-9a-f]{64}\)\n", done.stderr)
    for flag in ("-h", "--help"):
        assert "Usage: " in run_to_end(flag, folder=tmp_path).stdout


def test_interpreted_hot_loop_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line of the log warns of it, and the server serves all the same."""
    monkeypatch.setenv("TNATS_SPEEDUPS", "off")
    with serve(tmp_path) as server, RawClient(server.port) as client:
        client.send(b"SUB a 1\r\nPUB a 2\r\nhi\r\n")
        assert [client.read_line(), client.read_line()] == [b"MSG a 1 2\r\n", b"hi\r\n"]
    assert len(re.findall(r"\[WRN\] Running interpreted", server.log)) == 1


def test_idle_memory(tmp_path: Path) -> None:
    """An idle server with monitoring holds less than 60 MiB."""
    with serve(tmp_path, "http: -1") as server:
        assert server.ask("/varz")["connections"] == 0
        assert server.memory_bytes() < 60 << 20
