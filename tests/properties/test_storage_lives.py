"""A store over many lives: each goes on with what the end of the one before has left on the disk, at whatever operation
that was, and what the disk refuses it may refuse while the store is opened.
"""

from __future__ import annotations

import copy
import errno
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import attrs
import pytest
import trio
from tests.properties.storage_bench import StepClock, run
from tests.properties.test_storage_store import Expected, apply, content, propose

from tnats.runtime.api import DiskError
from tnats.runtime.sim.disk import SimDisk, SimDrive
from tnats.runtime.sim.disk_faults import DiskFault, Fail, Kind, SyncFault
from tnats.runtime.sim.disk_image import CrashPolicy, DiskImage
from tnats.storage.encryption import Encryption
from tnats.storage.errors import StorageError, StoreFull
from tnats.storage.journal import JournalOptions
from tnats.storage.record import alarms
from tnats.storage.store import OpenStream, Store, StoreOptions
from tnats.storage.store_open import open_store
from tnats.storage.stream_log import StreamLogOptions

NAMES = ("a", "b", "c")
LIVES = 14
FAILING: tuple[Kind, ...] = (
    "write",
    "sync",
    "open",
    "create",
    "rename",
    "unlink",
    "sync_dir",
    "resize",
    "read",
    "list",
)


@attrs.define
class Model:
    """What streams hold: what was acknowledged, and what may be there instead of what was never answered."""

    acked: Expected = attrs.field(factory=dict)
    doubt: dict[str, dict[int, list[bytes | None]]] = attrs.field(factory=dict)
    highest: dict[str, int] = attrs.field(factory=dict)
    leaving: list[str] = attrs.field(factory=list)
    """Streams whose removal was not answered."""

    def forget(self, name: str) -> None:
        for each in (self.acked, self.doubt, self.highest):
            each.pop(name, None)


@attrs.define
class Life:
    """One run of the store on a drive, up to the moment that the next one goes on with."""

    rng: random.Random
    drive: SimDrive
    model: Model
    ends_at: int
    """The disk operation."""
    end: tuple[DiskImage, Model] | None = None
    streams: dict[str, OpenStream] = attrs.field(factory=dict)
    _count: int = 0

    def observe(self, kind: Kind, _path: str) -> None:
        self._count += kind != "read"
        if self._count == self.ends_at and self.end is None:
            self.end = (self.drive.image.clone(), copy.deepcopy(self.model))

    async def verify(self, store: Store) -> None:
        """Open every stream: it holds what it must and no more, no sequence is used again, and nothing is to be alarmed
        about.
        """
        found: Expected = {}
        for name in store.stream_names:
            self.streams[name] = await opened(store, name)
            found[name] = await content(self.streams[name])
        assert alarms(store.findings) == []
        for name in [name for name in self.model.acked if name not in found]:
            assert name in self.model.leaving or not self.model.acked[name], f"{name} is gone"
            self.model.forget(name)
        for name, messages in found.items():
            acked, doubt = self.model.acked.get(name, {}), self.model.doubt.get(name, {})
            for sequence in messages.keys() | acked.keys():
                there = messages.get(sequence)
                assert there in [acked.get(sequence), *doubt.get(sequence, [])], (name, sequence)
            last = self.streams[name].log.index.last
            assert last >= self.model.highest.get(name, 0), f"{name} uses sequence {last + 1} again"
            self.model.acked[name], self.model.doubt[name], self.model.highest[name] = messages, {}, last
        self.model.leaving.clear()

    async def change(self, store: Store) -> None:
        """Something that owners of streams do. Raises StorageError, DiskError."""
        rng, model, choice = self.rng, self.model, self.rng.random()
        name = rng.choice(NAMES)
        if name in model.leaving:
            if store.journal.knows(name):
                return
            model.forget(name)
            model.leaving.remove(name)
        if name not in self.streams:
            self.streams[name] = await opened(store, name)
            model.acked[name], model.doubt[name], model.highest[name] = {}, {}, 0
        stream = self.streams[name]
        if choice < 0.04:
            stream.log.is_packing = not stream.log.is_packing
        elif choice < 0.1:
            await stream.checkpoint()
        elif choice < 0.13:
            await store.shorten()
        elif choice < 0.145:
            model.leaving.append(name)
            del self.streams[name]
            await store.drop_group(name)
        elif choice < 0.6 or not model.acked[name]:
            await self.publish(stream)
        else:
            await self.remove(stream)

    async def publish(self, stream: OpenStream) -> None:
        sequence = stream.log.index.last + 1
        payload = b"%s%d." % (stream.name.encode(), sequence) * self.rng.choice((1, 20, 200))
        doubt = self.model.doubt[stream.name]
        doubt.setdefault(sequence, []).append(payload)
        await propose(stream, b"%d %s" % (sequence, payload))
        self.model.acked[stream.name][sequence] = payload
        self.model.highest[stream.name] = sequence
        del doubt[sequence]

    async def remove(self, stream: OpenStream) -> None:
        acked, doubt = self.model.acked[stream.name], self.model.doubt[stream.name]
        victim = self.rng.choice(sorted(acked)[: self.rng.choice((1, 3, 1000))])
        is_all = self.rng.random() < 0.1
        going = [each for each in acked if each == victim or (is_all and each < victim)]
        for each in going:
            doubt.setdefault(each, []).append(None)
        await propose(stream, b"<%d" % (victim + 1) if is_all else b"-%d" % victim, frees_space=True)
        for each in going:
            del acked[each], doubt[each]


async def opened(store: Store, name: str) -> OpenStream:
    stream = await store.open_stream(name)
    for entry in await stream.commit.replay():
        assert entry.body is not None
        await apply(stream, entry.index, bytes(entry.body))
    stream.log.end_recovery()
    return stream


@contextmanager
def trouble(drive: SimDrive, rng: random.Random) -> Iterator[None]:
    """What this life's disk refuses: nothing, some calls, or everything that takes room. What comes of it may end the
    life.
    """
    choice = rng.choice(("none", "full", "failing"))
    if choice == "full":
        drive.capacity_bytes = drive.image.used_bytes + rng.choice((0, 0, 100, 2000, 17_000, 40_000))
    elif choice == "failing":
        kind = rng.choice(FAILING)
        effect = Fail(rng.choice((errno.EIO, errno.EMFILE, errno.ENOSPC, errno.EDQUOT)))
        sync_effect = SyncFault(rng.choice(("once", "sticky")))
        skip, times = rng.randrange(rng.choice((10, 100))), rng.choice((1, 3, None))
        drive.faults.append(DiskFault((kind,), sync_effect if kind == "sync" else effect, skip=skip, times=times))
    with suppress(StorageError, DiskError):
        yield


async def live(life: Life, encryption: Encryption | None, boot_id: str) -> None:
    rng, drive, clock = life.rng, life.drive, StepClock()
    options = StoreOptions(
        JournalOptions(part_bytes=rng.choice((16, 16, 64)) * 1024),
        StreamLogOptions(rng.choice((9 * 1024, 8192 + 300, 12 * 1024)), rng.choice((0.5, 0.2, 0.8))),
        encryption,
    )
    before = copy.deepcopy(life.model)
    entropy = random.Random(rng.random()).randbytes
    drive.observer = life.observe
    with trouble(drive, rng):
        store = await open_store(SimDisk(drive, clock), clock, entropy, "/data", boot_id=boot_id, options=options)  # type: ignore[arg-type]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.run)
            is_verified = False
            with suppress(StorageError, DiskError):
                await life.verify(store)
                is_verified = True
                await store.settle()
                for _ in range(rng.randrange(5, 90)):
                    if life.end is not None:
                        break
                    with suppress(StoreFull):
                        await life.change(store)
            if not is_verified:
                life.model = before
            store.stop()
        if rng.random() < 0.5:
            await store.close()
    drive.observer = None


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 60))])
def test_a_store_over_many_lives(seed: int) -> None:
    """Crashes and losses of power at any operation, those of a recovery too, and whatever the disk refuses meanwhile:
    what was acknowledged is there, what was removed is not, no sequence is used again, and nothing is alarmed about.
    """

    async def test() -> None:
        rng = random.Random(seed)
        encryption = rng.choice((None, None, Encryption("key")))
        image, model, boots = DiskImage(), Model(), 0
        for _ in range(LIVES):
            drive = SimDrive(random.Random(rng.random()))
            drive.image = image
            life = Life(rng, drive, model, rng.choice((rng.randrange(1, 60), rng.randrange(1, 600))))
            await live(life, encryption, f"boot {boots}")
            image, model = life.end or (drive.image, life.model)
            if rng.random() < 0.6:
                image.crash(rng.choice(list(CrashPolicy)), rng)
                boots += 1

    run(test)
