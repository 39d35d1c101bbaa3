"""W15 on one server: consumers and streams are made, changed and deleted, and streams backed up, each by one worker.

| verb | arguments | what it does |
|---|---|---|
| `update` | asset, limit, more, retention, source | changes a stream of the worker's |
| `put` | asset, pending, deliver | makes or changes a consumer of its first stream |
| `drop` | asset | deletes it |
| `take` | asset, count | fetches and acknowledges |
| `look` | of, asset | reads the configuration of some worker's asset |
| `backup` | | takes a backup of the first stream, makes another one out of it, reads that and deletes it |

and those of `jetstream_publish` for its first stream. Assets: the streams `0`, which has messages, and `1`, which has a
configuration alone; the durable consumers `d0` and `d1`; `e`, which ends by itself when nobody uses it. The
description of an asset is the value of its latest change, which names all the rest of what was asked for.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import attrs

from tnats.client.jetstream import (
    AckPolicy,
    ConsumerConfig,
    JetStream,
    NotFound,
    Retention,
    StreamConfig,
    StreamNotFound,
    StreamSource,
)
from tnats.harness.checkers import ack_unique, advised, assets, converged, dedup, removal
from tnats.harness.checkers.evidence import Evidence, Replica, Result, result
from tnats.harness.checkers.removal import Limits
from tnats.harness.history import Event, History
from tnats.harness.history import Operation as HistoryOperation
from tnats.harness.sim.advisory_listener import LISTENER, AdvisoryListener
from tnats.harness.sim.jetstream import URL, JetStreamDrill, of_stream
from tnats.harness.sim.jetstream_publish import Publisher
from tnats.harness.sim.jetstream_reading import ACCOUNT, read_stream
from tnats.harness.sim.jetstream_worker import OPERATION_S, Ending, Worker
from tnats.harness.sim.plan import Operation
from tnats.limits import SECOND_NS
from tnats.records import define
from tnats.runtime.sim.world import World
from tnats.server.node import Node

STREAMS = ("0", "1")
DURABLES = ("d0", "d1")
EPHEMERAL = "e"
RESTORED = "restored"
"""In the name of a stream that is made out of a backup."""
ENDS_AFTER_NS = 2 * SECOND_NS
MESSAGES_MAX = (0, 4, 10, 30)
ASKED: dict[type, tuple[str, ...]] = {
    StreamConfig: ("subjects", "max_msgs", "retention", "sources"),
    ConsumerConfig: ("max_ack_pending", "max_deliver", "inactive_threshold_ns"),
}
"""What configurations are asked for beside their description."""


@define
class Backup:
    """An archive, and what was known when it was asked for."""

    config: StreamConfig
    chunks: list[bytes]
    told: Any
    """The stream's state, as the server told it."""
    event_count: int


class Chunks:
    """The chunks of an archive, for a restore."""

    def __init__(self, backup: Backup) -> None:
        self._left = iter(backup.chunks)

    def __aiter__(self) -> Chunks:
        return self

    async def __anext__(self) -> bytes:
        for chunk in self._left:
            return chunk
        raise StopAsyncIteration


class Administrator(Publisher):
    """See the module."""

    drill: AdminDrill

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._backups: dict[str, Backup] = {}
        """By the stream that was made of it, or may yet be."""

    def _asset(self, operation: Operation) -> str:
        return f"{operation.word('of', self.name)}_{operation.word('asset')}"

    @property
    def _stream(self) -> str:
        """The stream with messages."""
        return f"{self.name}_0"

    async def perform(self, js: JetStream, operation: Operation) -> None:
        asset = self._asset(operation)
        if operation.verb == "update":
            await self._update(js, asset, operation)
        elif operation.verb == "put":
            await self._put(js, asset, operation.number("pending", 10), operation.number("deliver", 5))
        elif operation.verb == "drop":
            await self._drop(js, asset)
        elif operation.verb == "take":
            await self._take(js, asset, operation.number("count", 1))
        elif operation.verb == "look":
            await self._look(js, asset)
        elif operation.verb == "backup":
            await self._back_up(js)
        else:
            own = {"stream": self._stream, "subject": f"{self.name}.a"}
            await super().perform(js, attrs.evolve(operation, arguments={**own, **operation.arguments}))

    async def prove(self, js: JetStream) -> None:
        for asset in (*STREAMS, *DURABLES, EPHEMERAL):
            await self.until(lambda asset=asset: self._look(js, f"{self.name}_{asset}"))  # type: ignore[misc]
        durable = f"{self.name}_{DURABLES[0]}"
        await self._drop(js, durable)
        for pending_max in (10, 20):
            await self.until(lambda pending_max=pending_max: self._put(js, durable, pending_max, 5))  # type: ignore[misc]
            await self.until(lambda: self._look(js, durable))
        config = attrs.evolve(self.drill.first_config(self._stream), max_msgs=MESSAGES_MAX[1])
        await self.until(lambda: self._change(js, self._stream, config))
        await self.until(lambda: self._one(js, self._stream, f"{self.name}.live"))
        await self.until(lambda: self._back_up(js))

    # ------------------------------------------------------------------ streams

    async def _update(self, js: JetStream, name: str, operation: Operation) -> None:
        config = self.drill.first_config(name)
        if operation.number("more"):
            config.subjects = [*config.subjects, f"more.{name}"]
        config.max_msgs = operation.number("limit") or -1
        config.retention = Retention(operation.word("retention", Retention.LIMITS.value))
        config.sources = [StreamSource(self._stream)] if operation.number("source") else []
        await self._change(js, name, config)

    async def _change(self, js: JetStream, name: str, config: StreamConfig) -> bool:
        value = self.new_value()
        config = self.drill.wanted[value] = attrs.evolve(config, description=value)

        async def change(ending: Ending) -> None:
            await js.stream(name).update(config)
            self.drill.recording.probe("a stream was changed")

        return (await self.attempt(js, "put", [name, value], change)).is_ok

    async def _look(self, js: JetStream, name: str) -> bool:
        """What is there by that name."""
        owner, _, asset = name.partition("_")

        async def look(ending: Ending) -> None:
            try:
                if asset in STREAMS:
                    ending.value = [name, self.drill.told((await js.stream(name).info()).config)]
                    return
                info = await js.stream(f"{owner}_0").consumer(name).info()
                ending.value = [name, self.drill.told(info.config)]
                ending.extra = {"delivered": info.delivered.consumer_seq}
            except NotFound:
                ending.value = [name, None]
                if asset == EPHEMERAL:
                    ending.type, ending.error = "fail", "it may have ended by itself"

        return (await self.attempt(js, "get", [name, None], look)).type != "info"

    # ------------------------------------------------------------------ consumers

    async def _put(self, js: JetStream, name: str, pending_max: int, deliver_max: int) -> bool:
        value = self.new_value()
        config = ConsumerConfig(description=value, ack_policy=AckPolicy.EXPLICIT, max_ack_pending=pending_max)
        config.max_deliver = deliver_max
        if name.endswith(f"_{EPHEMERAL}"):
            config.name, config.inactive_threshold_ns = name, ENDS_AFTER_NS
        else:
            config.durable_name = name
        self.drill.wanted[value] = config

        async def put(ending: Ending) -> None:
            await js.stream(self._stream).create_consumer(config)
            self.drill.recording.probe("a consumer was made or changed")

        return (await self.attempt(js, "put", [name, value], put)).is_ok

    async def _drop(self, js: JetStream, name: str) -> None:
        consumer = js.stream(self._stream).consumer(name)
        await self.attempt_delete(js, consumer, [name, None], "a consumer was deleted")

    async def _take(self, js: JetStream, name: str, count: int) -> None:
        async def take(ending: Ending) -> None:
            got = await js.stream(self._stream).consumer(name).fetch(count, timeout_s=OPERATION_S, no_wait=True)
            ending.value = [name, len(got)]
            for delivery in got:
                await delivery.ack()

        await self.attempt(js, "take", [name, count], take)

    # ------------------------------------------------------------------ backups

    async def _back_up(self, js: JetStream) -> bool:
        """Whether a backup was taken, restored, and looked at."""
        for name in list(self._backups):
            await self._clear(js, name)
        name = f"{self.name}_{RESTORED}_{len(self.drill.history.events)}"
        event_count = len(self.drill.history.events)

        async def take(ending: Ending) -> None:
            async with js.stream(self._stream).snapshot(chunk_bytes=1024) as snapshot:
                chunks = [chunk async for chunk in snapshot]
            config = attrs.evolve(snapshot.config, name=name, subjects=[name])
            self._backups[name] = Backup(config, chunks, snapshot.state, event_count)

        if not (await self.attempt(js, "backup", self._stream, take)).is_ok:
            return False
        backup = self._backups[name]

        async def restore(ending: Ending) -> None:
            await js.restore_stream(backup.config, backup.told, Chunks(backup))
            self.drill.recording.probe("a backup was restored")

        restored = await self.attempt(js, "restore", name, restore)
        return restored.is_ok and await self._clear(js, name)

    async def _clear(self, js: JetStream, name: str) -> bool:
        """Judge and delete what was made of a backup, or may have been."""
        backup = self._backups[name]

        async def clear(ending: Ending) -> None:
            try:
                held = await read_stream(js, name, f"{name} from a backup")
            except StreamNotFound:
                return
            self.drill.restored.append((backup, held))
            for durable in DURABLES:
                await self._look_within(js, f"{self.name}_{durable}", name, backup)
            await js.stream(name).delete()
            del self._backups[name]

        return (await self.attempt(js, "clear", name, clear)).is_ok

    async def _look_within(self, js: JetStream, name: str, stream: str, backup: Backup) -> None:
        """A consumer as a backup has brought it."""
        try:
            found = self.drill.told((await js.stream(stream).consumer(name).info()).config)
        except NotFound:
            found = None
        self.drill.standings.append((backup.event_count, {name: found}, f"{stream} from a backup"))


class AdminDrill(JetStreamDrill):
    """What was made, changed or deleted stays so; a backup restores to what it told."""

    worker_kind: ClassVar[type[Worker]] = Administrator
    CLIENTS: ClassVar[tuple[int, ...]] = (2,)
    SYNCS: ClassVar[tuple[str, ...]] = ("always", "always", "always", "lazy")
    OPERATIONS: ClassVar[tuple[int, int]] = (20, 50)
    probes: ClassVar[tuple[str, ...]] = (
        *JetStreamDrill.probes,
        "a stream was changed",
        "a consumer was made or changed",
        "a consumer was deleted",
        "a backup was restored",
        "an advisory was heard",
    )

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.listener: AdvisoryListener
        self.wanted: dict[str, StreamConfig | ConsumerConfig] = {}
        """What was asked for, by its description."""
        self.restored: list[tuple[Backup, Replica]] = []
        self.standings: list[tuple[int, dict[str, str | None], str]] = []
        """(events of the history until then, what is there by what name, when), from looks aside and backups."""

    @classmethod
    def draw_parameters(cls, rng: random.Random) -> dict[str, int | str]:
        return {"what_if": rng.choice((0, 20))}

    @classmethod
    def draw_operation(cls, rng: random.Random, parameters: dict[str, int | str]) -> tuple[str, dict[str, object]]:
        draw = rng.random()
        consumer = rng.choice((*DURABLES, EPHEMERAL))
        if draw < 0.3:
            return "publish", {"size": rng.choice((0, 10, 200, 3000)), "id": int(rng.random() < 0.5)}
        if draw < 0.38:
            return rng.choice(("remove", "remove", "purge")), {"back": rng.randrange(6)}
        if draw < 0.46:
            return "update", {"asset": "0", "limit": rng.choice(MESSAGES_MAX), "more": rng.choice((0, 1))}
        if draw < 0.54:
            retention = rng.choice((Retention.LIMITS, Retention.INTEREST)).value
            return "update", {"asset": "1", "retention": retention, "source": rng.choice((0, 1))}
        if draw < 0.7:
            return "put", {"asset": consumer, "pending": rng.choice((1, 10, 100)), "deliver": rng.choice((2, 5))}
        if draw < 0.8:
            return "drop", {"asset": consumer}
        if draw < 0.87:
            return "take", {"asset": consumer, "count": rng.choice((1, 5))}
        if draw < 0.94:
            asset = rng.choice((*STREAMS, *DURABLES, EPHEMERAL))
            return "look", {"of": f"c{rng.randint(1, int(parameters['clients']))}", "asset": asset}
        return "backup", {}

    # ------------------------------------------------------------------ what is there

    def first_config(self, name: str) -> StreamConfig:
        """A stream's configuration as it is made."""
        owner, _, asset = name.partition("_")
        subjects = [f"{owner}.*"] if asset == "0" else [f"{owner}.only.{asset}"]
        return StreamConfig(name, subjects=subjects, duplicate_window_ns=120 * SECOND_NS, allow_direct=True)

    def streams(self) -> Sequence[StreamConfig]:
        owners = [f"c{number}" for number in range(1, self.plan.number("clients") + 1)]
        return [self.first_config(f"{owner}_{asset}") for owner in owners for asset in STREAMS]

    def told(self, config: Any) -> str | None:
        """The value that a configuration tells, with what is not as it was asked for under that value."""
        value: str = config.description
        wanted = self.wanted.get(value)
        if wanted is None:
            return value or None
        for field in ASKED[type(wanted)]:
            asked, found = getattr(wanted, field), getattr(config, field)
            if asked != found:
                return f"{value} with {field} {found!r} in place of {asked!r}"
        return value

    async def prepare(self, world: World) -> None:
        await super().prepare(world)
        self.listener = AdvisoryListener(self, URL)
        world.node(LISTENER).start(self.listener.run)

    async def look_further(self, node: Node, event_count: int, when: str) -> None:
        assert node.jetstream is not None
        found: dict[str, str | None] = {}
        streams = node.jetstream.accounts[ACCOUNT].streams
        for config in self.streams():
            found[config.name] = self.told(streams[config.name].config) if config.name in streams else None
        for owner in self.workers:
            stream = streams.get(f"{owner}_0")
            consumers = {} if stream is None else stream.consumers
            for asset in (*DURABLES, EPHEMERAL):
                consumer = consumers.get(f"{owner}_{asset}")
                if consumer is not None or asset != EPHEMERAL:
                    found[f"{owner}_{asset}"] = None if consumer is None else self.told(consumer.config)
        self.standings.append((event_count, found, when))

    async def read(self, when: str) -> None:
        await super().read(when)
        await self.look_further(self.servers[-1], len(self.history.events), when)

    # ------------------------------------------------------------------ the verdict

    def evidence(self) -> Iterator[Evidence]:
        yield Evidence(self.history)
        yield from super().evidence()
        for backup, held in self.restored:
            known = History(self.history.events[: backup.event_count])
            held.named_lost += tuple(self.told_lost(origin_of(held.name)))
            yield Evidence(of_stream(known, origin_of(held.name)), [held], unsynced_ns=self.unsynced_ns)

    def results(self, evidence: Evidence) -> Iterator[Result]:
        if not evidence.replicas:
            yield from self._of_assets(evidence)
            return
        name = evidence.replicas[0].name
        if not name.endswith("_1"):
            yield from self._of_messages(origin_of(name), evidence)

    def _of_messages(self, name: str, evidence: Evidence) -> Iterator[Result]:
        limits = [config.max_msgs for config in self._asked(name) if config.max_msgs > 0]
        yield ack_unique.check(evidence)
        yield removal.check(evidence, Limits(messages_max=min(limits, default=0), is_kept=False))
        yield result("C13", "a limit that was confirmed is kept", self._beyond(name, evidence))
        yield dedup.check(
            evidence, is_windowed="T_JUMP" not in self.ledger.kinds and "T_STROBE" not in self.ledger.kinds
        )
        yield converged.check(evidence)

    def _asked(self, name: str) -> Iterator[StreamConfig]:
        for put in self.history.operations("put"):
            config = self.wanted[put.value[1]]
            if put.value[0] == name and isinstance(config, StreamConfig):
                yield config

    def _beyond(self, name: str, evidence: Evidence) -> Iterator[str]:
        """More messages than the latest change of the stream allows, if its fate is known."""
        puts = [put for put in evidence.history.operations("put") if put.value[0] == name and not put.is_failed]
        if puts and puts[-1].is_ok:
            config = self.wanted[puts[-1].value[1]]
            assert isinstance(config, StreamConfig)
            for replica in evidence.readings:
                yield from removal.beyond(replica, Limits(messages_max=max(0, config.max_msgs)))

    def _of_assets(self, evidence: Evidence) -> Iterator[Result]:
        yield assets.check(evidence)
        for event_count, found, when in self.standings:
            looks: list[Event] = []
            for name, value in found.items():
                process = f"{name} {when}"
                looks.append(Event(event_count + len(looks), 0, "invoke", process, "get", [name, None]))
                looks.append(Event(event_count + len(looks), 0, "ok", process, "get", [name, value]))
            yield assets.check(Evidence(History([*self.history.events[:event_count], *looks])))
        yield result("C12", "a backup restores to what it told", self._changed())
        yield advised.check(self.listener.sessions, self._advised())

    def _advised(self) -> dict[str, list[HistoryOperation]]:
        """Changes by the advisory that each of them makes, as far as that is certain."""
        found: dict[str, list[HistoryOperation]] = {}
        for change in self.history.operations("put", "delete"):
            name = change.value[0]
            owner, _, asset = name.partition("_")
            if asset in STREAMS:
                found.setdefault(f"STREAM.UPDATED.{name}", []).append(change)
            elif asset in DURABLES and change.f == "delete":
                found.setdefault(f"CONSUMER.DELETED.{owner}_0.{name}", []).append(change)
        return found

    def _changed(self) -> Iterator[str]:
        for backup, held in self.restored:
            told = backup.told
            first = min(held.messages, default=held.last_seq + 1)
            found = len(held.messages), first, held.last_seq
            expected = told.messages, told.first_seq if told.messages else first, told.last_seq
            if found != expected:
                yield f"{held.node}: count, first and last sequence are {found}; it was told as {expected}"


def origin_of(name: str) -> str:
    """The stream that a stream or its backup is about."""
    return f"{name.partition('_')[0]}_0"
