"""What readers do while the server cannot answer: scripted, in virtual time."""

from __future__ import annotations

import orjson
import pytest
import trio
from tests.unit.client.stage import Peer, Published, Stage, play

from tnats.client.jetstream import JetStream, StreamNotFound

CREATED = {"stream_name": "S", "name": "c", "created": "2026-01-01T00:00:00Z", "config": {}, "num_pending": 2}


def error(code: int, err_code: int) -> dict[str, object]:
    return {"error": {"code": code, "err_code": err_code, "description": "no"}}


class JetStreamScript:
    """Answers API requests: each creation with the next of `creations`, each pull with its consumer's messages."""

    def __init__(self, creations: list[dict[str, object]], sequences: list[list[int]]) -> None:
        """`sequences`: the stream sequences that each consumer in turn delivers, then it says that it is deleted."""
        self.creations = creations
        self.sequences = sequences
        self.starts: list[int] = []
        self.deleted: list[str] = []

    def __call__(self, sender: Peer, message: Published) -> None:
        call = message.subject.decode().removeprefix("$JS.API.")
        reply = message.reply.decode()
        if call.startswith("CONSUMER.CREATE."):
            answer = self.creations.pop(0)
            if "error" not in answer:
                self.starts.append(orjson.loads(message.payload)["config"].get("opt_start_seq", 0))
            sender.deliver(reply, orjson.dumps(answer))
        elif call.startswith("CONSUMER.DELETE."):
            self.deleted.append(call)
        elif call.startswith("CONSUMER.MSG.NEXT.") and self.sequences:
            for number, sequence in enumerate(self.sequences.pop(0), 1):
                self.deliver(sender, reply, sequence, number)
            sender.deliver(reply, b"", "", b"NATS/1.0 409 Consumer Deleted\r\n\r\n")

    def deliver(self, sender: Peer, reply: str, sequence: int, number: int) -> None:
        (sid,) = [sid for sid, (pattern, _) in sender.subscriptions.items() if pattern == reply.encode()]
        place = f"$JS.ACK.S.c.1.{sequence}.{number}.0.0"
        sender.send(b"MSG s.x %b %b 1\r\nx\r\n" % (sid, place.encode()))


def test_an_ordered_reader_waits_out_a_server_without_leader() -> None:
    """A consumer that is gone is made anew after the last message, as often as it takes; each one is cleared away."""
    creations = [CREATED, error(503, 10008), error(500, 10119), CREATED, CREATED]
    script = JetStreamScript(creations, [[3, 5], [], [8, 9]])

    async def scene(stage: Stage) -> None:
        stage.server.route = script  # type: ignore[method-assign]
        async with stage.connect() as client:
            start_s = stage.now_s
            async with JetStream(client).stream("S").ordered() as messages:
                read = [(await anext(messages)).metadata.stream_sequence for _ in range(4)]
            assert read == [3, 5, 8, 9]
            assert messages.reset_count == 2
            assert 0.5 <= stage.now_s - start_s < 1
        assert script.starts == [0, 6, 6]
        assert len(script.deleted) == 3

    play(scene)


def test_an_ordered_reader_notices_a_gap() -> None:
    """A delivery that is missing makes another consumer from there; nothing is given twice or left out."""
    script = JetStreamScript([CREATED, CREATED], [[1, 2], [2, 3]])

    def deliver(sender: Peer, reply: str, sequence: int, number: int) -> None:
        lost = len(script.starts) == 1 and number == 2
        JetStreamScript.deliver(script, sender, reply, sequence, number + lost)

    script.deliver = deliver  # type: ignore[method-assign]

    async def scene(stage: Stage) -> None:
        stage.server.route = script  # type: ignore[method-assign]
        async with stage.connect() as client, JetStream(client).stream("S").ordered() as messages:
            assert [(await anext(messages)).metadata.stream_sequence for _ in range(3)] == [1, 2, 3]
        assert script.starts == [0, 2]

    play(scene)


def test_an_ordered_reader_ends_with_its_stream() -> None:
    """A stream that is gone is no outage."""

    async def scene(stage: Stage) -> None:
        stage.server.route = JetStreamScript([CREATED, error(404, 10059)], [[1]])  # type: ignore[method-assign]
        async with stage.connect() as client, JetStream(client).stream("S").ordered() as messages:
            await anext(messages)
            with pytest.raises(StreamNotFound):
                await anext(messages)

    play(scene)


def test_a_cancelled_reader_goes_on_later() -> None:
    """Cancelling a wait while another consumer is being made loses nothing: the next wait makes it."""
    script = JetStreamScript([CREATED, *[error(503, 10008)] * 8, CREATED], [[1], [2]])

    async def scene(stage: Stage) -> None:
        stage.server.route = script  # type: ignore[method-assign]
        clock = stage.runtime.clock
        async with stage.connect() as client, JetStream(client).stream("S").ordered() as messages:
            assert (await anext(messages)).metadata.stream_sequence == 1
            for _ in range(3):
                with clock.deadline(clock.mono_ns() + 300_000_000) as scope:
                    await anext(messages)
                assert scope.cancelled_caught
                await trio.lowlevel.checkpoint()
            assert (await anext(messages)).metadata.stream_sequence == 2
        assert script.starts == [0, 2]

    play(scene)
