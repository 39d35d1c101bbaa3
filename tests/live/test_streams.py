"""Streams of a real server under many publishers at once, killed publishers, and kills of its own."""

from __future__ import annotations

import select
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
import trio
from tests.conformance.jetstream_talk import Talk, wait_for_port
from tests.live.patient_client import connect
from tests.live.server_process import PATIENCE_S, ServerProcess, serve

from tnats.client import Client

CONFIG = "jetstream { store_dir: store }"
LAST = "Nats-Expected-Last-Sequence"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for the tests that do not kill theirs."""
    with serve(tmp_path_factory.mktemp("server"), CONFIG) as running:
        yield running


async def test_one_of_a_hundred_wins(server: ServerProcess) -> None:
    """Of a hundred clients that expect the same last sequence exactly one is stored, round after round; the others
    are told what is there by then.
    """
    winners: list[list[int]] = [[] for _ in range(5)]
    told: list[set[int]] = [set() for _ in range(5)]

    async def contend(number: int, client: Client, round_number: int) -> None:
        answer = await client.request("won", b"%d" % number, headers={LAST: str(round_number)}, timeout_s=PATIENCE_S)
        found = orjson.loads(answer.data)
        if "error" in found:
            assert found["error"]["err_code"] == 10071
            told[round_number].add(int(found["error"]["description"].rpartition(" ")[2]))
        else:
            winners[round_number].append(found["seq"])

    with Talk(server.port) as talk:
        talk.create("WON")
    clients: list[Client] = []
    async with trio.open_nursery() as nursery:

        async def join(task_status: trio.TaskStatus[Client]) -> None:
            async with connect(server.url) as client:
                task_status.started(client)
                await trio.sleep_forever()

        clients += [await nursery.start(join) for _ in range(100)]
        for round_number in range(5):
            async with trio.open_nursery() as contenders:
                for number, client in enumerate(clients):
                    contenders.start_soon(contend, number, client, round_number)
        nursery.cancel_scope.cancel()
    assert winners == [[1], [2], [3], [4], [5]]
    assert told == [{1}, {2}, {3}, {4}, {5}]


def test_a_removed_stream_stays_removed(server: ServerProcess) -> None:
    """One that is made under its name at once has none of its messages, also where a consumer was made just before."""
    with Talk(server.port) as talk:
        for number in range(30):
            talk.create("AGAIN")
            assert talk.state("AGAIN") == (0, 0, 0)
            talk.flood(["again"] * 5, b"%d" % number)
            talk.done("CONSUMER.CREATE.AGAIN.c", {"stream_name": "AGAIN", "config": {"durable_name": "c"}})
            talk.done("STREAM.DELETE.AGAIN")


def test_a_hundred_creators_make_one_stream(server: ServerProcess) -> None:
    """All get the same answer; none is refused."""
    body = orjson.dumps({"name": "MANY", "subjects": ["many"]})
    talks = [Talk(server.port, name=str(number)) for number in range(100)]
    inboxes = []
    for talk in talks:
        inboxes.append(talk.new_inbox())
        talk.say("$JS.API.STREAM.CREATE.MANY", body, (), inboxes[-1])
    answers = [talk.hear(inbox).json for talk, inbox in zip(talks, inboxes, strict=True)]
    assert len({answer["created"] for answer in answers}) == 1
    assert not any("error" in answer for answer in answers)
    for talk in talks:
        talk.close()


def test_publishers_that_are_gone(server: ServerProcess) -> None:
    """Nothing is stored of batches whose clients were cut off; they count until their time is over or somebody who
    knows their id ends them, and then make room for others.
    """
    piece = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"}
    with Talk(server.port) as talk:
        talk.create("GONE", allow_atomic=True, allow_batched=True)
        with Talk(server.port, name="other") as other:
            inbox = other.new_inbox()
            pieces = [piece | {"Nats-Batch-Id": f"b{number}"} for number in range(50)]
            other.send(b"".join(other.packed("gone", b"never", headers, inbox) for headers in pieces))
            assert [other.hear(inbox).data for _ in pieces] == [b""] * 50
        assert talk.denied("gone", b"", piece) == 10210
        assert talk.denied("gone", b"", piece | {"Nats-Batch-Id": "b7", "Nats-Batch-Sequence": "3"}) == 10176
        assert talk.ask("gone", b"x" * 1000, piece).data == b""
        commit = {"Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1"}
        assert talk.publish("gone", b"", piece | commit)["count"] == 2
        assert talk.state("GONE") == (2, 1, 2)


@pytest.mark.slow
def test_large_batches(server: ServerProcess) -> None:
    """A thousand messages of 100 kB are stored as one; together with more than fits they are refused as a whole."""
    body = b"x" * 100_000
    with Talk(server.port) as talk, Talk(server.port, name="other") as other:
        talk.create("LARGE", allow_atomic=True)

        def piece(batch_id: str, number: int) -> dict[str, str]:
            return {"Nats-Batch-Id": batch_id, "Nats-Batch-Sequence": str(number)}

        def whole() -> Iterator[int]:
            """Say all of a batch but its last message; between them its numbers."""
            for number in range(1, 1000):
                other.say("large", body, piece("whole", number))
                yield number

        commit = {"Nats-Batch-Commit": "1"}
        for number in range(1, 400):
            talk.say("large", body, piece("waits", number))
        assert talk.ask("large", body, piece("waits", 400)).data == b""
        count = 400
        for number in whole():
            if number % 50 == 0:  # however long this takes, the other one is not idle
                count += 1
                assert talk.ask("large", b"", piece("waits", count)).data == b""
        assert other.denied("large", body, piece("whole", 1000) | commit) == 10210
        assert other.state("LARGE")[0] == 0
        count += 1
        assert talk.publish("large", body, piece("waits", count) | commit)["count"] == count
        assert len(list(whole())) == 999
        assert other.publish("large", body, piece("whole", 1000) | commit)["count"] == 1000
        assert talk.state("LARGE") == (count + 1000, 1, count + 1000)


class LossyProxy:
    """Passes everything to a server, but for the first answer to a publish: that is lost with the connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._is_lost = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        for _ in range(2):
            near, _ = self._listener.accept()
            with near, socket.create_connection(("127.0.0.1", self._port)) as far:
                self._pass(near, far)

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        while True:
            for source in select.select([near, far], [], [])[0]:
                data = source.recv(1 << 16)
                if not data:
                    return
                if source is far and b'"seq":' in data and not self._is_lost:
                    self._is_lost = True
                    return
                (near if source is far else far).sendall(data)

    def close(self) -> None:
        self._thread.join(PATIENCE_S)
        self._listener.close()


@pytest.mark.parametrize(("msg_id", "stored"), [("once", 1), ("", 2)])
def test_a_publisher_tries_again(server: ServerProcess, msg_id: str, stored: int) -> None:
    """Whose acknowledgement was lost stores a second copy by trying again, unless the message has an id."""
    headers = {"Nats-Msg-Id": msg_id} if msg_id else {}
    proxy = LossyProxy(server.port)
    name = f"AGAIN{stored}"
    with Talk(server.port) as talk:
        talk.create(name)
        while True:
            try:
                with Talk(proxy.port, name="publisher") as publisher:
                    answer = publisher.publish(name.lower(), b"x", headers)
                break
            except (AssertionError, OSError):
                continue
        assert (answer["seq"], answer.get("duplicate", False)) == (stored, bool(msg_id))
        assert talk.state(name)[0] == stored
    proxy.close()


@pytest.mark.slow
def test_an_interest_stream_lets_go(server: ServerProcess) -> None:
    """When the slow one of two consumers is deleted, what only it was waiting for goes within seconds, and the server
    answers all the while.
    """
    with Talk(server.port) as talk:
        talk.create("WISH", retention="interest")
        for name, policy in (("FAST", "all"), ("SLOW", "explicit")):
            config = {"durable_name": name, "ack_policy": policy, "max_ack_pending": -1, "ack_wait": 10**12}
            talk.done(f"CONSUMER.DURABLE.CREATE.WISH.{name}", {"stream_name": "WISH", "config": config})
        talk.flood(["wish"] * 20_000)
        talk.listen("pulled")
        talk.say("$JS.API.CONSUMER.MSG.NEXT.WISH.FAST", b"10000", (), "pulled")
        last = [talk.hear("pulled") for _ in range(10_000)][-1]
        talk.ask(last.reply, b"+ACK")
        assert talk.state("WISH") == (20_000, 1, 20_000)
        talk.done("CONSUMER.DELETE.WISH.SLOW")
        while talk.state("WISH") != (10_000, 10_001, 20_000):
            talk.log.clear()


@pytest.mark.slow
def test_kills_in_the_middle_of_batches(tmp_path: Path) -> None:
    """SIGKILL while batches are staged, committed and acknowledged: after the restart a batch is there as a whole or
    not at all, and an acknowledged one is there.
    """
    with serve(tmp_path, CONFIG) as server:
        acknowledged: set[str] = set()
        sent = 0
        for life in range(3):
            talk = Talk(server.port)
            if not life:
                talk.create("S", subjects=["s.>"], allow_atomic=True)
            inbox = talk.new_inbox()
            for _ in range(40):
                sent += 1
                for number in range(1, 6):
                    headers = {"Nats-Batch-Id": str(sent), "Nats-Batch-Sequence": str(number)}
                    if number == 5:
                        headers["Nats-Batch-Commit"] = "1"
                    talk.say(f"s.{sent}", b"%d" % number, headers, inbox if number == 5 else "")
            for _ in range(15 + life):
                acknowledged.add(talk.hear(inbox).json["batch"])
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
            try:
                while True:
                    acknowledged.add(talk.hear(inbox, 0.5).json["batch"])
            except (AssertionError, OSError):
                talk.close()
            server.start()
            wait_for_port(server.port)
            with Talk(server.port) as after:
                held = after.done("STREAM.INFO.S", {"subjects_filter": ">"})["state"].get("subjects", {})
            assert set(held.values()) <= {5}
            assert acknowledged <= {subject.removeprefix("s.") for subject in held}
