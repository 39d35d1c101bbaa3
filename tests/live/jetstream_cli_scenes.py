"""What `tnats stream`, `consumer`, `kv`, `object` and `account` must be able to do with any NATS server.

See `jetstream_client_scenes` for how it is run.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from tests.live.jetstream_client_scenes import Target

from tnats.cli.app import main


class Cli:
    """The command line, run in this process against a server that has no stream at first."""

    def __init__(self, server: Target, capture: pytest.CaptureFixture[bytes], patch: pytest.MonkeyPatch) -> None:
        self._server = server
        self._capture = capture
        self._patch = patch

    def __call__(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> str:
        """Run it; its standard output. A refusal is one line on standard error, and returned."""
        self._patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        found = main([*arguments, "-s", self._server.url])
        out, err = self._capture.readouterr()
        assert found == code, err.decode()
        if not code:
            return out.decode()
        assert err.count(b"\n") == 1, err.decode()
        return err.decode()


@pytest.fixture
def cli(server: Target, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    return Cli(server, capfdbinary, monkeypatch)


def parsed(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_streams(cli: Cli) -> None:
    """A stream is made as its options say, shown, changed, filled, read, emptied and removed."""
    made = cli(
        "stream", "add", "S", "--subjects", "s.>,t", "--max-age", "1d", "--max-bytes", "1MB",
        "--retention", "work", "--metadata", "team:red", "--json",
    )  # fmt: skip
    config = json.loads(made)["config"]
    assert (config["subjects"], config["max_age"], config["max_bytes"]) == (["s.>", "t"], 86400 * 10**9, 1 << 20)
    assert (config["retention"], config["allow_direct"], config["metadata"]["team"]) == ("workqueue", True, "red")
    assert "Subjects: s.>, t" in cli("stream", "info", "S")
    changed = cli("stream", "edit", "S", "--description", "d", "--no-allow-direct", "-f", "--json")
    assert (json.loads(changed)["config"]["description"], json.loads(changed)["config"]["max_age"]) == (
        "d",
        86400 * 10**9,
    )
    for number in range(5):
        cli("req", f"s.{number % 2}", str(number))
    assert cli("stream", "ls", "--names") == "S\n"
    assert "\nS " in cli("stream", "ls")
    (report,) = parsed(cli("stream", "report", "--json"))
    assert (report["name"], report["messages"]) == ("S", 5)
    assert "Lost" in cli("stream", "report")
    assert json.loads(cli("stream", "subjects", "S", "--json")) == {"s.0": 3, "s.1": 2}
    assert cli("stream", "subjects", "S", "s.1", "--names") == "s.1\n"
    (message,) = parsed(cli("stream", "get", "S", "2", "--json"))
    assert (message["subject"], message["sequence"], message["data"]) == ("s.1", 2, "1")
    assert parsed(cli("stream", "get", "S", "-S", "s.0", "--json"))[0]["data"] == "4"
    assert cli("stream", "view", "S", "3", "--raw") == "0\n1\n2\n"
    assert cli("stream", "view", "S", "--id", "2", "--subject", "s.0", "--raw") == "2\n4\n"
    assert json.loads(cli("stream", "rmm", "S", "1", "-f", "--json")) == {"stream": "S", "sequence": 1, "removed": True}
    assert "no message found" in cli("stream", "get", "S", "1", code=1)
    assert json.loads(cli("stream", "purge", "S", "--subject", "s.1", "-f", "--json"))["purged"] == 2
    assert json.loads(cli("stream", "info", "S", "--state", "--json"))["messages"] == 2
    assert "--force" in cli("stream", "rm", "S", code=1)
    assert json.loads(cli("stream", "seal", "S", "-f", "--json")) == {"stream": "S", "sealed": True}
    assert "sealed" in cli("stream", "purge", "S", "-f", code=1)
    assert json.loads(cli("stream", "rm", "S", "-f", "--json")) == {"stream": "S", "removed": True}
    assert "stream not found (STREAM.INFO.S, code 404" in cli("stream", "info", "S", code=1)
    assert cli("stream", "ls") == ""


def test_a_configuration_from_a_file(cli: Cli, tmp_path: Path) -> None:
    """What the server shows can be given back; options go on top, a wrong field is told."""
    cli("stream", "add", "S", "--subjects", "s", "--description", "d")
    config = json.loads(cli("stream", "info", "S", "--json"))["config"]
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    cli("stream", "rm", "S", "-f")
    again = json.loads(cli("stream", "add", "S", "--config", str(file), "--max-msgs", "7", "--json"))
    assert (again["config"]["description"], again["config"]["max_msgs"]) == ("d", 7)
    file.write_text('{"name": "S", "subjcts": ["s"]}')
    assert "subjcts" in cli("stream", "add", "S", "--config", str(file), code=1)


def test_consumers(cli: Cli) -> None:
    """A consumer is made as its options say, shown, changed, read from in each way, paused and removed."""
    cli("stream", "add", "S", "--subjects", "s.>")
    for number in range(6):
        cli("req", "s.x", str(number))
    made = cli(
        "consumer", "add", "S", "c", "--filter", "s.x", "--deliver", "2", "--wait", "10s",
        "--max-deliver", "5", "--backoff", "1s,5s", "--json",
    )  # fmt: skip
    config = json.loads(made)["config"]
    assert (config["durable_name"], config["opt_start_seq"], config["backoff"]) == ("c", 2, [10**9, 5 * 10**9])
    assert config["filter_subject"] == "s.x"
    assert "Ack policy: explicit" in cli("consumer", "info", "S", "c")
    assert "already exists" in cli("consumer", "add", "S", "c", code=1)
    changed = cli("consumer", "edit", "S", "c", "--description", "d", "-f", "--json")
    assert (json.loads(changed)["config"]["description"], json.loads(changed)["config"]["max_deliver"]) == ("d", 5)
    assert cli("consumer", "ls", "S", "--names") == "c\n"
    assert "\nc " in cli("consumer", "report", "S")
    assert cli("consumer", "next", "S", "c", "--raw") == "1\n"
    (record,) = parsed(cli("consumer", "next", "S", "c", "--nak", "--json"))
    assert (record["data"], record["sequence"], record["delivery"]) == ("2", 3, 1)
    assert json.loads(cli("consumer", "pause", "S", "c", "1h", "-f", "--json"))["paused"]
    assert json.loads(cli("consumer", "info", "S", "c", "--json"))["paused"]
    assert "no message within 0.3 s" in cli("consumer", "next", "S", "c", "--wait", "300ms", code=1)
    assert "no message within 0.2 s" in cli("consumer", "next", "S", "c", "--timeout", "200ms", code=1)
    assert json.loads(cli("consumer", "resume", "S", "c", "-f", "--json"))["paused"] is False
    rest = cli("consumer", "sub", "S", "c", "--count", "4", "--raw").split()
    assert sorted(rest) == ["2", "3", "4", "5"]
    cli("consumer", "reset", "S", "c", "--seq", "5", "-f")
    assert cli("consumer", "next", "S", "c", "--raw") == "4\n"
    cli("consumer", "add", "S", "p", "--target", "there", "--ack", "none", "--heartbeat", "1s", "--flow-control")
    assert cli("consumer", "sub", "S", "p", "--count", "6", "--raw").split() == list("012345")
    removed = json.loads(cli("consumer", "rm", "S", "c", "-f", "--json"))
    assert removed == {"stream": "S", "consumer": "c", "removed": True}
    assert "consumer not found" in cli("consumer", "info", "S", "c", code=1)


def test_buckets(cli: Cli) -> None:
    """Each command of `kv` does what it says."""
    assert "there is no bucket 'b'" in cli("kv", "put", "b", "k", "one", code=1)
    made = json.loads(cli("kv", "add", "b", "--history", "3", "--ttl", "1h", "--marker-ttl", "1m", "--json"))
    assert (made["config"]["max_msgs_per_subject"], made["config"]["max_age"]) == (3, 3600 * 10**9)
    assert json.loads(cli("kv", "put", "b", "k", "one", "--json"))["revision"] == 1
    cli("kv", "put", "b", "k", stdin=b"two")
    cli("kv", "update", "b", "k", "three", "2")
    refused = cli("kv", "update", "b", "k", "four", "2", code=1)
    assert "wrong last sequence" in refused
    assert "publish on '$KV.b.k'" in refused
    assert "has a value" in cli("kv", "create", "b", "k", "x", code=1)
    cli("kv", "create", "b", "other", "x", "--ttl", "1m")
    assert cli("kv", "get", "b", "k", "--raw") == "three\n"
    assert "one" in cli("kv", "get", "b", "k", "--revision", "1")
    assert [entry["data"] for entry in parsed(cli("kv", "history", "b", "k", "--json"))] == [
        "one",
        "two",
        "three",
    ]
    assert cli("kv", "ls", "b") == "k\nother\n"
    assert "three" in cli("kv", "ls", "b", "--display-value")
    assert cli("kv", "ls", "--names") == "b\n"
    assert json.loads(cli("kv", "del", "b", "k", "-f", "--json")) == {"bucket": "b", "key": "k", "removed": True}
    assert json.loads(cli("kv", "purge", "b", "other", "-f", "--json"))["purged"]
    seen = parsed(cli("kv", "watch", "b", "--count", "2", "--json"))
    assert [(entry["key"], entry["operation"]) for entry in seen] == [("k", "DEL"), ("other", "PURGE")]
    assert json.loads(cli("kv", "compact", "b", "--older-than", "0s", "-f", "--json"))["cleared"] == 2
    assert "Values: 0" in cli("kv", "status", "b")
    assert "no key 'k'" in cli("kv", "get", "b", "k", code=1)
    assert json.loads(cli("kv", "rm", "b", "-f", "--json")) == {"bucket": "b", "removed": True}
    assert "there is no bucket 'b'" in cli("kv", "info", "b", code=1)


def test_objects(cli: Cli, tmp_path: Path) -> None:
    """Files go in and come out unchanged; a file that is there is not overwritten unasked."""
    source, target = tmp_path / "file.bin", tmp_path / "out.bin"
    source.write_bytes(bytes(range(256)) * 2000)
    cli("object", "add", "o", "--description", "d")
    put = json.loads(cli("object", "put", "o", str(source), "-H", "A:1", "--json"))
    name = str(source)
    assert (put["name"], put["size"], put["headers"]) == (name, 512_000, {"A": ["1"]})
    cli("object", "put", "o", "--name", "piped", stdin=b"data")
    assert "Replace" in cli("object", "put", "o", str(source), code=1)
    wrote = json.loads(cli("object", "get", "o", name, "-O", str(target), "--json"))
    assert wrote == {"bucket": "o", "name": name, "file": str(target), "bytes": 512_000}
    assert target.read_bytes() == source.read_bytes()
    assert "Overwrite" in cli("object", "get", "o", name, "-O", str(target), code=1)
    assert cli("object", "get", "o", "piped", "-O", "-") == "data"
    assert cli("object", "ls", "o", "--names") == f"{name}\npiped\n"
    assert "SHA-256=" in cli("object", "info", "o", name)
    assert [one["name"] for one in parsed(cli("object", "watch", "o", "--count", "2", "--json"))] == [name, "piped"]
    removed = json.loads(cli("object", "rm", "o", "piped", "-f", "--json"))
    assert removed == {"bucket": "o", "name": "piped", "removed": True}
    assert "no object" in cli("object", "get", "o", "piped", code=1)
    cli("object", "seal", "o", "-f")
    assert "Sealed: yes" in cli("object", "status", "o")
    cli("object", "rm", "o", "-f")
    assert cli("object", "ls", "--names") == ""
    assert sorted(tmp_path.iterdir()) == [source, target]


def test_the_account(cli: Cli) -> None:
    """Use and limits, for people and for programs."""
    cli("stream", "add", "S")
    assert json.loads(cli("account", "info", "--json"))["streams"] == 1
    assert "Streams: 1 of unlimited" in cli("account", "info")


def test_a_backup_comes_back(cli: Cli, tmp_path: Path) -> None:
    """Messages, configuration and consumers of a stream that was removed are there again, under their sequences."""
    cli("stream", "add", "S", "--subjects", "s.>", "--description", "d")
    for number in range(20):
        cli("pub", f"s.{number % 3}", str(number), "-H", f"N:{number}")
    cli("stream", "rmm", "S", "7", "-f")
    cli("consumer", "add", "S", "c")
    cli("consumer", "next", "S", "c", "--count", "4")
    folder = tmp_path / "backup"
    done = json.loads(cli("stream", "backup", "S", str(folder), "--json"))
    assert done["messages"] == 19
    assert "already in use" in cli("stream", "restore", str(folder), code=1)
    cli("stream", "rm", "S", "-f")
    cli("stream", "restore", str(folder))
    state = json.loads(cli("stream", "info", "S", "--json"))
    assert (state["state"]["messages"], state["state"]["last_seq"], state["config"]["description"]) == (19, 20, "d")
    assert parsed(cli("stream", "get", "S", "20", "--json"))[0]["headers"] == {"N": ["19"]}
    assert cli("consumer", "next", "S", "c", "--raw") == "4\n"
