"""Accusations of having forgotten: which of them a replica believes."""

from __future__ import annotations

import random

import pytest

from tnats.raft.effects import HardState, Persisted, Receive, Tick
from tnats.raft.machine import Machine
from tnats.raft.membership import Member, Membership
from tnats.raft.messages import Forgotten, SnapshotMeta, Standing
from tnats.raft.options import Options
from tnats.raft.recovery import Restored

BOOT = 1 << 16
MEMBERS = Membership(0, (Member(1), Member(2), Member(3)))


@pytest.mark.parametrize(
    ("term", "acked", "standing"),
    [
        (5, (2, 3), Standing.AMNESIC),  # the leader of our term holds us to it
        (6, (2, 3), Standing.AMNESIC),  # we forgot even its term
        (3, (2, 3), Standing.SOUND),  # a later leader has overwritten it since
        (5, (2, 2), Standing.SOUND),  # we have it
    ],
)
def test_only_the_leader_of_the_newest_term_knows_what_was_acknowledged(
    term: int, acked: tuple[int, int], standing: Standing
) -> None:
    """A log that ends in (index 2, term 2), in term 5: what it acknowledged to older leaders may rightly be gone."""
    restored = Restored(
        HardState(term=5), SnapshotMeta(0, 0, MEMBERS), 0, [0, 1, 2], [], [MEMBERS], 0, 0, Standing.SOUND
    )
    machine = Machine(1, restored, Options(), random.Random(1))
    machine.step(Tick())
    machine.step(Persisted(1))
    index, acked_term = acked
    machine.step(Receive(Forgotten(2, 1, term, BOOT, machine.core.incarnation, index, acked_term)))
    assert machine.standing is standing
