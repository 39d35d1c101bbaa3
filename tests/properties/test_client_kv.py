"""A key-value bucket against a model, in simulated worlds: values, revisions, refusals, and what watchers see."""

from __future__ import annotations

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.jetstream.service_world import Stage, play

from tnats.client import ConnectionLost, ConnectOptions, NoResponders, TimedOut, connect
from tnats.client.jetstream import JetStream, WrongLastSequence
from tnats.client.kv import (
    BucketConfig,
    Entry,
    KeyDeleted,
    KeyExists,
    KeyNotFound,
    KeyValue,
    Operation,
    create_bucket,
    open_bucket,
)

OPTIONS: ConnectOptions = {"reconnect_attempts_max": None}
KEYS = ("a", "b.x", "b.y")
PATTERNS = {"": KEYS, "a": ("a",), "b.*": ("b.x", "b.y"), "*.x": ("b.x",)}

Brief = tuple[str, bytes, int, Operation]


def brief(entry: Entry) -> Brief:
    return entry.key, entry.value, entry.revision, entry.operation


@attrs.frozen
class Step:
    """One call. `stale`: an update or removal expects another revision than the newest."""

    verb: str
    key: str = "a"
    stale: bool = False
    pattern: str = ""
    option: str = ""


steps = st.one_of(
    st.builds(
        Step,
        st.sampled_from(["put", "create", "update", "delete", "remove if", "purge", "get", "history"]),
        st.sampled_from(KEYS),
        st.booleans(),
    ),
    st.builds(
        Step,
        st.just("watch"),
        pattern=st.sampled_from(list(PATTERNS)),
        option=st.sampled_from(["", "include_history", "ignore_deletes", "updates_only"]),
    ),
    st.just(Step("restart")),
)


class Model:
    """The bucket as it must be: the kept entries in the order of their revisions."""

    def __init__(self, history: int) -> None:
        self.history = history
        self.revision = 0
        self.kept: list[Brief] = []
        self.all: list[Brief] = []

    def of(self, key: str) -> list[Brief]:
        return [entry for entry in self.kept if entry[0] == key]

    def newest(self, key: str) -> int:
        found = self.of(key)
        return found[-1][2] if found else 0

    def live(self, key: str) -> bool:
        found = self.of(key)
        return bool(found) and found[-1][3] is Operation.PUT

    def write(self, key: str, value: bytes, operation: Operation) -> None:
        self.revision += 1
        entry = (key, value, self.revision, operation)
        self.all.append(entry)
        gone = self.of(key) if operation is Operation.PURGE else self.of(key)[: -self.history + 1 or None]
        self.kept = [kept for kept in self.kept if kept not in gone] + [entry]

    def seen(self, step: Step) -> list[Brief | None]:
        """What a watch that begins now gives up to its None."""
        if step.option == "updates_only":
            return []
        entries = [entry for entry in self.kept if entry[0] in PATTERNS[step.pattern]]
        if step.option != "include_history":
            entries = [entry for entry in entries if entry[2] == self.newest(entry[0])]
        if step.option == "ignore_deletes":
            entries = [entry for entry in entries if entry[3] is Operation.PUT]
        return [*entries, None]

    def seen_after(self, step: Step, revision: int) -> list[Brief]:
        """What it gives then: a change that is overwritten before it was sent may be missing, so all of them."""
        later = [entry for entry in self.all if entry[2] > revision and entry[0] in PATTERNS[step.pattern]]
        return [entry for entry in later if step.option != "ignore_deletes" or entry[3] is Operation.PUT]


async def perform(kv: KeyValue, model: Model, step: Step, value: bytes) -> None:
    """Make the call and hold its outcome against the model."""
    key, newest = step.key, model.newest(step.key)
    expected = newest + 1 if step.stale else newest
    refused = False
    revision = None
    try:
        match step.verb:
            case "put":
                revision = await kv.put(key, value)
            case "create":
                revision = await kv.create(key, value)
            case "update":
                revision = await kv.update(key, value, expected)
            case "delete":
                revision = await kv.delete(key)
            case "remove if":
                revision = await kv.delete(key, last_revision=expected)
            case "purge":
                revision = await kv.purge(key)
    except (WrongLastSequence, KeyExists):
        refused = True
    must_refuse = model.live(key) if step.verb == "create" else step.stale and step.verb in ("update", "remove if")
    assert refused == must_refuse
    if not refused:
        operation = {"delete": Operation.DELETE, "remove if": Operation.DELETE, "purge": Operation.PURGE}.get(
            step.verb, Operation.PUT
        )
        model.write(key, value if operation is Operation.PUT else b"", operation)
        assert revision == model.revision


async def read(kv: KeyValue, model: Model, step: Step) -> None:
    """Read a key, and hold it against the model."""
    found = model.of(step.key)
    if step.verb == "history":
        try:
            assert [brief(entry) for entry in await kv.history(step.key)] == found
        except KeyNotFound:
            assert not found
        return
    mark: Entry | None
    try:
        assert brief(await kv.get(step.key, from_leader=step.stale)) == found[-1]
        assert model.live(step.key)
    except KeyDeleted as deleted:
        mark = deleted.entry
    except KeyNotFound:
        mark = None
    else:
        return
    assert (brief(mark) if mark else None) == (found[-1] if found else None)
    assert not model.live(step.key)


@attrs.define
class Seen:
    """What a watcher must see: `present` and then, of `later`, everything that it is not too late for."""

    step: Step
    began_at: int
    present: list[Brief | None]
    got: list[Brief | None] = attrs.Factory(list)


async def scene(stage: Stage, history: int, plan: list[Step]) -> None:
    async with (
        connect("nats://server", runtime=stage.runtime, **OPTIONS) as client,
        trio.open_nursery() as nursery,
    ):
        kv = await create_bucket(JetStream(client), BucketConfig("k", history=history))
        model = Model(history)
        watchers: list[Seen] = []

        async def watch(seen: Seen, began: trio.Event) -> None:
            options = {seen.step.option: True} if seen.step.option else {}
            filters = [seen.step.pattern] if seen.step.pattern else []
            async with kv.watch(*filters, **options) as entries:
                while len(seen.got) < len(seen.present):
                    entry = await anext(entries)
                    seen.got.append(entry and brief(entry))
                began.set()
                async for entry in entries:
                    seen.got.append(entry and brief(entry))

        for number, step in enumerate(plan):
            if step.verb == "restart":
                await stage.restart()
                await client.round_trip_ns(timeout_s=60)
            elif step.verb == "watch":
                began = trio.Event()
                seen = Seen(step, model.revision, model.seen(step))
                watchers.append(seen)
                nursery.start_soon(watch, seen, began)
                await began.wait()
            elif step.verb in ("get", "history"):
                await read(kv, model, step)
            else:
                await perform(kv, model, step, b"%d" % number)
        await stage.sleep(40)
        nursery.cancel_scope.cancel()
    for seen in watchers:
        count = len(seen.present)
        assert seen.got[:count] == seen.present
        may_see = model.seen_after(seen.step, seen.began_at)
        must_see = [entry for entry in may_see if entry in model.kept]
        got = [entry for entry in seen.got[count:] if entry is not None]
        assert None not in seen.got[count:]
        assert [entry for entry in may_see if entry in got] == got
        assert [entry for entry in must_see if entry in got] == must_see


@settings(max_examples=settings().max_examples // 5)
@given(st.integers(0, 1000), st.integers(1, 3), st.lists(steps, max_size=25))
def test_a_bucket_is_what_its_model_is(seed: int, history: int, plan: list[Step]) -> None:
    """Every call has the model's outcome, across restarts too; watchers miss nothing that is kept, invent nothing."""
    play(seed, lambda stage: scene(stage, history, plan)).unwrap()


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 20)
@given(st.integers(0, 1000))
def test_compare_and_set_counts_exactly(seed: int) -> None:
    """Increments by compare-and-set from several clients, while the server dies and comes back, are never lost."""

    async def race(stage: Stage) -> tuple[int, int, int]:
        sure = unsure = 0
        done = trio.Event()

        async def increment() -> None:
            nonlocal sure, unsure
            async with connect("nats://server", runtime=stage.runtime, **OPTIONS) as client:
                kv = await open_bucket(JetStream(client, timeout_s=1), "k")
                succeeded = 0
                while succeeded < 8:
                    await stage.sleep(0.1)
                    try:
                        entry = await kv.get("n", from_leader=True)
                    except (TimedOut, NoResponders, ConnectionLost):
                        continue
                    try:
                        await kv.update("n", b"%d" % (int(entry.value) + 1), entry.revision)
                    except WrongLastSequence:
                        continue
                    except NoResponders:
                        continue
                    except (TimedOut, ConnectionLost):
                        unsure += 1
                        continue
                    succeeded += 1
                    sure += 1

        async def trouble() -> None:
            while not done.is_set():
                await stage.sleep(0.7)
                await stage.restart()

        async with connect("nats://server", runtime=stage.runtime, **OPTIONS) as client:
            kv = await create_bucket(JetStream(client), BucketConfig("k"))
            await kv.put("n", b"0")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trouble)
                async with trio.open_nursery() as workers:
                    for _ in range(3):
                        workers.start_soon(increment)
                done.set()
            await client.round_trip_ns(timeout_s=60)
            return int((await kv.get("n")).value), sure, unsure

    total, sure, unsure = play(seed, race).unwrap()  # type: ignore[misc]
    assert sure == 24
    assert sure <= total <= sure + unsure
