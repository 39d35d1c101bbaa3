"""Leases: whatever a loss of power takes under a sync interval, no sequence is given out twice, and few are wasted."""

from __future__ import annotations

import random

import pytest
from tests.properties.storage_bench import run
from tests.properties.test_storage_journal import Bench, new_drive

from tnats.limits import LEASE_NS, LEASE_SEQUENCES_MAX, LEASE_SEQUENCES_MIN, SECOND_NS
from tnats.runtime.sim.disk_image import CrashPolicy, DiskImage
from tnats.storage.group import Group
from tnats.storage.lease import LeasePace

ENTRY_SEQUENCES_MAX = 3000


async def last_known(group: Group) -> int:
    """The last sequence that the entries of a group tell of: each has it as its body."""
    readable = await group.read_run()
    return max((int(bytes(body)) for _, body in readable.values()), default=0)


async def check(image: DiskImage, told: dict[str, int]) -> dict[str, int]:
    """How far the sequences of each group were used, as a start after a loss of power sees it."""
    used: dict[str, int] = {}
    async with Bench(new_drive(image), sync_interval_ns=SECOND_NS, seed=50).journal() as journal:
        for name in told:
            group = journal.group(name)
            known = await last_known(group)
            used[name] = max(known, group.state.leased)
            assert used[name] >= told[name], name
            assert used[name] <= known + ENTRY_SEQUENCES_MAX + LEASE_SEQUENCES_MAX, name
    return used


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 40))])
def test_no_sequence_is_used_twice(seed: int) -> None:
    """Whichever disk operation the power fails at, and whatever survives: a sequence that was told to anybody is one
    that the entries tell of, or lies within the lease. A lease reaches no further than it may. Three losses in a row.
    """

    async def test() -> None:
        rng = random.Random(seed)
        image: DiskImage | None = None
        used = {"alpha": 0, "beta": 0}
        for life in range(3):
            drive = new_drive(image)
            bench = Bench(drive, sync_interval_ns=SECOND_NS, part_bytes=24 * 1024, seed=10 * life)
            moments: list[tuple[DiskImage, dict[str, int]]] = []
            told = dict(used)
            drive.observer = lambda kind, path: moments.append((drive.image.clone(), dict(told)))  # noqa: B023
            async with bench.journal() as journal:
                waits = alone = 0
                for _ in range(60):
                    name = rng.choice(("alpha", "beta"))
                    group = journal.group(name)
                    used[name] += rng.choice((1, 1, 1, rng.randrange(1, ENTRY_SEQUENCES_MAX)))
                    body = b"%d" % used[name]
                    if group.write_nowait(body, sequence=used[name]):
                        alone += 1
                    else:
                        ticket = group.append_nowait([body], wake=rng.random() < 0.5, sequence=used[name])
                        journal.write_nowait()
                        waits += not ticket.done
                        await ticket.wait()
                    told[name] = used[name]
                    bench.clock.now_ns += rng.choice((0, 1, 30)) * 1_000_000
                    if rng.random() < 0.05:
                        await bench.clock.idle()
                    elif rng.random() < 0.1:
                        await group.set_state_nowait(rng.randrange(group.floor, group.last), b"").wait()
                        await journal.release()
                assert alone > 5, "a lease serves many entries"
                assert waits, "the first entry beyond a lease is durable"
            drive.observer = None
            for image, then in rng.sample(moments, min(20, len(moments))):
                image.crash(rng.choice(list(CrashPolicy)), rng)
                used = await check(image, then)

    run(test)


def test_a_lease_is_taken_at_the_rate_of_its_use() -> None:
    """It lasts twice LEASE_NS at the present rate, within its bounds, and never gets shorter than it was."""
    pace = LeasePace(0)
    assert pace.extend(1, 0) == 1 + LEASE_SEQUENCES_MIN
    assert pace.extend_above == 1 + LEASE_SEQUENCES_MIN // 2
    used = 5000
    assert pace.extend(1 + used, LEASE_NS) == 1 + used + 2 * used
    assert pace.extend_above == 1 + used + used
    fast = pace.extend(1 + 3 * used, LEASE_NS + 1)
    assert fast == 1 + 3 * used + LEASE_SEQUENCES_MAX
    assert pace.extend(2 + 3 * used, 100 * LEASE_NS) == fast
    assert pace.extend_above == fast - LEASE_SEQUENCES_MIN // 2
    pace.refused(7)
    assert pace.extend_above == 7
    assert pace.extend(9, 200 * LEASE_NS) == 9 + LEASE_SEQUENCES_MIN
