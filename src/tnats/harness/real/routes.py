"""The network between the servers of a cluster: a proxy for each ordered pair, which cuts, delays and throttles.

Theory of operation
-----
The route from a to b is configured as an address of this proxy that is used for nothing else, so a connection's two
ends are known by where it was accepted, with no look at what it carries, and without privileges. What it carries one
way obeys the `Link` of that ordered pair.

A cut is a black hole, as a dropped packet is: nothing is read or passed on, connections stay, new ones are accepted
and hear nothing. After the last cut has ended what was held arrives, in order, as it would by retransmission, unless
the servers have given the connection up. What waits on the way is bounded by `CHUNKS_MAX` chunks, then by the buffers
of the operating system.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

import trio

from tnats.harness.selection import Pair
from tnats.limits import SECOND_NS
from tnats.runtime.api import Conn, Listener, NetworkError, Runtime

HOST = "127.0.0.1"
CONNECT_TIMEOUT_NS = SECOND_NS
CHUNK_BYTES_MAX = 64 * 1024
CHUNKS_MAX = 64
"""On the way in one direction of one connection."""


class Link:
    """What happens to bytes from one node to another."""

    def __init__(self) -> None:
        self.delay_ns = 0
        self.jitter_ns = 0
        """Added at most, drawn for each chunk; chunks never overtake each other."""
        self.rate_bytes = 0
        """A second; 0: as fast as it goes."""
        self._cut_count = 0
        self._mended = trio.Event()

    @property
    def is_open(self) -> bool:
        return not self._cut_count

    def cut(self) -> None:
        """One more reason why nothing passes."""
        if self.is_open:
            self._mended = trio.Event()
        self._cut_count += 1

    def mend(self) -> None:
        """One reason less."""
        self._cut_count -= 1
        assert self._cut_count >= 0
        if self.is_open:
            self._mended.set()

    def slow_down(self, *, delay_ns: int = 0, jitter_ns: int = 0, rate_bytes: int = 0) -> None:
        """From now on; without arguments no longer."""
        self.delay_ns, self.jitter_ns, self.rate_bytes = delay_ns, jitter_ns, rate_bytes

    def heal(self) -> None:
        """As at the start, whatever was done."""
        self.slow_down()
        while not self.is_open:
            self.mend()

    async def wait_open(self) -> None:
        """Return when bytes may pass."""
        while not self.is_open:
            await self._mended.wait()


class Routes:
    """All links and the addresses that lead over them. Made by `open_routes`."""

    def __init__(self, runtime: Runtime, rng: random.Random, ports: Mapping[str, int]) -> None:
        """`ports`: where each node listens for routes."""
        self.links: dict[Pair, Link] = {(a, b): Link() for a in ports for b in ports if a != b}
        self._runtime = runtime
        self._rng = rng
        self._node_ports = dict(ports)
        self._listeners: dict[Listener, Pair] = {}

    def ports(self, node: str) -> dict[str, int]:
        """Where `node` finds each of the others."""
        return {b: listener.address[1] for listener, (a, b) in self._listeners.items() if a == node}

    def between(self, pairs: Iterable[Pair]) -> list[Link]:
        return [self.links[pair] for pair in pairs]

    def heal(self) -> None:
        """Every link as at the start."""
        for link in self.links.values():
            link.heal()

    async def listen(self) -> None:
        """Take an address for each pair. Raises NetworkError."""
        for pair in self.links:
            self._listeners[await self._runtime.network.listen(HOST, 0)] = pair

    async def run(self) -> None:
        """Accept and pass on until cancelled."""
        async with trio.open_nursery() as nursery:
            for listener, pair in self._listeners.items():
                nursery.start_soon(self._accept, listener, pair, nursery)

    async def _accept(self, listener: Listener, pair: Pair, nursery: trio.Nursery) -> None:
        poller = self._runtime.network.poller()
        try:
            poller.add(listener)
            while True:
                await poller.wait()
                try:
                    conn = listener.accept()
                except NetworkError:
                    continue  # gone before it was taken
                if conn is not None:
                    nursery.start_soon(self._carry, conn, pair)
        finally:
            poller.close()
            listener.close()

    async def _carry(self, near: Conn, pair: Pair) -> None:
        """One connection from its acceptance to its end."""
        there, back = self.links[pair], self.links[pair[::-1]]
        far: Conn | None = None
        try:
            await there.wait_open()  # a handshake needs both ways
            await back.wait_open()
            port = self._node_ports[pair[1]]
            far = await self._runtime.network.connect(HOST, port, timeout_ns=CONNECT_TIMEOUT_NS)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pass_on, near, far, there, nursery.cancel_scope)
                nursery.start_soon(self._pass_on, far, near, back, nursery.cancel_scope)
        except* NetworkError:
            pass  # nobody there, or reset: the other end is told below
        finally:
            near.close(reset=far is None)
            if far is not None:
                far.close()

    async def _pass_on(self, source: Conn, sink: Conn, link: Link, both: trio.CancelScope) -> None:
        """One direction of a connection; the end of the stream ends both."""
        send, receive = trio.open_memory_channel[tuple[int, bytes]](CHUNKS_MAX)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read, source, link, send)
            async with receive:
                async for due_ns, chunk in receive:
                    await self._runtime.clock.sleep_until_ns(due_ns)
                    await link.wait_open()
                    await write_all(sink, chunk)
                    if link.rate_bytes:
                        await self._runtime.clock.sleep_ns(len(chunk) * SECOND_NS // link.rate_bytes)
            await link.wait_open()
            both.cancel()

    async def _read(self, source: Conn, link: Link, send: trio.MemorySendChannel[tuple[int, bytes]]) -> None:
        """Read while the link is open; each chunk with when it is due."""
        poller = self._runtime.network.poller()
        buffer = bytearray(CHUNK_BYTES_MAX)
        due_ns = 0
        try:
            async with send:
                poller.add(source)
                while True:
                    await link.wait_open()
                    count = source.read_into(buffer)
                    if count is None:
                        await poller.wait()
                    elif count == 0:
                        return
                    else:
                        delay_ns = link.delay_ns + int(self._rng.random() * link.jitter_ns)
                        due_ns = max(due_ns, self._runtime.clock.mono_ns() + delay_ns)
                        await send.send((due_ns, bytes(buffer[:count])))
        except trio.BrokenResourceError:
            pass  # nobody takes it any more: the other end was reset, which is told by who writes there
        finally:
            poller.close()


async def write_all(sink: Conn, chunk: bytes) -> None:
    """Hand over all of it. Raises ConnectionBroken."""
    view = memoryview(chunk)
    while view:
        count = sink.write([view])
        view = view[count:]
        if not count:
            await sink.wait_writable()


@asynccontextmanager
async def open_routes(runtime: Runtime, rng: random.Random, ports: Mapping[str, int]) -> AsyncIterator[Routes]:
    """Carry the routes of a cluster for the length of the block. Raises NetworkError."""
    routes = Routes(runtime, rng, ports)
    await routes.listen()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(routes.run)
        yield routes
        nursery.cancel_scope.cancel()
