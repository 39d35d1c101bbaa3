"""What checkers look at, and what they say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from tnats.harness.history import History, Operation
from tnats.harness.linearizability import Verdict
from tnats.records import define, frozen

SAMPLES_MAX = 8


@frozen
class Stored:
    """A message as a replica serves it. `time_ns` is its timestamp, since the epoch."""

    value: str
    subject: str
    time_ns: int
    headers: Mapping[str, str] | None = None
    """Those that a checker asks for."""
    body: str = ""
    """Where the body is not the value: a counter's total."""


@define
class Replica:
    """What one node's store was found to hold, read message by message."""

    node: str
    """Its name, and behind a space, where one is read several times, when that was."""
    messages: dict[int, Stored]
    """By sequence."""
    last_seq: int = 0
    missing: dict[int, str] = attrs.field(factory=dict)
    """Acknowledged sequences that it does not serve: what it answered instead; "" for "no such message"."""
    unanswered_count: int = 0
    """Reads of single sequences that got no answer at all."""
    named_lost: tuple[tuple[int, int], ...] = ()
    """Ranges (first, last) of sequences that the server itself names as lost, or has named after a start."""
    health: str = ""
    """What the health check says; empty when all is well."""
    failure: str = ""
    """Why it could not be read at all."""
    read_ns: tuple[int, int] = (0, 0)
    """From when to when it was read, in the history's time, where checkers ask for that."""

    @property
    def name(self) -> str:
        """The same for all readings of one store."""
        return self.node.partition(" ")[0]

    def is_named_lost(self, seq: int) -> bool:
        return any(first <= seq <= last for first, last in self.named_lost)


@define
class Evidence:
    """Everything a run leaves to be judged."""

    history: History
    replicas: list[Replica] = attrs.field(factory=list)
    """After the faults ended and everything was healed."""
    restarted: list[Replica] = attrs.field(factory=list)
    """The same once more, after a clean restart of every node."""
    unsynced_ns: tuple[tuple[int, int], ...] = ()
    """With a sync interval: from when to when, in the history's time, what was acknowledged may have gone; power was
    lost at the end of each such time.
    """

    @property
    def readings(self) -> list[Replica]:
        """Everything that was read, in order."""
        return [*self.replicas, *self.restarted]

    @property
    def was_read(self) -> bool:
        """Whether anything was read back, so that what is missing is lost."""
        return any(not replica.failure for replica in self.replicas) or bool(self.drained())

    def is_lost(self, operation: Operation, seq: int, replica: Replica, *, by_ns: int | None = None) -> bool:
        """Whether a loss of power (before `by_ns`) may have taken what was acknowledged, and the server says so."""
        assert operation.end is not None
        acked_ns = operation.end.time_ns
        may_be = any(
            first_ns <= acked_ns <= last_ns and (by_ns is None or last_ns <= by_ns)
            for first_ns, last_ns in self.unsynced_ns
        )
        return may_be and replica.is_named_lost(seq)

    def was_lost(self, earlier: Operation, later: Operation) -> bool:
        """Whether what `earlier` stored had gone with a loss of power when `later` ended."""
        assert later.end is not None
        seq, by_ns = earlier.told("seq"), later.end.time_ns
        return any(self.is_lost(earlier, seq, replica, by_ns=by_ns) for replica in self.replicas)

    def acked(self) -> list[Operation]:
        """Acknowledged publishes, in the order of their invocations."""
        return [operation for operation in self.history.operations("publish") if operation.is_ok]

    def drained(self) -> dict[str, list[tuple[int, str]]]:
        """(sequence, value) that consumers got, by the node that they were connected to."""
        found: dict[str, list[tuple[int, str]]] = {}
        for operation in self.history.operations("fetch"):
            if operation.is_ok:
                pairs = zip(operation.told("seqs"), operation.result, strict=True)
                found.setdefault(operation.invoke.extra["node"], []).extend(pairs)
        return found


@frozen
class Result:
    """One checker's word. `texts` explain a violation, the first ones of many; `figures` are counts by name."""

    checker: str
    title: str
    verdict: Verdict
    texts: tuple[str, ...] = ()
    figures: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def text(self) -> str:
        """A violation in a line, or what could not be decided: the first one, and how many more there are."""
        more = (self.figures["violations"] or len(self.texts)) - 1
        return self.texts[0] + (f" (and {more} more)" if more else "")


def result(checker: str, title: str, faults: Iterable[str], figures: Mapping[str, Any] | None = None) -> Result:
    """Violated when there are faults; the first few stand in the texts, their number in the figures."""
    texts = list(faults)
    counts = {**(figures or {}), "violations": len(texts)}
    return Result(checker, title, "violated" if texts else "ok", tuple(texts[:SAMPLES_MAX]), counts)
