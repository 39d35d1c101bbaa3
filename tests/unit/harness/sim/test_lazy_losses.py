"""What may be lost with a sync interval, and how a loss is judged after a sync that failed."""

from __future__ import annotations

import pytest
from tests.unit.harness.test_checkers import history
from tests.unit.harness.test_stream_checkers import held, publish

from tnats.harness.checkers import removal
from tnats.harness.checkers.evidence import Evidence
from tnats.harness.checkers.removal import Limits
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

    def sync(self, time_ns: int, path: str, *, is_good: bool) -> None:
        self.now_ns = time_ns
        self.losses.on_sync(path, is_good)

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
    limits = Limits(unsynced_ns=tuple(run.losses.spans_ns))
    assert removal.check(Evidence(acknowledged, [held({}, named_lost=named)]), limits).verdict == verdict


def test_nothing_is_excused_where_every_acknowledgement_is_synced() -> None:
    """With sync always there are no such times, and a named loss is a violation."""
    lost = Evidence(history(publish("u", 1)), [held({}, named_lost=((1, 1),))])
    assert removal.check(lost, Limits()).verdict == "violated"
