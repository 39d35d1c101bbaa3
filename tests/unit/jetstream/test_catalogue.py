"""The catalogue's log: changes and checkpoints that meet."""

from __future__ import annotations

import random

import attrs
import pytest
import trio
import trio.testing
from tests.properties.storage_bench import run
from tests.properties.test_storage_store import LAZY, store_on

from tnats.jetstream.meta.catalogue import Catalogue, StreamRecord
from tnats.jetstream.stream.config import StreamConfig
from tnats.limits import SECOND_NS
from tnats.runtime.sim.disk import SimDrive


@pytest.mark.parametrize("interval_ns", [0, 100 * SECOND_NS])
def test_a_checkpoint_in_the_middle_of_a_change_forgets_nothing(interval_ns: int) -> None:
    """One stream is made, another changed and a third removed while checkpoints come at every step: after a start the
    catalogue has all of it.
    """

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        journal = attrs.evolve(LAZY, sync_interval_ns=interval_ns)
        async with store_on(drive, clean=False, journal=journal) as store, trio.open_nursery() as nursery:
            catalogue = Catalogue(store.journal)
            await catalogue.open()
            records = [StreamRecord("A", number, 0, StreamConfig(name=f"S{number}", max_msgs=3)) for number in range(3)]
            await catalogue.put_stream(records[1])
            await catalogue.put_stream(records[2])
            is_over = False

            async def change() -> None:
                nonlocal is_over
                await catalogue.put_stream(records[0])
                await catalogue.put_stream(attrs.evolve(records[1], config=StreamConfig(name="S1", max_msgs=7)))
                await catalogue.drop_stream(2)
                is_over = True

            nursery.start_soon(change)
            while not is_over:
                await trio.lowlevel.checkpoint()
                group = store.journal.group("catalogue")
                if group.last > group.floor:
                    await catalogue.checkpoint()
        drive.locks.clear()
        async with store_on(drive, seed=2) as store:
            catalogue = Catalogue(store.journal)
            await catalogue.open()
            assert {number: record.config.max_msgs for number, record in catalogue.streams.items()} == {0: 3, 1: 7}

    run(test)
