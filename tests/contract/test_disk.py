"""What `tnats.runtime.api.Disk` promises, held against the real and the simulated disk."""

from __future__ import annotations

import errno
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import pytest
import trio

from tnats.runtime.api import Buffer, Disk, DiskError, File, StoreLocked
from tnats.runtime.live.disk import IOV_MAX, LiveDisk
from tnats.runtime.sim.disk import SimDisk, SimDrive


class TrioClock:
    """A clock on trio's own time, enough for a disk (the tests run under an autojump clock)."""

    def mono_ns(self) -> int:
        return int(trio.current_time() * 1e9)

    def wall_ns(self) -> int:
        return self.mono_ns()

    async def sleep_ns(self, duration_ns: int) -> None:
        await trio.sleep(duration_ns / 1e9)


@attrs.define
class World:
    """A disk, a second disk of another server on the same hardware, and an existing directory."""

    disk: Disk
    other: Disk
    root: str


@pytest.fixture(params=["live", "sim"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "live":
        return World(LiveDisk(), LiveDisk(), str(tmp_path))
    drive = SimDrive(random.Random(1))
    drive.image.make_directory("/store")
    clock = TrioClock()
    return World(SimDisk(drive, clock), SimDisk(drive, clock), "/store")  # type: ignore[arg-type]


def run(world: World, body: Callable[[World], Awaitable[None]]) -> None:
    simulated = isinstance(world.disk, SimDisk)
    clock = trio.testing.MockClock(autojump_threshold=0) if simulated else None
    trio.run(body, world, clock=clock)


async def refused(call: Awaitable[object], code: int) -> DiskError:
    with pytest.raises(DiskError) as caught:
        await call
    assert caught.value.errno == code
    assert errno.errorcode[code] in str(caught.value)
    return caught.value


async def read(file: File, count: int, offset: int) -> bytes:
    cached = file.pread_cached(count, offset)
    awaited = await file.pread(count, offset)
    assert cached is None or cached == awaited
    return awaited


def test_written_bytes_are_read_back(world: World) -> None:
    """Reads see writes at once, holes are zero, reads end at the end of the file; size follows the furthest write."""

    async def body(world: World) -> None:
        file = await world.disk.open(f"{world.root}/a", create=True)
        assert file.path == f"{world.root}/a"
        assert file.size() == 0
        file.pwrite([b"head", bytearray(b"-"), memoryview(b"tail")], 10)
        assert file.size() == 19
        assert await read(file, 100, 0) == bytes(10) + b"head-tail"
        assert await read(file, 4, 10) == b"head"
        assert await read(file, 4, 19) == b""
        file.pwrite([b"EA"], 11)
        assert await read(file, 6, 10) == b"hEAd-t"
        file.pwrite([], 100)
        assert file.size() == 19
        await file.sync()
        file.close()
        file.close()
        with pytest.raises(DiskError):
            file.pwrite([b"x"], 0)
        await refused(file.pread(1, 0), errno.EBADF)
        again = await world.disk.open(f"{world.root}/a", readonly=True)
        assert await read(again, 4, 10) == b"hEAd"
        with pytest.raises(DiskError) as caught:
            again.pwrite([b"x"], 0)
        assert caught.value.errno == errno.EBADF
        again.close()

    run(world, body)


def test_more_buffers_than_one_call_takes(world: World) -> None:
    """`pwrite` takes any number of buffers."""

    async def body(world: World) -> None:
        file = await world.disk.open(f"{world.root}/many", create=True)
        buffers = [b"%d;" % index for index in range(IOV_MAX * 2 + 3)]
        file.pwrite(buffers, 3)
        assert await read(file, file.size(), 3) == b"".join(buffers)
        file.close()

    run(world, body)


def test_a_created_file_is_whole_under_its_name(world: World) -> None:
    """It holds its content, takes the place of what stood there, and is open; a failure leaves no temporary file."""

    async def body(world: World) -> None:
        path = f"{world.root}/made"
        contents: list[list[Buffer]] = [[b"first, ", bytearray(b"and longer")], [memoryview(b"second")], []]
        for content in contents:
            file = await world.disk.create_file(path, content)
            whole = b"".join(content)
            assert file.path == path
            assert file.size() == len(whole)
            file.pwrite([b"more"], len(whole))
            assert await read(file, 100, 0) == whole + b"more"
            await file.sync()
            file.close()
            assert await world.disk.read_file(path, bytes_max=100) == whole + b"more"
        await world.disk.mkdir(f"{world.root}/taken")
        await refused(world.disk.create_file(f"{world.root}/taken", [b"x"]), errno.EISDIR)
        await refused(world.disk.create_file(f"{world.root}/nowhere/file", [b"x"]), errno.ENOENT)
        assert [entry.name for entry in await world.disk.list(world.root)] == ["made", "taken"]

    run(world, body)


def test_lengths(world: World) -> None:
    """Preallocation only grows and reads as zero; truncation cuts, and growing again shows zeros, not old bytes."""

    async def body(world: World) -> None:
        file = await world.disk.open(f"{world.root}/a", create=True)
        await file.preallocate(10_000)
        assert file.size() == 10_000
        assert await read(file, 10_000, 0) == bytes(10_000)
        await file.preallocate(50)
        assert file.size() == 10_000
        file.pwrite([b"x" * 9_000], 0)
        await file.truncate(4_100)
        assert file.size() == 4_100
        await file.truncate(8_000)
        assert await read(file, 20_000, 0) == b"x" * 4_100 + bytes(3_900)
        file.close()

    run(world, body)


def test_names(world: World) -> None:
    """Creating, renaming over, removing and listing names; what is missing or in the way is refused by its errno."""

    async def body(world: World) -> None:
        disk, root = world.disk, world.root
        await refused(disk.open(f"{root}/missing"), errno.ENOENT)
        await disk.mkdir(f"{root}/x/y", parents=True)
        await disk.mkdir(f"{root}/x/y")
        await refused(disk.mkdir(f"{root}/no/y"), errno.ENOENT)
        first = await disk.open(f"{root}/x/first", create=True, exclusive=True)
        await refused(disk.open(f"{root}/x/first", create=True, exclusive=True), errno.EEXIST)
        await refused(disk.open(f"{root}/x/first/deeper"), errno.ENOTDIR)
        await refused(disk.mkdir(f"{root}/x/first"), errno.EEXIST)
        first.pwrite([b"1"], 0)
        second = await disk.open(f"{root}/x/second", create=True)
        second.pwrite([b"22"], 0)
        await disk.rename(f"{root}/x/first", f"{root}/x/second")
        await disk.sync_dir(f"{root}/x")
        entries = await disk.list(f"{root}/x")
        assert [(entry.name, entry.is_directory, entry.size) for entry in entries] == [
            ("second", False, 1),
            ("y", True, 0),
        ]
        assert await read(second, 9, 0) == b"22"
        await refused(disk.rename(f"{root}/x/first", f"{root}/x/third"), errno.ENOENT)
        await refused(disk.rmdir(f"{root}/x"), errno.ENOTEMPTY)
        await refused(disk.rmdir(f"{root}/x/second"), errno.ENOTDIR)
        await refused(disk.list(f"{root}/x/second"), errno.ENOTDIR)
        await refused(disk.list(f"{root}/nowhere"), errno.ENOENT)
        await refused(disk.unlink(f"{root}/x/first"), errno.ENOENT)
        await disk.unlink(f"{root}/x/second")
        first.pwrite([b"still"], 0)
        assert await read(first, 9, 0) == b"still"
        await disk.rmdir(f"{root}/x/y")
        await disk.rmdir(f"{root}/x")
        assert await disk.list(root) == []
        first.close()
        second.close()

    run(world, body)


def test_whole_files(world: World) -> None:
    """`write_file` replaces content and leaves no other name, nor where it fails; `read_file` keeps to its bound."""

    async def body(world: World) -> None:
        path = f"{world.root}/state"
        await world.disk.write_file(path, b"a long first version")
        await world.disk.write_file(path, memoryview(b"second"))
        assert await world.disk.read_file(path, bytes_max=6) == b"second"
        await refused(world.disk.read_file(path, bytes_max=5), errno.EFBIG)
        await refused(world.disk.read_file(path + "x", bytes_max=5), errno.ENOENT)
        await world.disk.mkdir(path + " of things")
        with pytest.raises(DiskError):
            await world.disk.write_file(path + " of things", b"cannot take the place of a directory")
        assert [entry.name for entry in await world.disk.list(world.root)] == ["state", "state of things"]
        assert await world.disk.free_bytes(world.root) > 0

    run(world, body)


def test_a_store_serves_one_server(world: World) -> None:
    """A second lock is refused while the first is held, and taken after its release."""

    async def body(world: World) -> None:
        path = f"{world.root}/lock"
        lock = await world.disk.lock(path)
        with pytest.raises(StoreLocked, match="another server"):
            await world.other.lock(path)
        lock.release()
        lock.release()
        second = await world.other.lock(path)
        with pytest.raises(StoreLocked):
            await world.disk.lock(path)
        second.release()

    run(world, body)


def test_many_syncs_at_once(world: World) -> None:
    """Syncs of several tasks and files all end; closing a file and cancelling a task meanwhile harms none."""

    async def body(world: World) -> None:
        finished: list[int] = []

        async def writer(number: int) -> None:
            file = await world.disk.open(f"{world.root}/{number}", create=True)
            file.pwrite([b"%d" % number], 0)
            await file.sync()
            finished.append(number)
            file.close()

        async def cancelled() -> None:
            file = await world.disk.open(f"{world.root}/c", create=True)
            file.pwrite([b"c"], 0)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(file.sync)
                for _ in range(2):
                    await trio.lowlevel.checkpoint()
                file.close()
                nursery.cancel_scope.cancel()

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for number in range(10):
                    nursery.start_soon(writer, number)
                nursery.start_soon(cancelled)
        assert sorted(finished) == list(range(10))

    run(world, body)


def test_a_sync_that_was_begun(world: World) -> None:
    """Syncs that were begun one behind the other both end, with a write between them; a closed file begins none."""

    async def body(world: World) -> None:
        file = await world.disk.open(f"{world.root}/begun", create=True)
        file.pwrite([b"before"], 0)
        first = file.begin_sync()
        file.pwrite([b" after"], 6)
        second = file.begin_sync()
        await first.wait()
        await second.wait()
        assert await file.pread(20, 0) == b"before after"
        file.close()
        with pytest.raises(DiskError) as caught:
            file.begin_sync()
        assert caught.value.errno == errno.EBADF

    run(world, body)
