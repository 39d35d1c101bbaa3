"""Clients that ask for much more than `max_pending` and do not read for a while: they get all of it, each once."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import orjson
import pytest
from tests.conformance.consumer_talk import S, ask, info, make, place, wait_for
from tests.conformance.jetstream_talk import Talk, Told
from tests.live.server_process import PATIENCE_S, ServerProcess, serve

CONFIG = f"max_pending: 4MB, write_deadline: {PATIENCE_S:g}s, jetstream {{ store_dir: store }}"
"""With time for who reads late, on a machine that has much else to do."""
COUNT = 60
SIZE = 400_000
"""Of each message: together six times what may wait for a client."""
ALL = list(range(1, COUNT + 1))
CONSUMERS = [f"C{number}" for number in range(8)]


@pytest.fixture(scope="module", params=["at hand", "to be read"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One with a full stream, whose messages it has in memory or, started anew, on the disk alone."""
    with serve(tmp_path_factory.mktemp("server"), CONFIG) as running:
        talk = Talk(running.port)
        talk.create("S", allow_direct=True)
        for _ in ALL:
            talk.stored("s.x", b"x" * SIZE)
        talk.close()
        if request.param == "to be read":
            running.stop()
            running.start()
        yield running


@pytest.fixture
def talk(server: ServerProcess) -> Iterator[Talk]:
    """A client; no consumer outlives it."""
    with Talk(server.port) as opened:
        yield opened
    with Talk(server.port) as last:
        for name in last.api("CONSUMER.NAMES.S")["consumers"]:
            last.done(f"CONSUMER.DELETE.S.{name}")


def pull(talk: Talk) -> str:
    make(talk, max_ack_pending=-1)
    return ask(talk, {"batch": COUNT, "expires": 60 * S})


def pull_without_waiting(talk: Talk) -> str:
    make(talk, max_ack_pending=-1)
    return ask(talk, {"batch": COUNT, "no_wait": True})


def be_pushed(talk: Talk) -> str:
    talk.listen("pushed")
    make(talk, deliver_subject="pushed", ack_policy="none")
    return "pushed"


def get_directly(talk: Talk) -> str:
    inbox = talk.new_inbox()
    talk.say("$JS.API.DIRECT.GET.S", orjson.dumps({"seq": 1, "batch": COUNT, "max_bytes": 1 << 30}), reply=inbox)
    return inbox


def seq_of(message: Told) -> int:
    found = message.headers.get("Nats-Sequence")
    return int(found) if found else place(message)[1]


@pytest.mark.parametrize("begin", [pull, pull_without_waiting, be_pushed, get_directly])
def test_who_reads_late_gets_everything(talk: Talk, begin: Callable[[Talk], str]) -> None:
    """Nobody is cut off for having asked for more than the server would hold for it."""
    inbox = begin(talk)
    time.sleep(0.5)
    assert [seq_of(talk.hear(inbox)) for _ in ALL] == ALL


def test_who_reads_late_from_many_consumers_gets_everything(talk: Talk) -> None:
    """What one consumer sends leaves the others less room."""
    for name in CONSUMERS:
        make(talk, name, max_ack_pending=-1, ack_wait=300 * S)
    inboxes = [ask(talk, {"batch": COUNT, "expires": 300 * S}, name) for name in CONSUMERS]
    time.sleep(0.5)
    for inbox in inboxes:
        assert [seq_of(talk.hear(inbox)) for _ in ALL] == ALL


def test_who_reads_gets_what_another_does_not_read(server: ServerProcess, talk: Talk) -> None:
    """Of two clients at one consumer the one that reads gets most; the other has its few whenever it reads."""
    make(talk, max_ack_pending=-1, ack_wait=300 * S)
    with Talk(server.port, name="late") as late:
        late._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 128 << 10)
        inbox_of_late = ask(late, {"batch": COUNT, "expires": 300 * S})
        inbox = ask(talk, {"batch": COUNT, "expires": 300 * S})
        wait_for(lambda: info(talk)["num_pending"], 0)  # some may still be read from the disk
        found: list[int] = []
        found_late: list[int] = []

        def count() -> int:
            talk.fence()
            late.fence()
            found.extend(seq_of(one) for one in talk.hear_all(inbox, 0))
            found_late.extend(seq_of(one) for one in late.hear_all(inbox_of_late, 0))
            return len(found) + len(found_late)

        wait_for(count, COUNT)
    assert sorted(found + found_late) == ALL
    assert len(found) > len(found_late)


def test_a_stream_that_goes_ends_what_is_sent_from_it(server: ServerProcess, talk: Talk) -> None:
    """Who reads late from it gets what was sent, and is told of the end; nothing of that is an error."""
    talk.create("GONE", allow_direct=True, storage="file")
    for _ in ALL:
        talk.stored("gone.x", b"x" * SIZE)
    make(talk, stream="GONE")
    with Talk(server.port, name="late") as late:
        late._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 128 << 10)
        batch = late.new_inbox()
        late.say("$JS.API.DIRECT.GET.GONE", orjson.dumps({"seq": 1, "batch": COUNT, "max_bytes": 1 << 30}), reply=batch)
        found = [late.hear(batch)]
        pulled = ask(late, {"batch": COUNT, "expires": 300 * S}, stream="GONE")
        wait_for(lambda: info(talk, stream="GONE")["num_waiting"], 1)
        talk.done("STREAM.DELETE.GONE")
        while not found[-1].status:
            found.append(late.hear(batch))
        assert found[-1].status == "204 EOB"
        assert len(found) - 1 == COUNT - int(found[-1].headers["Nats-Num-Pending"]) < COUNT
        while not (told := late.hear(pulled)).status:
            pass
        assert told.status == "409 Consumer Deleted"
    assert "[ERR]" not in server.log
