"""The `nats` command line, unmodified, against `tnats serve`: streams, and all that can be published to them.

It is taken from the PATH, or from `TNATS_NATS_CLI`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.programs import needs_nats_cli
from tests.conformance.test_nats_cli_consumers import Cli
from tests.live.server_process import serve, wait_until

pytestmark = [pytest.mark.slow, needs_nats_cli]


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """One server for all tests of this module."""
    folder: Path = tmp_path_factory.mktemp("server")
    with serve(folder, "jetstream { store_dir: store }") as server:
        yield Cli(server, folder)


def add(cli: Cli, name: str, *words: str) -> None:
    cli.run("stream", "add", name, "--subjects", f"{name.lower()}.>", "--defaults", *words)


def state(cli: Cli, name: str) -> tuple[int, int, int]:
    found = cli.json("stream", "info", name, "--json")["state"]
    return found["messages"], found["first_seq"], found["last_seq"]


def test_a_first_stream(cli: Cli) -> None:
    """Make one, publish, look, get, remove a message, purge, change the limits, delete it."""
    add(cli, "ORDERS")
    for number in range(1, 6):
        cli.run("publish", "--jetstream", f"orders.{number % 2}", f"order {number}")
    assert "ORDERS" in cli.run("stream", "ls")
    assert cli.run("stream", "ls", "--names").split() == ["ORDERS"]
    assert state(cli, "ORDERS") == (5, 1, 5)
    assert "order 3" in cli.run("stream", "get", "ORDERS", "3")
    assert "order 5" in cli.run("stream", "get", "ORDERS", "--last-for", "orders.1")
    assert json.loads(cli.run("stream", "subjects", "ORDERS", "--json")) == {"orders.0": 2, "orders.1": 3}
    cli.run("stream", "rmm", "ORDERS", "3", "--force")
    assert cli.try_run("stream", "get", "ORDERS", "3").returncode == 1
    assert "3" in cli.run("stream", "gaps", "ORDERS", "--force", "--no-progress")
    cli.run("stream", "purge", "ORDERS", "--subject", "orders.0", "--force")
    assert state(cli, "ORDERS") == (2, 1, 5)
    cli.run("stream", "edit", "ORDERS", "--max-msgs", "1", "--description", "the last one", "--force")
    assert state(cli, "ORDERS") == (1, 5, 5)
    assert cli.json("stream", "info", "ORDERS", "--json")["config"]["description"] == "the last one"
    cli.run("stream", "copy", "ORDERS", "COPY", "--subjects", "copy.>")
    assert "ORDERS" in cli.run("stream", "report")
    assert "ORDERS" in cli.run("stream", "find", "--subject", "orders.>", "--names")
    cli.run("stream", "seal", "ORDERS", "--force")
    assert cli.try_run("publish", "--jetstream", "orders.1", "x").returncode == 1
    for name in ("ORDERS", "COPY"):
        cli.run("stream", "rm", name, "--force")
    assert cli.try_run("stream", "info", "ORDERS").returncode == 1


def test_every_setting(cli: Cli) -> None:
    """Whatever a stream can be given by name is in its configuration afterwards."""
    add(
        cli, "ALL", "--storage", "memory", "--retention", "work", "--discard", "new", "--max-age", "1h", "--max-bytes",
        "1MB", "--max-msgs", "100", "--max-msg-size", "1000", "--max-msgs-per-subject", "5", "--discard-per-subject",
        "--max-consumers", "3", "--dupe-window", "30s", "--first-sequence", "7", "--allow-rollup", "--deny-delete",
        "--no-deny-purge", "--allow-direct", "--allow-batch", "--allow-fast", "--allow-msg-ttl",
        "--transform-source", "all.a.*", "--transform-destination", "all.b.{{wildcard(1)}}",
        "--republish-source", "all.>", "--republish-destination", "again.>", "--republish-headers",
        "--limit-consumer-inactive", "1m", "--limit-consumer-max-pending", "9", "--metadata", "owner:me",
    )  # fmt: skip
    found = cli.json("stream", "info", "ALL", "--json")["config"]
    second = 1_000_000_000
    for key, value in {
        "storage": "memory", "retention": "workqueue", "discard": "new", "max_age": 3600 * second, "max_msgs": 100,
        "max_msg_size": 1000, "max_msgs_per_subject": 5, "discard_new_per_subject": True, "max_consumers": 3,
        "duplicate_window": 30 * second, "first_seq": 7, "allow_rollup_hdrs": True, "deny_delete": True,
        "allow_direct": True, "allow_atomic": True, "allow_batched": True, "allow_msg_ttl": True,
        "subject_transform": {"src": "all.a.*", "dest": "all.b.{{wildcard(1)}}"},
        "republish": {"src": "all.>", "dest": "again.>", "headers_only": True},
        "consumer_limits": {"inactive_threshold": 60 * second, "max_ack_pending": 9},
    }.items():  # fmt: skip
        assert found[key] == value, key
    assert found["metadata"]["owner"] == "me"
    cli.run("publish", "--jetstream", "all.a.x", "x")
    assert cli.json("stream", "subjects", "ALL", "--json") == {"all.b.x": 1}
    assert state(cli, "ALL") == (1, 7, 7)


def test_counters(cli: Cli) -> None:
    """Up, down, and the list of them."""
    add(cli, "HITS", "--allow-counter", "--allow-direct")
    for number in ("5", "10"):
        cli.run("counter", "increment", "hits.page", number)
    cli.run("counter", "decrement", "hits.page", "1")
    cli.run("counter", "increment", "hits.other", "1")
    assert cli.run("counter", "get", "hits.page").split()[-1] == "14"
    assert "14" in cli.run("counter", "view", "hits.page")
    listed = cli.run("counter", "list", "hits.>")
    assert "hits.page" in listed
    assert "hits.other" in listed


def test_schedules(cli: Cli) -> None:
    """Once after a while, at an interval, by cron, with a sampled source."""
    add(cli, "CLOCK", "--allow-schedules", "--allow-msg-ttl")
    cli.run("publish", "--jetstream", "clock.data", "sampled")
    for subject, *words in (
        ("clock.once", "--schedule-after", "1s", "--schedule-dest", "clock.out.once"),
        ("clock.every", "--schedule-every", "1s", "--schedule-dest", "clock.out.every", "--schedule-ttl", "1m"),
        ("clock.cron", "--schedule-cron", "* * * * * *", "--schedule-dest", "clock.out.cron"),
        ("clock.sample", "--schedule-after", "1s", "--schedule-dest", "clock.out.sample", "--schedule-source",
         "clock.data"),
    ):  # fmt: skip
        cli.run("publish", *words, subject, "body")
    wanted = {f"clock.out.{word}" for word in ("once", "every", "cron", "sample")}
    wait_until(lambda: wanted <= cli.json("stream", "subjects", "CLOCK", "--json").keys())
    assert "sampled" in cli.run("stream", "get", "CLOCK", "--last-for", "clock.out.sample")
    assert "body" in cli.run("stream", "get", "CLOCK", "--last-for", "clock.out.once")


def test_batches(cli: Cli) -> None:
    """Lines of a file as one atomic batch; the benchmarks of atomic and of fast publishing."""
    add(cli, "BATCH", "--allow-batch", "--allow-fast")
    cli.run("publish", "batch.lines", "--atomic", "--send-on", "newline", "--force-stdin", stdin="one\ntwo\nthree\n")
    assert state(cli, "BATCH") == (3, 1, 3)
    for kind in ("atomic", "fast"):
        cli.run(
            "bench",
            "js",
            "pub",
            kind,
            "batch.b",
            "--stream",
            "BATCH",
            "--msgs",
            "2000",
            "--batch",
            "100",
            "--no-progress",
        )
    assert state(cli, "BATCH") == (4003, 1, 4003)


def test_ends_and_markers(cli: Cli) -> None:
    """A message with a TTL leaves a delete marker behind."""
    add(cli, "TTL", "--subject-del-markers-ttl", "1m", "--max-msgs-per-subject", "1", "--allow-direct")
    cli.run("publish", "--jetstream", "-H", "Nats-TTL:1s", "ttl.x", "soon gone")
    wait_until(lambda: "MaxAge" in cli.run("stream", "get", "TTL", "--last-for", "ttl.x"))
    assert state(cli, "TTL") == (1, 2, 2)
