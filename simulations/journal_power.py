"""A small journal on a disk that loses power, so that disk, network and death are tried together."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from tnats.harness.scenario import Scenario, expect
from tnats.limits import SECOND_NS
from tnats.runtime.api import Conn, ConnectionBroken, File, NetworkError, Poller, Runtime
from tnats.runtime.sim.disk_image import CrashPolicy
from tnats.runtime.sim.node import Node
from tnats.runtime.sim.world import World

PORT = 9
HEADER = struct.Struct("<II")
PATH = "/store/journal"


class Journal:
    """Appends numbers; answers a number once it would survive power loss."""

    def __init__(self, file: File, end: int) -> None:
        self.file = file
        self.end = end

    @classmethod
    async def open(cls, runtime: Runtime) -> tuple[Journal, list[int]]:
        """The journal and the numbers in it; what follows the last whole record was never answered for."""
        await runtime.disk.mkdir("/store")
        file = await runtime.disk.open(PATH, create=True)
        await runtime.disk.sync_dir("/store")
        await runtime.disk.sync_dir("/")
        data = await file.pread(file.size(), 0)
        numbers, end = [], 0
        while len(data) - end >= HEADER.size:
            number, checksum = HEADER.unpack_from(data, end)
            if checksum != zlib.crc32(data[end : end + 4]):
                break
            numbers.append(number)
            end += HEADER.size
        await file.truncate(end)
        await file.sync()
        return cls(file, end), numbers

    async def append(self, numbers: Sequence[int]) -> None:
        """Write `numbers` and wait until they are durable."""
        body = b""
        for number in numbers:
            packed = struct.pack("<I", number)
            body += packed + struct.pack("<I", zlib.crc32(packed))
        self.file.pwrite([body], self.end)
        self.end += len(body)
        await self.file.sync()


async def serve(runtime: Runtime) -> None:
    """One batch after another: read what came, append it, sync once, answer."""
    journal, _ = await Journal.open(runtime)
    listener = await runtime.network.listen("0.0.0.0", PORT)
    poller = runtime.network.poller()
    poller.add(listener)
    parts: dict[Conn, bytes] = {}
    while True:
        batch: list[tuple[Conn, int]] = []
        for source in await poller.wait():
            if source is listener:
                while (conn := listener.accept()) is not None:
                    parts[conn] = b""
                    poller.add(conn)
            else:
                batch += [(source, number) for number in take(source, parts)]  # type: ignore[arg-type,misc]
        if batch:
            await journal.append([number for _, number in batch])
            for conn, number in batch:
                try:
                    conn.write([struct.pack("<I", number)])
                except ConnectionBroken:
                    conn.close()


def take(conn: Conn, parts: dict[Conn, bytes]) -> list[int]:
    """The whole numbers that have arrived on `conn`, four bytes each."""
    buffer = bytearray(4096)
    try:
        count = conn.read_into(buffer)
    except ConnectionBroken:
        count = 0
    if count == 0:
        conn.close()
        del parts[conn]
        return []
    data = parts[conn] + buffer[: count or 0]
    whole = len(data) // 4 * 4
    parts[conn] = data[whole:]
    return [number for (number,) in struct.iter_unpack("<I", data[:whole])]


class Client:
    """Appends its own numbers one by one, each until it is answered."""

    def __init__(self, first: int, count: int) -> None:
        self.first = first
        self.next_number = first
        self.end = first + count
        self.acked: list[int] = []

    async def run(self, runtime: Runtime) -> None:
        rng = runtime.chance.rng("client")
        while self.next_number < self.end:
            try:
                conn = await runtime.network.connect("server", PORT, timeout_ns=SECOND_NS)
            except NetworkError:
                await runtime.clock.sleep_ns(rng.randrange(300_000_000))
                continue
            poller = runtime.network.poller()
            poller.add(conn)
            try:
                while self.next_number < self.end and await self.append(runtime, conn, poller):
                    await runtime.clock.sleep_ns(rng.randrange(50_000_000))
            except ConnectionBroken:
                pass
            conn.close()

    async def append(self, runtime: Runtime, conn: Conn, poller: Poller) -> bool:
        """Append the next number on `conn`; whether it was answered."""
        conn.write([struct.pack("<I", self.next_number)])
        answer = b""
        while len(answer) < 4:
            buffer = bytearray(4 - len(answer))
            with runtime.clock.deadline(runtime.clock.mono_ns() + 2 * SECOND_NS) as patience:
                await poller.wait()
            count = 0 if patience.cancelled_caught else conn.read_into(buffer)
            if count == 0:
                return False
            answer += buffer[: count or 0]
        expect(struct.unpack("<I", answer) == (self.next_number,), f"answer {answer!r} to {self.next_number}")
        self.acked.append(self.next_number)
        self.next_number += 1
        return True


class JournalPower(Scenario):
    """Whatever power losses and kills do, every number that was answered is in the journal, in order."""

    def __init__(self) -> None:
        self.clients = [Client(1_000_000 * (index + 1), count=100) for index in range(3)]
        self.nodes: list[Node] = []
        self.found: list[int] = []

    async def setup(self, world: World) -> None:
        world.node("server").start(serve)
        self.nodes = [world.node(f"client{index}") for index in range(len(self.clients))]

    async def workload(self, world: World) -> None:
        for node, client in zip(self.nodes, self.clients, strict=True):
            node.start(client.run)
        with world.deadline(120 * SECOND_NS):
            for node in self.nodes:
                await node.wait_ended()

    async def faults(self, world: World) -> None:
        rng = world.rng("nemesis")
        server = world.nodes["server"]
        try:
            while True:
                await world.sleep_ns(rng.randrange(2_000_000_000))
                if rng.random() < 0.7:
                    server.power_loss(rng.choice(list(CrashPolicy)))
                else:
                    server.kill()
                await world.sleep_ns(rng.randrange(1_000_000_000))
                server.start()
        finally:
            if not server.running:
                server.start()

    async def settle(self, world: World) -> None:
        with world.deadline(60 * SECOND_NS):
            for node in self.nodes:
                await node.wait_ended()
        server = world.nodes["server"]
        server.power_loss(CrashPolicy.STRICT)

        async def read_back(runtime: Runtime) -> None:
            _, self.found = await Journal.open(runtime)

        server.start(read_back)
        await server.wait_ended()

    def check(self, world: World) -> None:
        for client in self.clients:
            expect(client.next_number == client.end, f"a client stopped at {client.next_number} of {client.end}")
            own = list(
                dict.fromkeys(number for number in self.found if number // 1_000_000 * 1_000_000 == client.acked[0])
            )
            lost = [number for number in client.acked if number not in own]
            expect(not lost, f"answered, but not in the journal: {lost}")
            expect(own == sorted(own), f"out of order in the journal: {own}")


scenario = JournalPower
