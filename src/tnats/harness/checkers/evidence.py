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

    @property
    def was_read(self) -> bool:
        """Whether anything was read back, so that what is missing is lost."""
        return any(not replica.failure for replica in self.replicas) or bool(self.drained())

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
        """A violation in a line: the first fault, and how many more there are."""
        more = self.figures["violations"] - 1
        return self.texts[0] + (f" (and {more} more)" if more else "")


def result(checker: str, title: str, faults: Iterable[str], figures: Mapping[str, Any] | None = None) -> Result:
    """Violated when there are faults; the first few stand in the texts, their number in the figures."""
    texts = list(faults)
    counts = {**(figures or {}), "violations": len(texts)}
    return Result(checker, title, "violated" if texts else "ok", tuple(texts[:SAMPLES_MAX]), counts)
