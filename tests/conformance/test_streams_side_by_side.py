"""Streams and their administration: what nats-server answers, and what is right."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.conformance.consumer_talk import messages, wait_for
from tests.conformance.jetstream_talk import Servers, Talk, Told, both_servers, side_by_side, without_varying
from tests.live.server_process import wait_until


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Both servers for all tests of this module."""
    with both_servers(tmp_path_factory.mktemp("servers")) as running:
        yield running


STORES = ("file", "memory")


@side_by_side
def test_empty_objects_in_a_configuration(talk: Talk) -> None:
    """A null source and an empty mirror are refused by name; empty transforms and republishing mean none."""
    assert talk.refused("STREAM.CREATE.S", {"name": "S", "sources": [None]}) == 10141
    assert talk.refused("STREAM.CREATE.S", {"name": "S", "mirror": {}}) == 10142
    assert talk.refused("STREAM.CREATE.S", {"name": "S", "subjects": [None]}) == 10052
    talk.create("T", subject_transform={})
    talk.create("R", republish={})
    assert talk.stored("t.x") == talk.stored("r.x") == 1


@side_by_side
def test_more_replicas_than_servers(talk: Talk) -> None:
    """A stand-alone server keeps one replica, whatever is asked for; zero means one."""
    talk.create("S", num_replicas=0)
    assert talk.refused("STREAM.UPDATE.S", {"name": "S", "subjects": ["s"], "num_replicas": 3}) == 10074
    assert talk.done("STREAM.INFO.S")["config"]["num_replicas"] == 1
    for replicas, code in ((2, 10074), (6, 10052), (2**31, 10052), (2**70, 10025), (-1, 10133)):
        assert talk.refused("STREAM.CREATE.X", {"name": "X", "num_replicas": replicas}) == code
    assert talk.done("STREAM.NAMES")["streams"] == ["S"]


@side_by_side
def test_republishing_in_a_circle(talk: Talk) -> None:
    """What is republished after a transform may not come back to the stream."""
    talk.listen("b.>")
    config = {"name": "S", "subjects": ["a.>"], "subject_transform": {"src": "a.>", "dest": "b.>"}}
    talk.done("STREAM.CREATE.S", {**config, "republish": {"src": ">", "dest": ">"}})
    assert talk.stored("a.hello", b"x") == 1
    told = talk.hear("b.>")
    assert (told.subject, told.data, told.headers["Nats-Subject"]) == ("b.hello", b"x", "b.hello")
    config["subjects"] = ["a.>", "c.>"]
    assert talk.refused("STREAM.UPDATE.S", {**config, "republish": {"src": "b.>", "dest": "c.>"}}) == 10052


@side_by_side
def test_purging_an_empty_stream(talk: Talk) -> None:
    """Nothing is purged, and counting still begins at 1."""
    for storage in STORES:
        talk.create("S", storage=storage)
        for body in (None, {"seq": 0}, {"keep": 0}, {"filter": "s.x"}):
            assert talk.done("STREAM.PURGE.S", body)["purged"] == 0
            assert talk.state("S") == (0, 1, 0)
        talk.done("STREAM.DELETE.S")


@side_by_side
def test_purging_up_to_a_sequence(talk: Talk) -> None:
    """What lies below the sequence goes, be it stored or a gap; nothing is counted as deleted."""
    for storage in STORES:
        talk.create("S", storage=storage)
        talk.flood(["s"] * 10_000)
        assert talk.done("STREAM.PURGE.S", {"seq": 9000})["purged"] == 8999
        assert talk.state("S") == (1001, 9000, 10_000)
        assert "num_deleted" not in talk.done("STREAM.INFO.S")["state"]
        for gap in (9500, 9501, 9502):
            talk.done("STREAM.MSG.DELETE.S", {"seq": gap})
        assert talk.done("STREAM.PURGE.S", {"seq": 9501})["purged"] == 500
        assert talk.state("S") == (498, 9503, 10_000)
        with talk.ours_alone() as is_ours:
            # nats-server skips sequences that were never used; with the largest number it wraps around to 0.
            assert talk.done("STREAM.PURGE.S", {"seq": 2**64 - 1})["purged"] == 498
            assert not is_ours or (talk.state("S"), talk.stored("s")) == ((0, 10_001, 10_000), 10_001)
        talk.done("STREAM.DELETE.S")


@side_by_side
def test_purging_a_part(talk: Talk) -> None:
    """By subject, by number kept, by sequence, and by two of them; a sequence and a number exclude each other."""
    for storage in STORES:
        talk.create("S", storage=storage)
        talk.flood([f"s.{number % 3}" for number in range(30)])
        assert talk.refused("STREAM.PURGE.S", {"seq": 3, "keep": 3}) == 10003
        assert talk.done("STREAM.PURGE.S", {"filter": "s.0", "keep": 4})["purged"] == 6
        assert talk.done("STREAM.PURGE.S", {"filter": "s.1", "seq": 6})["purged"] == 2
        assert talk.done("STREAM.PURGE.S", {"filter": "s.*", "seq": 7})["purged"] == 2
        assert talk.done("STREAM.PURGE.S", {"filter": "other"})["purged"] == 0
        assert talk.state("S")[0] == 20
        assert talk.done("STREAM.PURGE.S", {"filter": "s.*", "keep": 10})["purged"] == 10
        assert talk.done("STREAM.PURGE.S", {"keep": 5})["purged"] == 5
        assert talk.state("S") == (5, 26, 30)
        assert talk.done("STREAM.PURGE.S", {"keep": 50})["purged"] == 0
        assert talk.done("STREAM.PURGE.S", {"filter": ">"})["purged"] == 5
        talk.done("STREAM.DELETE.S")


@side_by_side
def test_lowering_the_messages_of_a_subject(talk: Talk) -> None:
    """A smaller limit holds at once, and for what comes after."""
    for storage in STORES:
        config = {"name": "S", "subjects": ["s.>"], "storage": storage}
        talk.done("STREAM.CREATE.S", {**config, "max_msgs_per_subject": 5})
        talk.flood([f"s.{number % 2}" for number in range(10)])
        talk.done("STREAM.UPDATE.S", {**config, "max_msgs_per_subject": 3})
        assert talk.state("S") == (6, 5, 10)
        talk.flood(["s.0", "s.0"])
        assert talk.state("S")[0] == 6
        assert talk.done("STREAM.INFO.S", {"subjects_filter": ">"})["state"]["subjects"] == {"s.0": 3, "s.1": 3}
        talk.done("STREAM.DELETE.S")


@side_by_side
def test_a_full_subject_of_a_full_stream(talk: Talk) -> None:
    """With discard "new" per subject, a second message of a subject is refused, and a subject too many."""
    talk.create("S", max_msgs=100, max_msgs_per_subject=1, discard="new", discard_new_per_subject=True)
    talk.flood([f"s.{number}" for number in range(100)])
    for number in (0, 99, 100):
        answer = talk.publish(f"s.{number}")
        limit = "maximum messages exceeded" if number == 100 else "maximum messages per subject exceeded"
        assert (answer["error"]["err_code"], answer["error"]["description"]) == (10077, limit)
    assert talk.state("S") == (100, 1, 100)


@side_by_side
def test_rolling_up_a_full_subject(talk: Talk) -> None:
    """A roll-up of a subject that is full takes the place of what is there."""
    config = {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True, "allow_rollup_hdrs": True}
    talk.create("S", **config)
    assert talk.stored("s.A", b"old") == 1
    assert talk.denied("s.A", b"new") == 10077
    assert talk.stored("s.A", b"new", {"Nats-Rollup": "sub"}) == 2
    assert talk.state("S") == (1, 2, 2)
    assert talk.get("S", {"seq": 2}).data == b""  # direct gets are off


@side_by_side
def test_a_rollup_that_nobody_wants(talk: Talk) -> None:
    """In an interest stream a roll-up takes away what is older even if no consumer wants the message itself."""
    talk.create("S", retention="interest", allow_rollup_hdrs=True)
    config = {"durable_name": "C", "filter_subject": "s.a.>", "ack_policy": "explicit"}
    talk.done("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})
    talk.flood(["s.a.1", "s.a.2", "s.a.3"])
    assert talk.stored("s.b", b"", {"Nats-Rollup": "all"}) == 4
    assert talk.state("S") == (0, 5, 4)


@side_by_side
def test_rollups(talk: Talk) -> None:
    """Of a subject and of all; only where the stream allows it, and only these two words."""
    talk.create("S", allow_rollup_hdrs=True)
    talk.create("N")
    assert talk.denied("n", b"", {"Nats-Rollup": "all"}) == 10111
    talk.flood(["s.a", "s.b"] * 5)
    assert talk.denied("s.a", b"", {"Nats-Rollup": "none"}) == 10111
    assert talk.stored("s.a", b"", {"Nats-Rollup": "SUB"}) == 11
    assert talk.state("S") == (6, 2, 11)
    assert talk.stored("s.a", b"", {"Nats-Rollup": "all"}) == 12
    assert talk.state("S") == (1, 12, 12)


@side_by_side
def test_last_messages_after_a_new_subject(talk: Talk) -> None:
    """A subject that an update adds is captured at once, and found."""
    talk.done("STREAM.CREATE.S", {"name": "S", "subjects": ["a"]})
    talk.flood(["a"] * 3)
    talk.done("STREAM.UPDATE.S", {"name": "S", "subjects": ["a", "b"]})
    assert talk.stored("b") == 4
    for subject, seq in (("a", 3), ("b", 4)):
        assert talk.done("STREAM.MSG.GET.S", {"last_by_subj": subject})["message"]["seq"] == seq
    talk.done("STREAM.UPDATE.S", {"name": "S", "subjects": ["b"]})
    assert talk.ask("a").status == "503"


@side_by_side
def test_pages_of_names_and_lists(talk: Talk) -> None:
    """An offset below zero is zero; one beyond the end gives an empty page and the total; a subject selects."""
    for name in ("A", "B", "C", "D", "E"):
        talk.create(name)
    for call in ("STREAM.NAMES", "STREAM.LIST"):
        for offset in (0, -1, 2, 5, 2**62):
            answer = talk.done(call, {"offset": offset})
            shown = [one if isinstance(one, str) else one["config"]["name"] for one in answer["streams"] or []]
            assert shown == ["A", "B", "C", "D", "E"][min(max(offset, 0), 5) :]
            assert answer["total"] == 5
        for subject, count in (("a.x", 1), ("*.x", 5), (">", 5), ("x", 0), ("a.*", 1), ("a", 1), ("a b", 0)):
            assert talk.done(call, {"subject": subject})["total"] == count
        assert talk.refused(call, {"subjects": "a"}) == 10025
    for offset in (-1, 2**62):
        assert talk.done("CONSUMER.LIST.A", {"offset": offset})["total"] == 0


@side_by_side
def test_details_of_subjects_and_deletions(talk: Talk) -> None:
    """The information about a stream holds counts by subject and deleted sequences where they are asked for."""
    talk.create("S")
    talk.flood([f"s.{number % 4}.{number % 3}" for number in range(24)])
    for seq in (3, 7, 8, 24):
        talk.done("STREAM.MSG.DELETE.S", {"seq": seq})
    state = talk.done("STREAM.INFO.S")["state"]
    assert (state["num_subjects"], state["num_deleted"], "deleted" in state) == (12, 4, False)
    assert talk.done("STREAM.INFO.S", {"deleted_details": True})["state"]["deleted"] == [3, 7, 8, 24]
    found = talk.done("STREAM.INFO.S", {"subjects_filter": "s.1.*"})
    assert found["state"]["subjects"] == {"s.1.0": 2, "s.1.1": 2, "s.1.2": 2}
    assert (found["total"], found["offset"]) == (3, 0)
    assert "subjects" not in talk.done("STREAM.INFO.S", {"subjects_filter": "other"})["state"]
    paged = talk.done("STREAM.INFO.S", {"subjects_filter": ">", "offset": 10})
    assert (len(paged["state"]["subjects"]), paged["total"]) == (2, 12)
    assert talk.refused("STREAM.INFO.S", {"deleted": True}) == 10025
    assert talk.refused("STREAM.INFO.X") == 10059


@side_by_side
def test_a_hundred_equal_creations(talk: Talk) -> None:
    """Whoever asks for what is there already is told so: one stream, one time of creation."""
    inbox = talk.new_inbox()
    body = b'{"name":"S","subjects":["s"]}'
    talk.send(talk.packed("$JS.API.STREAM.CREATE.S", body, (), inbox) * 100)
    answers = [talk.hear(inbox).json for _ in range(100)]
    assert len({answer["created"] for answer in answers}) == 1
    assert talk.refused("STREAM.CREATE.S", {"name": "S", "subjects": ["other"]}) == 10058


@side_by_side
def test_a_first_sequence(talk: Talk) -> None:
    """Counting begins where the configuration says."""
    for storage in STORES:
        talk.create("S", first_seq=10_000, storage=storage)
        talk.done("STREAM.PURGE.S")
        assert talk.state("S") == (0, 10_000, 9_999)
        assert talk.stored("s") == 10_000
        assert talk.state("S") == (1, 10_000, 10_000)
        talk.done("STREAM.DELETE.S")


@side_by_side
def test_subjects_change_hands(talk: Talk) -> None:
    """What a stream gives up, by an update or its end, another one may have; what it took, nobody else."""

    def wish(name: str, *subjects: str) -> tuple[str, dict[str, Any]]:
        return name, {"name": name, "subjects": list(subjects)}

    for call, (name, config), code in (
        ("CREATE", wish("A", "a", "c.>"), 0),
        ("CREATE", wish("B", "a"), 10065),
        ("CREATE", wish("B", "c.*.x"), 10065),
        ("UPDATE", wish("A", "b", "c.1"), 0),
        ("CREATE", wish("B", "a", "c.2"), 0),
        ("UPDATE", wish("B", "a", "c.*"), 10065),
        ("UPDATE", wish("A", "a"), 10065),
        ("UPDATE", wish("A", "c.1"), 0),
        ("UPDATE", wish("B", "a", "b"), 0),
        ("UPDATE", wish("A", "c.>", "d"), 0),
        ("DELETE", ("A", {}), 0),
        ("CREATE", wish("A", "b"), 10065),
        ("UPDATE", wish("B", ">"), 10052),
        ("UPDATE", wish("B", "c.>", "d"), 0),
        ("CREATE", wish("A", "a", "b"), 0),
        ("CREATE", wish("C", "*"), 10065),
    ):
        answer = talk.api(f"STREAM.{call}.{name}", config or None)
        assert answer.get("error", {}).get("err_code", 0) == code, (call, name, config)


@side_by_side
def test_transforms_of_copies(talk: Talk) -> None:
    """A stream's own transform comes behind those of its source or mirror."""
    talk.create("O")
    talk.flood(["o.a"])
    for own, stored in ({"src": "o.>", "dest": "u.>"}, ["u.a", "t.a"]), ({"src": "t.>", "dest": "v.>"}, ["o.a", "v.a"]):
        for transforms, subject in zip(
            ({}, {"subject_transforms": [{"src": "o.>", "dest": "t.>"}]}), stored, strict=True
        ):
            for copies in ({"mirror": {"name": "O", **transforms}}, {"sources": [{"name": "O", **transforms}]}):
                talk.done("STREAM.CREATE.T", {"name": "T", "subject_transform": own, **copies})
                wait_for(lambda: messages(talk, "T"), 1)
                with talk.ours_alone():  # the header names the stream's making
                    assert talk.done("STREAM.MSG.GET.T", {"seq": 1})["message"]["subject"] == subject
                talk.done("STREAM.DELETE.T")


@side_by_side
def test_streams_that_source_each_other(talk: Talk) -> None:
    """Each takes what was published to the other one, once."""
    talk.create("A")
    talk.create("B", sources=[{"name": "A", "filter_subject": "a.>"}])
    config = {"name": "A", "subjects": ["a.>"], "sources": [{"name": "B", "filter_subject": "b.>"}]}
    with talk.ours_alone():
        talk.done("STREAM.UPDATE.A", config)
    talk.flood(["a.1", "b.1", "a.2", "b.2"])

    def held(name: str) -> object:
        with talk.ours_alone():
            return talk.done(f"STREAM.INFO.{name}", {"subjects_filter": ">"})["state"].get("subjects")

    for name in "AB":
        wait_for(lambda name=name: held(name), {"a.1": 1, "a.2": 1, "b.1": 1, "b.2": 1})


@side_by_side
def test_which_stream_of_a_name_it_is(talk: Talk) -> None:
    """Who sources is told by a header, and refused where it asks for another one; a stream made anew is another."""
    sourcing = {"deliver_subject": "d", "idle_heartbeat": 10**9, "flow_control": True, "max_deliver": 1}
    found = []

    def make(key: str, claimed: str) -> Told:
        body = json.dumps({"stream_name": "O", "config": {**sourcing, key: True}}).encode()
        return talk.ask("$JS.API.CONSUMER.CREATE.O", body, {"Nats-Stream-Identity": claimed})

    for _ in range(2):
        talk.create("O")
        with talk.ours_alone():  # identities are each server's own
            for key in ("direct", "sourcing"):
                answer = make(key, "")
                identity = answer.headers["Nats-Stream-Identity"]
                assert make(key, identity).headers == answer.headers
                refused = make(key, "other")
                error = refused.json["error"]
                assert (refused.headers, error["err_code"]) == ({}, 10225)
                assert error["description"] == f"consumer's stream identity does not match: {identity}"
            assert make("headers_only", "other").headers == {}
        found.append(identity)
        talk.done("STREAM.DELETE.O")
    assert found[0] != found[1]


@side_by_side
def test_what_is_told_of_origins(talk: Talk) -> None:
    """How far each source of a stream has come, in the sequences of its origin, and which are not there; the same when
    it is sealed.
    """
    talk.create("O")
    origins = [{"name": "O", "filter_subject": "o.1"}, {"name": "N", "filter_subject": "n.1"}]
    with talk.ours_alone():  # nats-server tells them in any order
        talk.create("S", sources=origins)
    for subject in ("o.1", "o.1", "o.2"):
        talk.stored(subject)

    def told() -> list[Any]:
        with talk.ours_alone():
            infos = talk.done("STREAM.INFO.S")["sources"]
        return sorted([one["name"], one.get("seq"), one.get("error", {}).get("err_code")] for one in infos)

    wait_until(lambda: told() == [["N", None, 10059], ["O", 2, None]])
    with talk.ours_alone():
        config = talk.done("STREAM.INFO.S")["config"]
        answer = talk.done("STREAM.UPDATE.S", {**config, "sealed": True})
    assert sorted(one["active"] > 0 for one in answer["sources"]) == [False, True]
    assert told() == [["N", None, 10059], ["O", 2, None]]


@side_by_side
def test_sealing(talk: Talk) -> None:
    """A sealed stream can be read, and nothing else; the seal does not come off."""
    config = {"name": "S", "subjects": ["s"]}
    assert talk.refused("STREAM.CREATE.S", {**config, "sealed": True}) == 10052
    talk.done("STREAM.CREATE.S", config)
    talk.flood(["s", "s"])
    sealed = talk.done("STREAM.UPDATE.S", {**config, "sealed": True})["config"]
    assert (sealed["sealed"], sealed["discard"], sealed["deny_delete"], sealed["deny_purge"]) == (
        True,
        "new",
        True,
        True,
    )
    assert talk.refused("STREAM.MSG.DELETE.S", {"seq": 1}) == 10109
    assert talk.refused("STREAM.PURGE.S") == 10109
    assert talk.refused("STREAM.UPDATE.S", {**config, "sealed": False}) == 10052
    assert talk.denied("s") == 10109
    assert talk.done("STREAM.MSG.GET.S", {"seq": 2})["message"]["seq"] == 2
    talk.done("STREAM.DELETE.S")


@side_by_side
def test_sealing_streams_of_all_kinds(talk: Talk) -> None:
    """Also those whose kind does not go with the settings of a sealed stream; copies stay as they are."""
    talk.create("O")
    kinds: list[dict[str, Any]] = [
        {"subjects": ["s"], "allow_msg_counter": True},
        {"subjects": ["s"], "allow_msg_schedules": True},
        {"subjects": ["s"], "subject_delete_marker_ttl": 1_000_000_000},
        {"subjects": ["s"], "max_age": 10_000_000_000},
        {"subjects": ["s"], "retention": "workqueue"},
        {"sources": [{"name": "O"}]},
        {"mirror": {"name": "O"}},
    ]
    for kind in kinds:
        config = {"name": "S", **kind}
        talk.done("STREAM.CREATE.S", config)
        if "subjects" not in kind:
            wait_for(lambda: messages(talk), messages(talk, "O"))
        assert talk.done("STREAM.UPDATE.S", {**config, "sealed": True})["config"]["sealed"]
        assert talk.refused("STREAM.UPDATE.S", {**config, "sealed": False}) == 10052
        before = talk.state("S")
        if "subjects" in kind:
            assert talk.denied("s", b"", {"Nats-Incr": "1"} if "allow_msg_counter" in kind else {}) == 10109
        else:
            talk.stored("o")
            time.sleep(0.3)
        with talk.ours_alone():  # there, the lag counts only what has been sent
            assert talk.state("S") == before
        talk.done("STREAM.DELETE.S")


@side_by_side
def test_denying(talk: Talk) -> None:
    """What denies deletion or purging says so, and cannot be talked out of it; and age goes on."""
    config = {"name": "S", "subjects": ["s"], "deny_delete": True, "deny_purge": True}
    assert talk.refused("STREAM.CREATE.S", {**config, "allow_rollup_hdrs": True}) == 10052
    talk.done("STREAM.CREATE.S", config)
    talk.flood(["s", "s"])
    assert talk.refused("STREAM.MSG.DELETE.S", {"seq": 1}) == 10057
    assert talk.refused("STREAM.PURGE.S") == 10110
    assert talk.refused("STREAM.UPDATE.S", {"name": "S", "subjects": ["s"]}) == 10052
    assert talk.state("S") == (2, 1, 2)


@side_by_side
def test_deleting_messages(talk: Talk) -> None:
    """With and without erasing; what is not there cannot be deleted."""
    for storage in STORES:
        talk.create("S", storage=storage)
        talk.flood(["s"] * 5)
        assert talk.done("STREAM.MSG.DELETE.S", {"seq": 2})["success"]
        assert talk.done("STREAM.MSG.DELETE.S", {"seq": 3, "no_erase": True})["success"]
        assert [talk.refused("STREAM.MSG.DELETE.S", {"seq": seq}) for seq in (2, 3)] == [10043, 10043]
        assert talk.refused("STREAM.MSG.GET.S", {"seq": 2}) == 10037
        assert talk.state("S") == (3, 1, 5)
        assert talk.refused("STREAM.MSG.DELETE.S", {"sequence": 1}) == 10025
        assert talk.refused("STREAM.MSG.DELETE.X", {"seq": 1}) == 10059
        talk.done("STREAM.DELETE.S")


@side_by_side
def test_deleting_what_is_not_there(talk: Talk) -> None:
    """A stream in files tells what lies before and behind its messages from gaps, one in memory does not."""
    for name, storage in (("F", "file"), ("M", "memory")):
        talk.create(name, storage=storage)

        def code(seq: int, name: str = name) -> int:
            return talk.refused(f"STREAM.MSG.DELETE.{name}", {"seq": seq})

        outside = 10057 if storage == "file" else 10043
        assert code(1) == outside
        talk.flood([name.lower()] * 5)
        talk.done(f"STREAM.MSG.DELETE.{name}", {"seq": 3})
        assert [code(seq) for seq in (3, 0, 6, 2**64 - 1)] == [10043] + [outside] * 3
        talk.done(f"STREAM.PURGE.{name}", {"seq": 3})
        assert [code(seq) for seq in (1, 3)] == [outside, outside]
        talk.done(f"STREAM.PURGE.{name}")
        assert [code(seq) for seq in (5, 6)] == [outside, outside]


@side_by_side
def test_getting_messages(talk: Talk) -> None:
    """By sequence, the last or the next of a subject, from a time on; with and without headers."""
    talk.create("S")
    for number in range(9):
        talk.stored(f"s.{number % 3}", b"%d" % number, {"N": str(number)})

    def seq_of(body: object) -> int:
        return int(talk.done("STREAM.MSG.GET.S", body)["message"]["seq"])

    assert seq_of({"seq": 4}) == 4
    assert seq_of({"last_by_subj": "s.1"}) == 8
    assert seq_of({"last_by_subj": "s.*"}) == 9
    assert seq_of({"next_by_subj": "s.1"}) == 2
    assert seq_of({"next_by_subj": "s.1", "seq": 3}) == 5
    assert seq_of({"start_time": "2020-01-01T00:00:00Z"}) == 1
    assert seq_of({"start_time": "2020-01-01T00:00:00Z", "next_by_subj": "s.2"}) == 3
    assert talk.done("STREAM.MSG.GET.S", {"seq": 4})["message"]["hdrs"]
    assert "hdrs" not in talk.done("STREAM.MSG.GET.S", {"seq": 4, "no_hdr": True})["message"]
    for body, code in (
        ({}, 10003),
        (None, 10003),
        ({"seq": 10}, 10037),
        ({"last_by_subj": "x"}, 10037),
        ({"next_by_subj": "s.1", "seq": 9}, 10037),
        ({"seq": 1, "last_by_subj": "s.1"}, 10003),
        ({"seq": 1, "batch": 2}, 10003),
        ({"last_by_subj": "s.1", "next_by_subj": "s.1"}, 10003),
        ({"seq": 1, "start_time": "2020-01-01T00:00:00Z"}, 10003),
        ({"start_time": "2120-01-01T00:00:00Z"}, 10037),
        ({"seq": "1"}, 10025),
        (b"x", 10025),
    ):
        assert talk.refused("STREAM.MSG.GET.S", body) == code, body


@side_by_side
def test_sizes(talk: Talk) -> None:
    """Header and payload together count; what is too large is refused."""
    talk.create("S", max_msg_size=100)
    assert talk.stored("s", b"x" * 100) == 1
    assert talk.denied("s", b"x" * 101) == 10054
    block = len("NATS/1.0\r\nA: b\r\n\r\n")
    assert talk.stored("s", b"x" * (100 - block), {"A": "b"}) == 2
    assert talk.denied("s", b"x" * (101 - block), {"A": "b"}) == 10054
    talk.create("H")
    assert talk.denied("h", b"", {"A": "x" * 65_536}) == 10097


@side_by_side
def test_limits_discard_the_oldest(talk: Talk) -> None:
    """By count, by bytes, by subject."""
    talk.create("M", max_msgs=3)
    talk.flood(["m"] * 10)
    assert talk.state("M") == (3, 8, 10)
    talk.create("B", max_bytes=1000)
    talk.flood(["b"] * 20, b"x" * 100)
    talk.state("B")
    talk.create("P", max_msgs_per_subject=2)
    talk.flood([f"p.{number % 3}" for number in range(12)])
    assert talk.state("P") == (6, 7, 12)


@side_by_side
def test_limits_refuse_the_newest(talk: Talk) -> None:
    """By count and by bytes, with discard "new"; room that is made can be used."""
    talk.create("M", max_msgs=3, discard="new")
    talk.flood(["m"] * 3)
    assert talk.denied("m") == 10077
    talk.done("STREAM.MSG.DELETE.M", {"seq": 2})
    assert talk.stored("m") == 4
    talk.create("B", max_bytes=1000, discard="new")
    answers = [talk.publish("b", b"x" * 100) for _ in range(12)]
    assert answers[0]["seq"] == 1
    assert answers[-1]["error"]["description"] == "maximum bytes exceeded"


@side_by_side
def test_lowering_limits(talk: Talk) -> None:
    """What is there goes by the new limits, unless the stream discards what is new: then it takes nothing further."""
    names = (f"S{number}" for number in itertools.count())
    for storage in STORES:
        for discard in ({}, {"discard": "new"}, {"discard": "new", "discard_new_per_subject": True}):
            for limits in ({"max_msgs": 3}, {"max_bytes": 100}, {"max_msgs_per_subject": 2, "max_msgs": 3}):
                name = next(names)  # nats-server can mistake a stream for the last one of its name
                config = {"name": name, "subjects": ["s.>"], "storage": storage, "max_msgs_per_subject": 5, **discard}
                talk.done(f"STREAM.CREATE.{name}", config)
                talk.flood([f"s.{number % 3}" for number in range(9)], b"x" * 10)
                talk.done(f"STREAM.UPDATE.{name}", {**config, **limits})
                left = talk.done(f"STREAM.INFO.{name}", {"subjects_filter": ">"})["state"]["messages"]
                if discard:
                    assert left == (6 if "max_msgs_per_subject" in limits else 9)
                    assert talk.denied("s.new", b"x") == 10077
                else:
                    assert left <= 3
                talk.publish("s.0", b"x")
                talk.state(name)
                talk.done(f"STREAM.DELETE.{name}")


@side_by_side
def test_a_stream_that_does_not_answer(talk: Talk) -> None:
    """With no_ack nobody is answered, be it stored or refused; it may take all subjects."""
    talk.create("S", no_ack=True, max_msg_size=10)
    for data in (b"x", b"x" * 11):
        talk.say("s", data, (), talk.inbox + ".quiet")
    assert talk.hear_all(talk.inbox + ".quiet", 0.2) == []
    assert talk.state("S") == (1, 1, 1)
    assert talk.refused("STREAM.CREATE.A", {"name": "A", "subjects": [">"]}) == 10052


@side_by_side
def test_transforming_subjects(talk: Talk) -> None:
    """What matches is stored under its new subject, the rest as it is; expectations and limits see the new one."""
    talk.create(
        "S", subject_transform={"src": "s.*.*", "dest": "s.{{wildcard(2)}}.{{wildcard(1)}}"}, max_msgs_per_subject=2
    )
    assert talk.stored("s.a.b") == 1
    assert talk.stored("s.a") == 2
    assert talk.done("STREAM.INFO.S", {"subjects_filter": ">"})["state"]["subjects"] == {"s.a": 1, "s.b.a": 1}
    assert talk.stored("s.a.b", b"", {"Nats-Expected-Last-Subject-Sequence": "1"}) == 3
    assert talk.stored("s.a.b") == 4
    assert talk.state("S") == (3, 2, 4)
    for transform, code in (
        ({"src": "s.>", "dest": "t.{{wildcard(1)}}"}, 10156),
        ({"src": "s..", "dest": "t"}, 10155),
        ({"src": "other.>", "dest": "t.>"}, 0),
    ):
        answer = talk.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t0"], "subject_transform": transform})
        assert answer.get("error", {}).get("err_code", 0) == code


@side_by_side
def test_republishing(talk: Talk) -> None:
    """A stored message goes out again with where it stands; with headers only, its size instead of its body."""
    talk.listen("out.>")
    talk.create("S", republish={"src": "s.*", "dest": "out.{{wildcard(1)}}"})
    talk.create("H", republish={"dest": "out.>", "headers_only": True})
    for data in (b"one", b"two"):
        talk.stored("s.x", data, {"A": "b", "Nats-Msg-Id": data.decode()})
    talk.stored("h.y", b"four")
    talk.stored("s", b"not matching")
    told = [talk.hear("out.>") for _ in range(3)]
    talk.log.append([(one.subject, one.comparable()) for one in told])
    assert [one.subject for one in told] == ["out.x", "out.x", "out.h.y"]
    assert [one.data for one in told] == [b"one", b"two", b""]
    assert told[1].headers["Nats-Last-Sequence"] == "1"
    assert told[2].headers["Nats-Msg-Size"] == "4"
    assert talk.stored("s.x", b"one", {"Nats-Msg-Id": "one"}) == 1
    talk.fence()
    assert talk.hear_all("out.>", 0.1) == []


@side_by_side
def test_metadata_and_description(talk: Talk) -> None:
    """They are kept and shown; the server adds its own and never takes a client's for it."""
    config = talk.create("S", metadata={"owner": "me", "_nats.level": "99"}, description="about")["config"]
    assert (config["metadata"]["owner"], config["description"]) == ("me", "about")
    assert config["metadata"]["_nats.level"] != "99"
    talk.done("STREAM.UPDATE.S", {"name": "S", "subjects": ["s", "s.>"], "metadata": {"owner": "you"}})
    assert talk.done("STREAM.INFO.S")["config"]["metadata"]["owner"] == "you"
    assert talk.refused("STREAM.CREATE.T", {"name": "T", "metadata": {"a": "x" * 131_072}}) == 10052
    assert talk.refused("STREAM.CREATE.T", {"name": "T", "description": "x" * 4097}) == 10052


@side_by_side
def test_names_that_are_refused(talk: Talk) -> None:
    """Path characters, blanks, wildcards and over-long names make no stream."""
    for name in ("a/b", "a\\b", "a b", "a.b", "a*", "a>", "", "x" * 256, "a\tb", ".."):
        assert "error" in talk.api("STREAM.CREATE.T", {"name": name})
    assert talk.refused("STREAM.CREATE.T", {"name": "U"}) == 10056
    assert talk.refused("STREAM.CREATE.a/b", {"name": "a/b"}) == 10128
    assert talk.refused(f"STREAM.CREATE.{'x' * 256}", {"name": "x" * 256}) == 10052
    for body in (b"", b"{", b"[]", b"null", b'"T"', b"{}", b'{"name":1}', b'{"name":"T","max_msgs":"x"}'):
        assert "error" in talk.api("STREAM.CREATE.T", body)
    assert talk.done("STREAM.NAMES")["total"] == 0


@side_by_side
def test_subjects_that_are_refused(talk: Talk) -> None:
    """Overlaps, duplicates, the server's own subjects and malformed ones make no stream."""
    talk.done("STREAM.CREATE.S", {"name": "S", "subjects": ["a.>"]})
    for subjects in (["a.b"], ["*.b"], [">"], ["b", "b"], ["b.*", "b.c"], ["$JS.API.>"], ["$SYS.>"], ["b..c"], [""],
                     ["b.>.c"], ["b c"], ["$JS.>"], ["$NRG.x"], ["a.>"]):  # fmt: skip
        talk.refused("STREAM.CREATE.T", {"name": "T", "subjects": subjects})
    for subjects in (["$JS.EVENT.ADVISORY.>"], ["$SYS.ACCOUNT.>"], ["$KV.x.>"], ["b\u00e9"]):
        with talk.ours_alone():  # it may have caught an advisory by now
            made = talk.done("STREAM.CREATE.T", {"name": "T", "subjects": subjects})
        talk.log.append(without_varying(made["config"]))
        talk.done("STREAM.DELETE.T")


@side_by_side
def test_wrong_calls(talk: Talk) -> None:
    """Calls that do not exist, bodies where none belong, answers that nobody waits for."""
    talk.create("S")
    assert talk.refused("STREAM.DELETE.S", {"name": "S"}) == 10038
    assert talk.refused("STREAM.DELETE.X") == 10059
    assert talk.refused("STREAM.UPDATE.X", {"name": "X"}) == 10059
    assert talk.refused("STREAM.PURGE.X") == 10059
    assert talk.refused("STREAM.PURGE.S", {"filters": "s"}) == 10025
    talk.say("$JS.API.STREAM.DELETE.S")
    talk.fence()
    talk.done("STREAM.NAMES")
