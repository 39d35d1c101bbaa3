"""Faults of the simulated disk: each rule does what the catalogue says, seen through the calls of the seam."""

from __future__ import annotations

import errno
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
import trio
import trio.testing

from tnats.errors import NodeKilled
from tnats.runtime.api import DiskError
from tnats.runtime.sim import disk_faults
from tnats.runtime.sim.disk import SimDisk, SimDrive, full, read_only
from tnats.runtime.sim.disk_faults import Delay, DiskFault, Fail, Flip, Lose, Misdirect, SyncFault
from tnats.runtime.sim.disk_image import CrashPolicy


class TrioClock:
    def mono_ns(self) -> int:
        return round(trio.current_time() * 1e9)

    async def sleep_ns(self, duration_ns: int) -> None:
        await trio.sleep(duration_ns / 1e9)


class Bench:
    """A drive, one incarnation on it, and its life."""

    def __init__(self, seed: int = 1) -> None:
        self.drive = SimDrive(random.Random(seed))
        self.alive = True
        self.stalled_ns = 0
        self.disk = SimDisk(self.drive, TrioClock(), alive=lambda: self.alive, stall=self.stall)  # type: ignore[arg-type]

    def stall(self, duration_ns: int) -> None:
        self.stalled_ns += duration_ns

    def fault(self, *rules: DiskFault) -> None:
        self.drive.faults[:] = rules

    def after_crash(self, policy: CrashPolicy = CrashPolicy.STRICT) -> dict[str, bytes]:
        image = self.drive.image.clone()
        image.crash(policy, random.Random(0))
        return {path: image.content(path) for path in image.walk()}


def run(body: Callable[[Bench], Awaitable[None]]) -> Bench:
    bench = Bench()
    trio.run(body, bench, clock=trio.testing.MockClock(autojump_threshold=0))
    return bench


@contextmanager
def fails(code: int) -> Iterator[None]:
    with pytest.raises(DiskError) as caught:
        yield
    assert caught.value.errno == code


@pytest.mark.parametrize(
    ("variant", "first_fails", "second_fails", "kept"),
    [("once", True, False, b"old"), ("sticky", True, True, b"old"), ("silent", False, False, b"old"),
     ("lying", False, False, b"old")],
)  # fmt: skip
def test_sync_faults(variant: str, first_fails: bool, second_fails: bool, kept: bytes) -> None:
    """The four ways of fsync to fail: what it answers, first and again, and that the data is lost in each."""

    async def body(bench: Bench) -> None:
        await bench.disk.write_file("/f", b"old")
        file = await bench.disk.open("/f")
        file.pwrite([b"new"], 0)
        sync_fault = SyncFault(variant)  # type: ignore[arg-type]
        bench.fault(DiskFault(("sync",), sync_fault, times=None if variant == "sticky" else 1))
        for expected in (first_fails, second_fails):
            if expected:
                with fails(errno.EIO):
                    await file.sync()
            elif variant == "lying":
                await file.sync()
                assert bench.after_crash()["/f"] == kept
                return
            else:
                await file.sync()
        assert await file.pread(3, 0) == b"new"
        assert bench.after_crash()["/f"] == kept

    run(body)


def test_sync_heals_after_a_lie() -> None:
    """After a lying sync the data is still volatile: a later honest sync saves it."""

    async def body(bench: Bench) -> None:
        await bench.disk.write_file("/f", b"old")
        file = await bench.disk.open("/f")
        file.pwrite([b"new"], 0)
        bench.fault(DiskFault(("sync",), SyncFault("lying"), times=1))
        await file.sync()
        await file.sync()
        assert bench.after_crash()["/f"] == b"new"

    run(body)


def test_write_faults() -> None:
    """Short writes, lost writes, flipped bits and misdirected writes land exactly as the rule says."""

    async def body(bench: Bench) -> None:
        file = await bench.disk.open("/f", create=True)
        other = await bench.disk.open("/g", create=True)
        other.pwrite([b"........"], 0)
        bench.fault(DiskFault(("write",), Fail(errno.EIO, written=2), glob="/f", times=1))
        with fails(errno.EIO):
            file.pwrite([b"abcd"], 0)
        assert await file.pread(9, 0) == b"ab"
        bench.fault(DiskFault(("write",), Lose(), skip=1, times=1))
        for piece in (b"1", b"2", b"3"):
            file.pwrite([piece], 0)
        assert await file.pread(1, 0) == b"3"
        file.pwrite([b"wxyz"], 0)
        bench.fault(DiskFault(("write",), Misdirect(path="/g", offset=3)))
        file.pwrite([b"!!"], 0)
        assert (await file.pread(9, 0), await other.pread(9, 0)) == (b"wxyz", b"...!!...")
        bench.fault(DiskFault(("write",), Flip(1)))
        file.pwrite([bytes(4)], 0)
        assert sum(byte.bit_count() for byte in await file.pread(9, 0)) == 1

    run(body)


def test_read_faults() -> None:
    """A read fault fails or flips the read, and keeps the page cache from answering; the medium stays as it is."""

    async def body(bench: Bench) -> None:
        await bench.disk.write_file("/f", bytes(100))
        file = await bench.disk.open("/f")
        bench.fault(DiskFault(("read",), Fail(errno.EIO), times=2))
        assert file.pread_cached(1, 0) is None
        with fails(errno.EIO):
            await file.pread(1, 0)
        assert file.pread_cached(1, 0) == b"\0"
        bench.fault(DiskFault(("read",), Flip(3), times=1))
        assert sum(byte.bit_count() for byte in await file.pread(100, 0)) == 3
        assert await file.pread(100, 0) == bytes(100)

    run(body)


def test_space_and_descriptors_run_out() -> None:
    """A full disk takes what fits, refuses the rest, and takes writes again when space is freed; so descriptors."""

    async def body(bench: Bench) -> None:
        bench.drive.capacity_bytes = 10
        file = await bench.disk.open("/f", create=True)
        file.pwrite([b"123456"], 0)
        with fails(errno.ENOSPC):
            file.pwrite([b"789012"], 6)
        assert await file.pread(99, 0) == b"1234567890"
        assert await bench.disk.free_bytes("/") == 0
        with fails(errno.ENOSPC):
            await file.preallocate(11)
        file.pwrite([b"!"], 0)
        await file.truncate(4)
        file.pwrite([b"ok"], 4)
        bench.disk.descriptors_max = bench.disk.open_count
        with fails(errno.EMFILE):
            await bench.disk.open("/f")
        file.close()
        await bench.disk.open("/f")

    run(body)


def test_a_disk_that_holds_more_than_fits_takes_what_does_not_grow() -> None:
    """A crash can leave more than there is room for: then files can be written over and cut, but not grow."""

    async def body(bench: Bench) -> None:
        await bench.disk.write_file("/f", bytes(100))
        file = await bench.disk.open("/f")
        bench.drive.capacity_bytes = 50
        file.pwrite([b"over"], 0)
        assert await file.pread(4, 0) == b"over"
        with fails(errno.ENOSPC):
            file.pwrite([b"more"], 98)
        assert file.size() == 100
        with fails(errno.ENOSPC):
            await file.preallocate(101)
        await file.truncate(60)
        assert file.size() == 60

    run(body)


def test_a_read_under_way_outlives_the_end_of_its_file() -> None:
    """A file that is removed and closed while it is read is still there for that read, as with threads that read."""

    async def body(bench: Bench) -> None:
        await bench.disk.write_file("/f", b"content")
        file = await bench.disk.open("/f")
        found: list[bytes] = []

        async def read() -> None:
            found.append(await file.pread(7, 0))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked()
            await bench.disk.unlink("/f")
            file.close()
            await bench.disk.write_file("/g", b"")
            await bench.disk.unlink("/g")
        assert found == [b"content"]

    run(body)


def test_file_system_refusals() -> None:
    """Read-only and full file systems refuse what changes them and go on answering reads."""

    async def body(bench: Bench) -> None:
        await bench.disk.write_file("/f", b"x")
        for rule, code in ((read_only(), errno.EROFS), (full(), errno.ENOSPC)):
            bench.fault(rule)
            file = await bench.disk.open("/f")
            assert await file.pread(1, 0) == b"x"
            with fails(code):
                file.pwrite([b"y"], 0)
            with fails(code):
                await bench.disk.open("/new", create=True)
            with fails(code):
                await bench.disk.mkdir("/d")
        bench.fault(DiskFault(("open",), Fail(errno.EACCES)))
        with fails(errno.EACCES):
            await bench.disk.open("/f")

    run(body)


def test_delays_and_stalls() -> None:
    """Awaited calls spend their latency on the clock, plain ones through the stall hook; delay rules stretch both."""

    async def body(bench: Bench) -> None:
        file = await bench.disk.open("/f", create=True)
        file.pwrite([b"x"], 0)
        assert 0 < bench.stalled_ns < 10_000
        bench.fault(DiskFault(("write", "sync"), Delay(added_ns=5_000_000_000)))
        file.pwrite([b"x"], 0)
        assert bench.stalled_ns > 5_000_000_000
        started = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(file.sync)
            nursery.start_soon(file.sync)
        assert 10 < trio.current_time() - started < 10.1

    run(body)


def test_a_dead_node_reaches_nothing() -> None:
    """After death every call raises NodeKilled, also one that was under way, and nothing of it happens."""

    async def body(bench: Bench) -> None:
        await bench.disk.write_file("/f", b"old")
        lock = await bench.disk.lock("/lock")
        file = await bench.disk.open("/f")
        file.pwrite([b"new"], 0)

        async def sync() -> None:
            with pytest.raises(NodeKilled):
                await file.sync()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sync)
            for _ in range(2):
                await trio.lowlevel.checkpoint()
            bench.alive = False
        for call in (
            file.size, file.close, lock.release,
            lambda: file.pwrite([b"x"], 0), lambda: file.pread_cached(1, 0),
        ):  # fmt: skip
            with pytest.raises(NodeKilled):
                call()
        for awaitable in (
            file.pread(1, 0), file.sync(), file.truncate(0), bench.disk.open("/g", create=True),
            bench.disk.rename("/f", "/h"), bench.disk.unlink("/f"), bench.disk.mkdir("/d"), bench.disk.list("/"),
            bench.disk.sync_dir("/"), bench.disk.write_file("/f", b""), bench.disk.lock("/lock"),
        ):  # fmt: skip
            with pytest.raises(NodeKilled):
                await awaitable
        assert bench.after_crash()["/f"] == b"old"
        second = SimDisk(bench.drive, TrioClock())  # type: ignore[arg-type]
        await second.lock("/lock")

    run(body)


def test_damage_at_rest() -> None:
    """Flipped bits, zeroed blocks, cut tails, stale chunks, swapped and duplicated files, wipe and rollback."""

    async def body(bench: Bench) -> None:
        image = bench.drive.image
        rng = random.Random(3)
        await bench.disk.write_file("/f", b"\xff" * 10_000)
        await bench.disk.write_file("/g", b"g")
        snapshot = image.clone()
        chunks = disk_faults.save_chunks(image, "/f", rng, share=1.0)
        disk_faults.damage_bits(image, "/f", 5, rng)
        disk_faults.damage_bit(image, "/f", 0)
        content = image.content("/f")
        assert sum(8 - byte.bit_count() for byte in content) in (4, 6)
        disk_faults.damage_block(image, "/f", rng)
        assert image.content("/f").count(0) >= 10_000 - 2 * 4096
        disk_faults.restore_chunks(image, "/f", chunks)
        assert image.content("/f") == b"\xff" * 10_000
        disk_faults.damage_tail(image, "/f", rng)
        assert 0 <= len(image.content("/f")) < 10_000
        image.swap("/f", "/g")
        image.duplicate("/f", "/h")
        assert (image.content("/f"), image.content("/h")) == (b"g", b"g")
        assert bench.after_crash()["/f"] == b"g"
        assert disk_faults.matching(image, "/[gh]") == ["/g", "/h"]
        bench.drive.image = snapshot
        assert image.content("/f") == b"g"
        assert bench.drive.image.content("/f") == b"\xff" * 10_000
        bench.drive.wipe()
        assert bench.after_crash() == {}

    run(body)


def test_removed_files_are_freed() -> None:
    """A file without a name is kept for those who have it open, and its memory goes with the last of them."""

    async def body(bench: Bench) -> None:
        file = await bench.disk.open("/f", create=True)
        file.pwrite([b"x" * 5000], 0)
        await bench.disk.write_file("/g", b"old")
        await bench.disk.sync_dir("/")
        nodes = len(bench.drive.image._nodes)
        await bench.disk.unlink("/f")
        await bench.disk.write_file("/g", b"new")
        assert await file.pread(1, 4999) == b"x"
        assert len(bench.drive.image._nodes) == nodes
        file.close()
        await bench.disk.sync_dir("/")
        assert len(bench.drive.image._nodes) == nodes - 1
        assert bench.after_crash() == {"/g": b"new"}

    run(body)


def test_the_same_seed_repeats() -> None:
    """Latencies, faults and survivors come from the drive's generator alone."""

    async def body(bench: Bench) -> None:
        bench.fault(
            DiskFault(("write",), Flip(2), chance=0.5), DiskFault(("sync",), Delay(stall_chance=0.5, stall_ns=9))
        )
        file = await bench.disk.open("/f", create=True)
        for index in range(40):
            file.pwrite([b"%d" % index], index * 7)
            if index % 5 == 0:
                await file.sync()
        bench.stalled_ns += bench.disk.clock.mono_ns()
        bench.alive = False
        bench.drive.power_loss(CrashPolicy.TORN)

    first, second = run(body), run(body)
    assert first.stalled_ns == second.stalled_ns
    assert first.after_crash() == second.after_crash()


def test_creating_a_file_is_three_operations() -> None:
    """Rules and power losses meet each of them; an old file of the name is whole until the new one takes its place."""

    async def body(bench: Bench) -> None:
        await bench.disk.write_file("/f", b"old")
        seen: list[tuple[str, str, bytes]] = []
        bench.drive.observer = lambda kind, path: seen.append((kind, path, bench.drive.image.content("/f")))
        file = await bench.disk.create_file("/f", [b"new"])
        bench.drive.observer = None
        assert seen == [("create", "/f.tmp", b"old"), ("write", "/f.tmp", b"old"), ("rename", "/f.tmp", b"old")]
        assert bench.after_crash() == {"/f": b"old"}
        assert bench.after_crash(CrashPolicy.LAZYFS) == {"/f": b""}
        assert bench.after_crash(CrashPolicy.ALL) == {"/f": b"new"}
        file.close()
        for kind in ("create", "write", "rename"):
            bench.fault(DiskFault((kind,), Fail(errno.EIO)))
            with fails(errno.EIO):
                await bench.disk.create_file("/f", [b"newer"])
            assert bench.disk.open_count == 0
            assert [entry.name for entry in await bench.disk.list("/")] == ["f"]

    run(body)
