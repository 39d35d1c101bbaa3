"""The store on the real disk behaves as on the simulated one: what was acknowledged is there after reopening."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
import trio

from tnats.runtime.api import Disk
from tnats.runtime.live.disk import LiveDisk
from tnats.runtime.sim.disk import SimDisk, SimDrive
from tnats.storage.journal import JournalOptions
from tnats.storage.message_log import Message
from tnats.storage.store import OpenStream, Store, StoreOptions
from tnats.storage.store_open import open_store
from tnats.storage.stream_log import StreamLogOptions


class RealClock:
    def mono_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        return time.time_ns()

    async def sleep_ns(self, duration_ns: int) -> None:
        await trio.lowlevel.checkpoint()


async def replayed(store: Store, name: str) -> OpenStream:
    stream = await store.open_stream(name)
    for entry in await stream.commit.replay():
        assert entry.body is not None
        await stream.log.append([Message(entry.index, 5, b"s", b"", bytes(entry.body))])
        stream.applied = entry.index
    stream.log.end_recovery()
    return stream


@pytest.mark.parametrize("kind", ["live", "sim"])
def test_streams_survive_reopening(kind: str, tmp_path: Path) -> None:
    """Three streams publish at once over several journal parts and segments; clean and unclean ends lose nothing."""
    drive = SimDrive(random.Random(1))
    options = StoreOptions(JournalOptions(part_bytes=64 * 1024), StreamLogOptions(segment_bytes=32 * 1024))
    names = ["a", "b", "c"]

    async def life(number: int) -> None:
        disk: Disk = LiveDisk() if kind == "live" else SimDisk(drive, RealClock())  # type: ignore[arg-type]
        directory = str(tmp_path / "store") if kind == "live" else "/store"
        store = await open_store(disk, RealClock(), os.urandom, directory, boot_id="x", options=options)  # type: ignore[arg-type]
        assert store.health() == []

        async def publisher(name: str) -> None:
            stream = await replayed(store, name)
            assert stream.log.index.messages == number * 60
            for sequence in range(1, stream.log.index.last + 1):
                assert (await stream.log.load(sequence)).payload == f"{name}{sequence}".encode() * 50
            for _ in range(60):
                sequence = stream.log.index.last + 1
                await stream.commit.propose_nowait([f"{name}{sequence}".encode() * 50]).wait()
                for entry in await stream.commit.committed():
                    assert entry.body is not None
                    await stream.log.append([Message(entry.index, 5, b"s", b"", bytes(entry.body))])
                    stream.applied = entry.index

        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.run)
            async with trio.open_nursery() as publishers:
                for name in names:
                    publishers.start_soon(publisher, name)
            if number == 1:
                nursery.cancel_scope.cancel()
            store.stop()
        await store.close()

    for number in range(3):
        trio.run(life, number)
