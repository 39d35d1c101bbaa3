"""A server process that is killed in the middle of publishing has lost nothing that it had acknowledged."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import trio

from tnats.runtime.live.disk import LiveDisk
from tnats.storage.journal import JournalOptions
from tnats.storage.message_log import Message
from tnats.storage.store import OpenStream, Store, StoreOptions
from tnats.storage.store_open import open_store
from tnats.storage.stream_log import StreamLogOptions

OPTIONS = StoreOptions(JournalOptions(part_bytes=256 * 1024), StreamLogOptions(segment_bytes=64 * 1024))


class RealClock:
    def mono_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        return time.time_ns()


async def apply(stream: OpenStream, index: int, body: bytes) -> None:
    await stream.log.append([Message(index, 5, b"s", b"", body)])
    stream.applied = index


async def reopened(store: Store) -> OpenStream:
    stream = await store.open_stream("s")
    for entry in await stream.commit.replay():
        assert entry.body is not None
        await apply(stream, entry.index, bytes(entry.body))
    stream.log.end_recovery()
    return stream


async def serve(directory: str) -> None:
    """Publish for ever; say each acknowledged sequence."""
    store = await open_store(LiveDisk(), RealClock(), os.urandom, directory, boot_id="x", options=OPTIONS)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        stream = await reopened(store)
        while True:
            sequence = stream.log.index.last + 1
            await stream.commit.propose_nowait([b"%d;" % sequence * 100]).wait()
            for entry in await stream.commit.committed():
                assert entry.body is not None
                await apply(stream, entry.index, bytes(entry.body))
            os.write(1, b"%d\n" % sequence)


async def acknowledged(directory: str) -> int:
    """Open the store, check every message, and give the last sequence."""
    store = await open_store(LiveDisk(), RealClock(), os.urandom, directory, boot_id="x", options=OPTIONS)  # type: ignore[arg-type]
    assert store.health() == []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        stream = await reopened(store)
        for sequence in range(1, stream.log.index.last + 1):
            assert (await stream.log.load(sequence)).payload == b"%d;" % sequence * 100
        store.stop()
    await store.close()
    return stream.log.index.last


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    """Three times: publish from a process, kill it, open the store here: all that it acknowledged is there."""
    directory = str(tmp_path / "store")
    last = 0
    for _ in range(3):
        with subprocess.Popen([sys.executable, __file__, directory], stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            for line in server.stdout:
                last = int(line)
                if last % 700 == 699:
                    break
            server.kill()
            for line in server.stdout.read().split():
                last = int(line)
        last_found = trio.run(acknowledged, directory)
        assert last <= last_found <= last + 1
        last = last_found


if __name__ == "__main__":
    trio.run(serve, sys.argv[1])
