"""The fault file system, mounted: what programs read and write, what a power loss keeps, which faults they meet."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from tests.live.server_process import PATIENCE_S

from tnats.harness.real.errors import CouldNotRun
from tnats.harness.real.stores import FaultFs, missing_for_mount, open_fault_fs
from tnats.harness.real.workplace import open_workplace
from tnats.runtime.live import live_runtime

PAGES_SIZE = 50 * 4096

pytestmark = pytest.mark.skipif(missing_for_mount() is not None, reason=str(missing_for_mount()))


@asynccontextmanager
async def mounted(names: str = "posix", write_back_s: float = 0.0) -> AsyncIterator[FaultFs]:
    async with open_workplace() as workplace:
        async with open_fault_fs(workplace, "n1", 1, names=names, write_back_s=write_back_s) as fs:
            yield fs
    assert not workplace.directory.exists()


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def write(path: Path, data: bytes, *, flags: int = 0, sync: bool = False) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | flags, 0o640)
    os.write(descriptor, data)
    if sync:
        os.fdatasync(descriptor)
    os.close(descriptor)


async def test_it_is_a_file_system() -> None:
    """Directories, files, renames over others, appends, truncation, modes and listing, as on any other."""
    async with mounted() as fs:
        (fs.path / "a/b").mkdir(parents=True)
        write(fs.path / "a/b/x", b"hello " * 2000)
        write(fs.path / "a/b/y", b"one", flags=os.O_APPEND)
        write(fs.path / "a/b/y", b"two", flags=os.O_APPEND)
        assert (fs.path / "a/b/x").read_bytes() == b"hello " * 2000
        assert (fs.path / "a/b/y").read_bytes() == b"onetwo"
        os.truncate(fs.path / "a/b/x", 5)
        os.rename(fs.path / "a/b/x", fs.path / "a/b/y")
        assert os.listdir(fs.path / "a/b") == ["y"]
        assert (fs.path / "a/b/y").read_bytes() == b"hello"
        assert (fs.path / "a/b/y").stat().st_mode & 0o777 == 0o640
        os.rename(fs.path / "a/b", fs.path / "c")
        assert (fs.path / "c/y").read_bytes() == b"hello"
        with pytest.raises(OSError, match="not empty"):
            (fs.path / "c").rmdir()
        (fs.path / "c/y").unlink()
        (fs.path / "c").rmdir()
        assert os.listdir(fs.path) == ["a"]


async def test_what_makes_data_durable() -> None:
    """fsync, fdatasync, O_SYNC and O_DSYNC, each with the directory's own fsync; close(2) does not."""
    async with mounted() as fs:
        write(fs.path / "closed", b"closed")
        write(fs.path / "synced", b"synced", sync=True)
        write(fs.path / "osync", b"osync", flags=os.O_SYNC)
        write(fs.path / "odsync", b"odsync", flags=os.O_DSYNC)
        assert [await fs.survives(text) for text in (b"closed", b"synced", b"osync", b"odsync")] == [False] * 4
        sync_directory(fs.path)
        assert [await fs.survives(text) for text in (b"closed", b"synced", b"osync", b"odsync")] == [False] + [True] * 3
        await fs.power_loss("strict")
        assert sorted(os.listdir(fs.path)) == ["closed", "odsync", "osync", "synced"]
        assert (fs.path / "closed").read_bytes() == b""
        assert (fs.path / "osync").read_bytes() == b"osync"


async def test_power_loss_by_policy() -> None:
    """Strict loses names that were not synced, lazyfs keeps them, all keeps everything; old handles are dead."""
    for policy, expected in (("strict", None), ("lazyfs", b""), ("all", b"data")):
        async with mounted() as fs:
            descriptor = os.open(fs.path / "x", os.O_CREAT | os.O_WRONLY)
            os.write(descriptor, b"data")
            await fs.power_loss(policy)
            with pytest.raises(OSError, match=os.strerror(errno.EIO)):
                os.write(descriptor, b"more")
            os.close(descriptor)
            found = (fs.path / "x").read_bytes() if (fs.path / "x").exists() else None
            assert found == expected, policy


async def test_a_journal_commits_names_with_any_sync() -> None:
    """A sync of one file makes the names before it durable, not their data; names after it are not."""
    async with mounted("journal") as fs:
        (fs.path / "d").mkdir()
        write(fs.path / "d/before", b"before")
        write(fs.path / "synced", b"synced", sync=True)
        write(fs.path / "after", b"after")
        await fs.power_loss("strict")
        assert sorted(os.listdir(fs.path)) == ["d", "synced"]
        assert (fs.path / "d/before").read_bytes() == b""
        assert (fs.path / "synced").read_bytes() == b"synced"


@pytest.mark.slow
async def test_write_back_makes_old_data_durable_by_itself() -> None:
    """Without any sync, after the time that was given."""
    async with mounted("journal", write_back_s=3) as fs:
        start_s = trio.current_time()
        write(fs.path / "x", b"old data")
        with trio.fail_after(PATIENCE_S):
            while not await fs.survives(b"old data"):  # noqa: ASYNC110 - it happens in another process
                await trio.sleep(0.05)
        assert trio.current_time() - start_s >= 3


async def test_faults_by_rule() -> None:
    """A failing sync, a full disk with a bound, a flipped bit on read; gone when cleared."""
    async with mounted() as fs:
        write(fs.path / "a.blk", b"\0" * 100)
        await fs.command(do="rule", kinds=["sync"], effect={"name": "Fail", "errno": errno.EIO}, glob="*.blk")
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            write(fs.path / "a.blk", b"x", sync=True)
        write(fs.path / "b.idx", b"x", sync=True)
        await fs.command(do="clear")
        write(fs.path / "a.blk", b"\0", sync=True)
        await fs.command(do="rule", kinds=["read"], effect={"name": "Flip", "bits": 1})
        assert sum((fs.path / "a.blk").read_bytes()).bit_count() == 1
        await fs.command(do="clear")
        assert sum((fs.path / "a.blk").read_bytes()) == 0
        await fs.command(do="capacity", bytes=1000)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            write(fs.path / "c", b"x" * 2000)
        assert os.statvfs(fs.path).f_blocks == 0
        with pytest.raises(CouldNotRun, match="do_nothing"):
            await fs.command(do="nothing")


async def test_damage_at_rest() -> None:
    """Flips and cuts: of files by class, counted."""
    async with mounted() as fs:
        folder = fs.path / "jetstream/$G/streams/s/msgs"
        folder.mkdir(parents=True)
        write(folder / "1.blk", b"\0" * PAGES_SIZE, sync=True)
        ((path, size),) = await fs.files("block")
        assert (path, size) == ("/jetstream/$G/streams/s/msgs/1.blk", PAGES_SIZE)
        await fs.flip(path, 3)
        assert sum(byte.bit_count() for byte in (folder / "1.blk").read_bytes()) == 3
        cut = await fs.truncate(path)
        assert (folder / "1.blk").stat().st_size == PAGES_SIZE - cut


async def test_room_can_be_set_aside_where_the_file_system_has_no_call_for_it() -> None:
    """`preallocate` gives the file its size and leaves its content alone, in a few large writes (FUSE offers no
    fallocate here; a byte for each of 2,048 pages would be as many).
    """
    size = 8 * 1024 * 1024 + 5
    async with mounted() as fs:
        disk = live_runtime().disk
        file = await disk.open(str(fs.path / "part"), create=True)
        file.pwrite([b"head"], 0)
        calls = (await fs.command(do="counts"))["write"]
        await file.preallocate(size)
        assert (await fs.command(do="counts"))["write"] - calls < 200
        file.close()
        assert (fs.path / "part").read_bytes() == b"head".ljust(size, b"\0")
