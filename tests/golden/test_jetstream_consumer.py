"""Talks with a pull consumer: jetstream/consumer.jsonl.

One conversation a line: the consumer's configuration, then steps (store, pull, ack, sleep) with what was told at
each: `3/2 c5 p1` is message 3, delivery 2, consumer sequence 5, one more pending; statuses and empty replies begin
with their subject; `!` marks an advisory or metric. In the end the places and counts of CONSUMER.INFO. The answers
were given by nats-server 2.15.1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.unit.jetstream.consumers import Rig, Sent, tell

from tnats.jetstream.api.fields import decode, rows_of
from tnats.jetstream.consumer.acks import parse_subject
from tnats.jetstream.consumer.config import ConsumerConfig
from tnats.jetstream.consumer.effects import Effects

FOLDER = Path(__file__).parent / "jetstream"


def conversations() -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (FOLDER / "consumer.jsonl").read_bytes().splitlines()]


class Talk:
    """A rig that tells what happens in the words of the file."""

    def __init__(self, config: dict[str, Any]) -> None:
        decoded = decode(ConsumerConfig, orjson.dumps(config))
        given = {name: getattr(decoded, name) for name, row in rows_of(ConsumerConfig) if row.key in config}
        self.rig = Rig(**given)
        self.acks: dict[int, Sent] = {}
        self.told: list[str] = []

    def hear(self, effects: Effects) -> None:
        for send in self.rig.sends_of(effects):
            if isinstance(send, Sent):
                self.acks[send.seq] = send
                place = parse_subject(send.ack_reply)
                assert place is not None
                pending = send.ack_reply.rsplit(b".", 1)[1].decode()
                size = " Nats-Msg-Size: 1" if send.headers_only else ""
                self.told.append(f"{send.seq}/{place.deliveries} c{place.consumer_seq} p{pending}{size}")
            else:
                self.told.append(tell(send))
        self.told += [f"{reply.decode()} empty" for reply in effects.acked_replies]
        for advisory in effects.advisories:
            keys = [key for key in ("stream_seq", "consumer_seq", "deliveries", "reason") if key in advisory.fields]
            values = " ".join(f"{key}={advisory.fields[key]}" for key in keys)
            self.told.append(f"! {advisory.type.rsplit('.', 1)[1]} {values}")

    def do(self, word: str, *arguments: Any) -> list[str]:
        rig, self.told = self.rig, []
        heard = len(rig.log)
        if word == "store":
            count, subject, size = (*arguments, *(1, "s.a", 1)[len(arguments) :])
            rig.store(subject, "x" * size, count)
        elif word == "pull":
            rig.pull(arguments[0], arguments[1] if len(arguments) > 1 else "R.1")
        elif word == "ack":
            seq, body, reply = (*arguments, "")[:3]
            rig.ack(self.acks[seq], body, reply)
        elif word == "sleep":
            rig.sleep(arguments[0])
        for effects in rig.log[heard:]:
            self.hear(effects)
        if word != "sleep":
            rig.sleep(0.12)
            for effects in rig.log[heard + 1 :] if word != "store" else []:
                self.hear(effects)
        return self.told


@pytest.mark.parametrize("talk", conversations(), ids=lambda talk: talk["title"])
def test_talking(talk: dict[str, Any]) -> None:
    """Deliveries, statuses, ack replies, advisories and counts are nats-server's."""
    here = Talk(talk["config"])
    for step in talk["steps"]:
        # Replies, advisories and deliveries take different ways there, so their order among each other is open.
        assert sorted(here.do(*step["do"])) == sorted(step["told"]), step["do"]
    info = here.rig.machine.info(here.rig.now_ns)
    assert [
        info.delivered.consumer_seq,
        info.delivered.stream_seq,
        info.ack_floor.consumer_seq,
        info.ack_floor.stream_seq,
        info.num_ack_pending,
        info.num_redelivered,
        info.num_waiting,
        info.num_pending,
    ] == talk["info"]
