"""Whatever clients say: both builds of the hot loop answer alike, however it is cut, and nobody else suffers."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.broker_talk import CONNECTS, TALKS, chunked, damaged
from tests.unit.broker.stage import Stage, play

from tnats.broker.broker import Broker
from tnats.limits import OWN_BODY_BYTES
from tnats.wire.client import ServerParser

DOCUMENTED = (
    b"-ERR 'Unknown Protocol Operation'\r\n",
    b"-ERR 'maximum control line exceeded'\r\n",
    b"-ERR 'Maximum Payload Violation'\r\n",
    b"-ERR 'no responders requires headers support'\r\n",
    b"-ERR 'invalid client protocol'\r\n",
)
SILENT = ("Protocol Violation", "Parse Error", "Client Closed")
PAYLOAD_MAX = 100_000


@contextmanager
def _without_modules(prefix: str) -> Iterator[None]:
    """Import modules of this prefix anew inside, and have the old ones back afterwards."""
    kept = {name: module for name, module in sys.modules.items() if name == prefix or name.startswith(prefix + ".")}
    for name in kept:
        del sys.modules[name]
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name == prefix or name.startswith(prefix + ".")]:
            del sys.modules[name]
        sys.modules.update(kept)
        parent, _, name = prefix.rpartition(".")
        setattr(sys.modules[parent], name, kept[prefix])


def _interpreted_broker() -> type[Broker]:
    """The broker once more, on the Python source of the hot loop."""
    before = os.environ.get("TNATS_SPEEDUPS")
    os.environ["TNATS_SPEEDUPS"] = "off"
    try:
        with _without_modules("tnats.broker"):
            module = importlib.import_module("tnats.broker.broker")
            assert importlib.import_module("tnats.broker.hot.plan").__file__.endswith("plan.py")
            return module.Broker  # type: ignore[no-any-return]
    finally:
        if before is None:
            del os.environ["TNATS_SPEEDUPS"]
        else:
            os.environ["TNATS_SPEEDUPS"] = before


INTERPRETED = _interpreted_broker()


@attrs.define
class Seen:
    """All that can be seen of a run."""

    told: list[bytes] = attrs.field(factory=list)
    states: list[object] = attrs.field(factory=list)
    trace_hash: str = ""


@attrs.frozen
class Tuning:
    """Bounds of the exchange, perhaps tiny."""

    view_bytes: int
    own_body_bytes: int
    flush_bytes: int
    deliveries_per_feed: int

    def __call__(self, broker: Broker) -> None:
        for field in attrs.fields(Tuning):
            setattr(broker.exchange, field.name, getattr(self, field.name))


TUNINGS = st.builds(
    Tuning,
    view_bytes=st.sampled_from([1, 20, 4096]),
    own_body_bytes=st.sampled_from([1, 50, 32_768]),
    flush_bytes=st.sampled_from([1, 200, 65_536]),
    deliveries_per_feed=st.sampled_from([0, 3, 65_536]),
)
ORDINARY = Tuning(4096, 32_768, 65_536, 65_536)


def watch(talks: list[list[bytes]], broker_class: type[Broker] = Broker, tuning: Tuning = ORDINARY) -> Seen:
    """Let one client per talk say its chunks, in turns."""
    seen = Seen(told=[b""] * len(talks))

    async def scene(stage: Stage) -> None:
        clients = [await stage.connect(None) for _ in talks]
        for turn in range(1 + max(map(len, talks))):
            for client, talk in zip(clients, talks, strict=True):
                if turn < len(talk):
                    await client.send(talk[turn])
            for index, client in enumerate(clients):
                seen.told[index] += await client.read()  # at once: a reset would take it away
        broker = stage.broker
        seen.states += [attrs.astuple(broker.connection_snapshot(cid)) for cid in broker.connections]
        seen.states += [attrs.astuple(one) for one in broker.closed]
        seen.states.append(attrs.astuple(broker.snapshot()))

    seen.trace_hash = play(scene, broker_class=broker_class, tune=tuning, max_payload=PAYLOAD_MAX).trace_hash
    return seen


@given(st.lists(chunked(st.one_of(TALKS, damaged())), min_size=1, max_size=3), TUNINGS)
def test_both_builds_do_the_same(talks: list[list[bytes]], tuning: Tuning) -> None:
    """Every byte told, every counter and state, and every call to the world are equal in both builds."""
    assert watch(talks, Broker, tuning) == watch(talks, INTERPRETED, tuning)


@given(chunked(TALKS), TUNINGS)
def test_cuts_and_bounds_do_not_matter(chunks: list[bytes], tuning: Tuning) -> None:
    """The same bytes in one piece and in many, copied and referenced, are answered alike."""
    assert watch([[b"".join(chunks)]]).told == watch([chunks], tuning=tuning).told


@given(CONNECTS, chunked(st.one_of(st.binary(max_size=300), damaged())))
def test_no_bytes_are_too_strange(connect: bytes, chunks: list[bytes]) -> None:
    """Arbitrary bytes end, at worst, in a documented close; what is kept of them is bounded; others are served on."""

    async def scene(stage: Stage) -> None:
        other = await stage.connect()
        assert await other.ask(b"SUB still.here 1\r\n") == b""
        strange = await stage.connect(None)
        told = await strange.ask(connect + b"\r\n")
        for chunk in chunks:
            told += await strange.ask(chunk)
            for connection in stage.broker.connections.values():
                assert len(connection.inbound.tail) < OWN_BODY_BYTES
                assert connection.inbound.body is None or len(connection.inbound.body) < PAYLOAD_MAX + 5000
        parser = ServerParser()
        parser.feed(told)
        assert not parser.fault
        if strange.closed:
            reason = list(stage.broker.closed)[-1].reason
            assert told.endswith(DOCUMENTED) or reason in SILENT, (told[-100:], reason)
        assert await other.ask(b"PUB still.here 2\r\nhi\r\nPING\r\n") == b"MSG still.here 1 2\r\nhi\r\nPONG\r\n"

    play(scene, max_payload=PAYLOAD_MAX)
