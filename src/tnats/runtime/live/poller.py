"""Readiness of many sockets from one private, level-triggered epoll set.

Every socket is registered once; the task in `wait` watches the epoll descriptor itself through trio. That costs
one trio wake-up per pass instead of one per connection (about a quarter of what a task per connection costs).
"""

from __future__ import annotations

import select

import trio

from tnats.errors import ensure
from tnats.runtime.api import Conn, Listener
from tnats.runtime.live.conn import LiveConn
from tnats.runtime.live.listener import LiveListener

READY_MAX = 256
LiveSource = LiveConn | LiveListener


class LivePoller:
    """`tnats.runtime.api.Poller` over epoll."""

    __slots__ = ("_epoll", "_held", "_paused", "_poll", "_sources")

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._poll = self._epoll.poll
        self._sources: dict[int, LiveSource] = {}
        self._paused: dict[LiveSource, None] = {}
        self._held: dict[LiveSource, None] = {}
        """Ready without the kernel's word: broken, and not closed by the owner yet."""

    def add(self, source: Conn | Listener) -> None:
        source = live_source(source)
        source.poller = self
        if source.fd < 0:
            self._held[source] = None
            return
        self._sources[source.fd] = source
        self._epoll.register(source.fd, select.EPOLLIN)

    def remove(self, source: Conn | Listener) -> None:
        source = live_source(source)
        if source.poller is self:
            self.forget_descriptor(source)
            self._paused.pop(source, None)
            self._held.pop(source, None)
            source.poller = None

    def pause(self, source: Conn | Listener) -> None:
        source = live_source(source)
        if source.poller is self and source not in self._paused:
            self._paused[source] = None
            # Registered without events it would still report a hang-up, over and over.
            if self._sources.get(source.fd) is source:
                self._epoll.unregister(source.fd)

    def resume(self, source: Conn | Listener) -> None:
        source = live_source(source)
        if source.poller is self and source in self._paused:
            del self._paused[source]
            if self._sources.get(source.fd) is source:
                self._epoll.register(source.fd, select.EPOLLIN)

    def report_broken(self, source: LiveSource) -> None:
        """Report `source` at every call until it is removed."""
        self._held[source] = None

    def forget_descriptor(self, source: LiveSource) -> None:
        """Stop watching the descriptor of `source`, which is about to be closed."""
        if self._sources.get(source.fd) is source:
            del self._sources[source.fd]
            if source not in self._paused:
                self._epoll.unregister(source.fd)

    async def wait(self) -> list[Conn | Listener]:
        while True:
            if self._held:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(self._epoll)
            ready = self.ready_nowait()
            if ready:
                return ready

    def ready_nowait(self) -> list[Conn | Listener]:
        sources = self._sources
        ready: list[Conn | Listener] = [sources[fd] for fd, _ in self._poll(0, READY_MAX)]
        if self._held:
            ready += [source for source in self._held if source not in self._paused]
        return ready

    def close(self) -> None:
        for source in [*self._sources.values(), *self._held]:
            self.remove(source)
        trio.lowlevel.notify_closing(self._epoll)
        self._epoll.close()


def live_source(source: Conn | Listener) -> LiveSource:
    """`source` as one of this implementation's own."""
    ensure(isinstance(source, LiveSource), f"a live poller cannot watch {source!r}")
    return source  # type: ignore[return-value]  # just ensured
