"""What `tnats.client.jetstream` must be able to do with any NATS server.

Not collected by itself: `test_jetstream_client` runs it against our server, tests/conformance against nats-server.
Whoever runs it gives each test a fixture `server`, a fresh one with JetStream, with `url`: nats-server 2.15.1 may give
messages of a removed stream to one that is made under its name soon after.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

import pytest
import trio
from tests.live.patient_client import connect
from tests.live.server_process import PATIENCE_S

from tnats.client import ClientError, NoResponders, TimedOut
from tnats.client.jetstream import (
    AckPolicy,
    Action,
    ApiError,
    ConsumerConfig,
    ConsumerDeleted,
    ConsumerNotFound,
    DeliverPolicy,
    JetStream,
    MessageNotFound,
    NameInUse,
    PriorityPolicy,
    PullRefused,
    StoredMessage,
    Stream,
    StreamConfig,
    StreamNotFound,
    WrongLastSequence,
)


class Target(Protocol):
    """A server under test."""

    @property
    def url(self) -> str: ...


@asynccontextmanager
async def fresh(server: Target) -> AsyncIterator[JetStream]:
    """JetStream on a connection of its own."""
    async with connect(server.url) as client:
        with trio.fail_after(PATIENCE_S):
            yield JetStream(client, timeout_s=PATIENCE_S)


async def orders(js: JetStream, count: int = 0, **config: object) -> Stream:
    """A stream ORDERS on orders.>, with `count` messages on orders.0, orders.1, orders.2 in turn."""
    stream = await js.create_stream(StreamConfig("ORDERS", subjects=["orders.>"], allow_direct=True, **config))  # type: ignore[arg-type]
    for number in range(count):
        await js.publish(f"orders.{number % 3}", b"%d" % number)
    return stream


async def test_streams_are_made_changed_listed_and_removed(server: Target) -> None:
    """Each call does what it says, and what is refused raises what the documentation names."""
    async with fresh(server) as js:
        stream = await orders(js)
        config = (await stream.info()).config
        assert (config.subjects, config.max_msgs, config.num_replicas) == (["orders.>"], -1, 1)
        await js.create_stream(config)
        with pytest.raises(NameInUse):
            await js.create_stream(StreamConfig("ORDERS", subjects=["other.>"]))
        config.description = "changed"
        config.max_msgs = 5
        assert (await stream.update(config)).config.description == "changed"
        await js.create_stream(StreamConfig("LOGS", subjects=["logs.>"]))
        assert sorted(await js.stream_names()) == ["LOGS", "ORDERS"]
        assert await js.stream_names(subject="logs.a") == ["LOGS"]
        assert sorted(info.config.name for info in await js.stream_infos()) == ["LOGS", "ORDERS"]
        assert (await js.account_info()).streams == 2
        await stream.delete()
        for call in (stream.info, stream.delete, stream.consumer_names):
            with pytest.raises(StreamNotFound):
                await call()


async def test_a_publish_is_acknowledged_or_refused(server: Target) -> None:
    """Sequences count up, an id is stored once, what was expected and does not hold refuses without storing."""
    async with fresh(server) as js:
        stream = await orders(js, allow_msg_ttl=True)
        first = await js.publish("orders.a", b"1", message_id="x", headers={"Trace": "7"})
        assert (first.stream, first.seq, first.duplicate) == ("ORDERS", 1, False)
        again = await js.publish("orders.a", b"1", message_id="x")
        assert (again.seq, again.duplicate) == (1, True)
        assert (await js.publish("orders.b", b"2", expected_last_sequence=1)).seq == 2
        assert (await js.publish("orders.b", b"3", expected_last_subject_sequence=2, expected_stream="ORDERS")).seq == 3
        for wrong in (
            {"expected_last_sequence": 1},
            {"expected_last_subject_sequence": 2},
            {"expected_last_subject_sequence": 1, "expected_last_subject": "orders.b"},
        ):
            with pytest.raises(WrongLastSequence):
                await js.publish("orders.b", b"4", **wrong)  # type: ignore[arg-type]
        for wrong, err_code in (({"expected_stream": "LOGS"}, 10060), ({"expected_last_message_id": "y"}, 10070)):
            with pytest.raises(ApiError) as refused:
                await js.publish("orders.b", b"4", **wrong)  # type: ignore[arg-type]
            assert refused.value.err_code == err_code
        await js.publish("orders.c", b"", ttl_s=90)
        await js.publish("orders.c", b"", ttl_s=math.inf)
        assert (await stream.get(4)).headers == {"Nats-TTL": ["1m30s"]}
        assert (await stream.get(5)).headers == {"Nats-TTL": ["never"]}
        assert (await stream.info()).state.last_seq == 5
        with pytest.raises(NoResponders):
            await js.publish("nobody.listens", b"", retries=0)


async def test_a_publish_waits_for_its_stream(server: Target) -> None:
    """While nobody listens it is tried again, so that a stream made meanwhile gets the message (ADR-22)."""
    async with fresh(server) as js:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(js.publish, "orders.early", b"1", retries=1000))
            await trio.sleep(0.1)
            stream = await orders(js)
        assert (await stream.info()).state.messages == 1


async def test_single_messages_are_read_and_removed(server: Target) -> None:
    """By sequence, the last and the next on a subject, by time; both ways of reading agree; purging counts."""
    async with fresh(server) as js:
        stream = await orders(js, 9)
        await js.publish("orders.h", b"body", headers={"A": ["1", "2"]})
        for get in (stream.get, stream.direct_get):
            found = await get(10)
            assert (found.subject, found.sequence, found.data) == ("orders.h", 10, b"body")
            assert found.headers == {"A": ["1", "2"]}
            assert (await get(last_on="orders.1")).sequence == 8
            assert (await get(4, next_on="orders.*")).sequence == 4
            assert (await get(next_on="orders.2")).data == b"2"
            later = await get(6)
            assert (await get(next_on=">", from_time_ns=later.time_ns)).sequence == 6
            with pytest.raises(MessageNotFound):
                await get(11)
        state = (await stream.info(subjects_filter="orders.*")).state
        assert state.subjects == {"orders.0": 3, "orders.1": 3, "orders.2": 3, "orders.h": 1}
        assert await stream.subject_counts("orders.*") == state.subjects
        assert await stream.subject_counts("nix") == {}
        await stream.delete_message(5)
        with pytest.raises(MessageNotFound):
            await stream.get(5)
        assert (await stream.info(deleted_details=True)).state.deleted == [5]
        assert await stream.purge(subject="orders.0", keep=1) == 2
        assert await stream.purge(below_sequence=6) == 2
        assert await stream.purge() == 5


async def test_many_messages_are_read_by_one_request(server: Target) -> None:
    """A batch from a place on, and the last message of each subject, also as of an earlier moment (ADR-31)."""
    async with fresh(server) as js:
        stream = await orders(js, 12)

        def sequences(found: list[StoredMessage]) -> list[int]:
            return [message.sequence for message in found]

        assert sequences(await stream.direct_get_batch(5)) == [1, 2, 3, 4, 5]
        assert sequences(await stream.direct_get_batch(5, sequence=10)) == [10, 11, 12]
        assert sequences(await stream.direct_get_batch(3, sequence=3, next_on="orders.1")) == [5, 8, 11]
        since_ns = (await stream.get(9)).time_ns
        assert sequences(await stream.direct_get_batch(2, from_time_ns=since_ns)) == [9, 10]
        assert sequences(await stream.direct_get_batch(5, next_on="nix")) == []
        assert sequences(await stream.direct_get_last("orders.*")) == [10, 11, 12]
        assert sequences(await stream.direct_get_last("orders.0", "orders.2", up_to_sequence=8)) == [6, 7]
        assert (await stream.direct_get_batch(1, sequence=4))[0].data == b"3"


async def test_consumers_stand_where_they_are_whatever_others_do(server: Target) -> None:
    """Each has a place of its own: what one takes, confirms or leaves changes nothing for the other."""
    async with fresh(server) as js:
        stream = await orders(js, 6)
        slow, fast = [
            await stream.create_consumer(ConsumerConfig(durable_name=name, ack_policy=AckPolicy.EXPLICIT))
            for name in ("slow", "fast")
        ]
        first = await slow.next()
        for delivery in await fast.fetch(6):
            await delivery.ack_sync()
        states = [await consumer.info() for consumer in (slow, fast)]
        assert [state.num_pending for state in states] == [5, 0]
        assert [state.ack_floor.stream_seq for state in states] == [0, 6]
        await first.ack_sync()
        assert [(await slow.next()).metadata.stream_sequence for _ in range(2)] == [2, 3]


async def test_consumers_are_made_changed_listed_and_removed(server: Target) -> None:
    """Each call does what it says; the action decides between making and changing."""
    async with fresh(server) as js:
        stream = await orders(js, 6)
        config = ConsumerConfig(durable_name="work", ack_policy=AckPolicy.EXPLICIT, filter_subject="orders.1")
        work = await stream.create_consumer(config)
        with pytest.raises(NameInUse):
            await stream.create_consumer(
                ConsumerConfig(durable_name="work", ack_policy=AckPolicy.EXPLICIT), action=Action.CREATE
            )
        with pytest.raises(ConsumerNotFound):
            await stream.create_consumer(ConsumerConfig(name="else"), action=Action.UPDATE)
        config.description = "changed"
        await stream.create_consumer(config, action=Action.UPDATE)
        info = await work.info()
        assert info.config is not None
        assert (info.config.description, info.num_pending) == ("changed", 2)
        unnamed = await stream.create_consumer(ConsumerConfig(filter_subjects=["orders.0", "orders.2"]))
        assert (await unnamed.info()).num_pending == 4
        assert sorted(await stream.consumer_names()) == sorted(["work", unnamed.name])
        assert len(await stream.consumer_infos()) == 2
        until_ns = js.client.runtime.clock.wall_ns() + 10**12
        assert (await work.pause(until_ns)).paused
        assert (await work.info()).paused
        assert not (await work.resume()).paused
        await work.delete()
        with pytest.raises(ConsumerNotFound):
            await work.info()


async def test_fetching_acknowledges_and_redelivers(server: Target) -> None:
    """What is acknowledged does not come again, what is refused does, and each word of acknowledgement is kept."""
    async with fresh(server) as js:
        stream = await orders(js, 6)
        consumer = await stream.create_consumer(ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT))
        first, second, third = await consumer.fetch(3)
        assert [delivery.data for delivery in (first, second, third)] == [b"0", b"1", b"2"]
        metadata = third.metadata
        assert (metadata.stream, metadata.consumer, metadata.domain) == ("ORDERS", "c", "")
        assert (metadata.stream_sequence, metadata.consumer_sequence, metadata.delivery_count) == (3, 3, 1)
        assert metadata.pending_count == 3
        assert metadata.time_ns == (await stream.get(3)).time_ns
        await first.ack_sync()
        await second.nak()
        await third.term("spoilt")
        # An acknowledgement and a request behind it are not handled in order: the refused one may come last.
        batch = {int(delivery.data): delivery for delivery in await consumer.fetch(4)}
        assert list(batch.keys() - {3, 4, 5}) == [1]
        again = batch.pop(1)
        rest = list(batch.values())
        assert again.metadata.delivery_count == 2
        await again.in_progress()
        mono_ns = js.client.runtime.clock.mono_ns
        given_back_ns = mono_ns()
        await again.nak(delay_s=0.2)
        late = await consumer.next(timeout_s=PATIENCE_S)
        assert (late.data, late.metadata.delivery_count) == (b"1", 3)
        assert mono_ns() - given_back_ns > 190_000_000
        for delivery in (*rest, late):
            await delivery.ack_sync()
        assert await consumer.fetch(10, no_wait=True) == []
        info = await consumer.info()
        assert (info.num_ack_pending, info.ack_floor.stream_seq) == (0, 6)
        await consumer.reset()
        assert await consumer.fetch(1, timeout_s=0.2) == []
        with pytest.raises(TimedOut):
            await consumer.next(timeout_s=0.1)


async def test_a_fetch_is_bounded_and_refused(server: Target) -> None:
    """In bytes and in number; a request against the consumer's rules, and one to nobody, raise."""
    async with fresh(server) as js:
        stream = await orders(js)
        for _ in range(4):
            await js.publish("orders.a", bytes(1000))
        consumer = await stream.create_consumer(
            ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT, max_batch=10)
        )
        assert len(await consumer.fetch(10, bytes_max=2500, timeout_s=20)) == 2
        with pytest.raises(PullRefused) as refused:
            await consumer.fetch(11)
        assert refused.value.status == 409
        await stream.create_consumer(ConsumerConfig(durable_name="push", deliver_subject="there"))
        with pytest.raises(PullRefused):
            await stream.consumer("push").fetch(1)
        with pytest.raises(NoResponders):
            await stream.consumer("nix").fetch(1)


async def test_a_stream_of_messages_keeps_itself_supplied(server: Target) -> None:
    """Many more messages than are fetched ahead come in order, also those published meanwhile."""
    async with fresh(server) as js:
        stream = await orders(js, 30)
        consumer = await stream.create_consumer(ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT))
        received = []
        async with consumer.messages(count_max=7, expires_s=1) as messages:
            async for message in messages:
                received.append(int(message.data))
                await message.ack()
                if len(received) == 30:
                    await js.publish("orders.late", b"30")
                if len(received) == 31:
                    break
        assert received == list(range(31))
        with trio.fail_after(PATIENCE_S):
            while (await consumer.info()).num_ack_pending:  # noqa: ASYNC110 - handled in the server in its own time
                await trio.sleep(0.01)


async def test_what_was_fetched_ahead_goes_back(server: Target) -> None:
    """Leaving the block gives the messages that nobody took to the next reader, long before their time is over."""
    async with fresh(server) as js:
        stream = await orders(js, 10)
        consumer = await stream.create_consumer(ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT))
        async with consumer.messages(count_max=10) as messages:
            await (await anext(messages)).ack_sync()
        rest = await consumer.fetch(9, timeout_s=20)
        assert sorted(int(message.data) for message in rest) == list(range(1, 10))


@pytest.mark.slow
async def test_a_stream_of_messages_ends_with_its_consumer(server: Target) -> None:
    """The iteration outlives requests that end, and raises when the consumer is removed."""
    async with fresh(server) as js:
        stream = await orders(js)
        consumer = await stream.create_consumer(ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT))

        async def publish_late() -> None:
            await trio.sleep(1)
            await js.publish("orders.a", b"1")

        async with consumer.messages(expires_s=0.4) as messages, trio.open_nursery() as nursery:
            nursery.start_soon(publish_late)
            assert (await anext(messages)).data == b"1"
        # A request is under way all the time: the next one after the removal would find no consumer.
        async with consumer.messages(expires_s=30) as messages, trio.open_nursery() as nursery:
            await js.publish("orders.a", b"2")
            assert (await anext(messages)).data == b"2"
            nursery.start_soon(consumer.delete)
            with trio.fail_after(20), pytest.raises(ConsumerDeleted):
                await anext(messages)
        async with stream.consumer("nix").messages() as messages:
            with pytest.raises(ConsumerNotFound):
                await anext(messages)


async def test_reading_in_order(server: Target) -> None:
    """Everything, from a place on, or filtered; and a consumer that vanishes midway does not show."""
    async with fresh(server) as js:
        stream = await orders(js, 12)
        async with stream.ordered(ConsumerConfig(filter_subject="orders.1"), count_max=2) as messages:
            assert messages.pending_count == 4
            assert [(await anext(messages)).data for _ in range(4)] == [b"1", b"4", b"7", b"10"]
        config = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=5)
        async with stream.ordered(config, count_max=2) as messages:
            received = [int((await anext(messages)).data) for _ in range(2)]
            for name in await stream.consumer_names():
                await stream.consumer(name).delete()
            received += [int((await anext(messages)).data) for _ in range(6)]
            assert received == list(range(4, 12))
            assert messages.reset_count == 1
        config = ConsumerConfig(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT, filter_subject=">")
        async with stream.ordered(config) as messages:
            assert [(await anext(messages)).data for _ in range(3)] == [b"9", b"10", b"11"]
        with trio.fail_after(PATIENCE_S):
            while await stream.consumer_names():  # noqa: ASYNC110 - handled in the server in its own time
                await trio.sleep(0.01)
        with pytest.raises(StreamNotFound):
            async with js.stream("NIX").ordered():
                pass


async def test_priority_groups(server: Target) -> None:
    """Overflow serves only past its bound, a pinned client alone is served and can be unpinned (ADR-42)."""
    async with fresh(server) as js:
        stream = await orders(js, 4)
        overflow = await stream.create_consumer(
            ConsumerConfig(
                durable_name="o",
                ack_policy=AckPolicy.EXPLICIT,
                priority_policy=PriorityPolicy.OVERFLOW,
                priority_groups=["g"],
            )
        )
        async with overflow.messages(group="g", min_pending=3, expires_s=2) as messages:
            assert [(await anext(messages)).data for _ in range(2)] == [b"0", b"1"]
            with trio.move_on_after(0.3) as scope:
                await anext(messages)
            assert scope.cancelled_caught
        with pytest.raises(PullRefused):
            await overflow.fetch(1)
        pinned = await stream.create_consumer(
            ConsumerConfig(
                durable_name="p",
                ack_policy=AckPolicy.EXPLICIT,
                priority_policy=PriorityPolicy.PINNED_CLIENT,
                priority_groups=["g"],
            )
        )
        async with pinned.messages(group="g", count_max=1, expires_s=2) as mine:
            assert (await anext(mine)).data == b"0"
            assert (await anext(mine)).data == b"1"
            assert await pinned.fetch(1, group="g", timeout_s=0.3) == []
            await pinned.unpin("g")
            assert [message.data for message in await pinned.fetch(1, group="g", timeout_s=20)] == [b"2"]


@pytest.mark.slow
async def test_pushed_messages_under_flow_control(server: Target) -> None:
    """More bytes than any window come whole and in order to a reader that is slow; the end of the consumer shows."""
    async with fresh(server) as js:
        stream = await orders(js)
        for number in range(200):
            await js.client.publish("orders.a", b"%d" % number + bytes(60_000))
        consumer = await stream.create_consumer(
            ConsumerConfig(name="p", deliver_subject="there", flow_control=True, idle_heartbeat_ns=200_000_000)
        )
        async with consumer.pushed() as messages:
            for number in range(200):
                message = await anext(messages)
                assert message.data.rstrip(b"\0") == b"%d" % number
                if number % 50 == 0:
                    await trio.sleep(0.1)
            await consumer.delete()
            with trio.fail_after(PATIENCE_S), pytest.raises(ConsumerNotFound):
                await anext(messages)
        pulled = await stream.create_consumer(ConsumerConfig(name="c"))
        with pytest.raises(ClientError, match="does not push"):
            async with pulled.pushed():
                pass


async def test_publishing_ahead_of_the_acknowledgements(server: Target) -> None:
    """Every message is stored once and in order, waited for or not; a refusal that nobody asked for is not lost."""
    async with fresh(server) as js:
        stream = await orders(js)
        async with js.publisher(pending_count_max=20) as publisher:
            pending = [await publisher.publish("orders.a", b"%d" % number) for number in range(500)]
            assert (await pending[250].wait()).seq == 251
        assert [ack.result().seq for ack in pending] == list(range(1, 501))
        assert (await stream.get(500)).data == b"499"
        with pytest.raises(WrongLastSequence):
            async with js.publisher() as publisher:
                await publisher.publish("orders.a", expected_last_sequence=3)
        async with js.publisher() as publisher:
            refused = await publisher.publish("orders.a", expected_last_sequence=3)
            with pytest.raises(WrongLastSequence):
                await refused.wait()
            nobody = await publisher.publish("nobody.listens")
            with pytest.raises(NoResponders):
                await nobody.wait()
        assert (await stream.info()).state.messages == 500


async def test_an_atomic_batch_is_stored_whole_or_not_at_all(server: Target) -> None:
    """Nothing of it shows before the commit, nothing ever when a condition fails or the batch is given up (ADR-50)."""
    async with fresh(server) as js:
        stream = await orders(js, allow_atomic=True)
        batch = js.atomic_batch()
        for number in range(10):
            await batch.publish("orders.a", b"%d" % number, headers={"N": str(number)})
        await js.client.flush()
        assert (await stream.info()).state.messages == 0
        ack = await batch.commit()
        assert (ack.seq, ack.count, ack.batch) == (10, 10, batch.id)
        assert (await stream.get(4)).headers == {"N": ["3"], "Nats-Batch-Id": [batch.id], "Nats-Batch-Sequence": ["4"]}
        with pytest.raises(ClientError):
            await batch.commit()
        single = js.atomic_batch()
        await single.publish("orders.b")
        assert (await single.commit()).seq == 11
        failing = js.atomic_batch()
        await failing.publish("orders.a", expected_last_sequence=11)
        await failing.publish("orders.b", expected_last_subject_sequence=5)
        with pytest.raises(WrongLastSequence):
            await failing.commit()
        assert (await stream.info()).state.last_seq == 11
        await js.create_stream(StreamConfig("PLAIN", subjects=["plain"]))
        refused = js.atomic_batch()
        await refused.publish("plain")
        with pytest.raises(ApiError) as answer:
            await refused.publish("plain")
        assert answer.value.err_code == 10174


async def test_a_fast_batch_goes_at_the_pace_of_the_server(server: Target) -> None:
    """All of it is stored in order, the commit counts it, a refused message shows (ADR-50)."""
    async with fresh(server) as js:
        stream = await orders(js, allow_batched=True)
        async with js.fast_batch(step_count=20) as batch:
            for number in range(500):
                await batch.publish("orders.a", b"%d" % number)
                assert batch.count - batch.stored_count <= 2 * 500
            ack = await batch.commit()
        assert (ack.batch, ack.count, ack.seq) == (batch.id, 500, 500)
        assert (await stream.get(500)).data == b"499"
        async with js.fast_batch() as refused:
            await refused.publish("orders.a")

            async def refuse() -> None:
                await refused.publish("orders.a", expected_last_sequence=3)
                await refused.commit()

            with pytest.raises(ApiError):
                await refuse()
        await js.create_stream(StreamConfig("PLAIN", subjects=["plain"]))
        async with js.fast_batch() as other:
            with pytest.raises(ApiError) as answer:
                await other.publish("plain")
        assert answer.value.err_code == 10205
        async with js.fast_batch() as nowhere:
            with pytest.raises(NoResponders):
                await nowhere.publish("nobody.listens")
