"""What publish headers ask for: expectations, ids, batches, counters. What nats-server answers, and what is right."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from functools import partial

import pytest
from tests.conformance.consumer_talk import messages, wait_for
from tests.conformance.jetstream_talk import Servers, Talk, both_servers, side_by_side
from tests.live.server_process import wait_until


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Both servers for all tests of this module."""
    with both_servers(tmp_path_factory.mktemp("servers")) as running:
        yield running


LAST = "Nats-Expected-Last-Sequence"
LAST_OF_SUBJECT = "Nats-Expected-Last-Subject-Sequence"
LAST_ID = "Nats-Expected-Last-Msg-Id"


@side_by_side
def test_expectations(talk: Talk) -> None:
    """A publish that expects something else than what is there is refused with what is there."""
    talk.create("S")
    assert talk.denied("s.a", b"", {"Nats-Expected-Stream": "T"}) == 10060
    assert talk.stored("s.a", b"", {"Nats-Expected-Stream": "S", LAST: "0", LAST_OF_SUBJECT: "0"}) == 1
    assert talk.publish("s.a", b"", {LAST: "0"})["error"]["description"] == "wrong last sequence: 1"
    assert talk.stored("s.b", b"", {LAST_OF_SUBJECT: "0"}) == 2
    assert talk.publish("s.a", b"", {LAST_OF_SUBJECT: "2"})["error"]["description"] == "wrong last sequence: 1"
    assert talk.stored("s.a", b"", {LAST_OF_SUBJECT: "2", f"{LAST_OF_SUBJECT}-Subject": "s.*"}) == 3
    assert talk.stored("s.c", b"", [(f"{LAST_OF_SUBJECT}-Subject", "s.a"), (LAST_OF_SUBJECT, "3")]) == 4
    assert talk.denied("s.c", b"", {f"{LAST_OF_SUBJECT}-Subject": "s.a"}) == 10193
    assert talk.stored("s.a", b"", {"Nats-Msg-Id": "one", LAST: "4"}) == 5
    assert talk.denied("s.a", b"", {LAST_ID: "two"}) == 10070
    assert talk.stored("s.a", b"", {LAST_ID: "one"}) == 6
    assert talk.publish("s.new", b"", {LAST_OF_SUBJECT: "1"})["error"]["description"] == "wrong last sequence: 0"
    for none in ("abc", "-1", "0x0"):
        assert talk.publish("s.new", b"", {LAST_OF_SUBJECT: none})["error"]["description"] == "wrong last sequence: 0"
        assert talk.denied("s.a", b"", {LAST: none}) == 10071
    assert talk.state("S") == (6, 1, 6)


@side_by_side
def test_expectations_after_removal(talk: Talk) -> None:
    """A subject whose messages are gone is one that never had any; the stream's last sequence stays."""
    talk.create("S")
    talk.flood(["s.a", "s.b", "s.a"])
    talk.done("STREAM.PURGE.S", {"filter": "s.a"})
    assert talk.denied("s.a", b"", {LAST_OF_SUBJECT: "3"}) == 10071
    assert talk.stored("s.a", b"", {LAST_OF_SUBJECT: "0", LAST: "3"}) == 4
    talk.done("STREAM.PURGE.S")
    assert talk.stored("s.a", b"", {LAST_OF_SUBJECT: "0", LAST: "4"}) == 5


@side_by_side
def test_header_names_are_whole(talk: Talk) -> None:
    """A name inside a value, a longer name, another case: none of them is the header."""
    talk.create("S", allow_direct=True)
    notes = [
        ("X-Note", "Nats-Expected-Stream: T"),
        ("X-Nats-TTL", "5"),
        ("Nats-TTL-More", "x"),
        ("nats-msg-id", "i"),
        ("Nats-Msg-Id-More", "i"),
    ]
    assert [talk.stored("s", b"body: Nats-TTL: 5\r\n", notes) for _ in range(2)] == [1, 2]
    told = talk.get("S", {"seq": 2})
    assert told.data == b"body: Nats-TTL: 5\r\n"
    assert [(key, value) for key, value in told.headers.items() if (key, value) in notes] == notes


@side_by_side
def test_duplicates(talk: Talk) -> None:
    """An id counts until the window is over, whether its message is still there, or expected anything, or not."""
    talk.create("S", duplicate_window=600_000_000_000)
    assert talk.publish("s", b"1", {"Nats-Msg-Id": "a"}) == {"stream": "S", "seq": 1}
    assert talk.publish("s", b"2", {"Nats-Msg-Id": "a"}) == {"stream": "S", "seq": 1, "duplicate": True}
    assert talk.publish("s.x", b"2", {"Nats-Msg-Id": "a", LAST_ID: "no"})["duplicate"]
    talk.done("STREAM.PURGE.S")
    assert talk.publish("s", b"2", {"Nats-Msg-Id": "a"})["duplicate"]
    talk.create("E", duplicate_window=500_000_000)
    assert talk.stored("e", b"1", {"Nats-Msg-Id": "a"}) == 1
    while talk.publish("e", b"2", {"Nats-Msg-Id": "a"}).get("duplicate"):
        talk.log.pop()
    assert talk.state("E") == (2, 1, 2)


@side_by_side
def test_duplicates_in_a_work_queue(talk: Talk) -> None:
    """An acknowledgement does not free the id of the message that it removes."""
    talk.create("S", retention="workqueue")
    config = {"durable_name": "C", "ack_policy": "explicit"}
    talk.done("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})
    assert talk.stored("s", b"", {"Nats-Msg-Id": "a"}) == 1
    talk.listen("pulled")
    talk.say("$JS.API.CONSUMER.MSG.NEXT.S.C", b"", (), "pulled")
    assert talk.ask(talk.hear("pulled").reply, b"+ACK").data == b""
    assert talk.state("S") == (0, 2, 1)
    assert talk.publish("s", b"", {"Nats-Msg-Id": "a"}) == {"stream": "S", "seq": 1, "duplicate": True}


@side_by_side
def test_a_refused_message_does_not_take_its_id(talk: Talk) -> None:
    """After any refusal the same id is stored when the message is put right."""
    config = {"name": "S", "subjects": ["s"], "max_msg_size": 200}
    talk.done("STREAM.CREATE.S", config)
    for headers, code in (
        ({"Nats-TTL": "1m"}, 10166),
        ({LAST: "5"}, 10071),
        ({LAST_OF_SUBJECT: "5"}, 10071),
        ({LAST_ID: "x"}, 10070),
        ({"Nats-Expected-Stream": "T"}, 10060),
        ({"Nats-Rollup": "all"}, 10111),
        ({"Nats-Incr": "1"}, 10168),
        ({"A": "x" * 200}, 10054),
    ):
        assert talk.denied("s", b"", {"Nats-Msg-Id": "m1", **headers}) == code
    talk.done("STREAM.UPDATE.S", {**config, "allow_msg_ttl": True})
    for ttl in ("invalid!", "-10s", "0s", "1ms", "1", "x"):
        answer = talk.publish("s", b"", {"Nats-Msg-Id": f"ttl {ttl}", "Nats-TTL": ttl})
        assert ("error" in answer) == (ttl != "1")
    assert talk.publish("s", b"", {"Nats-Msg-Id": "m1", "Nats-TTL": "1h"}) == {"stream": "S", "seq": 2}


# ---------------------------------------------------------------------- atomic batches


def piece(batch_id: str, number: object, commit: str = "", **more: str) -> dict[str, str]:
    """Headers of one message of an atomic batch."""
    headers = {"Nats-Batch-Id": batch_id, "Nats-Batch-Sequence": str(number)}
    if commit:
        headers["Nats-Batch-Commit"] = commit
    return headers | {key.replace("_", "-"): value for key, value in more.items()}


@side_by_side
def test_a_batch(talk: Talk) -> None:
    """Nothing of it is seen before its commit; then all of it is, in order and under consecutive sequences."""
    talk.create("S", allow_atomic=True, allow_direct=True)
    for number in (1, 2):
        assert talk.ask("s.a", b"%d" % number, piece("one", number)).data == b""
    assert talk.stored("s.b", b"between") == 1
    assert talk.get("S", None, "s.a").status == "404 Message Not Found"
    assert talk.publish("s.a", b"3", piece("one", 3, "1")) == {"stream": "S", "seq": 4, "batch": "one", "count": 3}
    found = talk.get_all("S", {"seq": 1, "batch": 10})
    assert [told.data for told in found] == [b"between", b"1", b"2", b"3", b""]
    assert talk.publish("s.a", b"alone", piece("one", 1, "1")) == {"stream": "S", "seq": 5, "batch": "one", "count": 1}
    assert talk.ask("s.a", b"x", piece("two", 1)).data == b""
    answer = talk.publish("s.a", b"not stored", piece("two", 2, "eob"))
    assert answer == {"stream": "S", "seq": 6, "batch": "two", "count": 1}


@side_by_side
def test_a_batch_without_answers(talk: Talk) -> None:
    """Only who gives a reply subject is answered in between; the commit is answered in any case."""
    talk.create("S", allow_atomic=True)
    for number in range(1, 10):
        talk.say("s", b"x", piece("quiet", number))
    assert talk.publish("s", b"x", piece("quiet", 10, "1"))["count"] == 10
    assert talk.state("S") == (10, 1, 10)


@side_by_side
def test_the_largest_batch(talk: Talk) -> None:
    """A thousand messages are a batch, with the end of the batch as a message of its own or not; one more is not."""
    talk.create("S", allow_atomic=True)
    for count, commit in ((1000, "1"), (1000, "eob"), (1001, "1"), (1001, "eob")):
        batch_id = f"{count}{commit}"
        last = count + (commit == "eob")
        talk.send(b"".join(talk.packed("s", b"", piece(batch_id, number)) for number in range(1, last)))
        answer = talk.publish("s", b"", piece(batch_id, last, commit))
        assert answer.get("count") == (1000 if count == 1000 else None)
        if count > 1000:
            assert answer["error"]["err_code"] == 10199
    assert talk.state("S") == (2000, 1, 2000)


@side_by_side
def test_ids_in_batches(talk: Talk) -> None:
    """A batch with an id twice, or with one that was stored before, is not stored at all."""
    talk.create("S", allow_atomic=True)
    talk.say("s", b"", piece("a", 1, Nats_Msg_Id="x"))
    assert talk.denied("s", b"", piece("a", 2, "1", Nats_Msg_Id="x")) == 10201
    assert talk.stored("s", b"", {"Nats-Msg-Id": "y"}) == 1
    talk.say("s", b"", piece("b", 1, Nats_Msg_Id="z"))
    assert talk.denied("s", b"", piece("b", 2, "1", Nats_Msg_Id="y")) == 10201
    assert talk.state("S") == (1, 1, 1)
    talk.say("s", b"", piece("c", 1, Nats_Msg_Id="z"))
    assert talk.publish("s", b"", piece("c", 2, "1", Nats_Msg_Id="x"))["seq"] == 3
    assert talk.publish("s", b"", {"Nats-Msg-Id": "z"})["duplicate"]


@side_by_side
def test_odd_batches(talk: Talk) -> None:
    """Sequences, ids and commits that are none; ends without a beginning; gaps."""
    talk.create("S", allow_atomic=True)
    talk.create("N")
    assert talk.denied("n", b"", piece("a", 1)) == 10174
    assert talk.denied("s", b"", piece("a", 1, "eob")) == 10176
    for number, code in (("-1", 10175), ("abc", 10175), ("", 10175), (2**64, 10175), (42, 10176), (0, 10176)):
        assert talk.denied("s", b"", piece("a", number)) == code, number
    assert talk.denied("s", b"", {"Nats-Batch-Id": "a"}) == 10175
    assert talk.stored("s", b"", piece("", 7)) == 1
    assert talk.ask("s", b"", piece("x" * 64, 1)).data == b""
    assert talk.denied("s", b"", piece("x" * 65, 1)) == 10179
    assert talk.publish("s", b"", piece("x" * 64, 2, "1"))["count"] == 2
    for commit in ("0", "yes", "EOB"):
        talk.ask("s", b"", piece("c", 1))
        assert talk.denied("s", b"", piece("c", 2, commit)) == 10200
        assert talk.denied("s", b"", piece("c", 3, "1")) == 10176
    talk.ask("s", b"", piece("g", 1))
    assert talk.denied("s", b"", piece("g", 3)) == 10176
    assert talk.denied("s", b"", piece("g", 2, "1")) == 10176
    talk.say("s", b"", piece("i", 1, Nats_Expected_Last_Msg_Id="x"))
    assert talk.denied("s", b"", piece("i", 2, "1")) == 10177
    assert talk.denied("s", b"", piece("l", 1, Nats_Required_Api_Level="99")) == 10185
    assert talk.state("S") == (3, 1, 3)


@side_by_side
def test_expectations_in_batches(talk: Talk) -> None:
    """What does not hold at the commit takes the whole batch back."""
    talk.create("S", allow_atomic=True, allow_rollup_hdrs=True)
    talk.flood(["s.a", "s.b"])
    for first, second in (
        ({LAST: "1"}, {}),
        ({}, {LAST: "2"}),
        ({}, {LAST: "3"}),
        ({LAST_OF_SUBJECT: "7"}, {}),
        ({}, {LAST_OF_SUBJECT: "1"}),
        ({}, {LAST_OF_SUBJECT: "3"}),
        ({}, {"Nats-Expected-Stream": "T"}),
        ({}, {"Nats-Rollup": "all"}),
        ({}, {"Nats-Rollup": "sub"}),
        ({}, {"Nats-TTL": "1h"}),
        ({}, {"Nats-Incr": "1"}),
        ({}, {"Nats-Stream-Source": "x"}),
    ):
        talk.ask("s.a", b"", piece("a", 1) | first)
        talk.denied("s.a", b"", piece("a", 2, "1") | second)
        assert talk.state("S") == (2, 1, 2), (first, second)
    talk.ask("s.a", b"", piece("b", 1) | {LAST: "2", LAST_OF_SUBJECT: "1"})
    assert talk.publish("s.b", b"", piece("b", 2, "1") | {LAST_OF_SUBJECT: "2"})["seq"] == 4
    talk.ask("s.a", b"", piece("c", 1) | {"Nats-Rollup": "sub"})
    assert talk.publish("s.b", b"", piece("c", 2, "1") | {"Nats-Rollup": "sub"})["seq"] == 6
    assert talk.state("S") == (2, 5, 6)


@side_by_side
def test_too_many_batches(talk: Talk) -> None:
    """Fifty batches may be open on a stream; the one too many is told so, and the others go on."""
    talk.create("S", allow_atomic=True)
    for number in range(50):
        talk.ask("s", b"", piece(f"b{number}", 1))
    assert talk.denied("s", b"", piece("b50", 1)) == 10210
    for number in range(50):
        assert talk.publish("s", b"", piece(f"b{number}", 2, "1"))["count"] == 2
    assert talk.publish("s", b"", piece("b50", 1, "1"))["count"] == 1


@side_by_side
def test_a_batch_against_limits(talk: Talk) -> None:
    """With discard "new" a batch fits as a whole or is refused as a whole."""
    talk.create("S", allow_atomic=True, max_msgs=3, discard="new")
    talk.flood(["s", "s"])
    talk.ask("s", b"", piece("a", 1))
    assert talk.denied("s", b"", piece("a", 2, "1")) == 10077
    assert talk.state("S") == (2, 1, 2)
    assert talk.publish("s", b"", piece("b", 1, "1"))["seq"] == 3
    talk.create("Z", allow_atomic=True, max_msg_size=100)
    assert talk.denied("z", b"x" * 101, piece("a", 1)) == 10054


@side_by_side
def test_an_abandoned_batch_is_told(talk: Talk) -> None:
    """A batch with a gap is given up, which an advisory says."""
    talk.listen("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.*")
    talk.create("S", allow_atomic=True)
    talk.ask("s", b"", piece("gap", 1))
    talk.denied("s", b"", piece("gap", 3))
    talk.ask("s", b"", piece("odd", 1))
    talk.denied("s", b"", piece("odd", 2, Nats_Required_Api_Level="99"))
    talk.send(b"".join(talk.packed("s", b"", piece("big", number)) for number in range(1, 1002)))
    for batch_id, reason in (("gap", "incomplete"), ("odd", "unsupported"), ("big", "large")):
        told = talk.hear("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.*")
        assert (told.subject, told.json["batch"], told.json["reason"]) == (
            "$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.S", batch_id, reason,
        )  # fmt: skip


# ---------------------------------------------------------------------- fast batches


class Fast:
    """A fast batch in the making: its control subject and its answers."""

    def __init__(self, talk: Talk, batch_id: str, gap: str = "fail", flow: object = 10) -> None:
        self.talk, self.name = talk, f"{batch_id}.{flow}.{gap}"
        self.listened = f"_INBOX.fast.{batch_id}.>"
        talk.listen(self.listened)

    def say(self, number: object, operation: object, data: bytes = b"", headers: dict[str, str] | None = None) -> None:
        reply = (
            f"{self.listened[: -len('.' + self.name.partition('.')[0] + '.>')]}.{self.name}.{number}.{operation}.$FI"
        )
        self.talk.say("s.f", data, headers or {}, reply)

    def hear(self) -> object:
        told = self.talk.hear(self.listened).json
        self.talk.log.append(("fast", told))
        return told

    def hear_end(self) -> list[object]:
        """All answers up to one that ends the batch."""
        found = [self.hear()]
        while "type" in found[-1]:  # type: ignore[operator]
            found.append(self.hear())
        return found


@side_by_side
def test_a_fast_batch(talk: Talk) -> None:
    """Every message is stored at once; acknowledgements come every so many, the last names the batch."""
    talk.create("S", allow_batched=True)
    fast = Fast(talk, "one", flow=3)
    fast.say(1, 0)
    assert fast.hear() == {"type": "ack", "seq": 0, "msgs": 3}
    for number in range(2, 8):
        fast.say(number, 1)
    fast.say(7, 4)
    fast.say(8, 2)
    found = fast.hear_end()
    assert found[-1] == {"stream": "S", "seq": 8, "batch": "one", "count": 8}
    assert talk.state("S") == (8, 1, 8)
    alone = Fast(talk, "alone")
    alone.say(1, 2)
    assert alone.hear() == {"stream": "S", "seq": 9, "batch": "alone", "count": 1}
    ended = Fast(talk, "ended")
    ended.say(1, 0)
    ended.say(2, 1)
    ended.say(3, 3)
    assert ended.hear_end()[-1] == {"stream": "S", "seq": 11, "batch": "ended", "count": 2}


@side_by_side
def test_gaps_in_fast_batches(talk: Talk) -> None:
    """A missing message ends the batch, or is told and passed over, as the publisher has asked."""
    talk.create("S", allow_batched=True)
    fail = Fast(talk, "fail")
    fail.say(1, 0)
    fail.say(3, 1)
    assert fail.hear_end()[-1]["count"] == 1  # type: ignore[index]
    go_on = Fast(talk, "ok", gap="ok")
    go_on.say(1, 0)
    go_on.say(4, 1)
    go_on.say(5, 2)
    found = go_on.hear_end()
    assert {"type": "gap", "last_seq": 2, "seq": 4} in found
    assert found[-1] == {"stream": "S", "seq": 4, "batch": "ok", "count": 5}
    huge = Fast(talk, "huge", gap="ok")
    huge.say(1, 0)
    huge.say(2**64 - 2, 1)
    assert huge.hear() == {"type": "ack", "seq": 0, "msgs": 10}
    assert huge.hear() == {"type": "gap", "last_seq": 2, "seq": 2**64 - 2}
    talk.fence()


@side_by_side
def test_refusals_in_fast_batches(talk: Talk) -> None:
    """A refused message is named; a commit that is refused still ends the batch, with the last that was stored."""
    talk.create("S", allow_batched=True)
    commit = Fast(talk, "commit")
    commit.say(1, 0)
    commit.say(2, 2, b"", {LAST: "100"})
    found = commit.hear_end()
    assert found[-2]["error"]["err_code"] == 10071  # type: ignore[index]
    assert found[-1] == {"stream": "S", "seq": 1, "batch": "commit", "count": 1}
    first = Fast(talk, "first")
    first.say(1, 0, b"", {LAST: "100"})
    assert first.hear_end()[-1]["error"]["err_code"] == 10071  # type: ignore[index]
    middle = Fast(talk, "middle", gap="ok")
    middle.say(1, 0)
    middle.say(2, 1, b"", {LAST: "100"})
    middle.say(3, 2)
    found = middle.hear_end()
    assert found[-1]["seq"] == 3  # type: ignore[index]
    assert talk.state("S") == (3, 1, 3)


@side_by_side
def test_fast_batches_that_are_none(talk: Talk) -> None:
    """Control subjects that say nothing, unknown batches, streams without the feature: an error at once."""
    talk.create("S", allow_batched=True)
    talk.create("N")
    for subject in (
        "x.10.fail.1.9", "x.10.maybe.1.0", "x.10.fail.0.0", "x.10.fail.x.0", "x.10.fail.-1.0", "x.10.fail.2.0",
        "x.10.fail.1.3", "x.10.fail.1.1", "x.10.fail.5.1", "x.10.fail.5.2", "x.10.fail.5.4", "x.x.fail.1.2",
        "x.-1.fail.1.2", "x.0.fail.1.2", f"x.10.fail.{2**64 - 1}.1", "x.10.fail.1.x", f"{'y' * 64}.10.fail.1.2",
        f"{'y' * 65}.10.fail.1.2", "x.10.FAIL.1.2", "x.10.fail.01.2", "10.fail.1.0", "1.0",
    ):  # fmt: skip
        inbox = talk.new_inbox().replace("talk", "odd")
        talk.listen(f"{inbox}.>")
        for stream in ("s", "n"):
            talk.say(stream, b"", (), f"{inbox}.{subject}.$FI")
            told = talk.hear(f"{inbox}.>")
            talk.log.append((subject, stream, told.comparable()))
            assert stream == "s" or told.json["error"]["err_code"] == 10205
    talk.state("S")


# ---------------------------------------------------------------------- counters


@side_by_side
def test_counters(talk: Talk) -> None:
    """Each increment is answered with the new total, which is what the stream holds; totals have no end."""
    talk.create("S", allow_msg_counter=True, allow_direct=True)
    for increment, total in (("1", "1"), ("+2", "3"), ("-10", "-7"), ("0", "-7"), ("9" * 40, str(int("9" * 40) - 7))):
        assert talk.publish("s.a", b"", {"Nats-Incr": increment})["val"] == total
        assert talk.get("S", None, "s.a").json == {"val": total}
    assert talk.publish("s.b", b"", {"Nats-Incr": "5"})["val"] == "5"
    for headers, data, code in (
        ({}, b"", 10169),
        ({"Nats-Incr": ""}, b"", 10169),
        ({"Nats-Incr": "1"}, b"x", 10170),
        ({"Nats-Incr": "x"}, b"", 10171),
        ({"Nats-Incr": "1.5"}, b"", 10171),
        ({"Nats-Incr": "0x10"}, b"", 10171),
        ({"Nats-Incr": "1_000"}, b"", 10171),
        ({"Nats-Incr": "1", "Nats-Rollup": "sub"}, b"", 10171),
        ({"Nats-Incr": "1", LAST: "6"}, b"", 10171),
    ):
        assert talk.denied("s.a", data, headers) == code, headers
    talk.done("STREAM.PURGE.S", {"filter": "s.a"})
    assert talk.publish("s.a", b"", {"Nats-Incr": "1"})["val"] == "1"


@side_by_side
def test_what_counters_do_not_mix_with(talk: Talk) -> None:
    """A counter stream keeps what it has, and is no copy: other features are refused by name."""
    for config, code in (
        ({"allow_msg_schedules": True}, 10052),
        ({"discard": "new", "max_msgs": 5}, 10052),
        ({"allow_msg_ttl": True}, 10052),
        ({"retention": "workqueue"}, 10052),
        ({"retention": "interest"}, 10052),
        ({"mirror": {"name": "O"}, "subjects": []}, 10173),
    ):
        body = {"name": "S", "subjects": ["s"], "allow_msg_counter": True, **config}
        assert talk.refused("STREAM.CREATE.S", body) == code
    talk.create("S")
    assert talk.refused("STREAM.UPDATE.S", {"name": "S", "subjects": ["s"], "allow_msg_counter": True}) == 10052


@side_by_side
def test_a_refused_batch_of_increments(talk: Talk) -> None:
    """A batch that is refused leaves the totals as they were."""
    talk.create("S", allow_msg_counter=True, allow_atomic=True)
    assert talk.publish("s", b"", {"Nats-Incr": "2"})["val"] == "2"
    talk.ask("s", b"", piece("a", 1) | {"Nats-Incr": "3"})
    assert talk.denied("s", b"", piece("a", 2, "1") | {"Nats-Incr": "x"}) == 10171
    assert talk.publish("s", b"", {"Nats-Incr": "1"})["val"] == "3"
    talk.ask("s", b"", piece("b", 1) | {"Nats-Incr": "3"})
    assert talk.publish("s", b"", piece("b", 2, "1") | {"Nats-Incr": "4"})["count"] == 2
    assert talk.publish("s", b"", {"Nats-Incr": "0"})["val"] == "10"


# ---------------------------------------------------------------------- copies


@side_by_side
def test_which_of_two_faults_is_told(talk: Talk) -> None:
    """A message that is too large is just that, whatever its headers say; a TTL that is none is found out last."""
    talk.create("S", max_msg_size=60, allow_rollup_hdrs=False)
    talk.create("T", allow_msg_ttl=True)
    for subject in ("s", "t"):
        talk.stored(subject, b"", {"Nats-Msg-Id": "a"})
    faults = {
        "Nats-Msg-Id": "a", "Nats-Expected-Stream": "x", "Nats-Expected-Last-Sequence": "9", "Nats-Rollup": "sub",
        "Nats-Expected-Last-Msg-Id": "x", "Nats-Schedule": "x", "Nats-Scheduler": "x", "Nats-Incr": "x",
        "Nats-Stream-Source": "x", "Nats-TTL": "x",
    }  # fmt: skip
    for key, value in faults.items():
        assert talk.denied("s", bytes(60), {key: value}) == 10054
        talk.publish("t", b"", {"Nats-TTL": "x", key: value})


@side_by_side
def test_copies_of_rollups(talk: Talk) -> None:
    """A copy rolls up what its origin has rolled up if it allows roll-ups, and keeps everything otherwise."""
    talk.create("O", allow_rollup_hdrs=True)
    for name in ("M", "N"):
        talk.done(f"STREAM.CREATE.{name}", {"name": name, "mirror": {"name": "O"}, "allow_rollup_hdrs": name == "N"})
    for name in ("S", "T"):
        talk.done(f"STREAM.CREATE.{name}", {"name": name, "sources": [{"name": "O"}], "allow_rollup_hdrs": name == "T"})
    for number in range(3):
        talk.stored("o", b"%d" % number)
    for name in "MNST":
        wait_for(partial(messages, talk, name), 3)
    talk.stored("o", b"3", {"Nats-Rollup": "sub"})
    for name, count in {"M": 4, "N": 1, "S": 4, "T": 1}.items():
        wait_for(partial(messages, talk, name), count)
        with talk.ours_alone():
            answer = talk.done(f"STREAM.MSG.GET.{name}", {"seq": 4})
        assert b"Nats-Rollup: sub" in base64.b64decode(answer["message"]["hdrs"])


@side_by_side
def test_a_work_queue_that_is_copied(talk: Talk) -> None:
    """What a consumer waits for stays in it until that has it, although a mirror has it by now."""
    talk.create("O", retention="workqueue")
    talk.done("CONSUMER.CREATE.O.C", {"stream_name": "O", "config": {"durable_name": "C", "ack_policy": "explicit"}})
    talk.done("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "O"}})
    for _ in range(3):
        talk.stored("o")
    wait_for(lambda: messages(talk, "M"), 3)
    time.sleep(0.3)
    assert messages(talk, "O") == 3


@side_by_side
def test_headers_of_copies(talk: Talk) -> None:
    """A copy is a message of its own: what was said about batches and expectations is gone, by whole names; all else,
    also a value that looks like such a header, is there byte for byte.
    """
    talk.create("O", allow_atomic=True, allow_rollup_hdrs=True)
    talk.done("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "O"}, "allow_direct": True})
    talk.done("STREAM.CREATE.S", {"name": "S", "sources": [{"name": "O"}], "allow_direct": True})
    note = "Nats-Expected-Stream: T"
    talk.ask("o.a", b"1", piece("b", 1, X_Note=note))
    talk.ask("o.a", b"2", piece("b", 2))
    talk.publish("o.a", b"3", piece("b", 3, "1", Nats_Msg_Id="id"))
    wanted = {"X-Note": note, "A": "b", "nats-expected-stream": "T"}
    talk.publish(
        "o.b", b"4: Nats-Expected-Stream: T", {**wanted, "Nats-Expected-Stream": "O", LAST: "3", LAST_OF_SUBJECT: "0"}
    )
    wait_until(lambda: talk.state("M")[2] == talk.state("S")[2] == 4)
    talk.log.clear()
    added = {"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Stream-Source"}
    for name in ("M", "S"):
        with talk.ours_alone():
            copies = [talk.get(name, {"seq": seq}) for seq in range(1, 5)]
        own = [{key: value for key, value in copy.headers.items() if key not in added} for copy in copies]
        assert own == [{"X-Note": note}, {}, {"Nats-Msg-Id": "id"}, wanted]
        assert [copy.data for copy in copies] == [b"1", b"2", b"3", b"4: Nats-Expected-Stream: T"]
