"""Each checker is quiet on a correct run and names what is planted in a wrong one."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import pytest

from tnats.harness import checkers
from tnats.harness.checkers import (
    ack_unique,
    acked_present,
    compare_and_set,
    converged,
    kv_linearizable,
    no_duplicate,
    no_fabrication,
    order,
    read_sanity,
)
from tnats.harness.checkers.evidence import Evidence, Replica, Stored
from tnats.harness.history import Event, History

Step = tuple[str, int, str, object, dict[str, object]]


def history(steps: Iterable[tuple[str, int, str, object, dict[str, object]]]) -> History:
    """Events from (type, process, function, value, further keys)."""
    events = []
    for index, (kind, process, f, value, keys) in enumerate(steps):
        assert kind in ("invoke", "ok", "fail", "info")
        extra = {name: item for name, item in keys.items() if name != "error"}
        error = str(keys["error"]) if "error" in keys else None
        events.append(Event(index, index * 1000, kind, process, f, value, error, extra))
    return History(events)


def publish(value: str, seq: int | None, process: int = 0, **extra: object) -> list[Step]:
    """A publish that was acknowledged at `seq`, or refused."""
    end: Step = ("ok", process, "publish", value, {"stream": "s", "seq": seq, "duplicate": False, **extra})
    if seq is None:
        end = ("fail", process, "publish", value, {"error": "no responders"})
    return [("invoke", process, "publish", value, {"node": "n1"}), end]


def fetched(*pairs: tuple[int, str]) -> list[Step]:
    """A drain on n1."""
    values, seqs = [value for _, value in pairs], [seq for seq, _ in pairs]
    return [
        ("invoke", 9, "fetch", None, {"node": "n1"}),
        ("ok", 9, "fetch", values, {"node": "n1", "seqs": seqs}),
    ]


def replica(node: str, messages: dict[int, str]) -> Replica:
    stored = {seq: Stored(value, "jepsen.0", seq * 10) for seq, value in messages.items()}
    return Replica(node, stored, last_seq=max(messages, default=0))


def evidence(values: dict[int, str], **replicas: dict[int, str]) -> Evidence:
    """Values 0-0, 0-1, ... acknowledged at the given sequences; replicas (n1 by default) that hold what they hold."""
    steps = [step for seq, value in values.items() for step in publish(value, seq)]
    held = replicas or {"n1": values}
    drained = fetched(*next(iter(held.values())).items())
    return Evidence(history([*steps, *drained]), [replica(node, messages) for node, messages in held.items()])


GOOD = {1: "0-0", 2: "0-1", 3: "0-2", 4: "0-3"}


def test_a_correct_run_passes_every_checker() -> None:
    """No checker of the suite for streams objects."""
    assert [check(evidence(GOOD)).verdict for check in checkers.STREAM] == ["ok"] * len(checkers.STREAM)


@pytest.mark.parametrize(
    ("kept", "place"),
    [
        ({2: "0-1", 3: "0-2", 4: "0-3"}, "lost_prefix"),
        ({1: "0-0", 2: "0-1", 4: "0-3"}, "lost_middle"),
        ({1: "0-0", 2: "0-1", 3: "0-2"}, "lost_postfix"),
    ],
)
def test_c1_classifies_a_lost_value(kept: dict[int, str], place: str) -> None:
    """By sequence exactly; by producer as Jepsen does."""
    result = acked_present.check(evidence(GOOD, n1=kept))
    assert result.verdict == "violated"
    assert [name for name in ("lost_prefix", "lost_middle", "lost_postfix") if result.figures[name]] == [place]
    assert result.figures["lost"] == 1
    assert result.figures["lost_by_producer"] == {
        name: int(place == f"lost_{name}") for name in ("prefix", "middle", "postfix")
    }
    assert result.figures["lost_on_node"] == {"n1": 1}


def test_c1_finds_a_value_that_only_one_replica_lacks() -> None:
    """Not lost, since it is seen elsewhere, and yet a violation."""
    result = acked_present.check(evidence(GOOD, n1=GOOD, n2={1: "0-0", 2: "0-1", 3: "0-2"}))
    assert result.figures["lost"] == 0
    assert result.texts == ("0-3 was acknowledged at 4; n2 answers: no such message",)


def test_c1_finds_another_value_at_an_acknowledged_sequence() -> None:
    """Presence elsewhere does not help."""
    result = acked_present.check(evidence(GOOD, n1={1: "0-0", 2: "0-2", 3: "0-1", 4: "0-3"}))
    assert "0-1 was acknowledged at 2; n1 holds 0-2 there" in result.texts


def test_c1_calls_nothing_lost_that_could_not_be_looked_for() -> None:
    """Without any read the verdict is unknown; an empty store that was read is another matter."""
    steps = publish("0-0", 1)
    assert acked_present.check(Evidence(history(steps))).verdict == "unknown"
    assert acked_present.check(Evidence(history(steps), [replica("n1", {})])).figures["lost"] == 1


def test_c2_finds_a_sequence_acknowledged_twice() -> None:
    """Without looking at any store; a duplicate's acknowledgement repeats the first one's sequence and is fine."""
    steps = [*publish("0-0", 1), *publish("0-1", 1)]
    assert ack_unique.check(Evidence(history(steps))).verdict == "violated"
    steps = [*publish("0-0", 1), *publish("0-1", 1, duplicate=True)]
    assert ack_unique.check(Evidence(history(steps))).verdict == "ok"


def test_c3_finds_values_that_nobody_wrote_or_that_were_refused() -> None:
    """In stores and in deliveries; a wrong subject counts too."""
    made_up = evidence(GOOD, n1={**GOOD, 5: "7-7"})
    assert any("'7-7' was never published" in text for text in no_fabrication.check(made_up).texts)
    refused = Evidence(history(publish("0-0", None)), [replica("n1", {1: "0-0"})])
    assert "had been refused (no responders)" in no_fabrication.check(refused).texts[0]
    moved = evidence(GOOD)
    moved.replicas[0].messages[1] = attrs.evolve(moved.replicas[0].messages[1], subject="jepsen.1")
    assert "on 'jepsen.1'" in no_fabrication.check(moved).texts[0]


def test_c4_finds_a_value_at_two_sequences() -> None:
    """A redelivery of the same sequence is no duplicate."""
    assert no_duplicate.check(evidence(GOOD, n1={**GOOD, 5: "0-0"})).texts[0] == "n1: 0-0 at 1 and at 5"
    twice = Evidence(history([*publish("0-0", 1), *fetched((1, "0-0"), (1, "0-0"))]))
    assert no_duplicate.check(twice).verdict == "ok"


def test_c5_finds_sequences_against_time() -> None:
    """A later publish with an earlier sequence; overlapping ones may have either order."""
    assert order.check(Evidence(history([*publish("0-0", 2), *publish("0-1", 1)]))).verdict == "violated"
    first, second = publish("0-0", 2), publish("1-0", 1, process=1)
    overlapping = [first[0], second[0], second[1], first[1]]
    assert order.check(Evidence(history(overlapping))).verdict == "ok"


def test_c5_finds_gaps_and_timestamps_that_go_back() -> None:
    """Both along the sequences of one replica."""
    assert order.check(evidence(GOOD, n1={1: "0-0", 4: "0-3"})).texts == ("n1: nothing from 2 to 3",)
    turned = evidence(GOOD)
    turned.replicas[0].messages[3] = attrs.evolve(turned.replicas[0].messages[3], time_ns=1)
    assert order.check(turned).texts == ("n1: the timestamp of 3 lies before that of 2",)


def test_c6_names_the_first_difference_of_replicas_and_of_a_restart() -> None:
    """With both contents."""
    split = converged.check(evidence(GOOD, n1=GOOD, n2={**GOOD, 2: "9-9"}))
    assert split.texts == ("n1 and n2: at 2 0-1 and 9-9",)
    restarted = evidence(GOOD)
    restarted.restarted = [replica("n1", {1: "0-0", 2: "0-1", 3: "0-2"})]
    texts = converged.check(restarted).texts
    assert texts[0] == "n1 before and after a clean restart: last sequence 4 and 3"
    assert texts[1].endswith("at 4 0-3 and nothing")
    aged = evidence(GOOD)
    aged.replicas[0].node = "n1 at rest"
    aged.restarted = [replica("n1 after a start", GOOD)]
    assert converged.check(aged).verdict == "ok"
    aged.restarted[0].messages[2] = attrs.evolve(aged.restarted[0].messages[2], time_ns=7)
    assert converged.check(aged).texts[0].endswith("at 2 0-1 on jepsen.0 of 20 ns and 0-1 on jepsen.0 of 7 ns")


# ------------------------------------------------------------------ registers


def kv(f: str, value: str | None, seq: int | None, process: int = 0, **extra: object) -> list[Step]:
    """An operation on key k: successful at `seq`, or refused for a conflict."""
    end: Step = ("ok", process, f, ["k", value], {"seq": seq})
    if seq is None:
        end = ("fail", process, f, ["k", value], {"error": "conflict"})
    asked = None if f.startswith("get") else value
    return [("invoke", process, f, ["k", asked], {"node": "n1", "connection": process, **extra}), end]


GOOD_KEY = [
    *kv("get", None, 0),
    *kv("create", "a", 1),
    *kv("create", "b", None),
    *kv("put", "c", 4),
    *kv("get", "c", 4),
    *kv("update", "d", None, revision=1),
    *kv("update", "e", 6, revision=4),
    *kv("delete", "deleted f", 7),
    *kv("create", "g", 9),
    *kv("get-direct", "deleted f", 7),
    *kv("get-direct", "g", 9),
]


def test_a_correct_register_passes() -> None:
    """All three checkers; a direct read may be old, as long as it does not go back."""
    found = [check(Evidence(history(GOOD_KEY))) for check in checkers.REGISTERS]
    assert [result.texts for result in found] == [(), (), ()]


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (kv("get", "a", 1), "began after"),
        (kv("get", "a", 4), "no write wrote at that revision"),
        (kv("put", "z", 4), "was given to two writes"),
        (kv("put", "z", 3), "began after"),
        (kv("update", "z", 12, revision=7), "succeeded although the revision before it was 9"),
        (kv("create", "z", 12), "succeeded although the revision before it was 9"),
        (kv("update", "z", None, revision=9), "was refused although"),
    ],
)
def test_c8_explains_what_no_register_does(steps: list[Step], text: str) -> None:
    """One wrong operation after the correct ones, one line about it."""
    result = kv_linearizable.check(Evidence(history([*GOOD_KEY, *steps])))
    assert result.verdict == "violated"
    assert text in result.texts[0]


def test_c8_lets_a_write_of_unknown_fate_explain_what_it_can() -> None:
    """A refused update after one: the write may have come between. Then the register must go on from there."""
    unknown: list[Step] = [
        ("invoke", 5, "put", ["k", "u"], {"node": "n1", "connection": 5}),
        ("info", 5, "put", ["k", "u"], {"error": "timed out"}),
    ]
    refused = [*GOOD_KEY, *unknown, *kv("update", "z", None, revision=9)]
    assert kv_linearizable.check(Evidence(history(refused))).verdict == "ok"
    went_back = [*refused, *kv("get", "g", 9)]
    assert kv_linearizable.check(Evidence(history(went_back))).verdict == "violated"


def test_c7_finds_direct_reads_that_go_back_or_were_never_written() -> None:
    """Per connection: another one may see older values."""
    back = [*GOOD_KEY, *kv("get-direct", "c", 4)]
    assert "went back from revision 9 to 4" in read_sanity.check(Evidence(history(back))).texts[0]
    other = [*GOOD_KEY, *kv("get-direct", "c", 4, process=1)]
    assert read_sanity.check(Evidence(history(other))).verdict == "ok"
    made_up = [*GOOD_KEY, *kv("get-direct", "z", 11)]
    assert "which nobody wrote" in read_sanity.check(Evidence(history(made_up))).texts[0]


def test_c9_finds_an_update_across_another_write() -> None:
    """The revision in between is named."""
    steps = [*GOOD_KEY, *kv("update", "z", 12, revision=7)]
    assert "revision 9 came between" in compare_and_set.check(Evidence(history(steps))).texts[0]
