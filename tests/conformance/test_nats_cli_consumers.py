"""The `nats` command line, unmodified, against `tnats serve`: consumers, buckets, objects, and its benchmarks.

It is taken from the PATH, or from `TNATS_NATS_CLI`.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.programs import NATS_CLI, needs_nats_cli
from tests.live.server_process import PATIENCE_S, ServerProcess, serve

pytestmark = [pytest.mark.slow, needs_nats_cli]


class Cli:
    """The program with the address of one server."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.server = server
        self.folder = folder

    def try_run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HOME": str(self.folder), "NO_COLOR": "1"}
        return subprocess.run(
            [NATS_CLI, "-s", self.server.url, *words],
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            env=environment,
        )

    def run(self, *words: str, stdin: str = "") -> str:
        """What it prints, to both outputs; it must succeed."""
        done = self.try_run(*words, stdin=stdin)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def json(self, *words: str) -> Any:
        return json.loads(self.try_run(*words).stdout)


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """A server of its own for each test."""
    with serve(tmp_path, "jetstream { store_dir: store }\nhttp: '127.0.0.1:-1'") as server:
        yield Cli(server, tmp_path)


def test_consumers(cli: Cli) -> None:
    """Made, listed, used, edited, paused, reported and removed."""
    cli.run("stream", "add", "ORDERS", "--subjects", "orders.>", "--defaults")
    cli.run("pub", "orders.new", "number {{Count}}", "--count", "20", "-J")
    cli.run("consumer", "add", "ORDERS", "work", "--pull", "--ack", "explicit", "--wait", "2s", "--defaults")
    assert "number 1" in cli.run("consumer", "next", "ORDERS", "work")
    assert "number 5" in cli.run("consumer", "next", "ORDERS", "work", "--count", "4")
    found = cli.json("consumer", "info", "ORDERS", "work", "--json")
    assert (found["ack_floor"]["stream_seq"], found["num_pending"]) == (5, 15)
    cli.run("consumer", "edit", "ORDERS", "work", "--description", "for a test", "--force")
    assert cli.json("consumer", "info", "ORDERS", "work", "--json")["config"]["description"] == "for a test"
    assert "Paused" in cli.run("consumer", "pause", "ORDERS", "work", "1h", "--force")
    cli.run("consumer", "resume", "ORDERS", "work", "--force")
    words = ("--target", "to.me", "--ack", "none", "--deliver", "last", "--defaults")
    cli.run("consumer", "add", "ORDERS", "copy", *words)
    assert cli.run("consumer", "ls", "ORDERS", "--names").split() == ["copy", "work"]
    report = cli.run("consumer", "report", "ORDERS")
    assert "work" in report
    assert "copy" in report
    cli.run("consumer", "rm", "ORDERS", "copy", "--force")
    assert cli.run("consumer", "ls", "ORDERS", "--names").split() == ["work"]
    assert cli.try_run("consumer", "info", "ORDERS", "nobody").returncode == 1
    cli.run(
        "server", "check", "consumer", "--stream", "ORDERS", "--consumer", "work", "--outstanding-ack-critical", "5"
    )


def test_buckets(cli: Cli) -> None:
    """Values, revisions, history, deletion, watching, listing."""
    cli.run("kv", "add", "USERS", "--history", "5", "--ttl", "1h")
    cli.run("kv", "put", "USERS", "ada", "one")
    cli.run("kv", "put", "USERS", "ada", "two")
    assert cli.run("kv", "get", "USERS", "ada", "--raw") == "two"
    cli.run("kv", "create", "USERS", "bob", "b")
    assert "wrong last sequence" in cli.try_run("kv", "create", "USERS", "bob", "c").stderr
    cli.run("kv", "update", "USERS", "ada", "three", "2")
    assert "wrong last sequence" in cli.try_run("kv", "update", "USERS", "ada", "four", "2").stderr
    assert sorted(cli.run("kv", "ls", "USERS").split()) == ["ada", "bob"]
    history = cli.run("kv", "history", "USERS", "ada")
    assert [word in history for word in ("one", "two", "three")] == [True] * 3
    cli.run("kv", "del", "USERS", "bob", "--force")
    assert "not found" in cli.try_run("kv", "get", "USERS", "bob").stderr
    cli.run("kv", "purge", "USERS", "ada", "--force")
    cli.run("kv", "compact", "USERS", "--force")
    assert "USERS" in cli.run("kv", "info", "USERS")
    assert "USERS" in cli.run("kv", "ls")
    cli.run("kv", "rm", "USERS", "--force")
    assert cli.try_run("kv", "info", "USERS").returncode == 1


def test_objects(cli: Cli) -> None:
    """A file in, a file out; its digest, its list, its end, and the end of writing."""
    cli.run("object", "add", "FILES")
    content = os.urandom(3_000_000)
    (cli.folder / "in.bin").write_bytes(content)
    cli.run("object", "put", "FILES", "in.bin", "--force", "--no-progress")
    cli.run("object", "get", "FILES", "in.bin", "--output", "out.bin", "--force", "--no-progress")
    assert (cli.folder / "out.bin").read_bytes() == content
    assert "in.bin" in cli.run("object", "ls", "FILES")
    assert "SHA-256" in cli.run("object", "info", "FILES", "in.bin")
    cli.run("object", "seal", "FILES", "--force")
    (cli.folder / "late.bin").write_bytes(b"x")
    assert cli.try_run("object", "put", "FILES", "late.bin", "--force", "--no-progress").returncode == 1
    cli.run("object", "rm", "FILES", "--force")


@pytest.mark.parametrize(
    "words",
    [
        ("js", "pub", "sync", "bench.a", "--create", "--msgs", "200"),
        ("js", "pub", "async", "bench.a", "--create", "--msgs", "5000", "--batch", "100"),
        ("kv", "put", "--msgs", "500"),
    ],
    ids=lambda words: "-".join(words[:3]),
)
def test_benchmarks_run(cli: Cli, words: tuple[str, ...]) -> None:
    """Each comes to an end and reports a rate."""
    assert "msgs/sec" in cli.run("bench", *words, "--no-progress")


def test_benchmarks_of_consumers(cli: Cli) -> None:
    """Publishing first, then each way to take messages."""
    cli.run("bench", "js", "pub", "async", "bench.a", "--create", "--msgs", "2000", "--no-progress")
    assert "msgs/sec" in cli.run("bench", "js", "ordered", "--msgs", "2000", "--no-progress")
    for way in ("consume", "fetch"):
        text = cli.run("bench", "js", way, "--msgs", "2000", "--no-progress", "--acks", "explicit")
        assert "msgs/sec" in text, way
        cli.run("consumer", "rm", "benchstream", "nats-bench", "--force")
