"""A store gets a key, another key, or another cipher: while it is served, and whatever stops it in between."""

from __future__ import annotations

import errno
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import attrs
import pytest
from tests.properties.storage_bench import run
from tests.properties.test_storage_store import Expected, content, open_and_replay, propose, store_on

from tnats.runtime.api import DiskError
from tnats.runtime.sim.disk import SimDrive
from tnats.runtime.sim.disk_faults import DiskFault, Fail
from tnats.runtime.sim.disk_faults import Kind as CallKind
from tnats.runtime.sim.disk_image import CrashPolicy, DiskImage
from tnats.storage.encryption import Cipher, Encryption
from tnats.storage.errors import StorageError, StoreRefused
from tnats.storage.store import OpenStream, Store

OLD = Encryption("first key")
CHANGES = {
    "key": (OLD, Encryption("second key", Cipher.CHACHA, "first key")),
    "key and cipher": (OLD, Encryption("second key", Cipher.AES, "first key")),
    "cipher": (OLD, Encryption("first key", Cipher.AES)),
    "first key": (None, Encryption("second key", Cipher.AES)),
}
SECRETS = (b"hidden", b"stream-of", b"consumer-of")


@attrs.define
class Life:
    """What was acknowledged, and what was asked for."""

    acked: Expected = attrs.field(factory=dict)
    wanted: Expected = attrs.field(factory=dict)
    consumer: int = 0
    """Acknowledged states of the consumer."""

    def copy(self) -> Life:
        return attrs.evolve(
            self,
            acked={name: dict(messages) for name, messages in self.acked.items()},
            wanted={name: dict(messages) for name, messages in self.wanted.items()},
        )


async def work(store: Store, streams: dict[str, OpenStream], life: Life, rng: random.Random, steps: int) -> None:
    """Appends, removals, purges, consumer states, checkpoints; everything that is stored says that it is hidden."""
    consumer = store.journal.group("consumer-of")
    for step in range(steps):
        stream = streams[rng.choice(list(streams))]
        live = life.wanted[stream.name]
        draw = rng.random()
        if draw < 0.2:
            await consumer.append_nowait([b"hidden state %d" % (life.consumer + 1)]).wait()
            life.consumer += 1
            continue
        if draw < 0.4 and live:
            victim = rng.choice(list(live))
            del live[victim]
            await propose(stream, b"-%d" % victim)
        else:
            sequence = stream.log.index.last + 1
            live[sequence] = b"hidden %d" % sequence * rng.choice((1, 20, 90))
            await propose(stream, b"%d %s" % (sequence, live[sequence]))
        life.acked[stream.name] = dict(live)
        if step % 9 == 8:
            await stream.checkpoint()
        if step % 20 == 19:
            await consumer.set_state_nowait(consumer.last - 1, b"hidden note").wait()


@asynccontextmanager
async def working(
    drive: SimDrive, encryption: Encryption | None, seed: int
) -> AsyncIterator[tuple[Store, dict[str, OpenStream]]]:
    async with store_on(drive, boot_id=f"boot {seed}", seed=seed, encryption=encryption) as store:
        yield store, {name: await open_and_replay(store, name) for name in ("stream-of a", "stream-of b")}


async def check(image: DiskImage, life: Life, encryption: Encryption | None, seed: int) -> None:
    """What was acknowledged is there, with at most the one operation under way; and nothing is alarming."""
    drive = SimDrive(random.Random(5))
    drive.image = image
    async with working(drive, encryption, seed) as (store, streams):
        assert store.health() == []
        for name, stream in streams.items():
            assert await content(stream) in (life.acked.get(name, {}), life.wanted.get(name, {})), name
        consumer = store.journal.group("consumer-of")
        assert consumer.last in (life.consumer, life.consumer + 1)
        if life.consumer and consumer.floor < consumer.last:
            assert (await consumer.read(consumer.last)).body == b"hidden state %d" % consumer.last


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("stride", [12, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_power_loss_at_every_disk_operation(change: str, stride: int) -> None:
    """At any moment of the change the store opens with both keys and is whole; afterwards the new one is enough, and no
    file has anything in the clear.
    """

    async def test() -> None:
        old, new = CHANGES[change]
        rng = random.Random(stride)
        drive = SimDrive(random.Random(5))
        life = Life({}, {"stream-of a": {}, "stream-of b": {}})
        async with working(drive, old, 1) as (store, streams):
            await work(store, streams, life, rng, 60)
        moments: list[tuple[DiskImage, Life]] = []
        drive.observer = lambda kind, path: moments.append((drive.image.clone(), life.copy()))
        async with working(drive, new, 2) as (store, streams):
            assert store.stale_paths
            await work(store, streams, life, rng, 10)
            await store.renew()
            assert store.stale_paths == []
            await work(store, streams, life, rng, 10)
            await store.renew()
        drive.observer = None
        for path in drive.image.walk("/data"):
            stored = drive.image.content(path)
            assert not [secret for secret in SECRETS if secret in stored], path
        await check(drive.image.clone(), life, attrs.evolve(new, previous_key=""), 3)
        tried = 0
        for at, (image, then) in enumerate(moments[rng.randrange(stride) :: stride]):
            for policy in CrashPolicy if stride == 1 else [rng.choice(list(CrashPolicy))]:
                after = image.clone()
                after.crash(policy, rng)
                await check(after, then, new, 10 + at)
                tried += 1
        assert tried > 20

    run(test)


CALLS: tuple[CallKind, ...] = ("write", "sync", "create", "rename", "sync_dir", "unlink", "read", "resize")


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("stride", [11, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_the_nth_call_fails(code: int, stride: int) -> None:
    """Whichever call fails while files are written anew: nothing is lost, and the next attempt or start ends it."""

    async def test() -> None:
        old, new = CHANGES["key and cipher"]
        before = SimDrive(random.Random(5))
        then = Life({}, {"stream-of a": {}, "stream-of b": {}})
        async with working(before, old, 1) as (store, streams):
            await work(store, streams, then, random.Random(1), 60)
        fired = 0
        for call in CALLS if code == errno.EIO else ("write", "create", "resize"):
            for skip in range(0, 200, stride):
                drive, life = SimDrive(random.Random(5)), then.copy()
                drive.image = before.image.clone()
                rule = DiskFault((call,), Fail(code), skip=skip, times=1)
                try:
                    async with store_on(drive, boot_id="later", seed=2, clean=False, encryption=new) as store:
                        for name in ("stream-of a", "stream-of b"):
                            await open_and_replay(store, name)
                        drive.faults.append(rule)
                        with suppress(StorageError, DiskError):
                            await store.renew()
                        drive.faults.clear()
                        if code == errno.ENOSPC:
                            await store.renew()
                            assert store.stale_paths == []
                except* DiskError:
                    assert rule.fired
                drive.faults.clear()
                drive.locks.clear()
                await check(drive.image, life, new, 3)
                async with working(drive, new, 4) as (store, _):
                    await store.renew()
                    assert store.stale_paths == []
                await check(drive.image, life, attrs.evolve(new, previous_key=""), 5)
                fired += rule.fired
                if not rule.fired:
                    break
        assert fired > 3

    run(test)


@pytest.mark.parametrize("given", [None, Encryption("wrong"), Encryption("wrong", previous_key="wrong too")])
def test_without_its_key_a_store_is_not_touched(given: Encryption | None) -> None:
    """The start is refused with the file and what to do; every byte stays as it was; with the key all is there."""

    async def test() -> None:
        drive = SimDrive(random.Random(5))
        life = Life({}, {"stream-of a": {}, "stream-of b": {}})
        async with working(drive, OLD, 1) as (store, streams):
            await work(store, streams, life, random.Random(1), 40)
        before = {path: drive.image.content(path) for path in drive.image.walk("/data")}
        with pytest.raises(StoreRefused, match=r"/data/tnats/.* is encrypted .* set the key"):
            async with store_on(drive, encryption=given):
                pass
        assert {path: drive.image.content(path) for path in drive.image.walk("/data")} == before
        await check(drive.image, life, OLD, 4)

    run(test)


def test_a_forgotten_previous_key_is_missed_at_the_start() -> None:
    """A change that was cut short needs both keys: with the new one alone nothing is opened, and nothing is lost."""

    async def test() -> None:
        old, new = CHANGES["key"]
        drive = SimDrive(random.Random(5))
        life = Life({}, {"stream-of a": {}, "stream-of b": {}})
        async with working(drive, old, 1) as (store, streams):
            await work(store, streams, life, random.Random(1), 60)
        async with working(drive, new, 2):
            pass
        with pytest.raises(StoreRefused, match=r"\.(seg|part) is encrypted under another key"):
            async with store_on(drive, encryption=attrs.evolve(new, previous_key="")):
                pass
        await check(drive.image, life, new, 4)

    run(test)
