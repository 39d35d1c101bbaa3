"""What is gone leaves nothing behind, and what stays does not grow with what it has done: a server runs for months."""

from __future__ import annotations

import gc
from base64 import b64encode

import orjson
import trio
from tests.unit.jetstream.service_world import Stage, call, play, publish

from tnats.broker.connection import Connection
from tnats.client import Client, connect
from tnats.jetstream.consumer.ack_timers import AckTimers
from tnats.jetstream.consumer.service import ConsumerService
from tnats.jetstream.consumer.state import ConsumerState
from tnats.jetstream.host import wake
from tnats.jetstream.stream.schedules import Schedules
from tnats.jetstream.stream.service import StreamService
from tnats.limits import SECOND_NS
from tnats.runtime.api import Runtime
from tnats.runtime.sim.world import Settings, World, run_world
from tnats.timers import Timers

HOUR_NS = 3600 * SECOND_NS
KINDS = (StreamService, ConsumerService, Connection)


def counts() -> dict[type, int]:
    """How many objects of each kind there are, garbage among them: in a world the collector does not run by itself."""
    assert not gc.isenabled()
    found = dict.fromkeys(KINDS, 0)
    for one in gc.get_objects():
        kind = type(one)
        if kind in found:
            found[kind] += 1
    return found


async def use(client: Client, stream: str, consumer: str, config: dict[str, object]) -> None:
    """Make a consumer, have two of its messages delivered, acknowledge one, and let a request wait."""
    config = {"name": consumer, "ack_policy": "explicit", **config}
    made = await call(client, f"CONSUMER.CREATE.{stream}.{consumer}", {"stream_name": stream, "config": config})
    assert "error" not in made
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
    async with client.subscribe("got") as got:
        await client.publish(subject, orjson.dumps({"batch": 100, "expires": HOUR_NS}), reply="got")
        await got.next_message(timeout_s=2)
        await client.publish((await got.next_message(timeout_s=2)).reply or "")
        await client.flush()


def test_what_is_removed_is_gone_at_once() -> None:
    """Streams, consumers and connections, though what they once waited for lies an hour ahead, and without the garbage
    collector: it may come hours later, and a stream holds its index, or all its messages.
    """

    async def scene(stage: Stage) -> None:
        gc.collect()
        before = counts()
        async with connect("nats://server", runtime=stage.runtime) as client:
            for cycle, storage in enumerate(("file", "memory", "file")):
                name = f"S{cycle}"
                config = {"name": name, "subjects": [f"{name}.>"], "max_age": HOUR_NS, "storage": storage}
                await call(client, f"STREAM.CREATE.{name}", config)
                await call(client, f"STREAM.CREATE.M{name}", {"name": f"M{name}", "mirror": {"name": name}})
                for number in range(5):
                    assert await publish(client, f"{name}.{number}")
                await use(client, name, "durable", {"durable_name": "durable", "ack_wait": HOUR_NS})
                await use(client, name, "passing", {"inactive_threshold": HOUR_NS})
                await use(client, name, "filtered", {"filter_subject": f"{name}.*", "inactive_threshold": HOUR_NS})
                await use(client, name, "ending", {"inactive_threshold": SECOND_NS})
                await call(client, f"CONSUMER.DELETE.{name}.durable")
                await call(client, f"CONSUMER.DELETE.{name}.passing")
                async with connect("nats://server", runtime=stage.runtime) as passer, passer.subscribe("a.>"):
                    await passer.publish("a.b", reply="c.d")
                    await passer.flush()
                await stage.sleep(60)
                assert (await call(client, f"CONSUMER.NAMES.{name}"))["consumers"] == ["filtered"]
                assert counts()[ConsumerService] == 1
                await call(client, f"STREAM.DELETE.M{name}")
                await call(client, f"STREAM.DELETE.{name}")
        await stage.sleep(1)
        assert counts() == before

    play(1, scene).unwrap()


def test_who_is_asked_again_and_again_does_not_grow() -> None:
    """A consumer that nobody uses for an hour is removed: that hour begins anew with each of many requests."""

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
            config = {"name": "C", "ack_policy": "explicit", "inactive_threshold": HOUR_NS}
            await call(client, "CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
            body = orjson.dumps({"batch": 1, "no_wait": True})
            for _ in range(100):
                await client.request("$JS.API.CONSUMER.MSG.NEXT.S.C", body, timeout_s=2)
            gc.collect()
            before = len(gc.get_objects())
            for _ in range(3000):
                await client.request("$JS.API.CONSUMER.MSG.NEXT.S.C", body, timeout_s=2)
            gc.collect()
            assert len(gc.get_objects()) - before < 1500

    play(1, scene).unwrap()


def test_streams_keep_in_memory_what_has_come_since_their_checkpoint() -> None:
    """Each keeps its newest messages for its consumers; those of a thousand idle streams would fill the memory."""

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["S"]})
            for number in range(20):
                assert await publish(client, "S", b"%d" % number)
            stream = stage.node.jetstream.accounts["$G"].streams["S"]
            assert len(stream.store._recent) == 20
            await stream.checkpoint()
            assert await publish(client, "S")
            assert list(stream.store._recent) == [21]
            answer = await call(client, "STREAM.MSG.GET.S", {"seq": 1})
            assert answer["message"]["data"] == b64encode(b"0").decode()  # type: ignore[index]

    play(1, scene).unwrap()


class Sleeper:
    """Notes when it is woken, and sleeps again for as long as it has `pauses_ns`."""

    def __init__(self, timers: Timers, woken: list[tuple[int, str]], name: str, pauses_ns: list[int]) -> None:
        self._timers, self._woken, self._name, self._pauses_ns = timers, woken, name, pauses_ns

    def tick(self, now_ns: int) -> None:
        self._woken.append((now_ns, self._name))
        if self._pauses_ns:
            self._timers.set(self, now_ns + self._pauses_ns.pop(0))


def test_moments_that_were_replaced_are_dropped() -> None:
    """However often a moment is replaced, each sleeper is woken at the one that counts, and the heap stays small."""

    async def main(world: World) -> list[tuple[int, str]]:
        woken: list[tuple[int, str]] = []

        async def run(runtime: Runtime) -> None:
            timers, start_ns = Timers(runtime.clock, wake), runtime.clock.mono_ns()
            one, two = Sleeper(timers, woken, "one", [5, 7]), Sleeper(timers, woken, "two", [])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(timers.run)
                for number in range(20_000):
                    timers.set(one, start_ns + HOUR_NS + number % 3)
                    timers.set(two, start_ns + HOUR_NS - number)
                    assert len(timers._moments._heap) < 2000
                timers.set(two, start_ns + 20)
                timers.set(one, start_ns + 10)
                await runtime.clock.sleep_ns(SECOND_NS)
                nursery.cancel_scope.cancel()
            woken[:] = [(moment_ns - start_ns, name) for moment_ns, name in woken]

        machine = world.node("machine")
        machine.start(run)
        await machine.wait_ended()
        return woken

    found = run_world(1, main, Settings(buggify=False)).unwrap()
    assert found == [(10, "one"), (15, "one"), (20, "two"), (22, "one")]


def test_messages_that_are_sent_again_and_again_leave_no_timers() -> None:
    """Each is ready when its last sending says so, however often it was sent; few timers are kept."""
    state = ConsumerState()
    state.deliver(1, 20, 1, 0, tracks_acks=True)
    timers = AckTimers(state)
    timers.set_run(1, 20, 0, HOUR_NS)
    for number in range(1, 5001):
        seq = number % 20 + 1
        timers.make_ready(seq)
        del timers.ready[seq]
        state.deliver(seq, 1, 0, number, tracks_acks=True)
        timers.set_run(seq, seq, number, HOUR_NS)
    assert len(timers._heap) < 200
    for number in range(4980, 5001):
        for seq in timers.due(HOUR_NS + number):
            timers.make_ready(seq)
        assert list(timers.ready) == [seq % 20 + 1 for seq in range(4981, number + 1)]


def test_schedules_that_take_the_place_of_others_leave_nothing() -> None:
    """A schedule that is put off again and again, as for a reminder, is one entry, and due when the last one says."""
    schedules = Schedules()
    for number in range(5000):
        headers = {b"Nats-Schedule": b"@at 2030-01-01T00:%02d:00Z" % (number % 60), b"Nats-Schedule-Target": b"t"}
        schedules.add(b"s", number + 1, 0, headers)
    assert len(schedules._moments._heap) < 200
    due_ns = schedules.next_deadline_ns()
    assert due_ns is not None
    assert schedules.due(due_ns - 1) == []
    assert [due.seq for due in schedules.due(due_ns)] == [5000]


def test_schedules_stay_due_until_their_firing_is_stored() -> None:
    """Asked again, the schedules whose time has come are the same, the earliest first, and still the next to be due."""
    schedules = Schedules()
    for second in (3, 1, 2, 40):
        headers = {b"Nats-Schedule": b"@at 2030-01-01T00:00:%02dZ" % second, b"Nats-Schedule-Target": b"t"}
        schedules.add(b"s.%d" % second, second, 0, headers)
    first_ns = schedules.next_deadline_ns()
    assert first_ns is not None
    for _ in range(3):
        assert [due.seq for due in schedules.due(first_ns + 5 * SECOND_NS)] == [1, 2, 3]
        assert schedules.next_deadline_ns() == first_ns
    schedules.rearm(b"s.1", first_ns + 60 * SECOND_NS)
    assert [due.seq for due in schedules.due(first_ns + 5 * SECOND_NS)] == [2, 3]
