"""How long the reactor keeps all other tasks waiting."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import trio

from tnats.broker.reactor import Reactor
from tnats.limits import PASS_BYTES, PASSES_PER_CHECKPOINT


class Torrent:
    """A broker with one connection that always has something to read, `count` bytes at a time."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.reads = 0
        self.poller = self.exchange = self.inbound = self
        self.passing = self.halted = self.deferred = False

    def add(self, conn: object) -> None:
        self.conn = conn

    def ready_nowait(self) -> list[object]:
        return [self.conn]

    def receive(self) -> int:
        self.reads += 1
        return self.count

    def now_ns(self) -> int:
        return 0

    def start_read(self, now_ns: int) -> None:
        pass

    def settle(self) -> None:
        pass


@pytest.mark.parametrize("count", [1, PASS_BYTES // 5, PASS_BYTES // 2, PASS_BYTES * 3])
def test_others_get_their_turn_after_so_many_bytes(count: int) -> None:
    """Between two turns of another task no more is read than the bound and one read, over however many passes."""
    torrent: Any = Torrent(count)
    conn: Any = object()
    turns = []

    async def main() -> None:
        reactor = Reactor(torrent)
        reactor.add(conn, torrent)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reactor.run)
            for _ in range(20):
                turns.append(torrent.reads)
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()

    trio.run(main)
    read = [after - before for before, after in pairwise(turns)]
    # trio shuffles the tasks of each round: the reactor's turns of two rounds may follow each other.
    assert max(read) <= 2 * min(-(-PASS_BYTES // count), PASSES_PER_CHECKPOINT + 1)
    assert sum(read) > 0
