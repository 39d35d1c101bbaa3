"""A stream's store on the journal: crashes at every disk operation, failing calls, damage; memory is the measure."""

from __future__ import annotations

import errno
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from tests.properties.storage_bench import AES_PACKED, CHACHA, FORMS, PACKED, PLAIN, Form, StepClock, run
from tests.unit.storage.patterns import Such

from tnats.runtime.api import DiskError
from tnats.runtime.sim.disk import SimDisk, SimDrive
from tnats.runtime.sim.disk_faults import DiskFault, Fail, Flip, Lose, Misdirect, SyncFault
from tnats.runtime.sim.disk_image import CrashPolicy, DiskImage
from tnats.storage.commit_log import LocalLog
from tnats.storage.encryption import Cipher, Encryption, make_keys
from tnats.storage.errors import DataDamaged, StorageError, StoreFrozen, StoreFull
from tnats.storage.index_columns import LOST, REMOVED
from tnats.storage.journal import Journal, JournalOptions
from tnats.storage.journal_open import open_journal
from tnats.storage.memory_log import MemoryLog
from tnats.storage.message_log import Message, MessageLog
from tnats.storage.record import Finding, alarms
from tnats.storage.stream_log import StreamLog, StreamLogOptions
from tnats.storage.stream_open import open_stream_log

STORE_ID = b"0123456789abcdef"
Content = dict[int, tuple[int, bytes, bytes, bytes]]


# ------------------------------------------------------------------ a small stream machine


async def apply(log: MessageLog, body: bytes) -> None:
    """Carry out one entry: what a stream's machine will do with its own encoding."""
    entry = json.loads(body)
    if entry["do"] == "append":
        await log.append([Message(s, t, *(text.encode() for text in texts)) for s, t, *texts in entry["messages"]])
    elif entry["do"] == "remove":
        log.remove(entry["sequences"], erase=entry["erase"])
    elif entry["do"] == "start":
        log.raise_start(entry["start"])
    else:
        log.skip(entry["first"], entry["last"])


def draw_entry(rng: random.Random, log: MessageLog) -> bytes:
    """A random entry that fits the present state of the log."""
    index = log.index
    choice = rng.random()
    if choice < 0.65 or not index.messages:
        messages = []
        for sequence in range(index.last + 1, index.last + 1 + rng.choice((1, 1, 3, 8))):
            subject, headers = (
                rng.choice(("a", "b.c", f"d{rng.randrange(9)}")),
                rng.choice(("", "", "NATS/1.0\r\nX: y\r\n\r\n")),
            )
            messages.append((sequence, 1000 * sequence, subject, headers, str(sequence) * rng.choice((0, 1, 9, 150))))
        entry = {"do": "append", "messages": messages}
    elif choice < 0.85:
        live = [s for s in range(index.first, index.last + 1) if index.place(s) > 1]
        entry = {
            "do": "remove",
            "sequences": rng.sample(live, min(len(live), rng.choice((1, 2, 6)))),
            "erase": rng.random() < 0.5,
        }
    elif choice < 0.95:
        entry = {"do": "start", "start": rng.randint(index.start, index.first + 5)}
    else:
        entry = {"do": "skip", "first": index.last + 1, "last": index.last + rng.randrange(1, 4)}
    return json.dumps(entry).encode()


async def content(log: MessageLog) -> Content:
    """Everything that can be read; and the searches must agree with it."""
    found: Content = {}
    sequence = log.index.next_live(0)
    while sequence:
        try:
            message = await log.load(sequence)
        except DataDamaged:
            pass
        else:
            assert message.sequence == sequence
            assert message.subject == log.index.subject(sequence)
            found[sequence] = (message.time_ns, message.subject, message.headers, message.payload)
        sequence = log.index.next_live(sequence + 1)
    return found


def check_runs(log: MessageLog, found: Content) -> None:
    """Read in runs, of all sequences and of every other message, it is the same, as far as it can be had at once."""
    for sequences in (range(log.index.start, log.index.last + 1), list(found)[::2]):
        at = 0
        while at < len(sequences):
            part = log.load_run_nowait(sequences[at:])
            for sequence, stored in zip(sequences[at:], part, strict=False):
                if stored is None:
                    assert log.index.place(sequence) in (LOST, REMOVED)
                else:
                    assert stored == (sequence, *found[sequence])
            at += len(part) or 1  # that one is damaged, or must be waited for


# ------------------------------------------------------------------ journal and stream on one drive


@attrs.define
class Store:
    journal: Journal
    commit: LocalLog
    log: StreamLog
    applied: int

    async def propose(self, body: bytes) -> None:
        await self.commit.propose_nowait([body]).wait()
        for entry in await self.commit.committed():
            assert entry.body is not None
            await apply(self.log, bytes(entry.body))
            self.applied = entry.index

    async def checkpoint(self) -> None:
        applied = self.applied
        note = await self.log.checkpoint(self.commit.group)
        await self.commit.checkpointed(applied, note).wait()
        await self.log.release()
        await self.journal.release()

    @property
    def findings(self) -> list[Finding]:
        return self.journal.findings + self.log.findings


@asynccontextmanager
async def open_store(
    drive: SimDrive, seed: int = 1, segment_bytes: int = 9500, form: Form = PLAIN
) -> AsyncIterator[Store]:
    clock = StepClock()
    disk = SimDisk(drive, clock)  # type: ignore[arg-type]
    entropy = random.Random(seed).randbytes
    keys = make_keys(form.encryption, STORE_ID, entropy)
    journal = await open_journal(
        disk, clock, entropy, "/store/journal", store_id=STORE_ID,  # type: ignore[arg-type]
        options=JournalOptions(part_bytes=16 * 1024), keys=keys,
    )  # fmt: skip
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        try:
            commit = LocalLog(journal.group("stream"))
            log = await open_stream_log(
                disk, clock, entropy, "/store/stream", name="stream", store_id=STORE_ID,  # type: ignore[arg-type]
                options=StreamLogOptions(segment_bytes=segment_bytes), note=commit.note, keys=keys,
            )  # fmt: skip
            log.is_packing = form.is_packing
            store = Store(journal, commit, log, commit.floor)
            for entry in await commit.replay():
                if entry.body is None:
                    log.index.extend(log.index.last + entry.index - store.applied)
                else:
                    await apply(log, bytes(entry.body))
                store.applied = entry.index
            log.end_recovery()
            yield store
        finally:
            journal.close()
    await log.close()
    journal.parts.close()


def new_drive(image: DiskImage | None = None) -> SimDrive:
    drive = SimDrive(random.Random(5), cold=0.2)
    if image is None:
        drive.image.make_directory("/store")
        drive.image.sync_directory(drive.image.directory("/"))
    else:
        drive.image = image
    return drive


@attrs.define
class Model:
    """Entry by entry, what a memory log holds: (content, start, last)."""

    log: MemoryLog = attrs.field(factory=MemoryLog)
    states: list[tuple[Content, int, int]] = attrs.field(factory=lambda: [({}, 1, 0)])
    acked: int = 0

    async def add(self, body: bytes) -> None:
        await apply(self.log, body)
        self.states.append((await content(self.log), self.log.index.start, self.log.index.last))


async def state_of(log: MessageLog) -> tuple[Content, int, int]:
    return await content(log), log.index.start, log.index.last


async def check(image: DiskImage, model: Model, acked: int, form: Form = PLAIN) -> None:
    """The store holds exactly what some prefix of the entries gives, with every acknowledged one in it, for ever."""
    drive = new_drive(image)
    async with open_store(drive, seed=50, form=form) as store:
        assert alarms(store.findings) == []
        assert acked <= store.applied <= len(model.states) - 1
        expected = model.states[store.applied]
        assert await state_of(store.log) == expected
        assert store.log.index.messages == len(expected[0])
        await store.checkpoint()
        assert await state_of(store.log) == expected
    drive.power_loss(CrashPolicy.STRICT)
    async with open_store(drive, seed=51, form=form) as store:
        assert alarms(store.findings) == []
        assert await state_of(store.log) == expected
        assert not [path for path in drive.image.walk() if path.endswith(".tmp")]


FULL_SEEDS_FROM = 23
"""From here on every policy is tried at every moment, and not one that is drawn."""
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 25))]


WITH_FORMS = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)


@WITH_FORMS
@pytest.mark.parametrize("seed", SEEDS)
def test_power_loss_at_every_disk_operation(seed: int, form: Form) -> None:
    """Append, roll, remove, purge, compact, checkpoint, release: whatever a power loss spares in between."""

    async def test() -> None:
        rng = random.Random(seed)
        drive = new_drive()
        model = Model()
        moments: list[tuple[DiskImage, int]] = []
        drive.observer = lambda kind, path: (
            moments.append((drive.image.clone(), model.acked)) if kind != "read" else None
        )
        async with open_store(drive, form=form) as store:
            for step in range(60):
                body = draw_entry(rng, store.log)
                await model.add(body)
                await store.propose(body)
                model.acked += 1
                assert await state_of(store.log) == model.states[-1]
                if step % 7 == 6:
                    await store.checkpoint()
        drive.observer = None
        assert len(moments) > 200
        for image, acked in moments[seed == 0 and rng.randrange(9) :: 9 if seed == 0 else 1]:
            for policy in [rng.choice(list(CrashPolicy))] if seed < FULL_SEEDS_FROM else CrashPolicy:
                after = image.clone()
                after.crash(policy, rng)
                await check(after, model, acked, form)
        killed = drive.image.clone()
        await check(killed, model, model.acked, form)

    run(test)


@pytest.mark.parametrize("seed", SEEDS)
def test_power_loss_while_files_are_written_anew(seed: int) -> None:
    """Packing, unpacking, another key, another cipher, a key for the first time: at every disk operation of the change,
    with appends and removals between, the store is one of the two and whole; at the end nothing needs the old key.
    """

    async def test() -> None:
        rng = random.Random(200 + seed)
        before, after = (rng.choice(CHANGES[0]), rng.choice(CHANGES[1])) if seed else (CHACHA, CHANGES[1][0])
        drive = new_drive()
        model = Model()
        async with open_store(drive, form=before) as store:
            await work(store, model, rng, 40)
        moments: list[tuple[DiskImage, int]] = []
        drive.observer = lambda kind, path: (
            moments.append((drive.image.clone(), model.acked)) if kind != "read" else None
        )
        async with open_store(drive, seed=2, form=after) as store:
            while await store.log.rewrite():
                pass
            await work(store, model, rng, 9)
            await store.checkpoint()
            assert store.log.stale_segments == []
        drive.observer = None
        assert any(each.is_packed for each in store.log.files.segments.values()) is after.is_packing
        encryption = None if after.encryption is None else attrs.evolve(after.encryption, previous_key="")
        await check(drive.image.clone(), model, model.acked, attrs.evolve(after, encryption=encryption))
        for image, acked in moments[seed == 0 and rng.randrange(5) :: 5 if seed == 0 else 1]:
            for policy in [rng.choice(list(CrashPolicy))] if seed < FULL_SEEDS_FROM else CrashPolicy:
                crashed = image.clone()
                crashed.crash(policy, rng)
                await check(crashed, model, acked, after)

    run(test)


async def work(store: Store, model: Model, rng: random.Random, steps: int) -> None:
    """Random entries, with a checkpoint now and then."""
    for step in range(steps):
        body = draw_entry(rng, store.log)
        await model.add(body)
        await store.propose(body)
        model.acked += 1
        assert await state_of(store.log) == model.states[-1]
        if step % 7 == 6:
            await store.checkpoint()


CHANGES = (
    (PLAIN, CHACHA, AES_PACKED, PACKED),
    (
        Form("second key", Encryption("second key", Cipher.AES, "first key")),
        Form("second key, packed", Encryption("second key", Cipher.CHACHA, "first key"), True),
        Form("other cipher", Encryption("first key", Cipher.AES)),
    ),
)
"""Forms to begin with, and forms to come to: each of these can read each of those."""


@pytest.mark.parametrize("seed", SEEDS)
def test_power_loss_during_recovery(seed: int) -> None:
    """A second and a third loss of power, at any operation of the recovery from the one before, change nothing."""

    async def test() -> None:
        rng = random.Random(100 + seed)
        form = FORMS[seed % len(FORMS)]
        drive = new_drive()
        model = Model()
        moments: list[tuple[DiskImage, int]] = []
        async with open_store(drive, form=form) as store:
            drive.observer = lambda kind, path: moments.append((drive.image.clone(), model.acked))
            for step in range(30):
                body = draw_entry(rng, store.log)
                await model.add(body)
                await store.propose(body)
                model.acked += 1
                if step % 7 == 6:
                    await store.checkpoint()
        drive.observer = None
        for image, acked in rng.sample(moments, 6):
            for _ in range(2):
                image = image.clone()
                image.crash(rng.choice(list(CrashPolicy)), rng)
                again = new_drive(image)
                inner: list[DiskImage] = []
                again.observer = lambda kind, path, inner=inner, again=again: inner.append(again.image.clone())
                async with open_store(again, seed=rng.randrange(1000), form=form) as store:
                    await store.checkpoint()
                    acked = max(acked, store.applied)  # what was found is not lost any more
                again.observer = None
                for other in inner[:: 5 if seed == 0 else 1]:
                    after = other.clone()
                    after.crash(rng.choice(list(CrashPolicy)), rng)
                    await check(after, model, acked, form)
                image = rng.choice(inner)

    run(test)


# ------------------------------------------------------------------ failing calls


FAILURES = [
    DiskFault(("write",), Fail(errno.EIO), times=1),
    DiskFault(("write",), Fail(errno.ENOSPC, written=60), times=1),
    DiskFault(("write",), Fail(errno.ENOSPC, written=60), times=3, glob="/store/stream/*"),
    DiskFault(("sync",), Fail(errno.EIO), times=1),
    DiskFault(("sync",), SyncFault("once"), times=1),
    DiskFault(("create",), Fail(errno.EIO), times=1),
    DiskFault(("create",), Fail(errno.ENOSPC), times=1),
    DiskFault(("create",), Fail(errno.EMFILE), times=2),
    DiskFault(("rename",), Fail(errno.EIO), times=1),
    DiskFault(("sync_dir",), Fail(errno.EIO), times=1),
    DiskFault(("unlink",), Fail(errno.EIO), times=1),
    DiskFault(("read",), Fail(errno.EIO), times=1),
]


def innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def faulty_program(store: Store, model: Model, rng: random.Random, steps: int) -> StorageError | None:
    """Propose, apply and checkpoint until something is refused; returns the refusal."""
    for step in range(steps):
        body = draw_entry(rng, store.log)
        try:
            if store.log.trouble is not None:
                raise store.log.trouble
            await store.propose(body)
        except StoreFrozen as exc:
            await model.add(body)  # it may have happened
            return exc
        except StorageError as exc:
            return exc
        await model.add(body)
        model.acked += 1
        if step % 4 == 3:
            try:
                await store.checkpoint()
            except StorageError as exc:
                return exc
    return None


EVERY_CALL = [pytest.param(form, 1, marks=[pytest.mark.slow, pytest.mark.timeout(1200)]) for form in FORMS]


@pytest.mark.parametrize("fault", FAILURES, ids=lambda fault: f"{fault.kinds[0]}-{fault.effect}-{fault.times}")
@pytest.mark.parametrize(("form", "stride"), [(PLAIN, 2), (AES_PACKED, 5), *EVERY_CALL])
def test_the_nth_call_fails(fault: DiskFault, form: Form, stride: int) -> None:
    """Nothing acknowledged is lost or wrong, reads go on, a lack of space passes, and any other failure is sticky."""

    async def test() -> None:
        for skip in range(0, 60 if stride > 1 else 400, stride):
            rng = random.Random(skip)
            drive = new_drive()
            model = Model()
            rule = attrs.evolve(fault, skip=skip)
            async with open_store(drive, form=form) as store:
                drive.faults.append(rule)
                try:
                    refused = await faulty_program(store, model, rng, 24)
                except DiskError:
                    assert fault.kinds == ("read",)
                    refused = None
                if refused is not None:
                    full = isinstance(fault.effect, Fail) and fault.effect.errno in (errno.ENOSPC, errno.EMFILE)
                    assert isinstance(refused, StoreFull if full else StoreFrozen), refused
                    if full:
                        drive.faults.clear()
                        await store.checkpoint()
                        assert store.log.trouble is None
                        assert await faulty_program(store, model, rng, 6) is None
                        assert await state_of(store.log) == model.states[-1]
                    else:
                        assert await content(store.log) == model.states[store.applied][0]
                drive.faults.clear()
            drive.power_loss(rng.choice(list(CrashPolicy)))
            await check(drive.image, model, model.acked, form)
            if not rule.fired:
                break

    run(test)


# ------------------------------------------------------------------ damage


def test_skipping_spares_what_is_there() -> None:
    """Sequences skipped around a live message are removed, the message is not, also after reopening."""

    async def test() -> None:
        drive = new_drive()
        async with open_store(drive) as store:
            await store.log.append([Message(3, 1, b"s", b"", b"three")])
            assert store.log.index.absent(1, 9, LOST) == [(1, 2)]
            store.log.skip(1, 6)
            note = await store.log.checkpoint(store.commit.group)
            await store.commit.checkpointed(0, note).wait()
            await store.log.append([Message(7, 1, b"s", b"", b"seven")])
        async with open_store(drive) as store:
            assert sorted(await content(store.log)) == [3, 7]
            assert store.log.index.absent(1, 9, REMOVED) == [(1, 2), (4, 6)]
            assert alarms(store.findings) == []

    run(test)


@pytest.mark.parametrize("seed", range(4))
def test_a_disk_that_flips_loses_and_misplaces_writes(seed: int) -> None:
    """Flips are undone as they are read; lost and misplaced writes are healed from the journal, or named."""

    async def test() -> None:
        rng = random.Random(seed)
        drive = new_drive()
        model = Model()
        flips = DiskFault(("write",), Flip(1), glob="*.seg", chance=0.3)
        drive.faults.append(flips)
        async with open_store(drive) as store:
            for step in range(40):
                body = draw_entry(rng, store.log)
                await model.add(body)
                await store.propose(body)
                assert await state_of(store.log) == model.states[-1]
                if step == 20:
                    await store.checkpoint()
            check_runs(store.log, model.states[-1][0])
        assert flips.fired
        async with open_store(drive) as store:
            assert await state_of(store.log) == model.states[-1]
            assert alarms(store.findings) == []
            wrong = DiskFault(
                ("write",), rng.choice((Lose(), Misdirect(offset=8192), Flip(9))), glob="*.seg", chance=0.5
            )
            drive.faults[:] = [wrong]
            for _ in range(20):
                body = draw_entry(rng, model.log)
                await model.add(body)
                await store.propose(body)
            expected = model.states[-1][0]
            for sequence, message in (await content(store.log)).items():
                assert message == expected[sequence]
            drive.faults.clear()
        async with open_store(drive) as store:
            found = await content(store.log)
            check_runs(store.log, found)
            assert all(expected[sequence] == message for sequence, message in found.items())
            assert found == expected or alarms(store.findings)

    run(test)


def test_damage_is_healed_from_the_journal() -> None:
    """As long as the journal still has the entries, damaged or missing segments cost nothing."""

    async def test() -> None:
        drive = new_drive()
        model = Model()
        async with open_store(drive) as store:
            for sequence in range(1, 9):
                body = json.dumps({"do": "append", "messages": [(sequence, 1, "s", "", "x" * 50)]}).encode()
                await model.add(body)
                await store.propose(body)
        for path in drive.image.walk("/store/stream"):
            for harm in range(3):
                after = drive.image.clone()
                if harm == 0:
                    after.remove(path)
                elif harm == 1:
                    after.cut(path, 9000 - 700)
                else:
                    after.overwrite(path, b"?" * 100, 8300)
                await check(after, model, 8)

    run(test)


# ------------------------------------------------------------------ memory as the measure


def next_form(form: Form, rng: random.Random) -> Form:
    """The form of the next life: the same, packed or not, or under another key that follows on the last one."""
    if rng.random() < 0.4:
        return form
    is_packing = rng.random() < 0.5
    if form.encryption is None and rng.random() < 0.5:
        return attrs.evolve(form, is_packing=is_packing)
    last = "" if form.encryption is None else form.encryption.key
    key = rng.choice((last, f"key {rng.random()}")) or "key"
    return Form("next", Encryption(key, rng.choice(list(Cipher)), last), is_packing)


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 100))])
def test_file_and_memory_agree(seed: int) -> None:
    """Any entries, segment size, checkpoints, kills and reopenings, packed or not, encrypted under changing keys: every
    question has the answer that memory gives.
    """

    async def test() -> None:
        rng = random.Random(seed)
        drive = new_drive()
        memory = MemoryLog()
        drive.cold = rng.choice((0.0, 0.5, 1.0))
        form, is_settled = PLAIN, True
        for life in range(6):
            form = next_form(form, rng) if is_settled else form
            size = rng.choice((8300, 9000, 20000))
            async with open_store(drive, seed=life, segment_bytes=size, form=form) as store:
                for _ in range(rng.randrange(30)):
                    body = draw_entry(rng, memory)
                    await apply(memory, body)
                    await store.propose(body)
                    if rng.random() < 0.1:
                        await store.checkpoint()
                    if rng.random() < 0.05:
                        await store.log.rewrite()
                await compare(store.log, memory, rng)
                is_settled = rng.random() < 0.7
                if is_settled:
                    while await store.log.rewrite():
                        pass
                    await store.checkpoint()
                    await compare(store.log, memory, rng)
            if rng.random() < 0.5:
                drive.power_loss(rng.choice(list(CrashPolicy)))
        assert alarms(store.findings) == []

    run(test)


async def compare(file: MessageLog, memory: MessageLog, rng: random.Random) -> None:
    """All answers of both logs."""
    one, two = file.index, memory.index
    assert await state_of(file) == await state_of(memory)
    for log in (file, memory):
        check_runs(log, await content(memory))
    assert (one.messages, one.first, one.last, one.subjects()) == (two.messages, two.first, two.last, two.subjects())
    assert one.absent(0, one.last, 1) == two.absent(0, two.last, 1)
    assert one.bytes - 14 * one.messages == two.bytes + 4 * sum(bool(m[2]) for m in (await content(memory)).values())
    assert file.last_time_ns == memory.last_time_ns or not one.messages
    for _ in range(10):
        at = rng.randint(max(0, one.start - 1), one.last + 2)
        for wanted in (None, b"a", b"b.c", Such(lambda subject: subject.startswith(b"d"), (b"d",))):
            if isinstance(wanted, bytes):
                assert one.next(wanted, at) == two.next(wanted, at)
            assert one.count(wanted, at) == two.count(wanted, at)
            assert one.last_of(wanted, at) == two.last_of(wanted, at)
            assert one.lasts(wanted, at) == two.lasts(wanted, at)
        live = await content(memory)
        for log in (file, memory):
            if at not in live:
                with pytest.raises(KeyError):
                    await log.load(at)
