"""The contract: which losses are excused, and which clause the others break."""

from __future__ import annotations

import attrs
import pytest
from tests.unit.harness.test_checkers import GOOD, evidence, replica

from tnats.harness import checkers
from tnats.harness.checkers.evidence import Evidence
from tnats.harness.contract import CLAUSE_OF, CLAUSES, Observed, PowerLoss, judge, node_figures
from tnats.harness.findings import Expect, Variant
from tnats.harness.history import Event

LONG_NS = 3600 * 1_000_000_000


def variant(expect: Expect, *, sync_interval: str = "10s", nodes: int = 1) -> Variant:
    return Variant("v", "", "queue", "directory", expect, (), sync_interval=sync_interval, nodes=nodes)


def broken(
    expect: Expect, found: Evidence, observed: Observed | None = None, *, sync_interval: str = "10s", nodes: int = 1
) -> list[str]:
    """The clauses that are broken, each once."""
    results = [check(found) for check in checkers.STREAM]
    asked = variant(expect, sync_interval=sync_interval, nodes=nodes)
    judgement = judge(asked, found, results, observed or Observed())
    assert (judgement.verdict == "broken") == bool(judgement.broken)
    return sorted({clause for clause, _ in judgement.broken})


def without_tail() -> Evidence:
    return evidence(GOOD, n1={1: "0-0", 2: "0-1"})


def test_every_clause_that_checkers_point_to_exists() -> None:
    """No dangling reference."""
    assert set(CLAUSE_OF.values()) <= set(CLAUSES)


@pytest.mark.parametrize("expect", ["S", "W", "H"])
def test_a_correct_run_keeps_the_contract(expect: Expect) -> None:
    """Whatever would have been excused."""
    assert broken(expect, evidence(GOOD)) == []


def test_a_run_without_an_acknowledgement_shows_nothing() -> None:
    """A server that refuses everything loses nothing, and has kept no promise by that."""
    found = evidence({})
    results = [check(found) for check in checkers.STREAM]
    assert judge(variant("S"), found, results, Observed()).verdict == "unknown"


def test_loss_is_a_broken_promise_where_none_is_excused() -> None:
    """K1 without a power loss, K2 with one."""
    assert broken("S", without_tail()) == ["K1"]
    assert broken("S", without_tail(), Observed(power_losses=[PowerLoss("n1", LONG_NS, LONG_NS)])) == ["K2"]


def test_loss_inside_the_window_is_excused_only_when_reported() -> None:
    """A suffix, young enough, before a power loss: kept if the health check tells of it, K3 if it says ok."""
    observed = Observed(power_losses=[PowerLoss("n1", 9_000, 100_000)])
    assert broken("W", without_tail(), observed) == ["K3"]
    reported = without_tail()
    reported.replicas[0].health = "503 lost sequences 3 to 4"
    assert broken("W", reported, observed) == []
    once = without_tail()
    once.replicas[0].named_lost = ((3, 3),)
    assert broken("W", once, observed) == ["K3"], "4 was never named"
    once.replicas[0].named_lost = ((3, 9),)
    assert broken("W", once, observed) == []


def test_loss_that_is_too_old_or_no_suffix_breaks_the_window() -> None:
    """Even if reported."""
    old = without_tail()
    old.replicas[0].health = "503 lost"
    assert broken("W", old, Observed(power_losses=[PowerLoss("n1", LONG_NS, LONG_NS)])) == ["K3"]
    hole = evidence(GOOD, n1={1: "0-0", 4: "0-3"})
    hole.replicas[0].health = "503 lost"
    assert "K3" in broken("W", hole, Observed(power_losses=[PowerLoss("n1", 9_000, 100_000)]))


def test_loss_without_a_power_loss_breaks_k1_in_the_window_too() -> None:
    """A window needs a power loss."""
    reported = without_tail()
    reported.replicas[0].health = "503 lost"
    assert broken("W", reported) == ["K1"]


def flipped(found: Evidence, bits: int) -> Evidence:
    """The same with so many bits flipped by the nemesis."""
    found.history.events.append(Event(99, 99_000, "info", "nemesis", "bitflip", ["/x/1.blk", 1000, bits]))
    return found


def test_damage_must_be_answered_with_an_error_and_show_in_the_health_check() -> None:
    """As if it had never been: K5. An error for each and a failing health check: kept, if nothing else is missing."""
    assert broken("H", flipped(without_tail(), 2)) == ["K5"]
    honest = flipped(without_tail(), 2)
    honest.replicas[0].missing = {3: "message 3 is lost (500)", 4: "message 4 is lost (500)"}
    assert broken("H", honest) == ["K5"], "the health check says ok"
    honest.replicas[0].health = "503 damaged: 3-4"
    assert broken("H", honest) == []


def test_no_such_message_is_an_answer_only_where_the_server_lists_the_sequence_as_lost() -> None:
    """The list must have every one of them; and an error that is about something else names nothing."""
    listed = flipped(without_tail(), 2)
    listed.replicas[0].missing = {3: "", 4: ""}
    listed.replicas[0].health = "503 damaged"
    listed.replicas[0].named_lost = ((3, 3),)
    assert broken("H", listed) == ["K5"]
    listed.replicas[0].named_lost = ((3, 4),)
    assert broken("H", listed) == []
    vague = flipped(without_tail(), 2)
    vague.replicas[0].health = "503 damaged"
    vague.replicas[0].missing = {3: "no responders (503)", 4: "message 4 is lost (500)"}
    assert broken("H", vague) == ["K5"]


def test_a_hole_that_is_listed_as_lost_is_no_gap() -> None:
    """Also with sequences in it that nobody was ever given; one that is not listed is a gap (C5)."""
    holed = flipped(evidence(GOOD, n1={1: "0-0", 2: "0-1", 4: "0-3"}), 2)
    holed.replicas[0].missing = {3: ""}
    holed.replicas[0].health = "503 damaged"
    assert broken("H", holed) == ["K5", "K9"]
    holed.replicas[0].named_lost = ((3, 3),)
    assert broken("H", holed) == []


def test_what_was_not_damaged_must_be_served() -> None:
    """One flipped bit does not excuse two lost records, however honest the server is about them."""
    honest = flipped(without_tail(), 1)
    honest.replicas[0].missing = {3: "message 3 is lost (500)", 4: "message 4 is lost (500)"}
    honest.replicas[0].health = "503 damaged: 3-4"
    assert broken("H", honest) == ["K6"]


def test_an_honest_hole_is_no_gap() -> None:
    """A damaged record in the middle, answered with an error: nothing else objects."""
    honest = flipped(evidence(GOOD, n1={1: "0-0", 2: "0-1", 4: "0-3"}), 2)
    honest.replicas[0].missing = {3: "message 3 is lost (500)"}
    honest.replicas[0].health = "503 damaged: 3"
    assert broken("H", honest) == []


def test_a_store_that_cannot_be_read_breaks_k5() -> None:
    """Whether it failed altogether or gave no answer for some sequences."""
    silent = evidence(GOOD)
    silent.replicas[0].unanswered_count = 1
    assert broken("S", silent) == ["K5"]
    failed = evidence(GOOD)
    failed.replicas[0].failure = "TimedOut: no reply"
    assert broken("S", failed) == ["K5"]


def test_a_value_at_another_sequence_breaks_k4() -> None:
    """Renumbering is no recovery."""
    assert "K4" in broken("S", evidence(GOOD, n1={1: "0-0", 2: "0-2", 3: "0-1", 4: "0-3"}))


def test_a_consumer_that_skips_what_is_there_breaks_k5() -> None:
    """The store holds it, the reader never got it."""
    found = evidence(GOOD)
    (index,) = [place for place, event in enumerate(found.history.events) if event.type == "ok" and event.f == "fetch"]
    event = found.history.events[index]
    found.history.events[index] = attrs.evolve(event, value=["0-0", "0-3"], extra={**event.extra, "seqs": [1, 4]})
    assert broken("S", found) == ["K5"]


def test_service_and_stream_must_come_back() -> None:
    """K8 for a server that stays away, K6 for a stream that nobody deleted."""
    assert broken("S", evidence(GOOD), Observed(unavailable="it ended")) == ["K8"]
    assert broken("S", evidence(GOOD), Observed(stream_gone=True)) == ["K6"]


def test_a_volatile_acknowledgement_breaks_k2_without_any_crash() -> None:
    """Where each is to be synced first; with an interval it is only told, even if a cluster must lose nothing."""
    observed = Observed(audited_count=5, audited_volatile_count=2)
    assert broken("S", evidence(GOOD), observed, sync_interval="always") == ["K2"]
    assert broken("S", evidence(GOOD), observed) == []
    assert broken("W", evidence(GOOD), observed) == []


def test_divergence_is_judged_whatever_is_excused() -> None:
    """Two replicas with different content at one sequence."""
    split = evidence(GOOD, n1=GOOD)
    split.replicas.append(replica("n2", {**GOOD, 2: "9-9"}))
    assert broken("H", split) == ["K4", "K5", "K6", "K8"]


def test_a_fault_of_a_minority_excuses_no_loss() -> None:
    """K7 while most nodes were left alone, K2 when power failed on more, K1 when nothing was lost but processes."""
    few = Observed(hit={"n1": None, "n3": None}, power_losses=[PowerLoss("n1", 1, 2)])
    many = Observed(hit=dict.fromkeys(("n1", "n2", "n3")), power_losses=[PowerLoss("n1", 1, 2)])
    assert broken("S", without_tail(), few, nodes=5) == ["K7"]
    assert broken("S", without_tail(), many, nodes=5) == ["K2"]
    assert broken("S", without_tail(), nodes=5) == ["K1"]


def test_a_replica_that_stays_behind_breaks_k8() -> None:
    """Though everything is there and served."""
    assert broken("S", evidence(GOOD), Observed(not_current="n3-0 (offline)"), nodes=5) == ["K8"]


def test_what_each_node_holds_is_counted() -> None:
    """Lost and diverged are not the same: a node may hold something else, or what others lack."""
    found = evidence(GOOD, n1=GOOD, n2={1: "0-0", 2: "0-1", 3: "9-9"}, n3=GOOD)
    found.replicas[2].failure = "no consumer was placed on it"
    values = {"n1": {"0-0", "9-9"}, "n4": set[str]()}
    rows = node_figures(found, Observed(on_disk={"n1": 10, "n2": 20, "n3": 30, "n4": 0}, values_on_disk=values))
    counts = [(row.held_count, row.lost_count, row.diverged_count) for row in rows]
    assert counts == [(4, 0, 0), (2, 2, 2), (0, 0, 0), (0, 0, 0)]
    assert [row.failure for row in rows] == ["", "", "no consumer was placed on it", "no node was read"]
    assert [row.on_disk_bytes for row in rows] == [10, 20, 30, 0]
    assert [row.on_disk_count for row in rows] == [1, None, None, 0]


def test_a_node_that_threw_its_copy_away_breaks_k6() -> None:
    """Unless it had left the cluster, which means to lose everything."""
    observed = Observed(on_disk={"n1": 10, "n2": 0})
    assert broken("S", evidence(GOOD), observed, nodes=5) == ["K6"]
    left = evidence(GOOD)
    left.history.events.append(Event(99, 99_000, "info", "nemesis", "leave", "n2-0"))
    assert broken("S", left, observed, nodes=5) == []
    assert broken("S", evidence(GOOD), Observed(on_disk={"n1": 0, "n2": 0}), nodes=5) == [], "told of as gone"


def test_an_early_removal_breaks_k1() -> None:
    """What a member is told to have happened has been agreed on."""
    assert broken("S", evidence(GOOD), Observed(early_removals=["n5 answered success"]), nodes=5) == ["K1"]


def test_a_node_that_stays_away_breaks_k8_once() -> None:
    """Where the others serve: it is not held against it a second time that it could not be read."""
    found = evidence(GOOD, n1=GOOD, n2={})
    found.replicas[1].failure = "it did not start"
    assert broken("S", found, Observed(not_serving={"n2": "it did not start"}), nodes=5) == ["K8"]
    assert broken("S", found, nodes=5) == ["K5"]
    whole, part = set(GOOD.values()), {"0-0"}
    assert broken("S", found, Observed(values_on_disk={"n2": whole}), nodes=5) == [], "its files have it"
    assert broken("S", found, Observed(values_on_disk={"n2": part}), nodes=5) == ["K5"]
