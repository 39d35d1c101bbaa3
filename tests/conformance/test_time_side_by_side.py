"""What time does to streams: messages that end, delete markers, schedules. What nats-server does, and what is right."""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.conformance.jetstream_talk import Servers, Talk, both_servers, side_by_side
from tests.live.server_process import wait_until

SECOND = 1_000_000_000
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Both servers for all tests of this module."""
    with both_servers(tmp_path_factory.mktemp("servers")) as running:
        yield running


def held(talk: Talk, name: str) -> dict[str, int]:
    """How many messages each subject has; not compared."""
    kept = len(talk.log)
    found: dict[str, int] = talk.done(f"STREAM.INFO.{name}", {"subjects_filter": ">"})["state"].get("subjects", {})
    del talk.log[kept:]
    return found


def stored(talk: Talk, name: str, subject: str) -> list[dict[str, Any]]:
    """All messages of a subject, with their headers; not compared."""
    kept = len(talk.log)
    found = []
    seq = 1
    while "message" in (answer := talk.api(f"STREAM.MSG.GET.{name}", {"next_by_subj": subject, "seq": seq})):
        message = answer["message"]
        lines = b64decode(message.get("hdrs", "")).decode().split("\r\n")[1:-2]
        message["headers"] = dict(line.split(": ", 1) for line in lines)
        message["body"] = b64decode(message.get("data", ""))
        found.append(message)
        seq = message["seq"] + 1
    del talk.log[kept:]
    return found


def last(talk: Talk, name: str, subject: str) -> dict[str, Any]:
    return (stored(talk, name, subject) or [{"headers": {}}])[-1]


def in_seconds(seconds: float) -> str:
    """The time in so many seconds, as schedules have it."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


# ---------------------------------------------------------------------- TTL


@side_by_side
def test_messages_end_by_themselves(talk: Talk) -> None:
    """A near end comes in time although far ends are set before and after it; a never ends not even by age."""
    talk.create("S", allow_msg_ttl=True)
    talk.create("N", allow_msg_ttl=True, max_age=SECOND)
    talk.stored("n.never", b"", {"Nats-TTL": "never"})
    talk.stored("n.hour", b"", {"Nats-TTL": "1h"})
    talk.stored("n.plain")
    talk.stored("s.far.0", b"", {"Nats-TTL": "1h"})
    began = time.monotonic()
    talk.stored("s.near", b"", {"Nats-TTL": "1s"})
    for number in range(8):
        talk.stored(f"s.far.{number + 1}", b"", {"Nats-TTL": "3600"})
        time.sleep(0.1)
    wait_until(lambda: "s.near" not in held(talk, "S"))
    assert time.monotonic() - began > 0.9
    assert talk.state("S") == (9, 1, 10)
    wait_until(lambda: held(talk, "N") == {"n.never": 1})


@side_by_side
def test_a_message_deleted_before_its_end(talk: Talk) -> None:
    """Its end does not take the message that follows it on its subject."""
    talk.create("S", allow_msg_ttl=True)
    talk.stored("s", b"", {"Nats-TTL": "3s"})
    talk.done("STREAM.MSG.DELETE.S", {"seq": 1})
    talk.stored("s")
    talk.stored("s.end", b"", {"Nats-TTL": "3s"})
    wait_until(lambda: "s.end" not in held(talk, "S"))
    assert talk.state("S") == (1, 2, 3)


@side_by_side
def test_ends_switched_on(talk: Talk) -> None:
    """An update may allow messages to end by themselves, and not forbid it again."""
    config = {"name": "S", "subjects": ["s"]}
    talk.done("STREAM.CREATE.S", config)
    assert talk.denied("s", b"", {"Nats-TTL": "1s"}) == 10166
    talk.done("STREAM.UPDATE.S", {**config, "allow_msg_ttl": True})
    talk.stored("s", b"", {"Nats-TTL": "1s"})
    wait_until(lambda: not held(talk, "S"))
    assert talk.refused("STREAM.UPDATE.S", config) == 10052


@side_by_side
def test_age_that_an_update_sets(talk: Talk) -> None:
    """What is older than a new limit goes at once; without the limit nothing goes any more."""
    config = {"name": "S", "subjects": ["s"], "duplicate_window": SECOND, "allow_msg_ttl": True}
    talk.done("STREAM.CREATE.S", config)
    talk.flood(["s"] * 3)
    talk.stored("s", b"", {"Nats-TTL": "never"})
    time.sleep(1.1)
    with talk.ours_alone():  # whether the answer shows it already is a matter of luck
        talk.done("STREAM.UPDATE.S", {**config, "max_age": SECOND})
    wait_until(lambda: held(talk, "S") == {"s": 1})
    talk.done("STREAM.UPDATE.S", config)
    talk.stored("s")
    time.sleep(1.1)
    assert held(talk, "S") == {"s": 2}


# ---------------------------------------------------------------------- delete markers


@side_by_side
def test_a_marker_takes_the_place_of_the_last_message(talk: Talk) -> None:
    """It can be read as the subject's last message, ends itself in its time, and leaves no other."""
    talk.create("S", max_age=SECOND, subject_delete_marker_ttl=59 * SECOND, allow_direct=True)
    talk.create("E", max_age=SECOND, subject_delete_marker_ttl=SECOND)
    talk.stored("e")
    talk.flood(["s.a", "s.b", "s.b"])
    wait_until(lambda: all(last(talk, "S", subject)["headers"] for subject in ("s.a", "s.b")))
    for subject in ("s.a", "s.b"):
        told = talk.get("S", {"last_by_subj": subject})
        assert (told.data, told.headers["Nats-Marker-Reason"], told.headers["Nats-TTL"]) == (b"", "MaxAge", "59s")
    assert talk.state("S") == (2, 4, 5)

    def end() -> tuple[int, int, int]:
        with talk.ours_alone():
            return talk.state("E")

    wait_until(lambda: end() == (0, 3, 2))


@side_by_side
def test_what_leaves_no_marker(talk: Talk) -> None:
    """A purge, a marker of a client's, and the end of one message while others of its subject are there."""
    config = {"subjects": ["s.*"], "subject_delete_marker_ttl": 60 * SECOND, "max_msgs_per_subject": 5}
    talk.create("S", **config)
    talk.stored("s.purged")
    talk.stored("s.marker", b"", {"Nats-Marker-Reason": "Purge"})
    talk.stored("s.key", b"", {"KV-Operation": "PURGE", "Nats-Rollup": "sub"})
    talk.stored("s.end")
    talk.done("STREAM.PURGE.S", {"filter": "s.purged"})
    talk.done("STREAM.UPDATE.S", {"name": "S", **config, "max_age": SECOND})
    wait_until(lambda: held(talk, "S") == {"s.end": 1})
    talk.create("T", allow_msg_ttl=True, subject_delete_marker_ttl=SECOND, max_msgs_per_subject=5)
    ends = {"Nats-TTL": "1s"}
    seqs = talk.stored_at_once(("t.old", b"1", ends), ("t.old", b"2", {}), ("t.new", b"1", {}), ("t.new", b"2", ends))
    assert seqs == [1, 2, 3, 4]
    wait_until(lambda: held(talk, "T") == {"t.old": 1, "t.new": 1})
    assert [last(talk, "T", subject)["body"] for subject in ("t.old", "t.new")] == [b"2", b"1"]
    assert talk.state("T") == (2, 2, 4)


@side_by_side
def test_no_message_ends_before_the_marker_of_its_predecessor(talk: Talk) -> None:
    """With history, a TTL shorter than that of markers is lengthened to it; with one message per subject it is kept."""
    talk.create("S", subject_delete_marker_ttl=60 * SECOND)
    talk.create("T", subject_delete_marker_ttl=60 * SECOND, max_msgs_per_subject=1)
    for name in ("S", "T"):
        talk.stored(f"{name.lower()}", b"", {"Nats-TTL": "5s"})
    assert [last(talk, name, name.lower())["headers"]["Nats-TTL"] for name in ("S", "T")] == ["60", "5s"]


# ---------------------------------------------------------------------- schedules


def scheduled(pattern: str, target: str = "s.out", **more: str) -> dict[str, str]:
    headers = {"Nats-Schedule": pattern, "Nats-Schedule-Target": target}
    return headers | {f"Nats-Schedule-{key.replace('_', '-')}": value for key, value in more.items()}


@side_by_side
def test_a_schedule_fires_once(talk: Talk) -> None:
    """At its time its message is published to its target, with its headers, and the schedule is gone."""
    talk.create("S", allow_msg_schedules=True, allow_msg_ttl=True)
    at = in_seconds(0.7)
    talk.stored("s.at", b"body", scheduled(f"@at {at}", TTL="1h") | {"X": "y", "Nats-Msg-Id": "i"})
    with talk.ours_alone():  # whether the first has fired by now is a matter of luck
        talk.stored("s.past", b"late", scheduled("@at 2020-01-01T00:00:00Z", "s.out.past"))
    wait_until(lambda: held(talk, "S") == {"s.out": 1, "s.out.past": 1})
    fired = last(talk, "S", "s.out")
    assert fired["body"] == b"body"
    assert datetime.fromisoformat(fired["time"]) >= datetime.fromisoformat(at)
    assert fired["headers"] == {"X": "y", "Nats-Scheduler": "s.at", "Nats-Schedule-Next": "purge", "Nats-TTL": "1h"}


@side_by_side
def test_schedules_repeat(talk: Talk) -> None:
    """By interval and by cron expression, in any zone, until they are cancelled; of each subject the last holds."""
    talk.create("S", allow_msg_schedules=True)
    talk.stored_at_once(
        ("s.old", b"", scheduled("@every 1h", "s.out.every")),
        ("s.every", b"replaced", scheduled("@every 1s", "s.out.other")),
        ("s.every", b"e", scheduled("@every 1s", "s.out.every")),
        ("s.half", b"h", scheduled("@every 1500ms", "s.out.half")),
        ("s.cron", b"c", scheduled("* * * * * *", "s.out.cron", Time_Zone="America/New_York")),
        ("s.roll", b"r", scheduled("* * * * * *", "s.out.roll", Rollup="sub")),
    )
    wait_until(lambda: all(held(talk, "S").get(f"s.out.{one}", 0) >= 2 for one in ("every", "half", "cron")))
    wait_until(lambda: held(talk, "S").get("s.out.roll"))
    found = held(talk, "S")
    assert found["s.out.roll"] == 1
    assert "s.out.other" not in found
    halves = [message["headers"]["Nats-Schedule-Next"] for message in stored(talk, "S", "s.out.half")]
    assert all(value.endswith(".5Z") for value in halves)
    for subject in ("every", "half", "cron", "roll"):
        with talk.ours_alone():  # how often they have fired depends on the moment
            talk.stored(f"s.{subject}.cancel", b"", {"Nats-Scheduler": f"s.{subject}", "Nats-Schedule-Next": "purge"})
    assert [subject for subject in held(talk, "S") if subject in ("s.every", "s.half", "s.cron", "s.roll")] == []
    before = held(talk, "S")
    time.sleep(1.2)
    assert held(talk, "S") == before


@side_by_side
def test_a_schedule_samples(talk: Talk) -> None:
    """What is fired is the last message of the source, as of that moment; the schedule's own if there is none.

    What the source says of schedules itself does not matter.
    """
    talk.create("S", allow_msg_schedules=True)
    talk.stored("s.victim", b"", scheduled("@every 1h"))
    talk.stored("s.data", b"old")
    talk.stored("s.sample", b"own", scheduled("@every 1s", "s.out.sample", Source="s.data"))
    with talk.ours_alone():  # what has fired by now is a matter of luck
        talk.stored("s.empty", b"own", scheduled(f"@at {in_seconds(0.5)}", "s.out.empty", Source="s.nothing"))
        new = talk.stored("s.data", b"new", {"Nats-Scheduler": "s.someone", "Nats-Schedule-Next": "purge", "X": "y"})
    wait_until(lambda: sum(fired["seq"] > new for fired in stored(talk, "S", "s.out.sample")) >= 3)
    for fired in stored(talk, "S", "s.out.sample"):
        assert (fired["body"], fired["headers"].get("X")) == ((b"new", "y") if fired["seq"] > new else (b"old", None))
        assert fired["headers"]["Nats-Scheduler"] == "s.sample"
        assert fired["headers"]["Nats-Schedule-Next"] != "purge"
    assert last(talk, "S", "s.out.empty")["body"] == b"own"
    assert {"s.sample", "s.victim"} <= held(talk, "S").keys()


@side_by_side
def test_forged_schedules(talk: Talk) -> None:
    """Nobody but the server moves a schedule; it fires in time. Cancelling is for everybody who may publish."""
    talk.create("S", allow_msg_schedules=True)
    talk.stored("s.at", b"", scheduled(f"@at {in_seconds(0.5)}"))
    assert talk.denied("s.x", b"", {"Nats-Schedule-Next": "2126-01-01T00:00:00Z", "Nats-Scheduler": "s.at"}) == 10212
    assert talk.denied("s.x", b"", {"Nats-Scheduler": "s.at"}) == 10212
    assert talk.denied("s.x", b"", {"Nats-Schedule-Next": "purge"}) == 10212
    wait_until(lambda: "s.out" in held(talk, "S"))


@side_by_side
def test_schedules_that_are_refused(talk: Talk) -> None:
    """Patterns, targets, sources, zones, TTLs and roll-ups that cannot be."""
    talk.create("S", allow_msg_schedules=True)
    talk.create("N")
    assert talk.denied("n", b"", scheduled("@every 1s", "n.x")) == 10188
    for pattern in ("@every 1ms", "@every 999ms", "@every x", "@at x", "@never", "* * * * *", "60 * * * * *", "x",
                    "0 0 0 31 2 *", "@every 1s 2s", "*/0 * * * * *", "5-1 * * * * *", "* * * * * * *"):  # fmt: skip
        assert talk.denied("s.x", b"", scheduled(pattern)) == 10189, pattern
    for target in ("", "other", "s.*", "s.>", "s.x", "s..y"):
        assert talk.denied("s.x", b"", scheduled("@every 1s", target)) == 10190, target
    for source in ("s.x", "s.out", "s.*", "other", "s.>"):
        assert talk.denied("s.x", b"", scheduled("@every 1s", Source=source)) == 10203, source
    assert talk.denied("s.x", b"", scheduled("@daily", Time_Zone="Nowhere/Else")) == 10223
    assert talk.denied("s.x", b"", scheduled("@every 1s", Time_Zone="UTC")) == 10189
    assert talk.denied("s.x", b"", scheduled("@every 1s", TTL="1h")) == 10166
    assert talk.denied("s.x", b"", scheduled("@every 1s", Rollup="all")) == 10192
    assert talk.denied("s.x", b"", scheduled("@every 1s") | {"Nats-Rollup": "all"}) == 10192
    headers = [("Nats-Schedule-Target", "s.out"), ("Nats-Schedule-Source", "s.d"), ("Nats-Schedule", "@hourly")]
    assert talk.stored("s.x", b"", headers) == 1


@side_by_side
def test_what_schedules_do_not_mix_with(talk: Talk) -> None:
    """Counters, discard "new", mirrors and sources; roll-ups are switched on with them, or asked for when pedantic."""
    body = {"name": "S", "subjects": ["s"], "allow_msg_schedules": True}
    assert talk.refused("STREAM.CREATE.S", {**body, "allow_msg_counter": True}) == 10052
    assert talk.refused("STREAM.CREATE.S", {**body, "discard": "new", "max_msgs": 5}) == 10052
    assert talk.refused("STREAM.CREATE.S", {**body, "mirror": {"name": "O"}, "subjects": []}) == 10186
    assert talk.refused("STREAM.CREATE.S", {**body, "sources": [{"name": "O"}]}) == 10187
    assert talk.refused("STREAM.CREATE.S", {**body, "pedantic": True}) == 10052
    assert talk.done("STREAM.CREATE.S", body)["config"]["allow_rollup_hdrs"]


@side_by_side
def test_copies_of_schedules_do_not_fire(talk: Talk) -> None:
    """A mirror and a stream with sources hold what the origin has, schedules included, and fire nothing."""
    talk.create("O", allow_msg_schedules=True)
    talk.done("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "O"}})
    talk.done("STREAM.CREATE.S", {"name": "S", "sources": [{"name": "O"}]})
    talk.stored("o.first")
    wait_until(lambda: held(talk, "M") == held(talk, "S") == {"o.first": 1})  # they copy from now on
    talk.stored("o.at", b"body", scheduled(f"@at {in_seconds(3.0)}", "o.out"))
    wait_until(lambda: held(talk, "M") == held(talk, "S") == {"o.first": 1, "o.at": 1})
    wait_until(lambda: "o.out" in held(talk, "O"))
    wait_until(lambda: held(talk, "M").get("o.out") == held(talk, "S").get("o.out") == 1)
    time.sleep(0.3)
    assert held(talk, "M") == held(talk, "S") == {"o.first": 1, "o.at": 1, "o.out": 1}


# ---------------------------------------------------------------------- batches


@side_by_side
def test_an_idle_batch_is_given_up(talk: Talk) -> None:
    """After ten seconds without a message; nothing of it is stored, an advisory says so, its place is free."""
    advisory = "$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.S"
    talk.listen(advisory)
    talk.create("S", allow_atomic=True)
    assert talk.ask("s", b"", {"Nats-Batch-Id": "idle", "Nats-Batch-Sequence": "1"}).data == b""
    told = talk.hear(advisory).json
    assert (told["batch"], told["reason"]) == ("idle", "timeout")
    commit = {"Nats-Batch-Id": "idle", "Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1"}
    assert talk.denied("s", b"", commit) == 10176
    assert talk.state("S")[0] == 0
