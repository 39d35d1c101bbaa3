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
from pathlib import Path

import pytest
import trio

from tnats.runtime.sim.guard import Escape, guarded
from tnats.runtime.sim.world import Deadlock, World, run_world


def read_the_clock() -> object:
    return time.time()


def read_the_fine_clock() -> object:
    return time.monotonic_ns()


def sleep() -> object:
    return time.sleep(0)


def ask_for_entropy() -> object:
    return os.urandom(4)


def make_a_secret() -> object:
    return secrets.token_bytes(4)


def make_a_uuid() -> object:
    return uuid.uuid4()


def draw() -> object:
    return random.random()


def choose() -> object:
    return random.choice([1, 2])


def open_a_file() -> object:
    return open(os.devnull, "rb").close()


def read_a_path() -> object:
    return Path(os.devnull).read_bytes()


def list_a_directory() -> object:
    return os.listdir("/")


def resolve() -> object:
    return socket.getaddrinfo("127.0.0.1", 1)


def bind_a_socket() -> object:
    with socket.socket() as sock:
        return sock.bind(("127.0.0.1", 0))


def start_a_thread() -> object:
    thread = threading.Thread(target=int)
    thread.start()
    return thread.join()


LEAKS = [
    read_the_clock,
    read_the_fine_clock,
    sleep,
    ask_for_entropy,
    make_a_secret,
    make_a_uuid,
    draw,
    choose,
    open_a_file,
    read_a_path,
    list_a_directory,
    resolve,
    bind_a_socket,
    start_a_thread,
]


@pytest.mark.parametrize("leak", LEAKS)
def test_leaks_are_caught(leak: Callable[[], object]) -> None:
    """Each way around the seam raises Escape in a simulation, and works again after it."""

    async def main(world: World) -> None:
        leak()

    outcome = run_world(1, main)
    assert isinstance(outcome.error, Escape)
    assert "called in a simulation by" in str(outcome.error)
    leak()


def test_a_world_that_cannot_be_ended_is_left_behind_for_good() -> None:
    """Its tasks still hang on it, but nothing that it replaced is replaced any more."""

    async def main(world: World) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

    assert isinstance(run_world(1, main).error, Deadlock)
    time.time()


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
