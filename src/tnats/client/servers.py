"""The servers a client may use, and in which order and after how long it tries them. Pure: no clock, no network.

Rules
-----
* A round tries every server once. The one just lost comes last but for those that announced their lame duck mode.
* Addresses given by the user stay until they fail `attempts_max` times in a row or refuse the log-in twice in a row;
  discovered ones also go when the cluster no longer names them.
* The wait before round n grows as `wait_min * 2**n` up to `wait_max`, and is shortened by up to a half at random: a
  cluster's clients that were cut off together do not come back together.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import attrs

from tnats.client.errors import ClientError
from tnats.client.options import ServerAddress, parse_address
from tnats.errors import FeatureMissing
from tnats.records import define

REFUSALS_MAX = 2
DOUBLINGS_MAX = 32


@define(eq=False)
class Server:
    """One known server and how it behaved since it last worked."""

    address: ServerAddress
    discovered: bool = False
    lame_duck: bool = False
    failure_count: int = 0
    refusal_count: int = 0


class ServerPool:
    """Known servers in the order of preference."""

    def __init__(self, addresses: Iterable[ServerAddress], rng: random.Random, *, shuffle: bool) -> None:
        self._rng = rng
        self._servers = [Server(address) for address in dict.fromkeys(addresses)]
        if shuffle:
            rng.shuffle(self._servers)

    def __len__(self) -> int:
        return len(self._servers)

    @property
    def urls(self) -> list[str]:
        """Every known server, most preferred first."""
        return [server.address.url for server in self._servers]

    def round(self) -> list[Server]:
        """The servers to try now, in order."""
        return sorted(self._servers, key=lambda server: server.lame_duck)

    def wait_ns(self, round_index: int, wait_min_ns: int, wait_max_ns: int) -> int:
        """How long to wait before round `round_index` (0: right after the connection was lost)."""
        ceiling = min(wait_max_ns, wait_min_ns << min(round_index, DOUBLINGS_MAX))
        return round(ceiling * self._rng.uniform(0.5, 1.0))

    def connected(self, server: Server) -> None:
        """`server` works: its failures are forgotten."""
        server.failure_count = server.refusal_count = 0
        server.lame_duck = False

    def lost(self, server: Server) -> None:
        """The connection to `server` ended: it goes to the end of the line."""
        if server in self._servers:
            self._servers.remove(server)
            self._servers.append(server)

    def failed(self, server: Server, *, refused: bool, attempts_max: int | None) -> None:
        """An attempt failed; `refused` when the server turned the credentials down."""
        server.failure_count += 1
        server.refusal_count = server.refusal_count + 1 if refused else 0
        given_up = attempts_max is not None and server.failure_count >= attempts_max
        if server in self._servers and (given_up or server.refusal_count >= REFUSALS_MAX):
            self._servers.remove(server)

    def discovered(self, connect_urls: Iterable[str], current: Server) -> tuple[str, ...]:
        """Take over the cluster's member list from an INFO; returns the URLs that are new, in random order.

        Members share the credentials of `current`. Entries that are no address are the peer's fault and left out.
        """
        named: dict[tuple[str, int], ServerAddress] = {}
        for text in connect_urls:
            try:
                address = parse_address(text)
            except (ClientError, FeatureMissing):
                continue
            named[address.host, address.port] = address
        self._servers = [
            server
            for server in self._servers
            if not server.discovered or server is current or (server.address.host, server.address.port) in named
        ]
        known = {(server.address.host, server.address.port): None for server in self._servers}
        fresh = [address for place, address in named.items() if place not in known]
        self._rng.shuffle(fresh)
        credentials = current.address
        for address in fresh:
            self._servers.append(
                Server(
                    attrs.evolve(
                        address, user=credentials.user, password=credentials.password, token=credentials.token
                    ),
                    discovered=True,
                )
            )
        return tuple(address.url for address in fresh)
