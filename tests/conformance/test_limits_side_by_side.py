"""What the configuration of JetStream does to streams: bounds on all of them together, and a domain."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.conformance.jetstream_talk import Servers, Talk, Told, both_servers, side_by_side
from tests.live.server_process import PATIENCE_S

GB = 1_000_000_000


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Both servers, with room for so much, in a domain."""
    more = "\njetstream { max_file_store: 3000000000, max_memory_store: 1000000, domain: hub }"
    with both_servers(tmp_path_factory.mktemp("servers"), more) as running:
        yield running


@side_by_side
def test_reservations(talk: Talk) -> None:
    """A stream with a byte limit reserves it: what does not fit beside the others is refused, then and at updates."""
    body = {"name": "A", "subjects": ["a"], "max_bytes": 2 * GB}
    assert talk.refused("STREAM.CREATE.X", {"name": "X", "max_bytes": 4 * 10**18}) == 10047
    assert talk.refused("STREAM.CREATE.X", {"name": "X", "max_bytes": 3 * GB + 1}) == 10047
    talk.done("STREAM.CREATE.A", body)
    assert talk.refused("STREAM.CREATE.B", {"name": "B", "max_bytes": GB + 1}) == 10047
    talk.done("STREAM.CREATE.B", {"name": "B", "max_bytes": GB})
    talk.done("STREAM.UPDATE.A", body)
    assert talk.refused("STREAM.UPDATE.A", {**body, "max_bytes": 2 * GB + 1}) == 10047
    talk.done("STREAM.DELETE.B")
    talk.done("STREAM.UPDATE.A", {**body, "max_bytes": 3 * GB})
    assert talk.done("STREAM.INFO.A")["config"]["max_bytes"] == 3 * GB


@side_by_side
def test_full_memory(talk: Talk) -> None:
    """Memory has its own bound, in reservations and in what is stored; what is purged makes room."""
    assert talk.refused("STREAM.CREATE.M", {"name": "M", "storage": "memory", "max_bytes": 1_000_001}) == 10028
    talk.create("M", storage="memory")
    with talk.ours_alone():  # the bound on what is stored may be passed for a moment here
        deadline = time.monotonic() + PATIENCE_S
        while "error" not in (answer := talk.publish("m", b"x" * 100_000)):
            assert time.monotonic() < deadline
        assert answer["error"]["err_code"] == 10023
        talk.done("STREAM.PURGE.M")
        while "error" in talk.publish("m", b"x"):
            assert time.monotonic() < deadline


@side_by_side
def test_a_domain(talk: Talk) -> None:
    """Acknowledgements and information name it, calls may, and so do the advisories of what is done to a stream."""
    advisories = "$JS.EVENT.ADVISORY.>"
    talk.listen(advisories)
    talk.create("S", allow_atomic=True)
    assert talk.publish("s", b"", {"Nats-Msg-Id": "a"}) == {"stream": "S", "domain": "hub", "seq": 1}
    assert talk.publish("s", b"", {"Nats-Msg-Id": "a"}) == {
        "stream": "S", "domain": "hub", "seq": 1, "duplicate": True,
    }  # fmt: skip
    batch = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"}
    assert talk.publish("s", b"", batch)["domain"] == "hub"
    assert talk.ask("$JS.hub.API.STREAM.INFO.S").json["domain"] == "hub"
    assert talk.ask("$JS.other.API.STREAM.INFO.S").status == "503"
    talk.done("STREAM.UPDATE.S", {"name": "S", "subjects": ["s"]})
    talk.done("STREAM.DELETE.S")
    told: list[Told] = []
    while len(told) < 7:
        one = talk.hear(advisories)
        if one.json.get("subject", one.subject).endswith(".S"):  # not what became of the streams before this one
            told.append(one)
    assert {one.json["domain"] for one in told} == {"hub"}
    actions = [one for one in told if "STREAM" in one.subject]
    assert [one.subject.split(".")[4] for one in actions] == ["CREATED", "UPDATED", "DELETED"]
    talk.log += [one.comparable() for one in actions]
    audits = [one.json for one in told if "STREAM" not in one.subject]
    assert [one["subject"].split(".")[3] for one in audits] == ["CREATE", "INFO", "UPDATE", "DELETE"]
    assert all({"server", "client", "response"} <= one.keys() for one in audits)
