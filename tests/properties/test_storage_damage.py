"""Damage of every kind at every place of a small store: all that is undamaged is served, and what is not is named.

The store is as small as it can be and has everything: two streams with removed and erased messages, one that is gone,
a log of another kind that takes leases, removals that only the journal tells of since the disk was full, parts with and
without an end of their own, all forms of files. A test says that it has every kind of record.
"""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from tests.properties.storage_bench import FORMS, Form, StepClock, run

from tnats.limits import SECOND_NS
from tnats.runtime.sim.disk import SimDisk, SimDrive
from tnats.runtime.sim.disk_faults import damage_bit
from tnats.runtime.sim.disk_image import CrashPolicy, DiskImage
from tnats.storage import hot, record, segment
from tnats.storage.errors import DataDamaged, StoreRefused
from tnats.storage.journal import JournalOptions
from tnats.storage.marker import MARKER_OFFSETS, MARKER_SEED
from tnats.storage.message_log import Message
from tnats.storage.record import Finding
from tnats.storage.store import OpenStream, Store, StoreOptions
from tnats.storage.store_open import open_store
from tnats.storage.stream_log import StreamLogOptions

SHARE = os.environ.get("TNATS_SHARE", "1/1")
"""k/n: a run of the slow tests takes every n-th damage from the k-th on."""

Recorder = Callable[[str, object], None]
FULL = [pytest.mark.slow, pytest.mark.timeout(7200)]
WITH_FORMS = pytest.mark.parametrize(
    ("form", "stride"),
    [*((form, 331) for form in FORMS), *(pytest.param(form, 1, marks=FULL) for form in FORMS)],
    ids=lambda value: value.name if isinstance(value, Form) else str(value),
)


# ------------------------------------------------------------------ a small store


@attrs.define
class Small:
    """A store at rest, what it holds, and the last sequences that were given out."""

    form: Form
    image: DiskImage
    content: dict[str, dict[int, bytes]]
    last: dict[str, int]
    leased: int
    """The lease of group "c"."""


@asynccontextmanager
async def store_on(
    drive: SimDrive, form: Form, seed: int, *, sync_interval_ns: int = 0, is_kept_short: bool = True
) -> AsyncIterator[Store]:
    """`is_kept_short`: old parts of the journal go when they may."""
    clock = StepClock()
    options = StoreOptions(
        JournalOptions(16 * 1024, sync_interval_ns), StreamLogOptions(8192 + 200, compact_below=0.2), form.encryption
    )
    entropy = random.Random(seed).randbytes
    store = await open_store(SimDisk(drive, clock), clock, entropy, "/data", boot_id="boot", options=options)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run if is_kept_short else store.journal.run)
        try:
            yield store
        finally:
            store.stop()
    await store.close()


async def opened(store: Store, name: str, form: Form) -> OpenStream:
    stream = await store.open_stream(name)
    stream.log.is_packing = form.is_packing
    for entry in await stream.commit.replay():
        if entry.body is not None:
            await apply(stream, entry.index, bytes(entry.body))
        stream.applied = entry.index
    stream.log.end_recovery()
    return stream


async def apply(stream: OpenStream, index: int, body: bytes) -> None:
    """`SEQUENCE PAYLOAD` appends, `-SEQUENCE` removes and erases."""
    sequence, _, payload = body.partition(b" ")
    if sequence.startswith(b"-"):
        stream.log.remove([int(sequence[1:])])
    else:
        await stream.log.append([Message(int(sequence), int(sequence), b"sub.%s" % sequence, b"", payload)])
    stream.applied = index


async def propose(stream: OpenStream, body: bytes) -> None:
    await stream.commit.propose_nowait([body]).wait()
    for entry in await stream.commit.committed():
        assert entry.body is not None
        await apply(stream, entry.index, bytes(entry.body))


def payload(name: str, sequence: int) -> bytes:
    return b"%s-%d " % (name.encode(), sequence) * 4


async def small_store(form: Form) -> Small:
    drive = SimDrive(random.Random(1))
    content: dict[str, dict[int, bytes]] = {"a": {}, "b": {}}
    last = {"a": 0, "b": 0}

    async def add(*streams: OpenStream) -> None:
        for stream in streams:
            name = stream.name
            last[name] += 1
            content[name][last[name]] = payload(name, last[name])
            await propose(stream, b"%d %s" % (last[name], payload(name, last[name])))

    async def remove(stream: OpenStream, sequence: int) -> None:
        del content[stream.name][sequence]
        await propose(stream, b"-%d" % sequence)

    async with store_on(drive, form, 1, sync_interval_ns=SECOND_NS) as store:
        a, b = await opened(store, "a", form), await opened(store, "b", form)
        await add(a, a, a, a, b, b)
        await propose(await opened(store, "gone", form), b"1 gone")
        await remove(a, 2)
        await remove(a, 3)
        await remove(b, 1)
        await a.checkpoint()
        await b.checkpoint()
        await store.journal.group("c").append_nowait([b"state of a consumer"], sequence=1).wait()
        await store.drop_group("gone")
        await add(b)
    async with store_on(drive, form, 2, is_kept_short=False) as store:
        a, b = await opened(store, "a", form), await opened(store, "b", form)
        await add(a)
        await a.checkpoint()
        await leave_gaps_to_the_journal(store, a, drive, add, remove)
        current = b.log.files.current
        while b.log.files.current is current:
            await add(b)
        await remove(b, last["b"])  # the only one in its segment, which stays since it is the current one
        await b.checkpoint()
        first = store.journal.parts.current
        store.journal.look_for_room()
        while store.journal.parts.current is first:
            await trio.lowlevel.checkpoint()
        leased = store.journal.group("c").state.leased
    return Small(form, drive.image, content, last, leased)


async def leave_gaps_to_the_journal(
    store: Store,
    stream: OpenStream,
    drive: SimDrive,
    add: Callable[[OpenStream], Awaitable[None]],
    remove: Callable[[OpenStream, int], Awaitable[None]],
) -> None:
    """A segment that tells of other removals dies on a full disk."""
    files, index = stream.log.files, stream.log.index
    telling = next(each for each in files.segments.values() if each.lowest < 3)  # of the second and the third
    while telling is files.current:
        await add(stream)
    for sequence, _ in list(index.standing(telling.number, telling.lowest, telling.highest)):
        await remove(stream, sequence)
    capacity_bytes, drive.capacity_bytes = drive.capacity_bytes, drive.image.used_bytes
    await stream.log.free(stream.commit.group)
    drive.capacity_bytes = capacity_bytes
    assert store.journal.group(stream.name).state.gaps


@attrs.define
class Outcome:
    served: dict[str, dict[int, bytes]]
    unreadable: dict[str, list[int]]
    findings: list[Finding]
    health: list[str]


async def reopen(small: Small, image: DiskImage) -> Outcome:
    """Open a damaged store and read everything. Nothing is invented, no sequence is used again, losses are named."""
    drive = SimDrive(random.Random(1))
    drive.image = image
    served: dict[str, dict[int, bytes]] = {}
    unreadable: dict[str, list[int]] = {}
    async with store_on(drive, small.form, 9) as store:
        for name, content in small.content.items():
            log = (await opened(store, name, small.form)).log
            served[name], unreadable[name] = {}, []
            for sequence in range(1, small.last[name] + 1):
                try:
                    served[name][sequence] = (await log.load(sequence)).payload
                except KeyError:
                    pass
                except DataDamaged:
                    unreadable[name].append(sequence)
            assert served[name].items() <= content.items(), name
            assert log.index.last >= small.last[name], f"{name} uses sequence {log.index.last + 1} again"
        entries = store.journal.group("c")
        if entries.floor < 1:
            try:
                assert (await entries.read(1)).body == b"state of a consumer"
            except (DataDamaged, KeyError):
                assert store.health()
        assert entries.state.leased == small.leased or store.health()
        assert "gone" not in store.stream_names or store.health()
        outcome = Outcome(served, unreadable, store.findings, store.health())
    for name, content in small.content.items():
        missing = content.keys() - served[name].keys()
        assert missing <= set(unreadable[name]), f"{missing} of {name} are passed over in silence"
        if missing or unreadable[name]:
            assert outcome.health, f"{name}: nobody is told of {missing}"
    return outcome


# ------------------------------------------------------------------ where what stands


def record_ranges(image: DiskImage, path: str) -> list[tuple[int, int, int]]:
    """(start, end, kind) of the records of a file, headers and promise slots too. An erased one ends with its front."""
    data = bytearray(image.content(path))
    found: list[tuple[int, int, int]] = []

    def at(offset: int, seed: int) -> None:
        taken = record.unpack(data, offset, 0, seed)
        if taken is not None:
            found.append((offset, offset + taken.size, taken.kind))

    if path.endswith("/marker"):
        for offset in MARKER_OFFSETS:
            at(offset, MARKER_SEED)
        return found
    for offset in segment.HEADER_OFFSETS:
        at(offset, segment.HEADER_SEED)
    header = record.unpack(data, 0, 0, segment.HEADER_SEED)
    if header is None:
        return found
    _, role, _, seed, _ = segment._BODY.unpack_from(header.body)
    if role == segment.JOURNAL:
        for offset in segment.SLOT_OFFSETS:
            at(offset, seed)
    for each in segment.scan(data, seed, path).records:
        size = hot.HEADER_SIZE if each[2] == hot.ERASED else each[1]
        found.append((each[0], each[0] + size, each[2]))
    return found


def bits_in_records(image: DiskImage, path: str) -> list[int]:
    """Every bit of every record that counts; of long fillers, the front and some of the rest."""
    bits: list[int] = []
    for start, end, kind in record_ranges(image, path):
        if is_superseded(path, kind):
            continue
        front = min(end, start + hot.HEADER_SIZE) if kind == record.PAD else end
        bits += range(8 * start, 8 * front)
        bits += range(8 * front, 8 * end, 1021)
    return bits


def bits_outside(image: DiskImage, path: str) -> list[int]:
    """Bits that belong to no record that counts, near to one: padding, and the empty room behind."""
    ranges = record_ranges(image, path)
    inside = {byte for start, end, kind in ranges if not is_superseded(path, kind) for byte in range(start, end)}
    near = {byte + step for byte in inside for step in range(-8, 9)} - inside
    near.update(byte for start, end, kind in ranges if is_superseded(path, kind) for byte in range(start, end))
    return [8 * byte + byte % 8 for byte in sorted(near) if 0 <= byte < image.size(image.file(path))]


def is_superseded(path: str, kind: int) -> bool:
    """Where a part of the journal ends is told by the next one, which is there."""
    return kind == record.FOOTER and path.endswith(".part")


def shared(damages: list[int], stride: int) -> list[int]:
    """The damages that this run tries."""
    if stride > 1:
        return damages[len(damages) % stride :: stride]
    number, _, count = SHARE.partition("/")
    return damages[int(number) - 1 :: int(count)]


def files(image: DiskImage) -> Iterator[str]:
    for path in image.walk("/data"):
        if not path.endswith(".lock"):
            yield path


# ------------------------------------------------------------------ the sweeps


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_the_store_has_every_kind_of_record(form: Form) -> None:
    """What the format has is swept, each kind in every file that may have it; a snapshot has tests of its own."""

    async def test() -> None:
        small = await small_store(form)
        found: dict[str, set[int]] = {}
        for path in files(small.image):
            sort = path.rpartition(".")[2] if "." in path else path.rpartition("/")[2]
            found.setdefault(sort, set()).update(kind for _, _, kind in record_ranges(small.image, path))
        header = {record.HEADER}
        assert found.pop("identity") == header
        assert found.pop("marker") == {record.MARKER}
        assert found.pop("used") == header | {record.USED, record.PAD}
        journal = {record.SLOT, record.ENTRY, record.GROUP, record.DROP, record.LEASE, record.GAP, record.SEAL}
        assert found.pop("part") == header | journal | {record.PAD, record.FOOTER}
        stream = {record.MESSAGE, hot.ERASED, record.GAP, record.FOOTER}
        packed = {record.PACKED, record.DICTIONARY, record.PAD} if form.is_packing else set()
        assert found.pop("seg") == header | stream | packed
        assert not found
        swept = {record.MARKER, record.USED, record.PACKED, record.DICTIONARY} | header | journal | stream
        assert swept | {record.PAD, record.CHUNK} == record.KINDS

    run(test)


@WITH_FORMS
def test_every_bit(form: Form, stride: int, record_property: Recorder) -> None:
    """Whichever bit of a record or header flips, every message is served and the correction reported, without alarm."""

    async def test() -> None:
        small = await small_store(form)
        tried = 0
        for path in files(small.image):
            for bit in shared(bits_in_records(small.image, path), stride):
                image = small.image.clone()
                damage_bit(image, path, bit)
                outcome = await reopen(small, image)
                assert outcome.served == small.content, (path, bit)
                assert outcome.health == [], (path, bit)
                corrected = [finding for finding in outcome.findings if finding.kind == "corrected"]
                assert [finding.path for finding in corrected] == [path] * len(corrected)
                assert corrected, (path, bit)
                tried += 1
        record_property("bits", tried)

    run(test)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_corrections_are_written_back(form: Form) -> None:
    """A bit that was put right is right on the medium too, so that the next flip finds no other."""

    async def test() -> None:
        small = await small_store(form)
        for path in files(small.image):
            if path.endswith(("/marker", "/used")):
                continue  # written anew at every start, or at its clean end
            for bit in (8 * 20, 8 * (4096 + 20), *([] if path.endswith("/identity") else [8 * (8192 + 20)])):
                drive = SimDrive(random.Random(1))
                drive.image = small.image.clone()
                damage_bit(drive.image, path, bit)
                async with store_on(drive, form, 9) as store:
                    streams = [await opened(store, name, form) for name in small.content]
                    for stream in streams:
                        await stream.checkpoint()
                    kept = drive.image.clone()
                if kept.is_file(path):
                    kept.crash(CrashPolicy.STRICT, random.Random(1))
                    right = small.image.content(path)
                    assert kept.content(path)[bit // 8] == right[bit // 8], (path, bit)

    run(test)


@WITH_FORMS
def test_every_bit_of_padding(form: Form, stride: int, record_property: Recorder) -> None:
    """Bits between and behind records have no effect."""

    async def test() -> None:
        small = await small_store(form)
        tried = 0
        for path in files(small.image):
            for bit in shared(bits_outside(small.image, path), max(1, stride // 10)):
                image = small.image.clone()
                damage_bit(image, path, bit)
                outcome = await reopen(small, image)
                assert outcome.served == small.content, (path, bit)
                assert outcome.health == [], (path, bit)
                tried += 1
        record_property("bits", tried)

    run(test)


def standing(image: DiskImage, small: Small, path: str, end: int) -> dict[str, set[int]]:
    """By stream, the messages whose records in a segment file lie before `end`."""
    name = {1: "a", 2: "b"}.get(int(path.split("/")[4]), "") if "/streams/" in path else ""
    data = bytearray(image.content(path))
    header = record.unpack(data, 0, 0, segment.HEADER_SEED)
    if not name or header is None or end < segment.DATA_START:
        return {}
    seed = segment._BODY.unpack_from(header.body)[3]
    found = segment.scan(data, seed, path).records
    return {
        name: {each[4] for each in found if each[2] in (record.MESSAGE, record.PACKED) and each[0] + each[1] <= end}
    }


def elsewhere(image: DiskImage, small: Small, path: str) -> dict[str, set[int]]:
    """By stream, the messages that a segment other than `path` has."""
    found: dict[str, set[int]] = {}
    for other in files(image):
        if other != path and "/streams/" in other:
            for name, sequences in standing(image, small, other, 1 << 30).items():
                found.setdefault(name, set()).update(sequences)
    return found


def missing(small: Small, outcome: Outcome) -> dict[str, set[int]]:
    return {name: content.keys() - outcome.served[name].keys() for name, content in small.content.items()}


@WITH_FORMS
def test_every_byte(form: Form, stride: int, record_property: Recorder) -> None:
    """Whichever byte is overwritten, at most the one message that it belongs to is missing, and named."""

    async def test() -> None:
        small = await small_store(form)
        rng = random.Random(2)
        tried = lost = 0
        for path in files(small.image):
            content = small.image.content(path)
            for offset in shared(sorted({bit // 8 for bit in bits_in_records(small.image, path)}), max(1, stride // 2)):
                image = small.image.clone()
                wrong = rng.choice([value for value in range(256) if (value ^ content[offset]).bit_count() > 1])
                image.overwrite(path, bytes([wrong]), offset)
                gone = missing(small, await reopen(small, image))
                assert sum(map(len, gone.values())) <= 1, (path, offset, gone)
                tried += 1
                lost += sum(map(len, gone.values()))
        record_property("bytes", tried)
        record_property("messages lost and named", lost)

    run(test)


@WITH_FORMS
def test_every_length(form: Form, stride: int, record_property: Recorder) -> None:
    """However short a file is cut, what stands before the cut and in all other files is served."""

    async def test() -> None:
        small = await small_store(form)
        tried = 0
        for path in files(small.image):
            size = small.image.size(small.image.file(path))
            whole = elsewhere(small.image, small, path)
            ends = sorted({end for start, stop, _ in record_ranges(small.image, path) for end in range(start, stop)})
            for length in shared(ends, max(1, stride // 2)):
                image = small.image.clone()
                image.cut(path, min(length, size - 1))
                if path.endswith("/identity") and length < record_ranges(small.image, path)[0][1]:
                    with pytest.raises(StoreRefused):
                        await reopen(small, image)
                    continue
                gone = missing(small, await reopen(small, image))
                before = standing(small.image, small, path, length)
                for name, sequences in gone.items():
                    assert not sequences & whole.get(name, set()), (path, length, gone)
                    assert not sequences & before.get(name, set()), (path, length, gone)
                tried += 1
        record_property("lengths", tried)

    run(test)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_every_file_that_is_not_what_it_was(form: Form) -> None:
    """A file is gone, empty, an older state of itself, shifted in part, exchanged with another, or a copy of another:
    what all the others hold is served, and what is missing is named.
    """

    async def test() -> None:
        small = await small_store(form)
        paths = [path for path in files(small.image) if "/streams/" in path or "/journal/" in path]
        tried = 0
        for path in paths:
            whole = elsewhere(small.image, small, path)
            for harm in ("gone", "empty", "older", "shifted"):
                image = small.image.clone()
                if harm == "gone":
                    image.remove(path)
                elif harm == "empty":
                    image.cut(path, 0)
                elif harm == "older":
                    image.cut(path, max(8192, record_ranges(small.image, path)[-2][0]))
                else:
                    data = image.content(path)
                    image.overwrite(path, data[8192:8704], 8704)
                gone = missing(small, await reopen(small, image))
                for name, sequences in gone.items():
                    assert not sequences & whole.get(name, set()), (path, harm, gone)
                tried += 1
            for partner in paths:
                if partner == path:
                    continue
                for harm in ("swapped", "copied"):
                    image = small.image.clone()
                    if harm == "swapped":
                        image.swap(path, partner)
                        both = [elsewhere(small.image, small, each) for each in (path, partner)]
                    else:
                        image.remove(path)
                        image.duplicate(partner, path)
                        both = [whole, whole]
                    gone = missing(small, await reopen(small, image))
                    for name, sequences in gone.items():
                        kept = both[0].get(name, set()) & both[1].get(name, set())
                        assert not sequences & kept, (path, partner, harm, gone)
                    tried += 1
        assert tried > 30

    run(test)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_misdirected_writes(form: Form) -> None:
    """Any 512 bytes of one file over any place of another: never taken for what belongs there."""

    async def test() -> None:
        small = await small_store(form)
        rng = random.Random(4)
        paths = [path for path in files(small.image) if "/streams/" in path or "/journal/" in path]
        for _ in range(60):
            source, target = rng.choice(paths), rng.choice(paths)
            data = small.image.content(source)
            start = 8 * rng.randrange(1024, max(1025, len(data.rstrip(b"\0")) // 8))
            image = small.image.clone()
            place = 8 * rng.randrange(1024, small.image.size(small.image.file(target)) // 8)
            image.overwrite(target, data[start : start + 512], place)
            gone = missing(small, await reopen(small, image))
            whole = elsewhere(small.image, small, target)
            for name, sequences in gone.items():
                assert not sequences & whole.get(name, set()), (source, start, target, place)

    run(test)
