"""The order of servers and the waits between rounds."""

from __future__ import annotations

import random

import pytest

from tnats.client.options import ServerAddress
from tnats.client.servers import ServerPool


def pool_of(*hosts: str, shuffle: bool = False) -> ServerPool:
    return ServerPool([ServerAddress(host, 4222) for host in hosts], random.Random(1), shuffle=shuffle)


def hosts(pool: ServerPool) -> list[str]:
    return [server.address.host for server in pool.round()]


def test_given_order_is_kept_unless_shuffled() -> None:
    """Doubles count once; shuffling keeps the members."""
    assert hosts(pool_of("a", "b", "a", "c")) == ["a", "b", "c"]
    many = [str(number) for number in range(50)]
    shuffled = hosts(pool_of(*many, shuffle=True))
    assert shuffled != many
    assert sorted(shuffled) == sorted(many)


def test_the_lost_server_goes_to_the_end_before_lame_ducks() -> None:
    """Round after a loss: the others, the one just lost, then those in lame duck mode."""
    pool = pool_of("a", "b", "c")
    a, b, _ = pool.round()
    b.lame_duck = True
    pool.lost(a)
    assert hosts(pool) == ["c", "a", "b"]


def test_failures_in_a_row_remove_a_server() -> None:
    """Success in between starts the count anew; None never removes."""
    pool = pool_of("a")
    (server,) = pool.round()
    pool.failed(server, refused=False, attempts_max=2)
    pool.connected(server)
    pool.failed(server, refused=False, attempts_max=2)
    assert len(pool) == 1
    pool.failed(server, refused=False, attempts_max=2)
    assert len(pool) == 0
    pool = pool_of("a")
    (server,) = pool.round()
    for _ in range(1000):
        pool.failed(server, refused=False, attempts_max=None)
    assert len(pool) == 1


def test_two_refusals_in_a_row_remove_a_server() -> None:
    """A failure of another kind between two refusals starts their count anew."""
    pool = pool_of("a")
    (server,) = pool.round()
    for refused in (True, False, True):
        pool.failed(server, refused=refused, attempts_max=None)
    assert len(pool) == 1
    pool.failed(server, refused=True, attempts_max=None)
    assert len(pool) == 0


def test_discovery_spares_what_the_user_gave() -> None:
    """Given servers stay though the cluster does not name them, and so does the current one."""
    pool = pool_of("given")
    (given,) = pool.round()
    assert sorted(pool.discovered(["x:4222", "y:4222"], given)) == ["nats://x:4222", "nats://y:4222"]
    assert pool.discovered(["x:4222", "y:4222"], given) == ()
    current = next(server for server in pool.round() if server.address.host == "x")
    pool.discovered([], current)
    assert sorted(hosts(pool)) == ["given", "x"]


@pytest.mark.parametrize("round_index", [0, 1, 5, 40, 10_000])
def test_waits_are_bounded(round_index: int) -> None:
    """Between half of and the whole of the doubled minimum, at most the maximum, at any round."""
    pool = pool_of("a")
    for _ in range(100):
        ceiling = min(1000, 10 << min(round_index, 32))
        assert ceiling / 2 <= pool.wait_ns(round_index, 10, 1000) <= ceiling
