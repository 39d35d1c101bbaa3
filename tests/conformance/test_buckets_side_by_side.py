"""Key-value buckets and object stores as clients make them of streams: what nats-server answers, and what is right."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.conformance.consumer_talk import S, hear_some, info, make, messages, seqs, take, wait_for
from tests.conformance.jetstream_talk import Servers, Talk, Told, both_servers, side_by_side

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Both servers for all tests of this module."""
    with both_servers(tmp_path_factory.mktemp("servers")) as running:
        yield running


def bucket(talk: Talk, name: str = "B", **config: object) -> Any:
    """A bucket as clients make it (ADR-8)."""
    wanted: dict[str, object] = {
        "name": f"KV_{name}",
        "subjects": [f"$KV.{name}.>"],
        "max_msgs_per_subject": 1,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
        "duplicate_window": 120 * S,
        "num_replicas": 1,
        **config,
    }
    return talk.done(f"STREAM.CREATE.KV_{name}", wanted)


def put(talk: Talk, key: str, value: bytes, name: str = "B", **headers: str) -> Any:
    """The answer to a put, with headers by their names in snake case."""
    names = {"revision": "Nats-Expected-Last-Subject-Sequence", "operation": "KV-Operation", "rollup": "Nats-Rollup"}
    pairs = {names.get(key, key.replace("_", "-")): value for key, value in headers.items()}
    return talk.publish(f"$KV.{name}.{key}", value, pairs)


def get(talk: Talk, key: str, name: str = "B") -> Told:
    return talk.get(f"KV_{name}", None, f"$KV.{name}.{key}")


def values(found: list[Told]) -> list[tuple[str, bytes, str]]:
    return [(one.subject, one.data, one.headers.get("KV-Operation", "")) for one in found if not one.status]


@side_by_side
def test_revisions(talk: Talk) -> None:
    """Puts count up; an update needs the key's last revision, a create none; each refusal tells what it is."""
    bucket(talk, max_msgs_per_subject=5)
    assert put(talk, "a", b"1")["seq"] == 1
    assert put(talk, "baz", b"1", revision="1")["error"]["description"] == "wrong last sequence: 0"
    assert put(talk, "baz", b"1", revision="0")["seq"] == 2
    assert put(talk, "baz", b"2", revision="0")["error"]["err_code"] == 10071
    assert put(talk, "baz", b"2", revision="2")["seq"] == 3
    for wrong in ("1", "4", "abc", "-1", "18446744073709551616"):
        answer = put(talk, "baz", b"3", revision=wrong)
        assert answer["error"]["err_code"] == 10071, wrong
    put(talk, "new", b"3", revision="abc")
    only = {"Nats-Expected-Last-Subject-Sequence-Subject": "$KV.B.a"}
    assert talk.publish("$KV.B.c", b"x", only)["error"]["err_code"] == 10193
    assert get(talk, "baz").data == b"2"
    assert get(talk, "nothing").status == "404 Message Not Found"


@side_by_side
def test_deleting_and_purging_a_key(talk: Talk) -> None:
    """A delete leaves a marker behind the history, a purge the marker alone; the key can be created again after it."""
    bucket(talk, max_msgs_per_subject=5)
    for value in (b"1", b"2", b"3"):
        put(talk, "a", value)
    put(talk, "a", b"", operation="DEL")
    assert talk.state("KV_B")[0] == 4
    assert get(talk, "a").headers["KV-Operation"] == "DEL"
    assert put(talk, "a", b"4", revision="4")["seq"] == 5
    put(talk, "a", b"", operation="PURGE", rollup="sub")
    assert talk.state("KV_B") == (1, 6, 6)
    assert get(talk, "a").headers == {
        "KV-Operation": "PURGE",
        "Nats-Rollup": "sub",
        "Nats-Stream": "KV_B",
        "Nats-Subject": "$KV.B.a",
        "Nats-Sequence": "6",
        "Nats-Time-Stamp": get(talk, "a").headers["Nats-Time-Stamp"],
    }
    assert talk.refused("STREAM.MSG.DELETE.KV_B", {"seq": 6}) == 10057
    assert talk.done("STREAM.PURGE.KV_B", {"filter": "$KV.B.a"})["purged"] == 1


@side_by_side
def test_history_and_watching(talk: Talk) -> None:
    """History in order; watching gives the last of each key and then what comes, deletions among it."""
    bucket(talk, max_msgs_per_subject=3)
    for number in range(5):
        put(talk, "a", b"%d" % number)
        put(talk, f"k.{number}", b"x")
    make(talk, "H", stream="KV_B", filter_subject="$KV.B.a", ack_policy="none")
    assert [one.data for one in take(talk, 3, "H", "KV_B")] == [b"2", b"3", b"4"]
    make(
        talk,
        "W",
        stream="KV_B",
        deliver_policy="last_per_subject",
        filter_subject="$KV.B.>",
        ack_policy="none",
        deliver_subject="watch",
        flow_control=True,
        idle_heartbeat=5 * S,
    )
    assert info(talk, "W", "KV_B")["num_pending"] == 6
    talk.listen("watch")
    seen = values(hear_some(talk, "watch", 6))
    assert seen == [("$KV.B.k.0", b"x", ""), ("$KV.B.k.1", b"x", ""), ("$KV.B.k.2", b"x", ""), ("$KV.B.k.3", b"x", ""),
                    ("$KV.B.a", b"4", ""), ("$KV.B.k.4", b"x", "")]  # fmt: skip
    put(talk, "a", b"", operation="DEL")
    put(talk, "k.9", b"new")
    assert values(hear_some(talk, "watch", 2)) == [("$KV.B.a", b"", "DEL"), ("$KV.B.k.9", b"new", "")]


@side_by_side
def test_watching_many_keys(talk: Talk) -> None:
    """Of thirty thousand keys, some written again, a pattern finds each that it matches once; the end comes last."""
    bucket(talk, allow_direct=True)
    talk.flood(f"$KV.B.root.{number % 6000}.{number // 6000}" for number in range(30_000))
    talk.flood(f"$KV.B.root.{number * 7 % 6000}.{number % 5}" for number in range(3000))
    for round_number in range(2):
        name = f"W{round_number}"
        wanted = {"filter_subject": "$KV.B.root.*.3", "deliver_subject": name, "headers_only": True}
        with talk.ours_alone():  # nats-server tells another place before the first delivery
            make(talk, name, stream="KV_B", deliver_policy="last_per_subject", ack_policy="none", **wanted)
        talk.listen(name)
        found = [talk.hear(name) for _ in range(6000)]
        assert len({one.subject for one in found}) == 6000
        assert found[-1].reply.rpartition(".")[2] == "0"
        assert all(one.reply.rpartition(".")[2] != "0" for one in found[:-1])


@side_by_side
def test_keys_that_end(talk: Talk) -> None:
    """With a time to live they go; with limit markers each leaves a marker that says so, and that goes as well."""
    bucket(talk, max_age=S, duplicate_window=S, subject_delete_marker_ttl=S, allow_msg_ttl=True)
    make(talk, "W", stream="KV_B", ack_policy="none", deliver_subject="watch", deliver_policy="new")
    talk.listen("watch")
    ended = {"KV-Operation": "PURGE", "Nats-Rollup": "sub", "Nats-TTL": "1s"}
    talk.send(Talk.packed("$KV.B.a", b"1") + Talk.packed("$KV.B.b", b"1", ended))  # at once: both end at once
    heard = [talk.hear("watch") for _ in range(3)]
    assert [one.subject for one in heard] == ["$KV.B.a", "$KV.B.b", "$KV.B.a"]
    assert heard[2].headers == {"Nats-Marker-Reason": "MaxAge", "Nats-Rollup": "sub", "Nats-TTL": "1s"}
    wait_for(lambda: messages(talk, "KV_B"), 0)


@side_by_side
def test_a_mirror_of_a_bucket(talk: Talk) -> None:
    """It has the origin's keys and revisions; expectations of the origin's writers are not applied again, nor kept."""
    bucket(talk, max_msgs_per_subject=5)
    put(talk, "a", b"1", revision="0")
    put(talk, "a", b"2", revision="1")
    put(talk, "b", b"3", revision="0")
    talk.done("STREAM.CREATE.KV_M", {"name": "KV_M", "mirror": {"name": "KV_B"}, "max_msgs_per_subject": 5,
                                     "allow_direct": True, "mirror_direct": True})  # fmt: skip
    sourced = {"name": "KV_B", "subject_transforms": [{"src": "$KV.B.>", "dest": "$KV.T.>"}]}
    target = {"subjects": ["$KV.T.>"], "sources": [sourced], "max_msgs_per_subject": 5, "allow_direct": True}
    talk.done("STREAM.CREATE.KV_T", {"name": "KV_T", **target})
    put(talk, "a", b"4", revision="2")
    wait_for(lambda: (messages(talk, "KV_M"), messages(talk, "KV_T")), (4, 4))
    found = talk.get("KV_M", None, "$KV.B.a")
    assert (found.data, found.headers["Nats-Sequence"]) == (b"4", "4")
    with talk.ours_alone():
        assert talk.get("KV_T", None, "$KV.T.a").data == b"4"
        copies = [talk.get(name, {"seq": seq}).headers for name in ("KV_M", "KV_T") for seq in range(1, 5)]
    assert not any("Nats-Expected-Last-Subject-Sequence" in headers for headers in copies)


# ------------------------------------------------------------------ objects


def store(talk: Talk, name: str = "O", **config: object) -> None:
    """An object store as clients make it (ADR-20)."""
    wanted: dict[str, object] = {
        "name": f"OBJ_{name}",
        "subjects": [f"$O.{name}.C.>", f"$O.{name}.M.>"],
        "discard": "new",
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        **config,
    }
    talk.done(f"STREAM.CREATE.OBJ_{name}", wanted)


def put_object(talk: Talk, name: str, content: bytes, unique: str, *, chunk_size: int = 128 * 1024) -> None:
    """Chunks first, then the description, which takes the place of the one before."""
    chunks = [content[at : at + chunk_size] for at in range(0, len(content), chunk_size)]
    for chunk in chunks:
        talk.stored(f"$O.O.C.{unique}", chunk)
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
    about = {"name": name, "bucket": "O", "nuid": unique, "size": len(content), "chunks": len(chunks),
             "digest": f"SHA-256={digest}"}  # fmt: skip
    talk.stored(meta(name), json.dumps(about).encode(), {"Nats-Rollup": "sub"})


def meta(name: str) -> str:
    return f"$O.O.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


@side_by_side
def test_an_object_written_again(talk: Talk) -> None:
    """Purging the old chunks leaves one set of chunks and one description; what is read has the digest."""
    store(talk)
    for round_number in range(3):
        put_object(talk, "o", bytes([round_number]) * 1_000_000, f"U{round_number}")
        if round_number:
            purged = talk.done("STREAM.PURGE.OBJ_O", {"filter": f"$O.O.C.U{round_number - 1}"})["purged"]
            assert purged == 8
    found = talk.done("STREAM.INFO.OBJ_O", {"subjects_filter": ">"})["state"]["subjects"]
    assert found == {"$O.O.C.U2": 8, meta("o"): 1}
    about = talk.get("OBJ_O", None, meta("o")).json
    make(talk, "R", stream="OBJ_O", filter_subject=f"$O.O.C.{about['nuid']}", ack_policy="none")
    content = b"".join(one.data for one in take(talk, about["chunks"], "R", "OBJ_O"))
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
    assert about["digest"] == f"SHA-256={digest}"


@side_by_side
def test_an_upload_that_is_given_up(talk: Talk) -> None:
    """A purge on the connection of the chunks is handled after the last of them, though none was waited for."""
    store(talk)
    for round_number in range(20):
        subject = f"$O.O.C.X{round_number}"
        inbox = talk.new_inbox()
        parts = [talk.packed(subject, b"x" * 100_000, (), talk.new_inbox()) for _ in range(10)]
        purge = talk.packed("$JS.API.STREAM.PURGE.OBJ_O", json.dumps({"filter": subject}).encode(), (), inbox)
        talk.send(b"".join(parts) + purge)
        talk.hear(inbox)
    with talk.ours_alone() as is_ours:
        time.sleep(0.2)
        # nats-server may handle the purge before the last chunks.
        assert not is_ours or talk.state("OBJ_O")[0] == 0


@side_by_side
def test_a_sealed_store(talk: Talk) -> None:
    """Nothing is added, removed or purged any more; what is there can be read."""
    store(talk)
    put_object(talk, "o", b"content", "U")
    config = talk.done("STREAM.INFO.OBJ_O")["config"]
    with talk.ours_alone():
        assert talk.done("STREAM.UPDATE.OBJ_O", {**config, "sealed": True})["config"]["sealed"]
    assert talk.denied("$O.O.C.V", b"x") == 10109
    assert talk.refused("STREAM.PURGE.OBJ_O") == 10109
    assert talk.refused("STREAM.MSG.DELETE.OBJ_O", {"seq": 1}) == 10109
    assert talk.get("OBJ_O", None, "$O.O.C.U").data == b"content"
    make(talk, "R", stream="OBJ_O", filter_subject="$O.O.C.U", ack_policy="none")
    assert seqs(take(talk, 1, "R", "OBJ_O")) == [1]
