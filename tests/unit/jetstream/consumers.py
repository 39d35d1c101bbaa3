"""A consumer over a list store, with its own clock, for the machines' tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
from tests.bundles import Bundled, pack
from tests.unit.jetstream.stores import SECOND, T0, ListStore

from tnats.jetstream.api.advisories import ConsumerIdentity
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.consumer import rules
from tnats.jetstream.consumer.acks import ack_reply, reply_prefix
from tnats.jetstream.consumer.config import AckPolicy, ConsumerConfig
from tnats.jetstream.consumer.core import start_state
from tnats.jetstream.consumer.effects import Effects, Status
from tnats.jetstream.consumer.hot import read_acks
from tnats.jetstream.consumer.machine import ConsumerMachine
from tnats.jetstream.consumer.requests import Asked
from tnats.jetstream.consumer.state import ConsumerState, encode_ops
from tnats.jetstream.stream.config import StreamConfig
from tnats.subjects.tokens import subject_matches


class ListIndex(ListStore):
    """`StreamIndex` over the list store, giving runs of up to `run_max` messages."""

    run_max = 1000
    is_at_hand = True

    def wants(self, filters: tuple[bytes, ...], subject: bytes) -> bool:
        return not filters or any(subject_matches(pattern, subject) for pattern in filters)

    def _matches(self, filters: tuple[bytes, ...], seq: int) -> bool:
        return self.wants(filters, self.held[seq].subject)

    def next_matching(self, filters: tuple[bytes, ...], seq: int) -> int:
        return min((one for one in self.held if one >= seq and self._matches(filters, one)), default=0)

    def next_run(self, filters: tuple[bytes, ...], seq: int, count_max: int) -> Sequence[int]:
        wanted = [one for one in sorted(self.held) if one >= seq and self._matches(filters, one)]
        return wanted[: min(count_max, self.run_max)]

    def count_matching(self, filters: tuple[bytes, ...], from_seq: int, to_seq: int) -> int:
        return sum(1 for one in self.held if from_seq <= one <= to_seq and self._matches(filters, one))

    def last_matching(self, filters: tuple[bytes, ...]) -> int:
        return max((one for one in self.held if self._matches(filters, one)), default=0)

    def last_per_subject(self, filters: tuple[bytes, ...]) -> Iterator[int]:
        last = {self.held[seq].subject: seq for seq in sorted(self.held) if self._matches(filters, seq)}
        return iter(sorted(last.values()))

    def seq_at_time(self, ts_ns: int) -> int:
        return min((seq for seq, one in self.held.items() if one.ts_ns >= ts_ns), default=self.last_seq + 1)

    def headers_size_of(self, seq: int) -> int | None:
        return len(self.held[seq].headers) if self.is_at_hand else None

    def sizes_of(self, seqs: Sequence[int]) -> Sequence[int]:
        held = [self.held[seq] for seq in seqs]
        return [len(one.subject) + len(one.headers) + len(one.payload) for one in held]


@attrs.frozen
class Sent:
    """One message of a delivery."""

    target: bytes
    seq: int
    ack_reply: bytes
    headers_only: bool
    pin_id: str


class Rig:
    """One consumer. `now_ns` is the monotonic clock; wall time runs T0 ahead of it."""

    def __init__(self, index: ListIndex | None = None, stream: StreamConfig | None = None, **config: object) -> None:
        self.index = index or ListIndex()
        self.stream = stream or StreamConfig(name="S", subjects=["s.>"], num_replicas=1)
        config.setdefault("ack_policy", AckPolicy.EXPLICIT)
        self.config = self.check(ConsumerConfig(name="C", durable_name="C", **config))  # type: ignore[arg-type]
        self.now_ns = 0
        self.ids = 0
        self.deaf: set[bytes] = set()
        self.rooms: dict[bytes, int] = {}
        """Bytes that somebody may be sent; who is not here has no bound. Change it by `read_on`."""
        self.behind: set[bytes] = set()
        """Who the consumer wants to be told of."""
        self.is_sending = False
        self.sent: list[Sent | Status] = []
        self.log: list[Effects] = []
        self.applied = ConsumerState.decode(start_state(self.config, self.index).encode())
        self.machine = self.start(ConsumerState.decode(self.applied.encode()))

    def check(self, config: ConsumerConfig) -> ConsumerConfig:
        checked = rules.check(config, rules.Surroundings(self.stream))
        assert not isinstance(checked, ApiError), checked
        return checked

    def start(self, state: ConsumerState) -> ConsumerMachine:
        return ConsumerMachine(
            ConsumerIdentity("$G", "S", "C"),
            self.config,
            state,
            self.index,
            now_ns=self.now_ns,
            wall_offset_ns=T0,
            room=lambda target: None if target in self.deaf else self.rooms.get(target, 2**62),
            is_sending=lambda: self.is_sending,
            new_id=self._new_id,
        )

    def _new_id(self) -> str:
        self.ids += 1
        return f"id{self.ids}"

    def restart(self) -> None:
        """Begin again from what the log says, as after a crash or with a new leader."""
        self.machine = self.start(ConsumerState.decode(self.applied.encode()))
        self.behind.clear()

    def take(self, effects: Effects) -> Effects:
        """Carry out effects: the log goes to a follower, what is sent is kept."""
        entry = encode_ops(effects.ops, effects.letters)
        self.applied.replay(entry, tracks_acks=self.config.ack_policy != AckPolicy.NONE)
        self.sent.extend(self.sends_of(effects))
        self.log.append(effects)
        self.behind.update(effects.behind)
        return effects

    def read_on(self, target: bytes, room: int | None = None) -> list[str]:
        """Somebody may be sent so many bytes now (None: there is no bound); what was sent for it."""
        self.rooms[target] = 2**62 if room is None else room
        if target not in self.behind or room == 0:
            return []
        self.behind.remove(target)
        return self.told(self.machine.caught_up(target, self.now_ns))

    def sends_of(self, effects: Effects) -> list[Sent | Status]:
        """What is to be sent, message by message."""
        sends: list[Sent | Status] = []
        for send in effects.sends:
            if isinstance(send, Status):
                sends.append(send)
                continue
            for place, seq in enumerate(send.seqs):
                reply = ack_reply(reply_prefix("S", "C"), send.behind(place), self.index.time_of(seq) or 0)
                target = send.targets[place % len(send.targets)]
                sends.append(Sent(target, seq, reply, send.headers_only, send.pin_id))
        return sends

    def store(self, subject: str = "s.a", payload: str = "x", count: int = 1) -> None:
        for _ in range(count):
            ts_ns = T0 + self.now_ns
            self.index.append(self.index.last_seq + 1, ts_ns, subject.encode(), b"", payload.encode())
        self.take(self.machine.stream_advanced(self.now_ns))

    def remove(self, seq: int) -> None:
        subject = self.index.subject_of(seq)
        assert subject is not None
        self.index.remove(seq)
        self.take(self.machine.stream_removed([(seq, subject)], self.now_ns))

    def pull(self, body: str = "", reply: str = "R") -> list[str]:
        """Send a request; what comes back to anybody, told shortly."""
        return self.pulls((body, reply))

    def pulls(self, *asked: tuple[str, str]) -> list[str]:
        """Send requests, (body, reply) each, that are read at once."""
        requests = [Asked(reply.encode(), body.encode()) for body, reply in asked]
        return self.told(self.machine.pulls(requests, self.now_ns))

    def fetch(self, batch: int, reply: str = "R") -> list[Sent]:
        """Messages of one request without waiting."""
        asked = Asked(reply.encode(), b'{"batch":%d,"no_wait":true}' % batch)
        effects = self.take(self.machine.pulls([asked], self.now_ns))
        return [send for send in self.sends_of(effects) if isinstance(send, Sent)]

    def ack(self, delivery: Sent, body: str = "+ACK", reply: str = "") -> Effects:
        return self.say(Bundled(delivery.ack_reply, reply.encode(), 0, body.encode()))

    def say(self, *messages: Bundled) -> Effects:
        """Messages to acknowledgement subjects, of one read."""
        return self.take(self.machine.acks(read_acks(pack(messages)), self.now_ns))

    def sleep(self, seconds: float) -> list[str]:
        """Let time pass, serving every deadline on the way; what was sent meanwhile."""
        end_ns = self.now_ns + round(seconds * SECOND)
        told: list[str] = []
        for _ in range(10_000):
            deadline_ns = self.machine.next_deadline_ns()
            if deadline_ns is None or deadline_ns > end_ns:
                break
            self.now_ns = max(self.now_ns, deadline_ns)
            told += self.told(self.machine.tick(self.now_ns))
        else:
            raise AssertionError("a deadline that never moves on")
        self.now_ns = end_ns
        return told

    def told(self, effects: Effects) -> list[str]:
        self.take(effects)
        return [tell(send) for send in self.sends_of(effects)]

    def asked(self) -> list[str]:
        """The reply subjects of flow-control requests so far."""
        return [send.reply.decode() for send in self.sent if isinstance(send, Status) and send.reply]

    def advisories(self) -> list[str]:
        return [advisory.type.rsplit(".", 1)[1] for effects in self.log for advisory in effects.advisories]


def tell(send: Sent | Status) -> str:
    """`R 3/1` is message 3, first delivery, to R; `R 404 No Messages` a status."""
    target = send.target.decode()
    if isinstance(send, Status):
        line, *fields = send.block.decode().removeprefix("NATS/1.0 ").strip().split("\r\n")
        reply = f" -> {send.reply.decode()}" if send.reply else ""
        return f"{target} {line}{reply}" + (f" [{', '.join(fields)}]" if fields else "")
    tokens = send.ack_reply.split(b".")
    pin = f" pin {send.pin_id}" if send.pin_id else ""
    return f"{target} {send.seq}/{tokens[4].decode()} c{tokens[6].decode()} p{tokens[8].decode()}{pin}"
