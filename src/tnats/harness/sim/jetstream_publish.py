"""W1, W2, W5, W6, W7, W10 on one server: publishing to streams, in every way that asks for an acknowledgement.

| verb | arguments | what it does |
|---|---|---|
| `publish` | stream, subject, size, id=1, expect | publishes a new value; with `id` again until it is answered |
| `again` | | publishes the last value with an id once more, as one does who lost the acknowledgement |
| `batch` | stream, count, commit | an atomic batch, committed or abandoned |
| `add` | subject, by | adds to a counter |
| `remove` | stream, back | deletes the message so far behind the last one it knows |
| `purge` | stream, back | purges everything before that |

`expect`: `last` (the stream's last sequence as this worker knows it), `subject` (the subject's), `stale` (one that
somebody else may have used). Streams: S plain, K with limits by number, A with an age, N counters.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import attrs

from tnats.client.jetstream import JetStream, StreamConfig
from tnats.harness.checkers import (
    ack_unique,
    batch_atomic,
    converged,
    counter,
    dedup,
    expected_sequence,
    order,
    removal,
)
from tnats.harness.checkers.evidence import Evidence, Result, result
from tnats.harness.checkers.removal import Limits
from tnats.harness.scenario import Violation
from tnats.harness.sim.bodies import payload
from tnats.harness.sim.jetstream import SERVER, JetStreamDrill, of_stream
from tnats.harness.sim.jetstream_reading import ACCOUNT
from tnats.harness.sim.jetstream_worker import OPERATION_S, Ending, Worker
from tnats.harness.sim.plan import Operation
from tnats.limits import SECOND_NS
from tnats.runtime.sim.disk_faults import matching
from tnats.runtime.sim.node import Node as Machine
from tnats.runtime.sim.world import World
from tnats.storage.stream_log import StreamLog

PER_SUBJECT_MAX, MESSAGES_MAX = 2, 4
AGE_MAX_NS = 4 * SECOND_NS
"""So tight that a run reaches them."""
MESSAGE_COST_BYTES = 30
RETRIES = 4
SIZES = (0, 10, 200, 3000)


class Publisher(Worker):
    """See the module."""

    _last_with_id: tuple[str, str, str, int, dict[str, Any], dict[str, Any]] | None = None
    """The arguments of `_one` for it."""

    async def perform(self, js: JetStream, operation: Operation) -> None:
        verb, stream = operation.verb, operation.word("stream", "S")
        if verb == "publish":
            await self._publish(js, stream, operation)
        elif verb == "again":
            if self._last_with_id is not None:
                await self._one(js, *self._last_with_id)
        elif verb == "batch":
            await self._batch(js, stream, operation.number("count", 1), commits=operation.number("commit") > 0)
        elif verb == "add":
            await self._add(js, operation.word("subject"), operation.number("by", 1))
        elif verb in ("remove", "purge"):
            await self._remove(js, verb, stream, operation.number("back"))
        else:
            raise operation.unknown_verb()

    async def prove(self, js: JetStream) -> None:
        for stream in ("S", "K", "A"):
            await self.until(lambda stream=stream: self._one(js, stream, f"{stream.lower()}.live"))  # type: ignore[misc]
        await self.until(lambda: self._batch(js, "S", 3, commits=True))
        await self.until(lambda: self._add(js, "n.live", 1))

    async def _publish(self, js: JetStream, stream: str, operation: Operation) -> None:
        subject, size = operation.word("subject"), operation.number("size")
        expect = operation.word("expect")
        conditions: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        if expect:
            known = self.last_seq.get(subject if expect == "subject" else stream, 0)
            if expect == "subject":
                conditions["expected_last_subject_sequence"] = extra["expected_subject"] = known
            else:
                known = max(0, known - (expect == "stale"))
                conditions["expected_last_sequence"] = extra["expected"] = known
        value = self.new_value()
        if operation.number("id"):
            conditions["message_id"] = extra["id"] = f"id-{value}"
            self._last_with_id = stream, subject, value, size, conditions, extra
        tries = 1 + RETRIES * operation.number("id")
        while tries and not await self._one(js, stream, subject, value, size, conditions, extra):
            tries -= 1
            if operation.number("id"):
                self.drill.recording.probe("a publish was tried again with its id")
            await self.drill.wait_ns(SECOND_NS // 20)

    async def _one(
        self,
        js: JetStream,
        stream: str,
        subject: str,
        value: str = "",
        size: int = 10,
        conditions: dict[str, Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> bool:
        """One publish; whether it was acknowledged."""
        value = value or self.new_value()
        data = payload(value, size)
        extra = {"bytes": stored_bytes(subject, data), **(extra or {})}

        async def publish(ending: Ending) -> None:
            ack = await js.publish(subject, data, timeout_s=OPERATION_S, retries=0, **(conditions or {}))
            ending.extra = {"seq": ack.seq, "duplicate": ack.duplicate}
            self._learn(ack.seq, stream, subject)
            if ack.duplicate:
                self.drill.recording.probe("a publish was found to be a duplicate")

        return (await self.attempt(js, "publish", value, publish, stream=stream, subject=subject, **extra)).is_ok

    def _learn(self, seq: int, *places: str) -> None:
        for place in places:
            self.last_seq[place] = max(seq, self.last_seq.get(place, 0))

    async def _batch(self, js: JetStream, stream: str, count: int, *, commits: bool) -> bool:
        values = [self.new_value() for _ in range(count)]
        batch, subject = f"batch-{values[0]}", f"{stream.lower()}.batch"

        async def publish(ending: Ending) -> None:
            for place, value in enumerate(values, 1):
                headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(place)}
                if not commits or place < count:
                    await js.client.publish(subject, payload(value, 10), headers=headers)
                    continue
                headers["Nats-Batch-Commit"] = "1"
                ack = await js.publish(subject, payload(value, 10), headers=headers, timeout_s=OPERATION_S, retries=0)
                ending.extra = {"seq": ack.seq, "count": ack.count}
                self._learn(ack.seq, stream)
                self.drill.recording.probe("a batch was committed")
            if not commits:
                await js.client.flush(timeout_s=OPERATION_S)
                ending.type, ending.error = "fail", "abandoned"

        return (await self.attempt(js, "batch", values, publish, stream=stream, subject=subject, commit=commits)).is_ok

    async def _add(self, js: JetStream, subject: str, by: int) -> bool:
        value = self.new_value()

        async def add(ending: Ending) -> None:
            headers = {"Nats-Incr": f"{by:+d}", "Value": value}
            ack = await js.publish(subject, b"", headers=headers, timeout_s=OPERATION_S, retries=0)
            ending.extra = {"seq": ack.seq, "total": ack.val}

        return (await self.attempt(js, "add", value, add, stream="N", subject=subject, by=by)).is_ok

    async def _remove(self, js: JetStream, verb: str, stream: str, back: int) -> None:
        seq = self.last_seq.get(stream, 0) - back
        if seq < 1:
            return

        async def remove(ending: Ending) -> None:
            if verb == "remove":
                await js.stream(stream).delete_message(seq)
            else:
                await js.stream(stream).purge(below_sequence=seq)
            self.drill.recording.probe("messages were removed")

        await self.attempt(js, verb, seq, remove, stream=stream)


class PublishDrill(JetStreamDrill):
    """What is acknowledged is there, once, in order, batches whole, counters right; what is removed stays away."""

    worker_kind: ClassVar[type[Worker]] = Publisher
    SYNCS: ClassVar[tuple[str, ...]] = ("always", "always", "always", "lazy")
    probes: ClassVar[tuple[str, ...]] = (
        *JetStreamDrill.probes,
        "an operation was refused",
        "nobody knows whether an operation took effect",
        "a publish was tried again with its id",
        "a publish was found to be a duplicate",
        "a batch was committed",
        "messages were removed",
        "what was erased was searched for",
        "an error was audited",
    )

    @classmethod
    def draw_operation(cls, rng: random.Random, parameters: dict[str, int | str]) -> tuple[str, dict[str, object]]:
        draw = rng.random()
        if draw < 0.06:
            return "again", {}
        if draw < 0.64:
            stream = rng.choice(("S", "S", "S", "K", "A"))
            arguments: dict[str, object] = {
                "stream": stream,
                "subject": f"{stream.lower()}.{rng.choice('abc')}",
                "size": rng.choice(SIZES),
            }
            if stream == "S" and rng.random() < 0.4:
                arguments["expect"] = rng.choice(("last", "last", "subject", "stale"))
            elif rng.random() < 0.5:
                arguments["id"] = 1
            return "publish", arguments
        if draw < 0.74:
            return "batch", {"stream": "S", "count": rng.choice((1, 2, 5, 20)), "commit": int(rng.random() < 0.75)}
        if draw < 0.86:
            return "add", {"subject": f"n.{rng.choice('ab')}", "by": rng.choice((1, 2, -3, 1000))}
        if draw < 0.97:
            return "remove", {"stream": rng.choice(("S", "S", "A")), "back": rng.randrange(6)}
        return "purge", {"stream": "S", "back": rng.randrange(10)}

    def streams(self) -> Sequence[StreamConfig]:
        plain = StreamConfig("S", subjects=["s.*"], duplicate_window_ns=120 * SECOND_NS, allow_direct=True)
        return (
            attrs.evolve(plain, allow_atomic=True),
            attrs.evolve(
                plain, name="K", subjects=["k.*"], max_msgs_per_subject=PER_SUBJECT_MAX, max_msgs=MESSAGES_MAX
            ),
            attrs.evolve(plain, name="A", subjects=["a.*"], max_age_ns=AGE_MAX_NS, duplicate_window_ns=AGE_MAX_NS),
            attrs.evolve(plain, name="N", subjects=["n.*"], allow_msg_counter=True),
        )

    async def prove(self, world: World) -> None:
        await super().prove(world)
        if self.is_in_files and not self.is_lazy:
            await self._search(world)

    async def _search(self, world: World) -> None:
        """After an orderly end, is what was erased still on the disk? (An entry of the journal goes with its part.)"""
        machine = world.nodes[SERVER]
        jetstream = self.servers[-1].jetstream
        assert jetstream is not None
        directories = {
            name: stream.store.log.files.directory
            for name, stream in jetstream.accounts[ACCOUNT].streams.items()
            if isinstance(stream.store.log, StreamLog)
        }
        machine.signal("TERM")
        await machine.wait_ended()
        for stream, values in self._erased().items():
            content = b"".join(machine.drive.image.content(path) for path in files_in(machine, directories[stream]))
            self.recording.probe("what was erased was searched for", len(values))
            for value in values:
                if re.search(rb"(?<![\w-])%b \d" % value.encode(), content):
                    text = f"{value} was deleted from {stream}, and its content is in the stream's files"
                    self.left_over.append(Violation(text, rule="C13 erased"))
        self.stage.start(machine)

    def _erased(self) -> dict[str, list[str]]:
        """Values whose deletion was confirmed, by stream; not those that were stored once more."""
        found: dict[str, list[str]] = {}
        for config in self.streams():
            history = of_stream(self.history, config.name)
            gone = {remove.value for remove in history.operations("remove") if remove.is_ok}
            held = {stored.value for replica in self.readings_of(config.name) for stored in replica.messages.values()}
            acked = [publish for publish in history.operations("publish") if publish.is_ok]
            found[config.name] = [op.value for op in acked if op.told("seq") in gone and op.value not in held]
        return found

    def limits_of(self, stream: str) -> Limits:
        """What the stream may have removed."""
        if stream == "K":
            return Limits(PER_SUBJECT_MAX, MESSAGES_MAX)
        if stream == "A":
            slack = 600 * SECOND_NS if self.clocks_moved() else SECOND_NS
            return Limits(age_max_ns=AGE_MAX_NS, age_slack_ns=slack)
        return Limits()

    def results(self, evidence: Evidence) -> Iterator[Result]:
        stream = evidence.replicas[0].name if evidence.replicas else "S"
        yield ack_unique.check(evidence)
        if stream == "N":
            yield counter.check(evidence)
            yield converged.check(evidence)
            return
        yield removal.check(evidence, self.limits_of(stream))
        yield dedup.check(evidence, is_windowed=not self.clocks_moved() and stream != "A")
        yield expected_sequence.check(evidence)
        yield result("C5", "sequences follow time", order.against_time(fresh(evidence)))
        if stream == "S":
            yield batch_atomic.check(evidence)
        if stream != "A":  # which time changes
            yield converged.check(evidence)

    def clocks_moved(self) -> bool:
        """Whether the server's clocks were not what they should have been."""
        return any(kind.startswith("T_") for kind in self.ledger.kinds)


def files_in(machine: Machine, directory: str) -> list[str]:
    """The files of a directory of a machine."""
    return matching(machine.drive.image, f"{directory}/*")


def stored_bytes(subject: str, data: bytes) -> int:
    """What a message without headers counts for in a stream in files."""
    return MESSAGE_COST_BYTES + len(subject) + len(data)


def fresh(evidence: Evidence) -> list[Any]:
    """Acknowledged publishes that stored something."""
    return [operation for operation in evidence.acked() if not operation.told("duplicate")]
