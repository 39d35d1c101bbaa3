"""The broker against a model: a list of subscriptions and the rules of delivery, written down as plainly as can be."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.test_broker import TUNINGS, Tuning
from tests.unit.broker.stage import Stage, play

from tnats.subjects.tokens import subject_matches
from tnats.wire.client import Message, ServerParser

CLIENT_COUNT = 3
TOKENS = st.sampled_from(["a", "b", "c"])
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=3).map(".".join)
PATTERNS = st.one_of(SUBJECTS, st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3).map(".".join)) | (
    st.lists(st.sampled_from(["a", "b", "*"]), max_size=2).map(lambda tokens: ".".join([*tokens, ">"]))
)
PUBLISHED = SUBJECTS | SUBJECTS.map(lambda prefix: prefix + ".#")
"""`#` is another token in every message, as in reply subjects."""
CLIENTS = st.integers(0, CLIENT_COUNT - 1)
SIDS = st.integers(1, 4)
STEPS = st.one_of(
    st.tuples(st.just("SUB"), CLIENTS, PATTERNS, st.sampled_from(["", "", "g", "h"]), SIDS),
    st.tuples(st.just("UNSUB"), CLIENTS, SIDS, st.integers(0, 4)),
    st.tuples(st.just("PUB"), CLIENTS, PUBLISHED, st.integers(0, 9000), st.integers(1, 3)),
    st.tuples(st.just("PUB"), CLIENTS, PUBLISHED, st.integers(0, 9000), st.integers(1, 3)),
    st.tuples(st.just("LEAVE"), CLIENTS),
)


@attrs.define
class ModelSubscription:
    client: int
    sid: int
    pattern: str
    queue: str
    delivered: int = 0
    max: int = 0


@attrs.define
class Model:
    """What must be: who may get each message. A queue group is told apart by which of its members got it."""

    subscriptions: list[ModelSubscription] = attrs.field(factory=list)

    def find(self, client: int, sid: int) -> ModelSubscription | None:
        return next((one for one in self.subscriptions if (one.client, one.sid) == (client, sid)), None)

    def subscribe(self, client: int, pattern: str, queue: str, sid: int) -> None:
        if self.find(client, sid) is None:
            self.subscriptions.append(ModelSubscription(client, sid, pattern, queue))

    def unsubscribe(self, client: int, sid: int, limit: int) -> None:
        found = self.find(client, sid)
        if found is not None:
            found.max = limit
            if limit <= found.delivered:
                self.subscriptions.remove(found)

    def leave(self, client: int) -> None:
        self.subscriptions = [one for one in self.subscriptions if one.client != client]

    def publish(self, subject: str, got: list[tuple[int, int]]) -> None:
        """`got` lists (client, sid) of every delivery made: exactly the right ones."""
        matching = [one for one in self.subscriptions if subject_matches(one.pattern, subject)]
        plain = [(one.client, one.sid) for one in matching if not one.queue]
        rest = list(got)
        for want in plain:
            assert want in rest, (subject, want, got)
            rest.remove(want)
        for queue in dict.fromkeys(one.queue for one in matching if one.queue):
            members = [(one.client, one.sid) for one in matching if one.queue == queue]
            chosen = [one for one in rest if one in members]
            assert len(chosen) == 1, (subject, queue, members, got)
            rest.remove(chosen[0])
        assert rest == []
        for client, sid in got:
            found = self.find(client, sid)
            assert found is not None
            found.delivered += 1
            if found.max and found.delivered >= found.max:
                self.subscriptions.remove(found)


@given(st.lists(STEPS, max_size=25), TUNINGS, st.integers(0, 3))
def test_every_message_reaches_exactly_the_right_ones(
    steps: list[tuple[object, ...]], tuning: Tuning, seed: int
) -> None:
    """Whatever clients subscribe, unsubscribe and publish, deliveries are those of the model, in order."""

    async def scene(stage: Stage) -> None:
        clients = [await stage.connect() for _ in range(CLIENT_COUNT)]
        parsers = [ServerParser() for _ in clients]
        model = Model()
        number = 0

        async def ask(index: int, line: bytes) -> None:
            answer = await clients[index].ask(line)
            assert answer in (b"", b"PING\r\n"), answer  # a long scene sees the server's first PING

        async def told(index: int) -> list[Message]:
            operations = parsers[index].feed(await clients[index].read())
            return [one for one in operations if isinstance(one, Message)]

        for step in steps:
            match step:
                case ("SUB", int(client), str(pattern), str(queue), int(sid)):
                    line = " ".join(word for word in ("SUB", pattern, queue, str(sid)) if word)
                    await ask(client, line.encode() + b"\r\n")
                    model.subscribe(client, pattern, queue, sid)
                case ("UNSUB", int(client), int(sid), int(limit)):
                    await ask(client, b"UNSUB %d %d\r\n" % (sid, limit))
                    model.unsubscribe(client, sid, limit)
                case ("PUB", int(client), str(pattern), int(size), int(count)):
                    payloads = [b"%d " % (number + index) + b"x" * size for index in range(count)]
                    number += count
                    subjects = [pattern.replace("#", one.split()[0].decode()) for one in payloads]
                    publish = b"".join(
                        b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(payload), payload)
                        for subject, payload in zip(subjects, payloads, strict=True)
                    )
                    await clients[client].send(publish)
                    deliveries = [(index, one) for index in range(CLIENT_COUNT) for one in await told(index)]
                    assert all(one.subject.decode() == subjects[payloads.index(one.payload)] for _, one in deliveries)
                    for subject, payload in zip(subjects, payloads, strict=True):
                        model.publish(subject, [(at, int(one.sid)) for at, one in deliveries if one.payload == payload])
                    for index in range(CLIENT_COUNT):
                        order = [payloads.index(one.payload) for at, one in deliveries if at == index]
                        assert order == sorted(order)
                case ("LEAVE", int(client)):
                    clients[client].conn.close()
                    await stage.sleep(0.1)
                    model.leave(client)
                    clients[client] = await stage.connect()
                    parsers[client] = ServerParser()
        assert len(stage.broker.account().sublist) == len(model.subscriptions)

    play(scene, seed=seed, tune=tuning)
