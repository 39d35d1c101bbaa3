"""The disk model: which contents small programs can find after a crash, and independence of clones."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tnats.runtime.sim.disk_image import CrashPolicy, DiskImage


def outcomes(program: Callable[[DiskImage], None], policy: CrashPolicy, tries: int = 300) -> set[str]:
    """Everything that is found after the program and a crash, as "name=content name=content"."""
    image = DiskImage()
    program(image)
    found = set()
    for seed in range(tries):
        after = image.clone()
        after.crash(policy, random.Random(seed))
        found.add(" ".join(f"{path[1:]}={after.content(path).decode()}" for path in after.walk()))
    return found


def save(image: DiskImage, path: str, data: bytes, *, sync: bool = True, sync_names: bool = True) -> None:
    number = image.create(path)
    image.write(number, data, 0)
    if sync:
        image.sync_file(number)
    if sync_names:
        image.sync_directory(image.directory("/"))


def replace_well(image: DiskImage) -> None:
    save(image, "/state", b"old")
    save(image, "/tmp", b"new", sync_names=False)
    image.rename("/tmp", "/state")
    image.sync_directory(image.directory("/"))


def replace_without_directory_sync(image: DiskImage) -> None:
    save(image, "/state", b"old")
    save(image, "/tmp", b"new", sync_names=False)
    image.rename("/tmp", "/state")


def replace_without_sync(image: DiskImage) -> None:
    save(image, "/state", b"old")
    save(image, "/tmp", b"new", sync=False, sync_names=False)
    image.rename("/tmp", "/state")


def two_appends(image: DiskImage) -> None:
    save(image, "/log", b"a")
    number = image.file("/log")
    image.write(number, b"b", 1)
    image.write(number, b"c", 2)


@pytest.mark.parametrize("policy", CrashPolicy)
def test_synced_content_and_names_survive_every_crash(policy: CrashPolicy) -> None:
    """The classic atomic replacement (write, sync, rename, sync directory) leaves exactly the new content."""
    assert outcomes(replace_well, policy, 50) == {"state=new"}


def test_rename_without_directory_sync_may_revert() -> None:
    """The old state, the old state with the temporary file, or the new one: never anything else."""
    assert outcomes(replace_without_directory_sync, CrashPolicy.STRICT) == {"state=old"}
    assert outcomes(replace_without_directory_sync, CrashPolicy.LAZYFS) == {"state=new"}
    possible = {"state=old", "state=old tmp=new", "state=new"}
    assert outcomes(replace_without_directory_sync, CrashPolicy.SUBSET) == possible
    assert outcomes(replace_without_directory_sync, CrashPolicy.PREFIX) == possible
    assert outcomes(replace_without_directory_sync, CrashPolicy.NAMES) == {"state=old"}


def test_rename_without_sync_may_show_an_empty_file() -> None:
    """A name may outlive its content."""
    assert outcomes(replace_without_sync, CrashPolicy.LAZYFS) == {"state="}
    assert "state=" in outcomes(replace_without_sync, CrashPolicy.SUBSET)
    assert outcomes(replace_without_sync, CrashPolicy.ALL) == {"state=new"}
    shown = outcomes(replace_without_sync, CrashPolicy.LENGTH)
    assert shown <= {"state=\0\0\0", "state=old"}
    assert "state=\0\0\0" in shown


def test_unsynced_appends_in_every_order() -> None:
    """Reordering may keep the second append without the first, with a hole of zeros; a prefix may not."""
    assert outcomes(two_appends, CrashPolicy.SUBSET) == {"log=a", "log=ab", "log=abc", "log=a\0c"}
    assert outcomes(two_appends, CrashPolicy.PREFIX) == {"log=a", "log=ab", "log=abc"}
    assert outcomes(two_appends, CrashPolicy.STRICT) == {"log=a"}


def test_torn_writes_are_cut_at_sectors() -> None:
    """Each 512-byte sector of an unsynced write is there or not, independently."""

    def program(image: DiskImage) -> None:
        save(image, "/log", b"a" * 1024)
        image.write(image.file("/log"), b"b" * 1024, 0)

    found = {text.removeprefix("log=") for text in outcomes(program, CrashPolicy.TORN)}
    assert found == {first * 512 + second * 512 for first in "ab" for second in "ab"}


def test_a_name_needs_its_earlier_changes() -> None:
    """Remove and create again under one name: both, the removal alone, or neither, never the new beside the old."""

    def program(image: DiskImage) -> None:
        save(image, "/x", b"old")
        image.remove("/x")
        save(image, "/x", b"new", sync_names=False)

    assert outcomes(program, CrashPolicy.SUBSET) == {"x=old", "", "x=new"}


def test_directory_sync_brings_what_the_name_needs() -> None:
    """A rename into a synced directory is durable with the creation in the other directory that it rests on."""

    def program(image: DiskImage) -> None:
        image.make_directory("/d")
        image.sync_directory(image.directory("/"))
        number = image.create("/a")
        image.write(number, b"1", 0)
        image.sync_file(number)
        image.rename("/a", "/d/a")
        image.sync_directory(image.directory("/d"))

    assert outcomes(program, CrashPolicy.STRICT) == {"d/a=1"}


def test_sync_covers_what_was_written_before_it() -> None:
    """A write made after a sync was asked for is not part of it."""
    image = DiskImage()
    number = image.create("/log")
    image.write(number, b"a", 0)
    before = image.operation_count
    image.write(number, b"b", 1)
    image.sync_file(number, before)
    image.sync_directory(image.directory("/"))
    assert image.has_pending(number)
    image.crash(CrashPolicy.STRICT, random.Random(0))
    assert image.content("/log") == b"a"


def test_a_copy_stays_whatever_was_under_way_with_its_name() -> None:
    """A file put beside another is there after the directory's sync and after a crash, also where its name was
    removed or used just before; and it can be replaced like any file.
    """

    def removed(image: DiskImage) -> None:
        save(image, "/copy", b"old")
        image.remove("/copy")

    def renamed(image: DiskImage) -> None:
        save(image, "/copy", b"old")
        image.rename("/copy", "/away")

    def replaced(image: DiskImage) -> None:
        save(image, "/next", b"old")
        image.rename("/next", "/copy")

    for use in (removed, renamed, replaced):
        for policy in (None, *CrashPolicy):
            image = DiskImage()
            save(image, "/f", b"content")
            use(image)
            image.duplicate("/f", "/copy")
            if policy is None:
                image.sync_directory(image.directory("/"))
                image.forget_unnamed({})
            else:
                image.crash(policy, random.Random(0))
            assert image.content("/copy") == b"content", (use, policy)
            image.rename("/f", "/copy")
            image.sync_directory(image.directory("/"))
            image.crash(CrashPolicy.STRICT, random.Random(0))
            assert image.content("/copy") == b"content", (use, policy)


def test_clones_are_independent() -> None:
    """Whatever is done to one of two clones never shows in the other; random programs on both agree with a rerun."""

    def step(image: DiskImage, rng: random.Random) -> None:
        path = f"/f{rng.randrange(4)}"
        choice = rng.randrange(6)
        if not image.is_file(path):
            image.create(path)
        number = image.file(path)
        if choice < 2:
            image.write(number, rng.randbytes(rng.choice((1, 100, 5000))), rng.randrange(9000))
        elif choice == 2:
            image.resize(number, rng.randrange(9000))
        elif choice == 3:
            image.rename(path, f"/f{rng.randrange(4)}")
        elif choice == 4:
            image.sync_file(number)
        else:
            image.sync_directory(image.directory("/"))

    def state(image: DiskImage) -> list[tuple[str, bytes]]:
        after = image.clone()
        after.crash(CrashPolicy.STRICT, random.Random(0))
        return [(path, of.content(path)) for of in (image, after) for path in of.walk()]

    def play(script: list[int]) -> DiskImage:
        image = DiskImage()
        for seed in script:
            step(image, random.Random(seed))
        return image

    for seed in range(30):
        rng = random.Random(seed)
        common, left, right = ([rng.randrange(10**9) for _ in range(20)] for _ in range(3))
        one = play(common)
        two = one.clone()
        for a, b in zip(left, right, strict=True):
            step(one, random.Random(a))
            step(two, random.Random(b))
        assert state(one) == state(play(common + left))
        assert state(two) == state(play(common + right))
        assert one.used_bytes == sum(size for _, _, size in one.entries("/"))
