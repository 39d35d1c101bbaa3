"""How fast one consensus group is in memory, and what idle groups cost.

    python benchmarks/raft.py [--seconds 3] [--batch 64] [--size 128] [--groups 1000]

Three machines in one process on one core, messages handed over as objects, every persist durable at once: what is
measured is the machine alone. The target is 150,000 committed entries a second, and less than 2 % of a core for
1,000 idle groups on three nodes at a tick of 100 ms.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import deque

from tnats.raft.codec import decode_message, encode_message
from tnats.raft.effects import (
    Applied,
    Campaign,
    Compact,
    Input,
    Persisted,
    Propose,
    Ready,
    Receive,
    SnapshotTaken,
    Tick,
)
from tnats.raft.liveness import PeerLiveness
from tnats.raft.machine import Machine
from tnats.raft.membership import Member, Membership
from tnats.raft.messages import Append, Entry, EntryKind
from tnats.raft.options import Options
from tnats.raft.recovery import founding
from tnats.raft.roles import Role

TICK_SECONDS = 0.1


class Group:
    """Three replicas and the queues between them."""

    def __init__(self, seed: int, options: Options) -> None:
        members = Membership(0, tuple(Member(node) for node in (1, 2, 3)))
        self.machines = {
            node: Machine(node, founding(members), options, random.Random(seed * 10 + node)) for node in (1, 2, 3)
        }
        self.queue: deque[tuple[int, Input]] = deque()
        self.committed = 0

    def carry_out(self, node: int, ready: Ready) -> None:
        queue = self.queue
        if ready.persist is not None:
            queue.append((node, Persisted(ready.persist.number)))
        for message in ready.messages:
            queue.append((message.target, Receive(message)))
        if ready.committed:
            last = ready.committed[-1].index
            if node == 1:
                self.committed = last
            queue.append((node, Applied(last)))

    def feed(self, node: int, event: Input) -> None:
        self.carry_out(node, self.machines[node].step(event))

    def run(self) -> None:
        queue = self.queue
        while queue:
            node, event = queue.popleft()
            self.feed(node, event)

    def elect(self) -> Machine:
        self.feed(1, Campaign())
        self.run()
        leader = self.machines[1]
        assert leader.role is Role.LEADER
        return leader


def throughput(seconds: float, batch: int, size: int) -> float:
    """Committed and applied entries a second of processor time, the log compacted every 20,000 entries.

    Nothing here waits, so on an idle machine a second of processor time is a second.
    """
    group = Group(1, Options())
    leader = group.elect()
    payload = bytes(size)
    compacted = 0
    start = time.process_time()
    deadline = start + seconds
    while time.process_time() < deadline:
        for _ in range(16):
            group.feed(1, Propose([payload] * batch))
            group.run()
        if leader.log.applied - compacted > 20_000:
            compacted = leader.log.applied
            for node, machine in group.machines.items():
                meta = machine.snapshot_meta(machine.log.applied, 0, 0)
                assert meta is not None
                group.feed(node, SnapshotTaken(meta))
                group.feed(node, Compact(machine.log.applied - 1_000))
    return group.committed / (time.process_time() - start)


def codec_rate(batch: int, size: int) -> float:
    """Entries a second through the codec: an append of `batch` entries encoded and decoded again."""
    entries = [Entry(index, 1, EntryKind.DATA, bytes(size)) for index in range(1, batch + 1)]
    message = Append(1, 2, 1, 1, 0, 0, 0, entries)
    rounds = 2_000
    start = time.process_time()
    for _ in range(rounds):
        decode_message(b"group", encode_message(b"group", message))
    return rounds * batch / (time.process_time() - start)


def idle_cost(groups: int, seconds: float) -> tuple[float, int]:
    """Share of a core for idle groups over virtual `seconds`, and how many of them are awake at its end."""
    hosted = [Group(seed, Options()) for seed in range(groups)]
    for group in hosted:
        group.elect()
    awake = {node: {number: group.machines[node] for number, group in enumerate(hosted)} for node in (1, 2, 3)}
    liveness = {node: PeerLiveness(beat_ticks=5, silence_ticks=20) for node in (1, 2, 3)}

    def one_tick() -> None:
        for node, machines in awake.items():
            beat, lost = liveness[node].tick()
            assert not lost
            if beat:
                for peer in (1, 2, 3):
                    if peer != node:
                        liveness[peer].heard(node, 1)
            for number, machine in list(machines.items()):
                hosted[number].feed(node, Tick())
                if machine.quiescent:
                    del machines[number]
        for number in sorted({number for machines in awake.values() for number in machines}):
            hosted[number].run()

    for _ in range(60):  # until they have fallen asleep
        one_tick()
    ticks = int(seconds / TICK_SECONDS)
    start = time.process_time()
    for _ in range(ticks):
        one_tick()
    used = time.process_time() - start
    return used / (ticks * TICK_SECONDS), max(map(len, awake.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--groups", type=int, default=1_000)
    arguments = parser.parse_args()
    rate = throughput(arguments.seconds, arguments.batch, arguments.size)
    sys.stdout.write(
        f"committed entries/s  {rate:>12,.0f}  (batches of {arguments.batch} x {arguments.size} B, three machines)\n"
    )
    sys.stdout.write(f"through the codec    {codec_rate(arguments.batch, arguments.size):>12,.0f}  entries/s\n")
    share, awake = idle_cost(arguments.groups, 60.0)
    sys.stdout.write(f"idle groups          {share:>12.3%}  of a core for {arguments.groups} groups ({awake} awake)\n")


if __name__ == "__main__":
    main()
