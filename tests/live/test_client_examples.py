"""The worked examples of docs/client.md and docs/testing.md, run as they stand against an embedded server."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.server_process import PATIENCE_S

from tnats.cli.app import main
from tnats.testing import EmbeddedServer, serve

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PLACE = "nats://127.0.0.1:4222"


def examples(name: str) -> list[str]:
    """The Python blocks of a document."""
    return BLOCK.findall((DOCS / name).read_text())


CLIENT = examples("client.md")
TESTING = [code for code in examples("testing.md") if "def test_" not in code]

EXPECTED = {
    "greet.joe": "greet.joe b'hello'\n",
    '"Trace"': "1001\n",
    'orders.new", b"1': "1 1 True\n10071\n101 b'99'\n",
    "somebody was faster": "somebody was faster\n1 b'blue'\n2 b'green'\n['color', 'lock']\n",
    "of last year": "3 SHA-256=iGcV5AUegn9P4hXfMFOvP4WtDTUtssgpx0h69teO_jA=\n300000 ['report']\n",
    "is anybody there": "nobody\nb'HELLO'\nb'ALL OF YOU'\n",
}
"""What an example prints, by a text in it."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    """A server with JetStream, that stores nothing yet."""
    with serve(f'jetstream {{ store_dir: "{tmp_path}/store" }}') as server:
        yield server


@pytest.mark.parametrize("code", CLIENT, ids=range(len(CLIENT)))
def test_client_examples_run(code: str, server: EmbeddedServer, tmp_path: Path) -> None:
    """Each ends without error or warning and prints what the guide leads to expect."""
    assert PLACE in code
    script = tmp_path / "example.py"
    script.write_text(code.replace(PLACE, server.url))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    for text, output in EXPECTED.items():
        if text in code:
            assert done.stdout == output
    if "workers" in code:
        lines = sorted(line.split(" ", 1)[1] for line in done.stdout.splitlines())
        assert lines == [f"jobs.{number} b'work'" for number in range(4)]


def test_the_command_lines_run(server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the guide, in their order, in an empty directory but for the file that one of them names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    (tmp_path / "report.pdf").write_bytes(b"%PDF")
    lines = re.findall(r"^\$ tnats (.*)$", (DOCS / "client.md").read_text(), re.MULTILINE)
    assert len(lines) >= 9
    for line in lines:
        assert main([*shlex.split(line), "-s", server.url]) == 0, line
    assert (tmp_path / "backup" / "backup.json").exists()


@pytest.mark.parametrize("code", TESTING, ids=range(len(TESTING)))
def test_testing_examples_run(code: str, tmp_path: Path) -> None:
    """Each ends without error or warning."""
    script = tmp_path / "example.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_pytest_example_passes(tmp_path: Path) -> None:
    """The test file of the guide is green."""
    (code,) = [code for code in examples("testing.md") if "def test_" in code]
    (tmp_path / "test_example.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tnats.testing.plugin", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout
