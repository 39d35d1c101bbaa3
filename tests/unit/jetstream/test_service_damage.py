"""The whole server on a damaged store, in simulation: it starts, names what is damaged, and serves the rest."""

from __future__ import annotations

import errno

import orjson
from tests.unit.jetstream.service_world import STORE, Stage, call, play, publish

from tnats.client import Client, connect
from tnats.runtime.sim.disk_faults import DiskFault, Fail

PART = f"{STORE}/tnats/journal/0000000000000001.part"
FILLER = b"x" * 100


async def damage(stage: Stage, payload: bytes, bits: int) -> None:
    """Kill the server, flip so many bits in what the journal holds of `payload`, start it again."""
    stage.machine.kill()
    await stage.machine.wait_ended()
    image = stage.machine.drive.image
    number = image.file(PART)
    offset = image.content(PART).index(payload)
    for place in range(offset, offset + bits):
        image.write(number, bytes((image.read(number, 1, place)[0] ^ 1,)), place)
    stage.machine.start()
    await stage.sleep(1)


def findings(stage: Stage) -> list[str]:
    assert stage.node.jetstream is not None
    return [str(finding) for finding in stage.node.jetstream.store.findings]


def test_a_damaged_message_is_an_error_and_all_else_is_served() -> None:
    """Both kinds of gets say that it is damaged, not that it is absent; stream info and health check name it; its
    neighbours are there, and its sequence is not used again.
    """

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "allow_direct": True})
            for number in range(1, 10):
                assert await publish(client, "s", b"%d%b" % (number, FILLER)) == {"stream": "S", "seq": number}
            await damage(stage, b"5" + FILLER, bits=3)
            answer = await call(client, "STREAM.MSG.GET.S", {"seq": 5})
            assert answer["error"] == {"code": 500, "err_code": 10051, "description": "message 5 is damaged"}
            direct = await client.request("$JS.API.DIRECT.GET.S", orjson.dumps({"seq": 5}))
            assert (direct.status, direct.description) == (500, "Message 5 Is Damaged")
            assert (await client.request("$JS.API.DIRECT.GET.S", orjson.dumps({"seq": 99}))).status == 404
            state = (await call(client, "STREAM.INFO.S"))["state"]
            assert isinstance(state, dict)
            assert [seq for seq in state["lost"]["msgs"] if seq < 10] == [5]
            assert state["messages"] == 8
            for seq in (4, 6):
                assert "message" in await call(client, "STREAM.MSG.GET.S", {"seq": seq})
            assert stage.node.jetstream is not None
            assert any("lost" in line and "5-5 messages" in line for line in stage.node.jetstream.health())
            answered = await publish(client, "s", b"10")
            assert answered is not None
            assert isinstance(answered["seq"], int)
            assert answered["seq"] > 9

    play(1, scene).unwrap()


def test_limits_hold_where_their_entries_are_damaged() -> None:
    """An entry that cannot be read has stored a message, which its file still has, and removed another one for it: both
    are so after the start.
    """

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "max_msgs": 4})
            for number in range(1, 9):
                await publish(client, "s", b"%d%b" % (number, FILLER))
            assert stage.node.jetstream is not None
            await stage.node.jetstream.accounts["$G"].streams["S"].store.log.write()
            await damage(stage, b"8" + FILLER, bits=3)
            assert "message" in await call(client, "STREAM.MSG.GET.S", {"seq": 8})
            state = (await call(client, "STREAM.INFO.S"))["state"]
            assert isinstance(state, dict)
            assert (state["first_seq"], state["messages"]) == (5, 4)

    play(1, scene).unwrap()


def test_a_flipped_bit_is_corrected_and_reported() -> None:
    """The message is there as it was, the report names file and bit, and the health check has no objection."""

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "allow_direct": True})
            for number in range(1, 10):
                await publish(client, "s", b"%d%b" % (number, FILLER))
            await damage(stage, b"5" + FILLER, bits=1)
            found = await client.request("$JS.API.DIRECT.GET.S", orjson.dumps({"seq": 5}))
            assert found.data == b"5" + FILLER
            assert [text for text in findings(stage) if text.startswith("corrected")]
            assert stage.node.jetstream is not None
            assert stage.node.jetstream.health() == []

    play(1, scene).unwrap()


def test_damage_that_a_read_meets_shows_in_the_health_check_once() -> None:
    """A segment rots while the server runs: the reader gets an error each time, the health check names the message."""

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "allow_direct": True})
            for number in range(1, 10):
                await publish(client, "s", b"%d%b" % (number, FILLER))
            assert stage.node.jetstream is not None
            await stage.node.jetstream.accounts["$G"].streams["S"].checkpoint()
            await stage.restart()
            assert stage.node.jetstream is not None
            assert stage.node.jetstream.health() == []
            image = stage.machine.drive.image
            (path,) = [path for path in image.walk() if path.endswith(".seg")]
            image.overwrite(path, b"???", image.content(path).index(b"5" + FILLER))
            for _ in range(3):
                answer = await call(client, "STREAM.MSG.GET.S", {"seq": 5})
                assert answer["error"] == {"code": 500, "err_code": 10051, "description": "message 5 is damaged"}
            (line,) = stage.node.jetstream.health()
            assert "message 5" in line
            assert "message" in await call(client, "STREAM.MSG.GET.S", {"seq": 6})

    play(1, scene).unwrap()


def test_a_counter_whose_last_message_is_damaged_is_broken_and_others_count() -> None:
    """The damage is met when the total is read: increments of this counter are refused, and the stream goes on."""

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:

            async def count(subject: str, increment: int = 1) -> object:
                answer = await client.request(subject, headers={"Nats-Incr": str(increment)}, timeout_s=1)
                told = orjson.loads(answer.data)
                return told.get("val") or told["error"]["err_code"]

            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["c.*"], "allow_msg_counter": True})
            assert await count("c.a", 7777777777) == "7777777777"
            for number in range(1, 10):
                assert await count("c.b") == str(number)
            assert stage.node.jetstream is not None
            await stage.node.jetstream.accounts["$G"].streams["S"].checkpoint()
            await stage.restart()
            image = stage.machine.drive.image
            (path,) = [path for path in image.walk() if path.endswith(".seg")]
            image.overwrite(path, b"???", image.content(path).index(b'{"val":"7777777777"}'))
            for number in range(10, 13):
                assert await count("c.a") == 10172
                assert await count("c.b") == str(number)

    play(1, scene).unwrap()


def test_what_cannot_be_read_now_is_not_absent() -> None:
    """While reads fail, every kind of get says that a message cannot be read, never that there is none, and a batch
    ends there; a mirror waits, and takes everything when reads succeed again.
    """

    async def scene(stage: Stage) -> None:
        async with connect("nats://server", runtime=stage.runtime, reconnect_attempts_max=None) as client:
            await call(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "allow_direct": True})
            for number in range(1, 6):
                await publish(client, "s", b"%d%b" % (number, FILLER))
            stage.machine.signal("TERM")  # the next run has nothing of it in memory
            await stage.machine.wait_ended()
            stage.machine.start()
            await stage.sleep(1)
            stage.machine.drive.cold = 1.0
            stage.machine.drive.faults.append(DiskFault(("read",), Fail(errno.EIO)))
            answer = await call(client, "STREAM.MSG.GET.S", {"seq": 2})
            assert answer["error"] == {"code": 500, "err_code": 10051, "description": "message 2 cannot be read"}
            direct = await client.request("$JS.API.DIRECT.GET.S", orjson.dumps({"seq": 2}))
            assert (direct.status, direct.description) == (500, "Message 2 Cannot Be Read")
            batch = await client.request("$JS.API.DIRECT.GET.S", orjson.dumps({"seq": 1, "batch": 5}))
            assert (batch.status, batch.description) == (500, "Message 1 Cannot Be Read")
            await call(client, "STREAM.CREATE.M", {"name": "M", "mirror": {"name": "S"}})
            await stage.sleep(5)
            assert (await state_of(client, "M"))["messages"] == 0
            stage.machine.drive.faults.clear()
            await stage.sleep(15)
            state = await state_of(client, "M")
            assert (state["messages"], state["first_seq"], state["last_seq"]) == (5, 1, 5)

    play(1, scene).unwrap()


async def state_of(client: Client, stream: str) -> dict[str, object]:
    state = (await call(client, f"STREAM.INFO.{stream}"))["state"]
    assert isinstance(state, dict)
    return state
