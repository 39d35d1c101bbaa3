"""The stream machine and its leader, case by case."""

from __future__ import annotations

import base64

import orjson
import pytest
from tests.unit.jetstream.desk import Desk, tell
from tests.unit.jetstream.stores import SECOND, T0, ListStore, publish

from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.api.fields import to_object
from tnats.jetstream.api.messages import JSApiMsgDeleteRequest, JSApiStreamPurgeRequest
from tnats.jetstream.stream import counters, entries, rules, snapshot
from tnats.jetstream.stream.config import Retention, StreamConfig
from tnats.jetstream.stream.entries import Append, Configure, Expire, Purge, Remove
from tnats.wire.headers import get_header


def purge(desk: Desk, **request: object) -> int:
    """Purge; how many messages went."""
    before = desk.store.messages
    entry = desk.leader.purge(JSApiStreamPurgeRequest(**request))  # type: ignore[arg-type]
    assert isinstance(entry, Purge)
    desk.apply(entry)
    return before - desk.store.messages


def update(desk: Desk, **changes: object) -> None:
    """Update the configuration through the log."""
    wanted = StreamConfig(**{**{name: getattr(desk.machine.config, name) for name in ("name", "subjects")}, **changes})  # type: ignore[arg-type]
    checked = rules.check_update(desk.machine.config, wanted, rules.Surroundings())
    assert not isinstance(checked, ApiError), checked
    desk.apply(Configure(orjson.dumps(to_object(checked))))


# ------------------------------------------------------------------ purge, delete, limits


def test_purging_an_empty_stream_leaves_its_sequences() -> None:
    """A purge of any form of a stream without messages removes none and keeps first 1, last 0."""
    desk = Desk()
    assert [purge(desk), purge(desk, keep=0), purge(desk, filter="a.x"), purge(desk, seq=5)] == [0, 0, 0, 0]
    assert (desk.store.first_seq, desk.store.last_seq) == (1, 0)


def test_purge_up_to_a_sequence() -> None:
    """A purge with a sequence removes what is below it, whether a message has that sequence or not."""
    desk = Desk()
    desk.publish(*[publish("a.x") for _ in range(100)])
    assert purge(desk, seq=90) == 89
    assert (desk.store.first_seq, desk.store.messages, desk.machine.state().num_deleted) == (90, 11, 0)
    desk.apply(Remove((95, 96)))
    assert purge(desk, seq=95) == 5
    assert desk.seqs() == [97, 98, 99, 100]


def test_purge_with_filter_and_keep() -> None:
    """Filter and keep together leave the newest of that filter, and others alone."""
    desk = Desk()
    desk.publish(*[publish(subject) for subject in ("a.x", "b", "a.x", "a.y", "b")])
    assert purge(desk, filter="a.*", keep=1) == 2
    assert desk.seqs() == [2, 4, 5]
    assert purge(desk, keep=2) == 1
    assert desk.seqs() == [4, 5]


def test_sequence_and_keep_exclude_each_other() -> None:
    """A purge with both is a bad request."""
    refused = Desk().leader.purge(JSApiStreamPurgeRequest(seq=1, keep=1))
    assert isinstance(refused, ApiError)
    assert refused.err_code == 10003


def test_sequences_go_on_after_everything_is_gone() -> None:
    """A stream that was emptied knows its last sequence, also when it began at one of its own."""
    desk = Desk()
    desk.publish(*[publish("a.x") for _ in range(5)])
    purge(desk)
    state = desk.machine.state()
    assert (state.messages, state.first_seq, state.last_seq) == (0, 6, 5)
    assert desk.say(publish("a.x")) == ["6"]
    assert (ListStore(10_000).first_seq, ListStore(10_000).last_seq) == (10_000, 9_999)


def test_lowering_the_subject_limit_takes_effect_at_once() -> None:
    """Five messages of a subject become three with the update, and stay three."""
    desk = Desk(max_msgs_per_subject=5)
    desk.publish(*[publish("a.x") for _ in range(5)])
    update(desk, max_msgs_per_subject=3)
    assert desk.seqs() == [3, 4, 5]
    desk.publish(publish("a.x"), publish("a.x"))
    assert desk.seqs() == [5, 6, 7]
    assert desk.held(desk.follower) == desk.held()


def test_denied_operations() -> None:
    """Deleting and purging are refused where the configuration says so, and everything in a sealed stream."""
    desk = Desk(deny_delete=True, deny_purge=True)
    desk.publish(publish("a.x"))
    delete = desk.leader.delete_message(JSApiMsgDeleteRequest(seq=1))
    emptied = desk.leader.purge(JSApiStreamPurgeRequest())
    assert isinstance(delete, ApiError)
    assert isinstance(emptied, ApiError)
    assert (delete.err_code, emptied.err_code) == (10057, 10110)
    update(desk, sealed=True, deny_delete=True, deny_purge=True)
    assert desk.say(publish("a.x")) == ["!10109"]
    delete = desk.leader.delete_message(JSApiMsgDeleteRequest(seq=1))
    assert isinstance(delete, ApiError)
    assert delete.err_code == 10109


def test_last_message_by_subject_after_an_update() -> None:
    """Messages on a subject that was added later are found by it."""
    desk = Desk()
    desk.publish(publish("a.x"), publish("a.x"), publish("a.x"))
    update(desk, subjects=["a.>", "b", "c"])
    assert desk.say(publish("c")) == ["4"]
    assert (desk.store.last_seq_of(b"a.x"), desk.store.last_seq_of(b"c")) == (3, 4)


# ------------------------------------------------------------------ in flight


def test_answers_wait_for_the_commit() -> None:
    """Nothing says "stored" before the entry is committed, not even "duplicate"."""
    desk = Desk()
    first = desk.admit(publish("a.x", Nats_Msg_Id="m"))
    again = desk.admit(publish("a.x", Nats_Msg_Id="m"))
    assert (first.replies, again.replies, again.entry) == ([], [], None)
    assert [tell(answer) for _, answer in desk.commit()] == ["1", '{"stream":"T","seq":1,"duplicate": true}']


def test_expectations_see_what_is_in_flight() -> None:
    """Expected sequences, by stream, subject and pattern, are those that will hold."""
    desk = Desk()
    desk.admit(publish("a.x"), publish("a.y"))
    assert desk.admit(publish("a.x", Nats_Expected_Last_Sequence="0")).entry is None
    assert desk.admit(publish("a.x", Nats_Expected_Last_Subject_Sequence="0")).entry is None
    one = publish("b", Nats_Expected_Last_Subject_Sequence="2", Nats_Expected_Last_Subject_Sequence_Subject="a.*")
    assert desk.admit(one, publish("a.x", Nats_Expected_Last_Sequence="3")).entry is not None
    desk.commit()
    assert desk.seqs() == [1, 2, 3, 4]


def test_the_limits_count_what_is_in_flight() -> None:
    """With discard new no batch in flight can take the stream above its limit."""
    desk = Desk(max_msgs=3, discard="new")
    replies = [tell(answer) for _ in range(5) for _, answer in desk.admit(publish("a.x")).replies]
    assert replies == ["!10077", "!10077"]
    desk.commit()
    assert desk.seqs() == [1, 2, 3]


def test_a_new_leader_knows_nothing_of_what_was_in_flight() -> None:
    """After a reset, sequences and ids are those of the applied state, and open batches are announced as abandoned."""
    desk = Desk(allow_atomic=True)
    desk.admit(publish("a.x", Nats_Msg_Id="m"))
    desk.admit(publish("a.x", Nats_Batch_Id="B", Nats_Batch_Sequence="1"))
    desk.proposed.clear()
    assert [advisory.fields["reason"] for advisory in desk.leader.reset()] == ["incomplete"]
    assert desk.say(publish("a.x", Nats_Msg_Id="m")) == ["1"]
    assert desk.budget.atomic_count == 0


def test_no_ack_streams_never_answer() -> None:
    """Neither success nor refusal is told."""
    desk = Desk(no_ack=True, max_msg_size=1)
    assert desk.say(publish("a.x"), publish("a.x", "xx"), publish("a.x", Nats_Msg_Id="")) == []
    assert desk.seqs() == [1, 2] or desk.seqs() == [1]


# ------------------------------------------------------------------ duplicates


def test_an_id_outlives_its_message() -> None:
    """Within the window an id is refused although its message is gone; after the window it is free."""
    desk = Desk(retention="workqueue", duplicate_window=120 * SECOND)
    assert desk.say(publish("a.x", Nats_Msg_Id="a")) == ["1"]
    desk.apply(Remove((1,)))
    assert "duplicate" in desk.say(publish("a.x", Nats_Msg_Id="a"))[0]
    desk.sleep(120)
    assert desk.say(publish("a.x", Nats_Msg_Id="a")) == ["2"]


def test_ids_of_a_snapshot() -> None:
    """They are as they were, whatever is in them; also those of the first format, which had them as base64 text."""
    desk = Desk()
    for number, msg_id in enumerate((b"a", b"\xff" * 300, b"", b"z" * 40)):
        desk.machine.duplicates.add(msg_id, number + 1, T0 + number)
    ids = desk.machine.duplicates.items()
    state = snapshot.decode(snapshot.save(desk.machine))
    assert state["ids"] == ids
    old = {**state, "ids": [[base64.b64encode(msg_id).decode(), seq, ts_ns] for msg_id, seq, ts_ns in ids]}
    assert snapshot.decode(b"\1" + orjson.dumps(old)) == state


# ------------------------------------------------------------------ TTL and markers


def test_ttl_can_be_switched_on() -> None:
    """Refused before, honoured after the update."""
    desk = Desk()
    assert desk.say(publish("a.x", Nats_TTL="1s")) == ["!10166"]
    update(desk, allow_msg_ttl=True)
    assert desk.say(publish("a.x", Nats_TTL="1s")) == ["1"]
    desk.sleep(0.9)
    assert desk.seqs() == [1]
    desk.sleep(0.2)
    assert desk.seqs() == []


def test_a_far_deadline_does_not_hide_a_near_one() -> None:
    """A message of one second goes after one second, whatever else is published; deleted ones leave no deadline."""
    desk = Desk(allow_msg_ttl=True)
    desk.publish(publish("a.x", Nats_TTL="1h"), publish("a.y", Nats_TTL="1s"))
    for _ in range(12):
        desk.publish(publish("a.z", Nats_TTL="1h"))
        desk.sleep(0.1)
    assert desk.store.last_seq_of(b"a.y") == 0
    desk.apply(Remove(tuple(desk.seqs())))
    assert len(desk.machine.deadlines) == 0
    assert desk.leader.next_deadline_ns() is None


def test_never_outlives_the_age() -> None:
    """`never` is exempt from max_age, and does not keep others from ageing."""
    desk = Desk(allow_msg_ttl=True, max_age=10 * SECOND)
    desk.publish(publish("a.x", Nats_TTL="never"), publish("a.y"), publish("a.z", Nats_TTL="1h"))
    desk.sleep(11)
    assert desk.seqs() == [1]


def test_the_last_message_of_a_subject_leaves_a_marker() -> None:
    """An aged key becomes an empty message with the reason; the marker goes too, and leaves nothing."""
    desk = Desk(subject_delete_marker_ttl=60 * SECOND, max_age=5 * SECOND, duplicate_window=SECOND)
    desk.publish(publish("a.x"))
    desk.sleep(5)
    marker = desk.store.held[2]
    assert desk.seqs() == [2]
    assert (marker.payload, get_header(marker.headers, b"Nats-Marker-Reason")) == (b"", b"MaxAge")
    assert get_header(marker.headers, b"Nats-TTL") == b"1m0s"
    desk.sleep(5)
    assert desk.seqs() == []
    assert desk.store.last_seq == 2


def test_the_purge_of_a_key_leaves_no_marker() -> None:
    """The mark that a client left with a purge is one already; that of a delete is not (ADR-48)."""
    desk = Desk(subject_delete_marker_ttl=60 * SECOND, max_age=5 * SECOND, duplicate_window=SECOND)
    desk.publish(publish("a.x", KV_Operation="PURGE", Nats_TTL="2s"), publish("a.y", KV_Operation="DEL"))
    desk.publish(publish("a.z", KV_Operation="PURGE"))
    desk.sleep(6)
    assert [desk.store.held[seq].subject for seq in desk.seqs()] == [b"a.y"]


def test_no_marker_while_a_newer_message_exists() -> None:
    """Only the end of the newest message of a subject is marked, and a purge marks nothing."""
    desk = Desk(subject_delete_marker_ttl=2 * SECOND, max_msgs_per_subject=5)
    desk.publish(publish("a.x", Nats_TTL="2s"), publish("a.x"))
    desk.sleep(3)
    assert desk.seqs() == [2]
    purge(desk, filter="a.x")
    desk.sleep(10)
    assert desk.store.last_seq == 2


def test_what_ended_while_nobody_led_goes_at_once() -> None:
    """Ten messages whose TTL passed during a stop are the first thing a new leader removes."""
    desk = Desk(allow_msg_ttl=True)
    desk.publish(*[publish("a.x", Nats_TTL="2s") for _ in range(10)])
    desk.now_ns += 60 * SECOND
    desk.leader.reset()
    assert desk.leader.next_deadline_ns() == T0 + 2 * SECOND
    desk.serve()
    assert (desk.store.messages, desk.store.first_seq, desk.store.last_seq) == (0, 11, 10)


# ------------------------------------------------------------------ schedules


def test_a_schedule_fires_once_and_goes() -> None:
    """`@at`: the target gets headers and body of the schedule, which is then removed."""
    desk = Desk(allow_msg_schedules=True, allow_msg_ttl=True)
    schedule = {"Nats_Schedule": "@at 2023-11-14T22:13:25Z", "Nats_Schedule_Target": "a.t", "Nats_Schedule_TTL": "5m"}
    desk.publish(publish("a.s", "body", **schedule, Foo="bar", Nats_Msg_Id="q"))
    desk.sleep(4.9)
    assert desk.store.last_seq == 1
    desk.sleep(0.2)
    fired = desk.store.held[2]
    assert (fired.subject, fired.payload) == (b"a.t", b"body")
    assert fired.headers == (
        b"NATS/1.0\r\nFoo: bar\r\nNats-Scheduler: a.s\r\nNats-Schedule-Next: purge\r\nNats-TTL: 5m\r\n\r\n"
    )
    assert desk.seqs() == [2]
    assert desk.leader.next_deadline_ns() == fired.ts_ns + 300 * SECOND


def test_a_repeat_below_a_second_keeps_its_fraction() -> None:
    """`@every 1500ms`: each firing is the last one, rounded to the second, and 1.5 s."""
    desk = Desk(allow_msg_schedules=True)
    desk.publish(publish("a.s", Nats_Schedule="@every 1500ms", Nats_Schedule_Target="a.t"))
    desk.sleep(5.6)
    fired = [one for one in desk.store.held.values() if one.subject == b"a.t"]
    assert [one.ts_ns - T0 for one in fired] == [SECOND * 3 // 2, SECOND * 7 // 2, SECOND * 11 // 2]
    assert (get_header(fired[0].headers, b"Nats-Schedule-Next") or b"").endswith(b".5Z")


def test_missed_repeats_collapse() -> None:
    """A leader that comes late fires once, then in the old rhythm."""
    desk = Desk(allow_msg_schedules=True)
    desk.publish(publish("a.s", Nats_Schedule="@every 1s", Nats_Schedule_Target="a.t"))
    desk.now_ns += 60 * SECOND
    desk.serve()
    assert desk.store.count_of(b"a.t") == 1
    desk.sleep(3)
    assert desk.store.count_of(b"a.t") == 4


def test_a_schedule_cancelled_while_it_is_read() -> None:
    """What was cancelled or replaced between its time and its firing is not fired."""
    desk = Desk(allow_msg_schedules=True)
    schedule = publish("a.s", "old", Nats_Schedule="@every 5s", Nats_Schedule_Target="a.t")
    desk.publish(schedule)
    desk.now_ns += 6 * SECOND
    (due,) = desk.leader.due_schedules(desk.now_ns)
    message = (b"a.s", schedule.data[: schedule.header_size], b"old")
    desk.publish(publish("a.s", "new", Nats_Schedule="@every 1h", Nats_Schedule_Target="a.t"))
    assert desk.leader.fire(due, message, (b"", b"old"), desk.now_ns).entry is None
    desk.publish(publish("a.c", Nats_Scheduler="a.s", Nats_Schedule_Next="purge"))
    assert desk.leader.fire(due, message, (b"", b"old"), desk.now_ns).entry is None
    assert [subject for _, subject, _ in desk.held()] == ["a.c"]


def test_only_schedules_are_cancelled() -> None:
    """Who may publish cannot delete a message by calling it a schedule; a schedule in flight can be cancelled."""
    desk = Desk(allow_msg_schedules=True)
    cancel = {"Nats_Schedule_Next": "purge"}
    desk.publish(publish("a.m", "kept"))
    assert desk.say(publish("a.c", Nats_Scheduler="a.m", **cancel)) == ["!10212"]
    schedule = publish("a.s", Nats_Schedule="@every 5s", Nats_Schedule_Target="a.t")
    desk.admit(schedule)
    desk.admit(publish("a.c", Nats_Scheduler="a.s", **cancel))
    desk.admit(publish("a.c", Nats_Scheduler="a.nothing", **cancel))
    desk.commit()
    desk.sleep(20)
    assert [subject for _, subject, _ in desk.held()] == ["a.m", "a.c", "a.c"]


def test_expectations_behind_a_rollup_in_flight() -> None:
    """What a roll-up of everything takes away is not expected any more, though it is not applied yet; a refused one
    takes nothing away.
    """
    desk = Desk(allow_rollup_hdrs=True, max_msg_size=300)
    desk.publish(publish("a.x"))
    desk.admit(publish("a.y", "x" * 400, Nats_Rollup="all"))
    assert desk.admit(publish("a.x", Nats_Expected_Last_Subject_Sequence="0")).replies
    desk.admit(publish("a.y", Nats_Rollup="all"))
    assert not desk.admit(publish("a.x", Nats_Expected_Last_Subject_Sequence="0")).replies
    desk.commit()
    assert [(seq, subject) for seq, subject, _ in desk.held()] == [(2, "a.y"), (3, "a.x")]


def test_a_schedule_that_cannot_be_read_is_tried_again_in_a_while() -> None:
    """Its deadline moves on by a second at a time, so that nobody spins; it fires once it can be read."""
    desk = Desk(allow_msg_schedules=True)
    desk.publish(publish("a.s", "body", Nats_Schedule="@every 5s", Nats_Schedule_Target="a.t"))
    deadline_ns = desk.leader.next_deadline_ns()
    assert deadline_ns is not None
    desk.now_ns = deadline_ns
    for _ in range(3):
        (due,) = desk.leader.due_schedules(desk.now_ns)
        assert (due.subject, desk.leader.due_schedules(desk.now_ns)) == (b"a.s", [])
        desk.leader.put_off(due, desk.now_ns)
        assert desk.leader.next_deadline_ns() == desk.now_ns + SECOND
        desk.now_ns += SECOND
    desk.serve()
    assert [subject for _, subject, _ in desk.held()] == ["a.s", "a.t"]


def test_a_schedule_samples_its_source() -> None:
    """Without a message there, the schedule's own body; with one, its body and headers, but for the server's own."""
    desk = Desk(allow_msg_schedules=True)
    schedule = {"Nats_Schedule": "@every 1s", "Nats_Schedule_Target": "a.t", "Nats_Schedule_Source": "a.d"}
    desk.publish(publish("a.s", "own", **schedule))
    desk.sleep(1.1)
    desk.publish(publish("a.d", "sampled", Nats_Scheduler="a.victim", Nats_Schedule_Next="purge", X="y"))
    desk.sleep(3)
    fired = [one for one in desk.store.held.values() if one.subject == b"a.t"]
    assert [one.payload for one in fired] == [b"own", b"sampled", b"sampled", b"sampled"]
    assert get_header(fired[-1].headers, b"X") == b"y"
    assert get_header(fired[-1].headers, b"Nats-Scheduler") == b"a.s"
    assert desk.store.last_seq_of(b"a.s") == 1


def test_a_forged_next_time_does_not_move_a_schedule() -> None:
    """Both forged headers are refused, and the schedule fires on time."""
    desk = Desk(allow_msg_schedules=True)
    desk.publish(publish("a.s", Nats_Schedule="@at 2023-11-14T22:13:20.5Z", Nats_Schedule_Target="a.t"))
    forged = {"Nats_Scheduler": "a.s", "Nats_Schedule_Next": "2123-01-01T00:00:00Z"}
    assert desk.say(publish("a.attacker", **forged)) == ["!10212"]
    desk.sleep(0.6)
    assert desk.store.count_of(b"a.t") == 1


# ------------------------------------------------------------------ batches


def test_the_largest_batch() -> None:
    """A thousand messages are a batch, also with a separate end marker; one more is refused and leaves nothing."""

    def batch(count: int, *, closes: bool) -> list[str]:
        desk = Desk(allow_atomic=True)
        messages = [
            publish("a.x", reply="", Nats_Batch_Id="B", Nats_Batch_Sequence=str(number))
            for number in range(1, count + closes)
        ]
        commit = "eob" if closes else "1"
        last = count + closes
        end = publish("a.x", Nats_Batch_Id="B", Nats_Batch_Sequence=str(last), Nats_Batch_Commit=commit)
        answers = desk.say(*messages, end)
        return [*answers, str(desk.store.messages)]

    assert batch(1000, closes=False) == ['{"stream":"T","seq":1000,"batch":"B","count":1000}', "1000"]
    assert batch(1000, closes=True) == ['{"stream":"T","seq":1000,"batch":"B","count":1000}', "1000"]
    assert batch(1001, closes=False) == ["!10199", "0"]


def test_a_subject_has_one_schedule_of_a_batch() -> None:
    """A second one would take the first away, which was published with it."""
    desk = Desk(allow_atomic=True, allow_msg_schedules=True)
    when = {"Nats_Schedule": "@at 2099-01-01T00:00:00Z", "Nats_Schedule_Target": "b", "Nats_Batch_Id": "B"}
    for last, wanted in (("a.2", '{"stream":"T","seq":2,"batch":"B","count":2}'), ("a.1", "!10111")):
        desk.say(publish("a.1", "", Nats_Batch_Sequence="1", **when))
        assert desk.say(publish(last, "", Nats_Batch_Sequence="2", Nats_Batch_Commit="1", **when)) == [wanted]
    assert desk.seqs() == [1, 2]


def test_the_mark_of_the_end_is_not_what_is_wrong_with_a_batch() -> None:
    """What a message of a batch asks for is looked at before it is measured with what the server adds."""
    desk = Desk(allow_atomic=True, max_msg_size=100)
    pieces = {"Nats_Batch_Id": "B", "Nats_Expected_Last_Sequence": "9"}
    assert desk.say(publish("a.1", "", Nats_Batch_Sequence="1", **pieces)) == [""]
    assert desk.say(publish("a.1", "", Nats_Batch_Sequence="2", Nats_Batch_Id="B", Nats_Batch_Commit="eob")) == [
        "!10071"
    ]


def test_an_idle_batch_is_given_up() -> None:
    """After ten seconds without a message, with an advisory; what comes then is incomplete."""
    desk = Desk(allow_atomic=True)
    desk.publish(publish("a.x", Nats_Batch_Id="B", Nats_Batch_Sequence="1"))
    desk.sleep(10)
    assert [advisory.fields["reason"] for advisory in desk.advisories] == ["timeout"]
    late = publish("a.x", Nats_Batch_Id="B", Nats_Batch_Sequence="2", Nats_Batch_Commit="1")
    assert desk.say(late) == ["!10176"]
    assert (desk.store.messages, desk.budget.atomic_count) == (0, 0)


def test_open_batches_are_bounded() -> None:
    """The 51st batch of a stream is told so, and ends of others make room."""
    desk = Desk(allow_atomic=True)
    for number in range(50):
        assert desk.say(publish("a.x", Nats_Batch_Id=f"B{number}", Nats_Batch_Sequence="1")) == [""]
    assert desk.say(publish("a.x", Nats_Batch_Id="C", Nats_Batch_Sequence="1")) == ["!10210"]
    desk.say(publish("a.x", Nats_Batch_Id="B0", Nats_Batch_Sequence="2", Nats_Batch_Commit="1"))
    assert desk.say(publish("a.x", Nats_Batch_Id="C", Nats_Batch_Sequence="1")) == [""]


def test_a_refused_batch_leaves_no_total() -> None:
    """A staged increment of a batch that is refused does not count."""
    desk = Desk(allow_atomic=True, allow_msg_counter=True)
    assert "2" in desk.say(publish("a.x", "", Nats_Incr="2"))[0]
    desk.say(publish("a.x", "", Nats_Incr="3", Nats_Batch_Id="B", Nats_Batch_Sequence="1"))
    end = publish("a.x", "", Nats_Batch_Id="B", Nats_Batch_Sequence="2", Nats_Batch_Commit="1")
    assert desk.say(end) == ["!10169"]
    assert desk.say(publish("a.x", "", Nats_Incr="1")) == ['{"stream":"T","seq":2,"val":"3"}']


def test_a_refused_increment_does_not_count() -> None:
    """What is too large to be stored leaves the total as it was."""
    desk = Desk(allow_msg_counter=True, max_msg_size=60)
    assert desk.say(publish("a.x", "", Nats_Incr="2")) == ['{"stream":"T","seq":1,"val":"2"}']
    assert desk.say(publish("a.x", "", Nats_Incr="3", Note="x" * 60)) == ["!10054"]
    assert desk.say(publish("a.x", "", Nats_Incr="1")) == ['{"stream":"T","seq":2,"val":"3"}']


def test_totals_in_flight_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """More subjects than there is room for totals are counted all the same, within a batch and across batches."""
    monkeypatch.setattr(counters, "COUNTER_TOTALS_MAX", 2)
    desk = Desk(allow_msg_counter=True)
    round_trip = [publish(f"a.{number}", "", Nats_Incr="1") for number in range(9)]
    desk.admit(*round_trip, *round_trip)
    desk.admit(*round_trip)
    assert [tell(answer)[-4:-2] for _, answer in desk.commit()] == ['"1'] * 9 + ['"2'] * 9 + ['"3'] * 9
    assert [answer[-4:-2] for answer in desk.say(*round_trip)] == ['"4'] * 9


def test_a_counter_goes_on_from_what_is_left_of_it() -> None:
    """Its total is that of the subject's last message, whatever took later ones away; with none it starts anew."""
    desk = Desk(allow_msg_counter=True, max_age=10 * SECOND)
    one = publish("a.x", "", Nats_Incr="1")
    desk.say(one)
    desk.sleep(5)
    assert desk.say(one, one) == ['{"stream":"T","seq":2,"val":"2"}', '{"stream":"T","seq":3,"val":"3"}']
    delete = desk.leader.delete_message(JSApiMsgDeleteRequest(seq=3))
    assert isinstance(delete, Remove)
    desk.apply(delete)
    assert desk.say(one) == ['{"stream":"T","seq":4,"val":"3"}']
    desk.sleep(20)
    assert desk.say(one) == ['{"stream":"T","seq":5,"val":"1"}']
    limited = Desk(allow_msg_counter=True, max_msgs=1)
    assert "1" in limited.say(one)[0]
    limited.say(publish("b", "", Nats_Incr="1"))
    assert limited.say(one) == ['{"stream":"T","seq":3,"val":"1"}']


def test_what_was_staged_is_counted_by_what_holds_at_the_commit() -> None:
    """Totals are asked for anew when a batch is committed, for all its subjects."""
    desk = Desk(allow_msg_counter=True, allow_atomic=True)
    desk.say(publish("a.x", "", Nats_Incr="5"), publish("a.x", "", Nats_Incr="1"), publish("b", "", Nats_Incr="1"))
    desk.say(publish("a.x", "", Nats_Incr="1", Nats_Batch_Id="B", Nats_Batch_Sequence="1"))
    desk.apply(Remove((2,)))
    commit = publish("b", "", Nats_Incr="1", Nats_Batch_Id="B", Nats_Batch_Sequence="2", Nats_Batch_Commit="1")
    assert desk.say(commit) == ['{"stream":"T","seq":5,"batch":"B","count":2}']
    assert [payload for seq, _, payload in desk.held() if seq > 3] == ['{"val":"6"}', '{"val":"2"}']


def test_a_counter_on_a_subject_drawn_at_random() -> None:
    """Where its total was not known the increment is refused, and not counted from nothing."""
    transform = {"src": "b", "dest": "b.{{random(10)}}"}
    desk = Desk(allow_msg_counter=True, subject_transform=transform)
    said = [desk.say(publish("b", "", Nats_Incr="1"))[0] for _ in range(60)]
    stored = [answer for answer in said if answer != "!10077"]
    assert len(stored) == desk.store.messages
    totals = [
        int(orjson.loads(desk.store.held[seq].payload)["val"])
        for shard in range(10)
        if (seq := desk.store.last_seq_of(b"b.%d" % shard))
    ]
    assert sum(totals) == len(stored)


def test_sourced_increments_wait_for_their_totals() -> None:
    """Those whose total is not known are left for another time, whatever was removed since the host asked."""
    desk = Desk(allow_msg_counter=True)
    desk.say(publish("a.x", "", Nats_Incr="5"), publish("a.x", "", Nats_Incr="1"))
    place = b"NATS/1.0\r\nNats-Incr: 2\r\nNats-Stream-Source: O 1 > > a.x\r\n\r\n"
    sourced = [(b"a.x", place, b'{"val":"2"}')]
    desk.apply(Remove((2,)))
    admission, count = desk.leader.admit_sourced(sourced, desk.now_ns)
    assert (admission.entry, count, desk.leader.wanted_total(b"a.x")) == (None, 0, 1)
    one = desk.store.held[1]
    desk.leader.learn_total(1, (one.subject, one.headers, one.payload))
    admission, count = desk.leader.admit_sourced(sourced, desk.now_ns)
    desk.propose(admission)
    desk.commit()
    assert (count, desk.held()[-1]) == (1, (3, "a.x", '{"val":"7"}'))


def test_a_batch_is_one_entry() -> None:
    """All messages of a batch stand in one log entry, so that no crash can split them."""
    desk = Desk(allow_atomic=True)
    desk.publish(publish("a.x", Nats_Batch_Id="B", Nats_Batch_Sequence="1"))
    admission = desk.admit(publish("a.x", Nats_Batch_Id="B", Nats_Batch_Sequence="2", Nats_Batch_Commit="1"))
    assert admission.entry is not None
    assert len(admission.entry.messages) == 2


# ------------------------------------------------------------------ interest


class View:
    """A consumer for the interest table: wants one subject, needs what is not in `done`."""

    def __init__(self, subject: bytes) -> None:
        self.filters = (subject,)
        self.done: set[int] = set()

    def needs(self, seq: int) -> bool:
        return seq not in self.done


def test_interest_streams_drop_what_nobody_wants() -> None:
    """The sequence is used and the publisher answered; a roll-up still takes the older messages away."""
    desk = Desk(retention="interest", allow_rollup_hdrs=True)
    desk.interest.put("c", View(b"a.x"))
    assert desk.say(publish("a.x"), publish("b"), publish("a.x")) == ["1", "2", "3"]
    assert desk.seqs() == [1, 3]
    assert desk.say(publish("b", Nats_Rollup="all")) == ["4"]
    assert (desk.seqs(), desk.store.first_seq, desk.store.last_seq) == ([], 5, 4)


def test_a_work_queue_that_is_copied() -> None:
    """What its consumer waits for stays when another stream has taken it; what nobody waits for goes."""
    desk = Desk(retention="workqueue")
    desk.interest.put("C", View(b"a.*"))
    copy = View(b">")
    desk.interest.put("copy", copy)
    desk.say(publish("a.1"), publish("b"))
    copy.done = {1, 2}
    assert desk.interest.removable(desk.store, [1, 2], is_copied=True) == [2]
    assert desk.interest.removable(desk.store, [1]) == [1]


def test_interest_in_a_known_subject_changes() -> None:
    """Of a subject that is published on all the time, too, a consumer counts as soon as it is there, and no longer."""
    desk = Desk(retention="interest")
    for number in range(4):
        desk.publish(publish("a.x"))
        assert desk.seqs() == []
        desk.interest.put("c", View(b"a.*"))
        desk.publish(publish("a.x"), publish("a.x"))
        assert desk.seqs() == [3 * number + 2, 3 * number + 3]
        desk.interest.discard("c")
        removable, _ = desk.interest.sweep(desk.store, 1)
        desk.apply(Remove(tuple(removable)))


def test_interest_needs_all_consumers() -> None:
    """A message goes when the last consumer that wants it is done, or when that consumer goes."""
    desk = Desk(retention="interest")
    one, two = View(b"a.x"), View(b"a.x")
    desk.interest.put("one", one)
    desk.interest.put("two", two)
    desk.publish(publish("a.x"), publish("a.x"), publish("a.x"))
    one.done.update({1, 2})
    assert desk.interest.removable(desk.store, [1, 2]) == []
    two.done.add(1)
    assert desk.interest.removable(desk.store, [1]) == [1]
    desk.interest.discard("two")
    assert desk.interest.sweep(desk.store, 1) == ([1, 2], 0)


def test_narrowed_filters_free_messages() -> None:
    """When the only consumer wants one of ten subjects from now on, the nine others go."""
    desk = Desk(retention="interest", subjects=["a.>"])
    for number in range(10):
        desk.interest.put(f"c{number}", View(b"a.%d" % number))
    desk.publish(*[publish(f"a.{number}") for number in range(10)])
    for number in range(10):
        desk.interest.discard(f"c{number}")
    desk.interest.put("c", View(b"a.1"))
    removable, _ = desk.interest.sweep(desk.store, 1)
    desk.apply(Remove(tuple(removable)))
    assert desk.seqs() == [2]


def test_a_work_queue_keeps_what_nobody_wants_yet() -> None:
    """Acknowledged messages go at once; others stay without a consumer, and when a consumer goes."""
    desk = Desk(retention="workqueue")
    desk.interest.put("c", View(b"a.x"))
    desk.publish(publish("a.x"), publish("b"), publish("a.x"))
    assert desk.interest.removable(desk.store, [1]) == [1]
    desk.interest.discard("c")
    assert desk.interest.sweep(desk.store, 1) == ([], 0)
    assert desk.seqs() == [1, 2, 3]
    assert desk.interest.retention == Retention.WORKQUEUE


# ------------------------------------------------------------------ bytes of entries


def test_entries_survive_their_bytes() -> None:
    """Every kind of entry decodes to what was encoded."""
    append = Append(7, T0, [(b"a", b"", b"x"), (b"b.c", b"NATS/1.0\r\n\r\n", b"")], [b"R", b""])
    append.dropped[1] = None
    back = entries.decode(entries.encode(append))
    assert isinstance(back, Append)
    assert (back.first_seq, back.ts_ns, list(back.messages), back.dropped) == (7, T0, append.messages, {1: None})
    for entry in (Remove((1, 2**63), True), Purge(b"a.>", 5, 0), Purge(), Expire(T0), Configure(b"{}")):
        assert entries.decode(entries.encode(entry)) == entry


def test_times_never_fall() -> None:
    """When the wall clock steps back, later messages keep the time of the last one."""
    desk = Desk()
    desk.publish(publish("a.x"))
    desk.now_ns -= 10 * SECOND
    desk.admit(publish("a.x"))
    desk.admit(publish("a.x"))
    desk.commit()
    assert [one.ts_ns for one in desk.store.held.values()] == [T0, T0, T0]


def test_asking_for_an_id_changes_nothing() -> None:
    """The leader's look-ups, also after the window, leave it as its followers are."""
    desk = Desk(duplicate_window=10 * SECOND)
    desk.publish(publish("a.x", Nats_Msg_Id="m"))
    desk.now_ns += 20 * SECOND
    assert desk.machine.duplicates.find(b"m", desk.now_ns) == 0
    assert desk.machine.duplicates.items() == desk.follower.duplicates.items()
    assert desk.say(publish("a.x", Nats_Msg_Id="m")) == ["2"]
    assert [seq for _, seq, _ in desk.machine.duplicates.items()] == [2]
