"""Who may be sent how much, and who is told when a reader that was behind has caught up, or gone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.unit.broker.stage import Stage, play

from tnats.broker.account import Account
from tnats.broker.hot.message import Subscription
from tnats.broker.hot.outbound import Exchange, Outbound
from tnats.broker.internal import InternalClient
from tnats.broker.readers import NO_BOUND, Readers
from tnats.limits import STAGE_BYTES, UNSUBSCRIBES_PER_STEP_MAX
from tnats.runtime.api import Buffer
from tnats.subjects.draw import Draw

MAX_PENDING = 400
ROOM = 300


class Reader:
    """A client that subscribes, and takes as many bytes as it is told to."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.takes = 0
        self.is_slow = False
        self.client = InternalClient(bench.exchange, bench.account, "reader", lambda batch: None, echo=True)
        self.outbound = Outbound(bench.exchange, self, self._write, MAX_PENDING)  # type: ignore[arg-type]
        self.client.outbound = self.outbound  # type: ignore[assignment]
        self.client.inbox = None  # type: ignore[assignment]

    def on_blocked(self) -> None: ...

    def on_slow_consumer(self) -> None:
        self.is_slow = True

    def _write(self, buffers: Sequence[Buffer]) -> int:
        taken = min(self.takes, sum(map(len, buffers)))
        self.takes -= taken
        return taken

    def leave(self) -> None:
        """End all subscriptions."""
        for subscription in list(self.client.subscriptions.values()):
            self.client.end_subscription(subscription)

    def take(self, size: int) -> None:
        """Read so many bytes."""
        self.takes = size
        self.outbound.flush()
        self._bench.exchange.settle()


class Bench:
    """An account, its readers, and who is told."""

    def __init__(self) -> None:
        self.exchange = Exchange(Draw(1), lambda: None)
        self.account = Account("A", self.exchange.draw)
        self.readers = Readers(self.exchange, self.account.plans)
        self.account.observers.append(self.readers)
        self.heard: list[bytes] = []
        self.told = self.heard.append

    def reader(self, *subjects: bytes, pending: int = 0) -> Reader:
        reader = Reader(self)
        for subject in subjects:
            reader.client.subscribe(subject)
        if pending:
            reader.outbound.put_bytes(bytes(pending))
        return reader

    def hear(self) -> list[bytes]:
        """Who was told since the last time."""
        self.exchange.settle()
        heard = self.heard[:]
        self.heard.clear()
        return heard

    def ask(self, *subjects: bytes) -> None:
        for subject in subjects:
            assert self.readers.room(subject) == 0
            self.readers.on_room(subject, self.told)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_room_is_that_of_who_may_be_sent_most(bench: Bench) -> None:
    """None without subscribers, 0 when all have fallen behind; an internal client never does."""
    assert bench.readers.room(b"x") is None
    first, second = bench.reader(b"x"), bench.reader()
    bench.account.subscribe(Subscription(second.client, b"x", b"q", b"1"))
    assert bench.readers.room(b"x") == ROOM
    first.outbound.put_bytes(bytes(120))
    assert bench.readers.room(b"x") == ROOM
    second.outbound.put_bytes(bytes(350))
    assert bench.readers.room(b"x") == ROOM - 120
    first.outbound.put_bytes(bytes(200))
    assert bench.readers.room(b"x") == 0
    InternalClient(bench.exchange, bench.account, "inside", lambda batch: None, echo=True).subscribe(b">")
    assert bench.readers.room(b"x") == NO_BOUND


def test_who_waits_for_a_connection_takes_turns(bench: Bench) -> None:
    """A write that leaves room has the one told who has waited longest; one that leaves nothing, all others."""
    reader = bench.reader(b"*", pending=350)
    bench.ask(b"a", b"b", b"c", b"d")
    reader.take(49)
    assert bench.hear() == []
    reader.take(1)
    assert bench.hear() == [b"a"]
    reader.outbound.put_bytes(bytes(10))
    bench.ask(b"a")
    assert bench.hear() == []
    reader.take(20)
    assert bench.hear() == [b"b"]
    reader.take(1000)
    assert bench.hear() == [b"c", b"d", b"a"]
    assert reader.outbound.on_room is None


def test_who_could_send_at_once_is_told_at_once(bench: Bench) -> None:
    """Who asks where there is room, or nobody to send to, does not wait; nothing is kept of it."""
    reader = bench.reader(b"*", pending=290)
    bench.readers.on_room(b"a", bench.told)
    bench.readers.on_room(b"nobody.there", bench.told)
    assert bench.heard == []
    assert bench.hear() == [b"a", b"nobody.there"]
    assert reader.outbound.on_room is None
    reader.take(1000)
    assert bench.hear() == []


def test_one_of_a_group_is_enough(bench: Bench) -> None:
    """Who waits for several connections is told once, by the first that has room."""
    readers = [bench.reader(pending=350) for _ in range(3)]
    for reader in readers:
        bench.account.subscribe(Subscription(reader.client, b"x", b"q", b"1"))
    bench.ask(b"x")
    readers[1].take(200)
    assert bench.hear() == [b"x"]
    for reader in readers:
        assert reader.outbound.on_room is None
        reader.take(1000)
    assert bench.hear() == []


def test_who_waits_is_told_of_other_readers(bench: Bench) -> None:
    """A subscription that comes or goes is news to those whose subject it matches, and to nobody else."""
    reader = bench.reader(b"a.*", b"b", pending=350)
    bench.ask(b"a.1", b"a.2", b"b")
    another = bench.reader(b"a.1")
    assert bench.hear() == [b"a.1"]
    assert bench.readers.room(b"a.1") == ROOM
    another.leave()
    assert bench.hear() == []
    bench.ask(b"a.1")
    bench.reader(b"a.>", pending=350)
    assert bench.hear() == [b"a.2", b"a.1"]
    reader.leave()
    assert bench.hear() == [b"b"]
    assert bench.readers.room(b"b") is None
    assert reader.outbound.on_room is None


def test_who_is_forgotten_is_not_told(bench: Bench) -> None:
    """Neither later nor when it was about to be told, and nothing is kept of it; to forget again does no harm."""
    reader = bench.reader(b"*", pending=350)
    bench.ask(b"a", b"b", b"c", b"a")
    bench.readers.forget(b"a", bench.told)
    bench.readers.forget(b"a", bench.told)
    reader.takes = 100
    reader.outbound.flush()
    bench.readers.forget(b"b", bench.told)
    assert bench.hear() == []
    bench.readers.forget(b"c", bench.told)
    assert reader.outbound.on_room is None
    reader.take(1000)
    assert bench.hear() == []


def test_a_client_that_enters_another_account_is_waited_for_there(bench: Bench) -> None:
    """Those who waited for it where it was go on ending their waits for a while; nobody else's."""
    reader = bench.reader(b"x", pending=350)
    bench.ask(b"x")
    another = Bench()
    another.account.subscribe(Subscription(reader.client, b"y", None, b"1"))
    another.ask(b"y")
    reader.leave()
    assert bench.hear() == [b"x"]
    reader.take(1000)
    assert another.hear() == [b"y"]
    assert reader.outbound.on_room is None


def test_it_is_told_when_all_else_is_done(bench: Bench) -> None:
    """Not in the midst of a write: who is told may write to the same connection."""
    reader = bench.reader(b"*", pending=350)

    def send(subject: bytes) -> None:
        bench.told(subject)
        reader.outbound.put_bytes(bytes(250))
        bench.ask(subject)

    bench.readers.on_room(b"x", send)
    reader.takes = 100
    reader.outbound.flush()
    assert bench.heard == []
    assert bench.hear() == [b"x"]


@pytest.mark.parametrize("count", [1, UNSUBSCRIBES_PER_STEP_MAX + 10])
@pytest.mark.parametrize("ends", ["itself", "its subscriptions", "by the server"])
def test_a_client_that_leaves_is_waited_for_by_nobody(count: int, ends: str) -> None:
    """However many subscriptions it had, all are told who waited, and find nobody to send to."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        await client.send(b"".join(b"SUB x.%d %d\r\n" % (number, number) for number in range(count)))
        await stage.sleep(1)
        broker = stage.broker
        account = broker.account()
        readers = Readers(broker.exchange, account.plans)
        account.observers.append(readers)
        (connection,) = broker.connections.values()
        connection.outbound.max_pending = 0
        subjects = [b"x.%d" % number for number in range(count)]
        heard: list[tuple[bytes, int | None]] = []

        def told(subject: bytes) -> None:
            heard.append((subject, readers.room(subject)))

        for subject in subjects:
            readers.on_room(subject, told)
        if ends == "itself":
            client.conn.close()
        elif ends == "by the server":
            connection.on_slow_consumer()
        else:
            await client.send(b"".join(b"UNSUB %d\r\n" % number for number in range(count)))
        await stage.sleep(1)
        assert heard == [(subject, None) for subject in subjects]

    play(scene)


def test_who_is_not_behind_takes_one_message_of_any_size() -> None:
    """And a quarter of max_pending behind it; then it is a slow consumer, until it has read as always."""
    outbound = (reader := Bench().reader(b"x", pending=ROOM)).outbound
    assert outbound.put_bytes(bytes(10 * MAX_PENDING))
    assert outbound.room() == 0
    assert outbound.put_bytes(bytes(MAX_PENDING - ROOM))
    reader.take(10 * MAX_PENDING + ROOM)
    assert outbound.put_bytes(bytes(ROOM))
    assert (outbound.pending(), reader.is_slow) == (MAX_PENDING, False)
    assert not outbound.put_bytes(bytes(STAGE_BYTES))
    assert reader.is_slow
