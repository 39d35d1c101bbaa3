"""kill -9 of a server under load, again and again; after every start, what it had promised is looked at.

One round: the server runs, publishers publish with acks and message ids, consumers ack with confirmation (or
terminate, give back, forget), workers read and change registers of a bucket; at a drawn moment it is killed. It is
started, and must hold what `StreamPromises` and the register checkers ask. The streams live through all rounds, so a
later kill also meets what earlier ones left. At the end everything is taken and read once more, whole.

A server of this project is also asked for dead letters (docs/jetstream.md), one per termination.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import trio

from tnats.client import Client, ClientError, connect
from tnats.client.jetstream import AckPolicy, ConsumerConfig, ConsumerInfo, JetStream, Retention, StreamConfig
from tnats.client.jetstream.delivery import parse_metadata
from tnats.harness import checkers
from tnats.harness.checkers.evidence import Evidence
from tnats.harness.history import Recorder
from tnats.harness.promises import StreamPromises
from tnats.harness.real.errors import CouldNotRun
from tnats.harness.real.processes import ServerProcess
from tnats.harness.real.targets import Target
from tnats.harness.real.workplace import open_workplace
from tnats.harness.stream_reading import read_batch
from tnats.harness.workloads import jetstream
from tnats.harness.workloads.access import Indeterminate, Refused
from tnats.harness.workloads.register import RegisterWorkload
from tnats.ids import Nuid
from tnats.limits import SECOND_NS
from tnats.records import define
from tnats.runtime.api import Runtime

TIMEOUT_S = 10.0
READ_COUNT = 1000
FETCH_COUNT = 20
FETCH_EXPIRES_S = 0.5
LOAD_S = (0.2, 0.9)
"""Between a start and the kill, at least and at most."""
DRAIN_S = 60.0
DEAD_LETTERS_S = 30.0
PAUSE_NS = 20_000_000
SHARES = {"ack": 84, "term": 6, "nak": 5, "forget": 5}
"""What a worker does with a message; those that are given back or forgotten come again."""
CONSUMER = "worker"
PUBLISHERS_PER_STREAM = 2
WORKERS_PER_STREAM = 2
REGISTER_WORKERS = 3
DEAD_STREAM = "dead"

Progress = Callable[[int, str], None]
"""Told the number of the round, and what is being done."""


@define
class KillsReport:
    """What it came to. `directory`: kept when there are faults."""

    target: str
    seed: int
    kill_count: int = 0
    faults: list[str] = attrs.field(factory=list)
    figures: dict[str, int] = attrs.field(factory=dict)
    seconds: float = 0.0
    directory: str = ""


class KillsRun:
    """The state of one run."""

    def __init__(
        self, runtime: Runtime, server: ServerProcess, place: Path, *, stream_count: int, seed: int, has_letters: bool
    ) -> None:
        self.runtime = runtime
        self.server = server
        self.place = place
        self.rng = random.Random(seed)
        self.has_letters = has_letters
        self.streams = [
            StreamPromises(f"{'jobs' if number % 2 else 'log'}{number}", is_queue=number % 2 == 1)
            for number in range(1, stream_count + 1)
        ]
        self.round = 0
        self.faults: list[str] = []
        self.figures = dict.fromkeys(("published", "acked", "confirmed", "terminated", "register calls"), 0)
        self._counters = dict.fromkeys((stream.name for stream in self.streams), 0)
        self._read_to = dict.fromkeys((stream.name for stream in self.streams), 0)
        self._dead_read_to = 0
        self._registers: Recorder | None = None
        self._events = (place / "events.jsonl").open("w", encoding="utf-8")
        self._is_draining = False

    def close(self) -> None:
        self._events.close()

    def note(self, what: str, stream: str, **details: Any) -> None:
        """A line of the log of what clients did and were told."""
        at = self.runtime.clock.mono_ns()
        self._events.write(
            json.dumps({"at": at, "round": self.round, "what": what, "stream": stream, **details}) + "\n"
        )

    # ------------------------------------------------------------------ set up

    async def create(self) -> None:
        """Streams, consumers, bucket."""
        async with connect(self.server.url, runtime=self.runtime, connect_timeout_s=TIMEOUT_S) as client:
            js = JetStream(client, timeout_s=TIMEOUT_S)
            for stream in self.streams:
                config = StreamConfig(
                    stream.name,
                    subjects=[f"{stream.name}.>"],
                    retention=Retention.WORKQUEUE if stream.is_queue else Retention.LIMITS,
                    duplicate_window_ns=3600 * SECOND_NS,
                    allow_direct=True,
                )
                consumer = ConsumerConfig(
                    CONSUMER,
                    ack_policy=AckPolicy.EXPLICIT,
                    ack_wait_ns=SECOND_NS,
                    max_ack_pending=200,
                    metadata={"tnats.dead_letter": f"{DEAD_STREAM}.{stream.name}"} if self.has_letters else {},
                )
                await (await js.create_stream(config)).create_consumer(consumer)
            if self.has_letters:
                await js.create_stream(StreamConfig(DEAD_STREAM, subjects=[f"{DEAD_STREAM}.>"], allow_direct=True))
            await js.create_stream(jetstream.BUCKET_CONFIG)

    # ------------------------------------------------------------------ load

    async def load(self) -> None:
        """Everybody works until the kill."""
        recorder = self._registers = Recorder(self.runtime.clock.mono_ns, REGISTER_WORKERS + 1)
        registers = RegisterWorkload(
            self.runtime,
            recorder,
            worker_count=REGISTER_WORKERS,
            rate_per_s=200,
            key_count=3,
            key_prefix=f"r{self.round}.",
        )
        seconds = self.rng.uniform(*LOAD_S)
        async with trio.open_nursery() as nursery:
            self._start_clients(nursery)
            for worker in range(REGISTER_WORKERS):
                nursery.start_soon(self._register_task, registers, worker)
            await self.runtime.clock.sleep_ns(int(seconds * SECOND_NS))
            await self.server.kill()
            nursery.cancel_scope.cancel()
        self.note("kill", "")

    def _start_clients(self, nursery: trio.Nursery) -> None:
        """Those of the streams."""
        for stream in self.streams:
            for number in range(PUBLISHERS_PER_STREAM):
                nursery.start_soon(self._client_task, self._publish, stream, f"p{number}")
            for number in range(WORKERS_PER_STREAM):
                nursery.start_soon(self._client_task, self._work, stream, f"w{number}")

    async def _client_task(self, task: Callable[..., Any], stream: StreamPromises, name: str) -> None:
        rng = random.Random(self.rng.random())
        try:
            async with connect(self.server.url, runtime=self.runtime, **jetstream.CONNECT_OPTIONS) as client:
                await task(JetStream(client, timeout_s=TIMEOUT_S), stream, name, rng)
        except ClientError:
            pass  # killed before the connection was there

    async def _register_task(self, registers: RegisterWorkload, worker: int) -> None:
        try:
            async with jetstream.open_register(self.runtime, self.server.url, "n1", TIMEOUT_S) as access:
                await registers.run(worker, access)
        except ClientError:
            pass

    async def _publish(self, js: JetStream, stream: StreamPromises, name: str, rng: random.Random) -> None:
        """First what got no answer before the last kill, under its old message id, then new messages."""
        mine = [value for value in stream.unsure if value.startswith(f"{name}-")]
        while mine or not self._is_draining:
            if mine:
                value = mine.pop(0)
            else:
                self._counters[stream.name] += 1
                value = f"{name}-{self._counters[stream.name]}"
            stream.published(value)
            self.note("publish", stream.name, value=value)
            self.figures["published"] += 1
            size = rng.choice((0, 50, 200, 3000))
            try:
                subject, data = f"{stream.name}.{rng.randrange(5)}", json.dumps([value, "x" * size]).encode()
                answer = await js.publish(subject, data, message_id=value, retries=0)
            except ClientError as exc:
                self.note("publish failed", stream.name, value=value, error=str(exc))
                await self.runtime.clock.sleep_ns(PAUSE_NS)
                if self._is_draining:
                    mine.append(value)
                continue
            self.note("acknowledged", stream.name, value=value, seq=answer.seq, duplicate=answer.duplicate)
            self.figures["acked"] += 1
            stream.acknowledged(value, answer.seq)

    async def _work(self, js: JetStream, stream: StreamPromises, name: str, rng: random.Random) -> None:
        """Pull and do something with each message; while draining, ack everything."""
        client = js.client
        inbox = f"_INBOX.{Nuid(client.runtime.chance.rng('harness.inbox')).next()}"
        subject = js.api.subject(f"CONSUMER.MSG.NEXT.{stream.name}.{CONSUMER}")
        query = json.dumps({"batch": FETCH_COUNT, "expires": int(FETCH_EXPIRES_S * SECOND_NS)}).encode()
        async with client.subscribe(inbox) as subscription:
            while True:
                asked = stream.asked()
                await client.publish(subject, query, reply=inbox)
                for _ in range(FETCH_COUNT):
                    message = await subscription.next_message(TIMEOUT_S)
                    if message.status:
                        break
                    value, seq = value_of(message.data), parse_metadata(message.reply).stream_sequence
                    stream.delivered(seq, value, asked)
                    await self._end(client, stream, message.reply, seq, value, rng)

    async def _end(
        self, client: Client, stream: StreamPromises, reply: str, seq: int, value: str, rng: random.Random
    ) -> None:
        what = "ack" if self._is_draining else rng.choices(list(SHARES), weights=list(SHARES.values()))[0]
        self.note("delivered", stream.name, value=value, seq=seq, then=what)
        if what == "forget":
            return
        if what == "nak":
            await client.publish(reply, b"-NAK")
            return
        by_termination = what == "term"
        stream.ending(seq, value, by_termination=by_termination)
        try:
            await client.request(reply, b"+TERM" if by_termination else b"+ACK", timeout_s=TIMEOUT_S)
        except ClientError as exc:
            self.note(f"{what} failed", stream.name, seq=seq, error=str(exc))
            return
        self.note(f"{what} confirmed", stream.name, seq=seq)
        self.figures["terminated" if by_termination else "confirmed"] += 1
        stream.ended(seq, value, by_termination=by_termination)

    # ------------------------------------------------------------------ looking

    async def look(self, *, whole: bool = False) -> None:
        """Hold what is there against what was promised; `whole`: from the first message on."""
        async with connect(self.server.url, runtime=self.runtime, connect_timeout_s=TIMEOUT_S) as client:
            js = JetStream(client, timeout_s=TIMEOUT_S)
            for stream in self.streams:
                await self._look_at(js, stream, whole=whole)
            if self.has_letters:
                await self._look_at_letters(js)
        await self._look_at_registers()
        for stream in self.streams:
            self.faults += stream.faults
            stream.faults.clear()

    async def _look_at(self, js: JetStream, stream: StreamPromises, *, whole: bool) -> None:
        state = (await js.stream(stream.name).info()).state
        from_seq = 1 if whole or stream.is_queue else self._read_to[stream.name] + 1
        stored = await read_from(js, stream.name, max(from_seq, state.first_seq))
        stream.check_stored(stored, from_seq, state.last_seq)
        if not stream.is_queue:
            if (state.first_seq, state.messages) != (1, state.last_seq):
                self.faults.append(
                    f"{stream.name}: {state.messages} messages from {state.first_seq} to {state.last_seq}"
                )
            self._read_to[stream.name] = state.last_seq
        info = await consumer_info(js, stream)
        stream.check_consumer(info.ack_floor.stream_seq, info.delivered.stream_seq)

    async def _look_at_letters(self, js: JetStream) -> None:
        """Every confirmed termination has become one dead letter, shortly after the start at the latest."""
        deadline_ns = self.runtime.clock.mono_ns() + int(DEAD_LETTERS_S * SECOND_NS)
        while True:
            found = await read_from(js, DEAD_STREAM, self._dead_read_to + 1, with_subject=True)
            for seq, text in found.items():
                self._dead_read_to = max(self._dead_read_to, seq)
                name, _, value = text.partition(" ")
                for stream in self.streams:
                    if name == f"{DEAD_STREAM}.{stream.name}":
                        stream.check_dead([(seq, value)])
            missing = [f"{stream.name}: {value!r}" for stream in self.streams for value in stream.missing_dead()]
            if not missing:
                return
            if self.runtime.clock.mono_ns() > deadline_ns:
                self.faults.append(f"{len(missing)} terminated messages are no dead letters, {missing[0]} among them")
                return
            await self.runtime.clock.sleep_ns(PAUSE_NS)

    async def _look_at_registers(self) -> None:
        recorder, self._registers = self._registers, None
        if recorder is None:
            return
        async with jetstream.open_register(self.runtime, self.server.url, "n1", TIMEOUT_S) as access:
            await RegisterWorkload.read_all(recorder, REGISTER_WORKERS, access)
        evidence = Evidence(recorder.history)
        self.figures["register calls"] += len(recorder.history.operations())
        for check in checkers.REGISTERS:
            found = check(evidence)
            if found.verdict != "ok":  # what could not be decided was not shown either
                self.faults += [f"registers, {found.checker}: {text}" for text in found.texts]
        if self.faults:
            path = self.place / f"registers-{self.round}.jsonl"
            path.write_text("\n".join(recorder.history.to_json_lines()) + "\n")

    # ------------------------------------------------------------------ the end

    async def drain(self) -> None:
        """Publish again what got no answer, and take everything there is."""
        self._is_draining = True
        async with connect(self.server.url, runtime=self.runtime, connect_timeout_s=TIMEOUT_S) as client:
            js = JetStream(client, timeout_s=TIMEOUT_S)
            with trio.move_on_after(DRAIN_S):
                async with trio.open_nursery() as nursery:
                    self._start_clients(nursery)
                    while not await self._is_drained(js):
                        await self.runtime.clock.sleep_ns(PAUSE_NS * 10)
                    nursery.cancel_scope.cancel()
            for stream in self.streams:
                state, info = (await js.stream(stream.name).info()).state, await consumer_info(js, stream)
                stream.check_drained(stored=state.messages, pending=info.num_pending, ack_pending=info.num_ack_pending)

    async def _is_drained(self, js: JetStream) -> bool:
        for stream in self.streams:
            info = await consumer_info(js, stream)
            if info.num_pending or info.num_ack_pending or stream.unsure:
                return False
            if stream.is_queue and (await js.stream(stream.name).info()).state.messages:
                return False  # letters are on their way
        return True


async def consumer_info(js: JetStream, stream: StreamPromises) -> ConsumerInfo:
    """Where its consumer stands."""
    return await js.stream(stream.name).consumer(CONSUMER).info()


async def read_from(js: JetStream, stream: str, seq: int, *, with_subject: bool = False) -> dict[int, str]:
    """The values of all messages from a sequence on, by sequence; with their subjects in front, if asked for."""
    found: dict[int, str] = {}
    while True:
        part, is_all = await read_batch(js, stream, seq, READ_COUNT)
        for message in part:
            value = value_of(message.data)
            found[message.sequence] = f"{message.subject} {value}" if with_subject else value
        if not part or (is_all and len(part) < READ_COUNT):
            return found
        seq = part[-1].sequence + 1


def value_of(data: bytes) -> str:
    """The value in a message."""
    try:
        return str(json.loads(data)[0])
    except (ValueError, IndexError, TypeError):
        return f"unreadable {data[:80]!r}"


async def run_kills(
    runtime: Runtime,
    target: Target,
    *,
    kill_count: int,
    stream_count: int,
    seed: int,
    sync_interval: str | None = None,
    keep: bool = False,
    progress: Progress = lambda number, text: None,
) -> KillsReport:
    """Kill `kill_count` times, or up to the first faults. Raises CouldNotRun when the server never starts."""
    report = KillsReport(target.name, seed)
    start_ns = runtime.clock.mono_ns()
    place: Path | None = None
    try:
        async with open_workplace(keep=True) as workplace:
            place = workplace.directory
            server = ServerProcess(runtime, workplace, target, "n1", place / "store", sync_interval)
            letters = target.name == "tnats"
            with closing(
                KillsRun(runtime, server, place, stream_count=stream_count, seed=seed, has_letters=letters)
            ) as run:
                await server.start()
                await run.create()
                try:
                    await run_rounds(run, report, kill_count, progress)
                except (ClientError, CouldNotRun, Refused, Indeterminate) as exc:
                    run.faults.append(f"after kill {report.kill_count}: {type(exc).__name__}: {exc}")
        report.faults, report.figures = run.faults, run.figures
        report.seconds = (runtime.clock.mono_ns() - start_ns) / SECOND_NS
        if report.faults or keep:
            report.directory = str(place)
            again = (
                f"tnats jepsen kills --target {target.name} --kills {kill_count} --streams {stream_count} --seed {seed}"
            )
            described = {
                **attrs.asdict(report),
                "again": f"{again} --sync-interval {sync_interval}" if sync_interval else again,
                "look": f"the store as the last kill left it: tnats serve -js -sd {place / 'killed'}",
            }
            (place / "report.json").write_text(json.dumps(described, indent=2) + "\n")
    finally:
        if place is not None and not report.directory:
            shutil.rmtree(place, ignore_errors=True)
    return report


async def run_rounds(run: KillsRun, report: KillsReport, kill_count: int, progress: Progress) -> None:
    """Work, kill, start, look; at the end, or at the first fault, stop."""
    while report.kill_count < kill_count and not run.faults:
        run.round += 1
        progress(run.round, "load")
        await run.load()
        report.kill_count += 1
        await trio.to_thread.run_sync(keep_store, run.server.store, run.place / "killed")
        progress(run.round, "start")
        await run.server.start()
        progress(run.round, "look")
        await run.look(whole=report.kill_count == kill_count)
    if not run.faults:
        progress(run.round, "drain")
        await run.drain()
        await run.look(whole=True)
        await run.server.stop()


def keep_store(store: Path, copy: Path) -> None:
    """Put the store aside as the kill left it."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(store, copy)
