"""Random operations on one stream and its consumers, drawn alike for all who play them: limits and their changes,
publishes, deliveries, acknowledgements, removals, and what is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import attrs

SECOND_NS = 1_000_000_000
SUBJECTS = ("s.a", "s.b", "s.a.x", "s.c")
FILTERS: tuple[list[str], ...] = (
    [], ["s.a"], ["s.>"], ["s.*"], ["s.a.>"], ["s.b"], ["s.a", "s.b"], ["s.a.x", "s.*"], ["s.zz"]
)  # fmt: skip
ENDING = (b"+ACK", b"+TERM")
"""Words after which a message is not its consumer's any more."""


@attrs.frozen
class Call:
    """A call of the API."""

    call: str
    body: Any = None


@attrs.frozen
class Publish:
    """A publish that waits for its answer."""

    subject: str
    data: bytes
    headers: dict[str, str]


@attrs.frozen
class Fetch:
    """A pull request of so many messages, which waits for them a moment."""

    consumer: str
    count: int


@attrs.frozen
class Say:
    """An acknowledgement of one of the messages that a consumer's client has, found by `share` of their number."""

    consumer: str
    share: float
    word: bytes

    def choose(self, seqs: Sequence[int]) -> int:
        """The one of these."""
        return seqs[int(self.share * len(seqs))]


Operation = Call | Publish | Fetch | Say


class Operations:
    """Draws operations on a stream; keeps what must be known of the earlier ones."""

    def __init__(
        self,
        rng: Random,
        stream: str,
        *,
        storages: Sequence[str] = ("file", "memory"),
        ack_policies: Sequence[str] = ("explicit", "explicit", "none", "all"),
        deliver_policies: Sequence[str] = ("all", "all", "new", "last", "by_start_sequence", "last_per_subject"),
        is_plain: bool = False,
    ) -> None:
        """`is_plain`: without roll-ups, purges of a part, limits in bytes, and changes of the retention."""
        self._rng = rng
        self._stream = stream
        self._storages = storages
        self._ack_policies = ack_policies
        self._deliver_policies = deliver_policies
        self._is_plain = is_plain
        self.consumers: dict[str, dict[str, Any]] = {}
        """Those that were made and not deleted, with their configurations."""
        self._config: dict[str, Any] = {}

    def draw(self, count: int) -> Iterator[Operation]:
        """The making of the stream, and about so many operations."""
        self._config = self._stream_config()
        yield Call(f"STREAM.CREATE.{self._stream}", dict(self._config))
        for _ in range(count):
            draw = self._rng.choices(
                (self._publish, self._make, self._fetch, self._say, self._remove, self._change, self._unmake),
                (28, 8, 16, 18, 9, 12, 2),
            )[0]
            yield from draw()

    def _stream_config(self) -> dict[str, Any]:
        rng = self._rng
        config: dict[str, Any] = {"name": self._stream, "subjects": ["s.>"], "allow_rollup_hdrs": True}
        config |= {"storage": rng.choice(self._storages), "retention": rng.choice(("limits", "interest", "workqueue"))}
        if rng.random() < 0.4:
            config["max_msgs_per_subject"] = rng.choice((1, 2, 3))
        if rng.random() < 0.4:
            config["max_msgs"] = rng.choice((5, 10, 20))
        if rng.random() < 0.3:
            config |= {"discard": "new", "discard_new_per_subject": "max_msgs_per_subject" in config}
        return config

    def _publish(self) -> Iterator[Operation]:
        rng = self._rng
        for _ in range(rng.randint(1, 4)):
            headers = rng.choices(
                (
                    {},
                    {"Nats-Msg-Id": rng.choice("abc")},
                    {"Nats-Rollup": "all"},
                    {"Nats-Expected-Last-Sequence": str(rng.randint(0, 10))},
                    {"Nats-Expected-Last-Subject-Sequence": str(rng.randint(0, 10))},
                ),
                (80, 8, 0 if self._is_plain else 3, 5, 5),
            )[0]
            yield Publish(rng.choice(SUBJECTS), b"x" * rng.randint(0, 9), headers)

    def _make(self) -> Iterator[Operation]:
        rng = self._rng
        name = rng.choice("CDE")
        if name in self.consumers:
            yield from self._update(name)
            return
        is_queue = self._config["retention"] == "workqueue"
        config: dict[str, Any] = {"durable_name": name, "name": name, "ack_wait": 60 * SECOND_NS}
        config["ack_policy"] = "explicit" if is_queue else rng.choice(self._ack_policies)
        config["deliver_policy"] = "all" if is_queue else rng.choice(self._deliver_policies)
        config["filter_subjects"] = rng.choice(FILTERS)
        if config["deliver_policy"] == "by_start_sequence":
            config["opt_start_seq"] = rng.randint(1, 15)
        if config["deliver_policy"] == "last_per_subject" and not config["filter_subjects"]:
            config["filter_subjects"] = ["s.>"]
        if rng.random() < 0.3:
            config["max_ack_pending"] = rng.choice((1, 2, 4))
        if rng.random() < 0.3:
            config["max_deliver"] = rng.choice((1, 2, 3))
        self.consumers[name] = config
        yield self._configure(name, config)

    def _update(self, name: str) -> Iterator[Operation]:
        rng = self._rng
        key, values = rng.choice(
            (("max_ack_pending", (1, 3, 100)), ("max_deliver", (1, 2, 5, -1)), ("ack_wait", (50 * SECOND_NS,)))
        )
        self.consumers[name] = {**self.consumers[name], key: rng.choice(values)}
        yield self._configure(name, self.consumers[name])

    def _configure(self, name: str, config: dict[str, Any]) -> Operation:
        return Call(f"CONSUMER.CREATE.{self._stream}.{name}", {"stream_name": self._stream, "config": config})

    def _fetch(self) -> Iterator[Operation]:
        if self.consumers:
            yield Fetch(self._rng.choice(sorted(self.consumers)), self._rng.randint(1, 5))

    def _say(self) -> Iterator[Operation]:
        rng = self._rng
        if self.consumers:
            word = rng.choices((b"+ACK", b"-NAK", b"+TERM", b"+WPI"), (10, 3, 2, 1))[0]
            yield Say(rng.choice(sorted(self.consumers)), rng.random(), word)

    def _remove(self) -> Iterator[Operation]:
        rng = self._rng
        if rng.random() < 0.6:
            yield Call(f"STREAM.MSG.DELETE.{self._stream}", {"seq": rng.randint(1, 25)})
            return
        purges: list[Any] = [None]
        if not self._is_plain:
            purges += [{"keep": rng.randint(1, 4)}, {"filter": rng.choice((*SUBJECTS, "s.*"))}]
            purges.append({"filter": "s.a", "keep": 1})
        yield Call(f"STREAM.PURGE.{self._stream}", rng.choice(purges))

    def _change(self) -> Iterator[Operation]:
        rng = self._rng
        changes: dict[str, tuple[Any, ...]] = {
            "max_msgs_per_subject": (1, 2, 3, -1),
            "max_msgs": (3, 8, -1),
            "max_bytes": (100, 300, -1),
            "subjects": (["s.>"], ["s.a", "s.b", "s.a.x"], ["s.*"], ["s.a.>", "s.c"]),
            "retention": ("limits", "interest", "workqueue"),
            "discard": ("old", "new"),
            "deny_delete": (True,),
            "max_consumers": (1, 2, -1),
        }
        if self._is_plain:
            del changes["retention"], changes["max_bytes"]
        key = rng.choice(list(changes))
        self._config = {**self._config, key: rng.choice(changes[key])}
        if key == "discard":
            self._config["discard_new_per_subject"] = False
        yield Call(f"STREAM.UPDATE.{self._stream}", dict(self._config))

    def _unmake(self) -> Iterator[Operation]:
        if self.consumers:
            name = self._rng.choice(sorted(self.consumers))
            del self.consumers[name]
            yield Call(f"CONSUMER.DELETE.{self._stream}.{name}")
