"""A simulated listening address."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tnats.runtime.api import Address, Conn, NetworkError, OutOfDescriptors
from tnats.runtime.sim import trace as kinds
from tnats.runtime.sim.conn import SimConn
from tnats.runtime.sim.fabric import Fabric, Host
from tnats.runtime.sim.life import Life
from tnats.runtime.sim.timeline import QUIET

if TYPE_CHECKING:
    from tnats.runtime.sim.poller import SimPoller


class SimListener:
    """`tnats.runtime.api.Listener` in simulation."""

    __slots__ = ("_address", "_backlog", "_backlog_max", "_closed", "_fabric", "_host", "life", "poller")

    def __init__(self, life: Life, fabric: Fabric, host: Host, address: Address, backlog_max: int) -> None:
        self.life = life
        self.poller: SimPoller | None = None
        self._fabric = fabric
        self._host = host
        self._address = address
        self._backlog: deque[SimConn] = deque()
        self._backlog_max = backlog_max
        self._closed = False
        host.listeners[address[1]] = self
        fabric.trace.add(kinds.LISTEN, address[1], 0)

    @property
    def address(self) -> Address:
        return self._address

    @property
    def readable(self) -> bool:
        """Whether a connection waits."""
        return bool(self._backlog)

    @property
    def full(self) -> bool:
        """Whether the backlog takes no more."""
        return len(self._backlog) >= self._backlog_max

    def arrive(self, conn: SimConn) -> object:
        """A connection came about and waits to be accepted."""
        self._backlog.append(conn)
        return self.poller.mark(self) if self.poller is not None else QUIET

    def accept(self) -> Conn | None:
        self.life.check()
        if self._closed:
            raise NetworkError(f"accept on {self._address[0]}:{self._address[1]}: closed")
        if not self._backlog:
            return None
        exhausted = self.life.node.exhausted
        if exhausted:
            raise OutOfDescriptors(f"accept on {self._address[0]}:{self._address[1]}: {exhausted}")
        conn = self._backlog.popleft()
        self._fabric.trace.add(kinds.ACCEPT, conn.number, 0)
        return conn

    def close(self) -> None:
        self.life.check()
        self.end(power=False)

    def end(self, *, power: bool) -> None:
        """Close as the kernel does, or vanish with the power."""
        if self._closed:
            return
        self._closed = True
        del self._host.listeners[self._address[1]]
        if self.poller is not None:
            self.poller.remove(self)
        if not power:
            for conn in self._backlog:
                conn.end(reset=True)
        self._backlog.clear()
