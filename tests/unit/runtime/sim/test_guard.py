"""The leak guard: what reaches around the seam is caught and named."""

from __future__ import annotations

import os
import random
import secrets
import socket
import threading
import time
import uuid
from collections.abc import Callable

import pytest

from tnats.runtime.sim.guard import Escape, guarded
from tnats.runtime.sim.world import World, run_world

LEAKS: dict[str, Callable[[], object]] = {
    "time.time": time.time,
    "time.monotonic_ns": time.monotonic_ns,
    "time.sleep": lambda: time.sleep(0),
    "os.urandom": lambda: os.urandom(4),
    "secrets": lambda: secrets.token_bytes(4),
    "uuid": uuid.uuid4,
    "random.random": lambda: random.random(),
    "random.choice": lambda: random.choice([1, 2]),
    "open": lambda: open(os.devnull, "rb"),
    "socket.socket.connect": lambda: socket.socket().connect(("127.0.0.1", 1)),
    "socket.getaddrinfo": lambda: socket.getaddrinfo("localhost", 1),
    "threading.Thread.start": lambda: threading.Thread(target=print).start(),
}


def late(name: str) -> Callable[[], object]:
    """The leak as code would write it: looked up at the time of the call."""
    leaks: dict[str, Callable[[], object]] = {
        "time.time": lambda: time.time(),
        "time.monotonic_ns": lambda: time.monotonic_ns(),
        "uuid": lambda: uuid.uuid4(),
    }
    return leaks.get(name, LEAKS[name])


@pytest.mark.parametrize("name", LEAKS)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_leaks_are_caught(name: str) -> None:
    """Each way around the seam raises Escape in a simulation and works again after it."""
    leak = late(name)

    async def main(world: World) -> None:
        leak()

    outcome = run_world(1, main)
    assert isinstance(outcome.error, Escape)
    assert "called in a simulation by" in str(outcome.error)
    if name not in ("socket.socket.connect", "threading.Thread.start"):
        leak()


def test_the_caller_is_named() -> None:
    """The text says which module, file and line made the call."""
    with guarded(), pytest.raises(Escape, match=r"time\.time called in a simulation by .*test_guard.*\.py:\d+"):
        time.time()


def test_what_was_replaced_comes_back() -> None:
    """After the guard every function is the original object again, also inherited ones."""
    before = (time.time, random.random, socket.socket.connect, threading.Thread.start, open)
    with guarded():
        assert time.time is not before[0]
    assert (time.time, random.random, socket.socket.connect, threading.Thread.start, open) == before
    assert "connect" not in vars(socket.socket)


def test_a_replacement_kept_by_a_late_import_works_outside() -> None:
    """A module imported during a simulation may hold on to a replacement; outside it does what the original does."""
    with guarded():
        kept = time.time
    assert abs(kept() - time.time()) < 60
