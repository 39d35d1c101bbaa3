"""What may be lost with a sync interval, and how a loss is judged after a sync that failed."""

from __future__ import annotations

import pytest
from tests.unit.harness.test_checkers import history
from tests.unit.harness.test_stream_checkers import held, publish

from tnats.harness.checkers import removal
from tnats.harness.checkers.evidence import Evidence
from tnats.harness.sim.lazy_losses import LazyLosses

WINDOW_NS = 3000
PART, NEXT_PART, SEGMENT = "/data/tnats/journal/01.part", "/data/tnats/journal/02.part", "/data/tnats/streams/1/01.seg"
DIRECTORY = "/data/tnats/journal"


class Run:
    """A server whose syncs and losses of power are told with their times."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.start = 1
        self.losses = LazyLosses(WINDOW_NS, lambda: self.now_ns, lambda: self.start)

    def sync(self, time_ns: int, path: str, *, is_good: bool, took_ns: int = 0) -> None:
        self.now_ns = time_ns - took_ns
        ended = self.losses.on_sync(path)
        self.now_ns = time_ns
        ended(is_good)

    def look(self, time_ns: int, *, is_running: bool) -> None:
        self.now_ns = time_ns
        self.losses.look(is_running=is_running)

    def power_lost(self, time_ns: int) -> tuple[int, int]:
        self.now_ns = time_ns
        self.losses.power_lost()
        return self.losses.spans_ns[-1]


def test_an_interval_is_lost_while_syncs_succeed() -> None:
    """Without a failed sync of the journal only the interval before a loss of power is excused."""
    run = Run()
    run.sync(10_000, PART, is_good=True)
    run.sync(11_000, SEGMENT, is_good=False)
    assert run.power_lost(20_000) == (17_000, 20_000)


@pytest.mark.parametrize("path", [PART, DIRECTORY])
def test_a_failed_sync_holds_until_a_later_start_has_synced(path: str) -> None:
    """The excuse begins an interval before the first failure, whatever fails or succeeds in the same start; and it ends
    with a good sync of that part, or of one behind it, by a later start.
    """
    run = Run()
    run.sync(10_000, path, is_good=False)
    run.sync(11_000, path, is_good=False)
    run.sync(12_000, NEXT_PART, is_good=True)
    assert run.power_lost(20_000) == (7_000, 20_000)
    run.start = 2
    run.sync(21_000, SEGMENT, is_good=True)
    run.sync(22_000, "/data/tnats/journal/00.part" if path == PART else SEGMENT, is_good=True)
    assert run.power_lost(30_000) == (7_000, 30_000)
    run.sync(31_000, NEXT_PART, is_good=True)
    assert run.power_lost(40_000) == (37_000, 40_000)


@pytest.mark.parametrize(
    ("is_failed", "named", "verdict"),
    [
        (True, ((1, 1),), "ok"),
        (True, (), "violated"),
        (True, ((2, 9),), "violated"),
        (False, ((1, 1),), "violated"),
    ],
)
def test_a_loss_behind_a_failed_sync_must_be_named(
    is_failed: bool, named: tuple[tuple[int, int], ...], verdict: str
) -> None:
    """An acknowledgement long before the loss of power is excused if a sync failed soon after it and the server names
    its message as lost, and otherwise not.
    """
    run = Run()
    run.sync(2_000, PART, is_good=not is_failed)
    run.power_lost(9_000)
    acknowledged = history(publish("u", 1))
    found = Evidence(acknowledged, [held({}, named_lost=named)], unsynced_ns=tuple(run.losses.spans_ns))
    assert removal.check(found).verdict == verdict


def test_nothing_is_excused_where_every_acknowledgement_is_synced() -> None:
    """With sync always there are no such times, and a named loss is a violation."""
    lost = Evidence(history(publish("u", 1)), [held({}, named_lost=((1, 1),))])
    assert removal.check(lost).verdict == "violated"


def test_nothing_from_before_a_good_sync_is_excused() -> None:
    """A sync makes durable what was there when it began, not what came while it was under way."""
    run = Run()
    run.sync(19_000, PART, is_good=True, took_ns=800)
    assert run.power_lost(20_000) == (18_200, 20_000)


def test_who_is_dead_or_stands_still_does_not_sync() -> None:
    """What came within an interval before the server stopped is excused until a sync that began after that: one that
    was under way when it stopped says nothing of what came meanwhile.
    """
    run = Run()
    run.look(10_000, is_running=True)
    run.look(10_200, is_running=False)
    run.look(15_000, is_running=True)
    assert run.power_lost(20_000) == (7_000, 20_000)
    run.sync(20_500, PART, is_good=True, took_ns=11_000)
    assert run.power_lost(21_000) == (9_500, 21_000)
    run.sync(22_000, NEXT_PART, is_good=True)
    run.look(23_000, is_running=True)
    assert run.power_lost(40_000) == (37_000, 40_000)
