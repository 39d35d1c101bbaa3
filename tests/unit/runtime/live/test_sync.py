"""The sync thread, its loop in both builds."""

from __future__ import annotations

import errno
import mmap
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
import trio

from tnats import speedups
from tnats.limits import WRITE_AHEAD_BYTES_MAX
from tnats.runtime.live.disk import LiveDisk
from tnats.runtime.live.sync import hot
from tnats.runtime.live.sync import thread as thread_module
from tnats.runtime.live.sync.calls import DESCRIPTOR_BITS, REQUEST_SIZE
from tnats.runtime.live.sync.thread import SyncThread

INTERPRETED = speedups.load_source("tnats.runtime.live.sync.hot", "tnats_sync_hot_interpreted")
BUILDS = pytest.mark.parametrize("build", [hot, INTERPRETED], ids=["built", "interpreted"])


def request(file: int, event: int) -> bytes:
    return (file << DESCRIPTOR_BITS | event).to_bytes(REQUEST_SIZE, sys.byteorder)


@contextmanager
def loop(build: ModuleType) -> Iterator[int]:
    """The end of a pipe whose requests the loop of a build carries out; it must end when that is closed."""
    pipe, requests = os.pipe()
    thread = threading.Thread(target=build.carry_out_syncs, args=(pipe,))
    thread.start()
    try:
        yield requests
    finally:
        os.close(requests)
        thread.join(30)
        os.close(pipe)
    assert not thread.is_alive()


@BUILDS
def test_every_request_has_its_outcome(build: ModuleType, tmp_path: Path) -> None:
    """Requests in line at once are carried out in order, each with its own outcome: 1, or 1 + errno."""
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    answers, event = os.pipe()  # takes one outcome behind the other, which an eventfd would add up
    nothing = 1 << 30  # above what a process may have
    with loop(build) as requests:
        os.write(
            requests, request(file, event) + request(nothing, event) + request(event, event) + request(file, event)
        )
        outcomes = [int.from_bytes(os.read(answers, 8), sys.byteorder) for _ in range(4)]
    assert outcomes == [1, 1 + errno.EBADF, 1 + errno.EINVAL, 1]
    for each in (file, answers, event):
        os.close(each)


@pytest.mark.skipif(not speedups.is_compiled(hot), reason="the interpreter needs its lock")
def test_the_compiled_loop_needs_no_lock(tmp_path: Path) -> None:
    """A sync begins and ends while another thread computes and lets nobody else use the interpreter."""
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    outcome = os.open(tmp_path / "outcome", os.O_RDWR | os.O_CREAT)
    os.truncate(outcome, 8)
    interval = sys.getswitchinterval()
    with loop(hot) as requests, mmap.mmap(outcome, 8) as seen:
        sys.setswitchinterval(60)
        try:
            deadline = time.monotonic() + 30
            os.write(requests, request(file, outcome))
            while not seen[0] and time.monotonic() < deadline:  # computes: nothing here lets go of the lock
                pass
        finally:
            sys.setswitchinterval(interval)
        assert seen[0] == 1
    os.close(file)
    os.close(outcome)


def test_the_thread_ends_with_the_run(tmp_path: Path) -> None:
    """Nothing is left of it: no thread, no descriptor; an eventfd whose call has ended serves the next one."""

    async def body() -> None:
        file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
        thread = SyncThread()
        events = [thread.begin(file, 0) for _ in range(3)]
        assert [await thread.outcome(event) for event in events] == [0, 0, 0]
        last = thread.begin(file, 0)
        assert last in events
        assert await thread.outcome(last) == 0
        os.close(file)

    before = sorted(os.listdir("/proc/self/fd"))
    trio.run(body)
    for thread in threading.enumerate():
        if thread.name == "tnats-sync":
            thread.join(30)
            assert not thread.is_alive()
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_no_room_in_the_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that cannot be put in line is refused, and what it had is used for the next one."""

    def refuse(descriptor: int, data: bytes) -> int:
        raise BlockingIOError(errno.EAGAIN, "full")

    async def body() -> None:
        file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
        thread = SyncThread()
        event = thread.begin(file, 0)
        await thread.outcome(event)
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", refuse)
            with pytest.raises(BlockingIOError):
                thread.begin(file, 0)
        assert thread.begin(file, 0) == event
        assert await thread.outcome(event) == 0
        os.close(file)

    trio.run(body)


@BUILDS
def test_what_begins_a_write_says_nothing(build: ModuleType) -> None:
    """What goes wrong when a write is begun ahead is the sync's to report: here, that there is no such file."""
    build.write_ahead(1 << 30)


def test_what_is_begun_ahead_of_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A little that was written since the last sync, while the thread has nothing to do and the disk, when it was asked
    last, was prompt; nothing else.
    """
    begun: list[int] = []

    async def body() -> None:
        disk = LiveDisk()
        file = await disk.open(f"{tmp_path}/file", create=True)
        monkeypatch.setattr(thread_module, "write_ahead", begun.append)
        monkeypatch.setattr(thread_module, "WRITE_AHEAD_SYNC_NS_MAX", 2**62)  # every disk is so prompt

        async def count(size: int) -> int:
            file.pwrite([bytes(size)], 0)
            before = len(begun)
            await file.sync()
            return len(begun) - before

        assert await count(1) == 0
        assert [await count(WRITE_AHEAD_BYTES_MAX), await count(WRITE_AHEAD_BYTES_MAX + 1), await count(1)] == [1, 0, 1]
        begun.clear()
        first = file.begin_sync()
        second = file.begin_sync()
        assert len(begun) == 1
        await first.wait()
        await second.wait()
        assert await count(1) == 1
        with monkeypatch.context() as patch:
            patch.setattr(thread_module, "WRITE_AHEAD_SYNC_NS_MAX", -1)  # no disk is so prompt
            assert [await count(1), await count(1)] == [1, 0]
        assert [await count(1), await count(1)] == [0, 1]
        file.close()

    trio.run(body)
