"""The network as a server sees it that may be killed: somebody must close its sockets, as a kernel does."""

from __future__ import annotations

from tnats.runtime.live.listener import LiveListener
from tnats.runtime.live.network import LiveNetwork


class OwnedNetwork(LiveNetwork):
    """The machine's network, which remembers where the server listens."""

    def __init__(self) -> None:
        super().__init__()
        self.listeners: list[LiveListener] = []

    async def listen(self, host: str, port: int, *, backlog: int = 1024) -> LiveListener:
        listener = await super().listen(host, port, backlog=backlog)
        self.listeners.append(listener)
        return listener
