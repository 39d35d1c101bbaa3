"""C13 for what time removes and brings, with C2 to C4 for fast batches: lifetimes, markers, schedules.

Property: a message with a lifetime of its own (`ttl_ns`) is there until that has passed since it was published, and
gone a second after it has passed since it was acknowledged; a marker stands only where such a message can have ended.
A schedule (`at_ns`, for `target`) is there until its time, and its message is not; a second after it the message is
there once, and the schedule is not; never both. The members of a fast batch that was committed are all there, in
order, the last one where the acknowledgement says; of one that was not, some first ones. Nothing else is there,
nothing twice. Messages of which nobody knows whether and when they were stored are asked for nothing but that.
Cost: O(n log n). Source: the contract's K2 to K6; ADR-43, ADR-50, ADR-51.
"""

from __future__ import annotations

from collections.abc import Iterator

from tnats.harness.checkers.evidence import Evidence, Replica, Result, Stored, result
from tnats.harness.history import Operation
from tnats.limits import SECOND_NS

SLACK_NS = SECOND_NS
MARKER = "Nats-Marker-Reason"


def check(evidence: Evidence) -> Result:
    return result("C13", "time removes and brings what it is to, once", faults(evidence))


def faults(evidence: Evidence) -> Iterator[str]:
    for replica in evidence.readings:
        if replica.failure:
            yield f"{replica.node}: {replica.failure}"
            continue
        yield from Reading(evidence, replica).faults()


class Reading:
    """One replica, read from `first_ns` to `last_ns`."""

    def __init__(self, evidence: Evidence, replica: Replica) -> None:
        self.node = replica.node
        self.messages = replica.messages
        self.first_ns, self.last_ns = replica.read_ns
        self.publishes = {operation.value: operation for operation in evidence.history.operations("publish")}
        self.batches = evidence.history.operations("fast")
        self.places: dict[tuple[str, str], int] = {}
        """(value, subject): sequence."""

    def faults(self) -> Iterator[str]:
        yield from self.strangers()
        for operation in self.publishes.values():
            if "at_ns" in operation.invoke.extra:
                yield from self.scheduled(operation)
            elif operation.is_ok:
                yield from self.living(operation)
        for batch in self.batches:
            yield from self.batch(batch)

    def strangers(self) -> Iterator[str]:
        members = {value: batch for batch in self.batches for value in batch.value}
        for seq, stored in sorted(self.messages.items()):
            if MARKER in (stored.headers or {}):
                yield from self.marker(seq, stored)
                continue
            operation = self.publishes.get(stored.value) or members.get(stored.value)
            extra = {} if operation is None else operation.invoke.extra
            if operation is None or (operation.f == "publish" and operation.is_failed):
                yield f"{self.node} holds {stored.value!r} at {seq}, which nobody published, or which was refused"
            elif stored.subject not in (extra["subject"], extra.get("target")):
                yield f"{self.node} holds {stored.value} on {stored.subject}, published on {extra['subject']}"
            known = self.places.setdefault((stored.value, stored.subject), seq)
            if known != seq:
                yield f"{self.node} holds {stored.value} at {known} and at {seq}"

    def marker(self, seq: int, stored: Stored) -> Iterator[str]:
        for operation in self.publishes.values():
            extra = operation.invoke.extra
            if extra["subject"] == stored.subject and "ttl_ns" in extra:
                if operation.invoke.time_ns + extra["ttl_ns"] <= self.last_ns:
                    return
        yield f"{self.node} holds a marker on {stored.subject} at {seq}, where nothing can have ended"

    def living(self, operation: Operation) -> Iterator[str]:
        """An acknowledged message, perhaps with a lifetime."""
        assert operation.end is not None
        value, seq, extra = operation.value, operation.told("seq"), operation.invoke.extra
        found = self.places.get((value, extra["subject"]))
        ttl_ns = extra.get("ttl_ns")
        if found is not None and found != seq:
            yield f"{value} was acknowledged at {seq}; {self.node} holds it at {found}"
        elif found is None and (ttl_ns is None or self.last_ns < operation.invoke.time_ns + ttl_ns):
            yield f"{value} was acknowledged at {seq} and has time left; {self.node} does not hold it"
        elif found is not None and ttl_ns and self.first_ns > operation.end.time_ns + ttl_ns + SLACK_NS:
            yield f"{self.node} holds {value} at {seq}, whose time is over"

    def scheduled(self, operation: Operation) -> Iterator[str]:
        """A schedule, and its message."""
        value, extra = operation.value, operation.invoke.extra
        waits, came = (value, extra["subject"]) in self.places, (value, extra["target"]) in self.places
        if waits and came:
            yield f"{self.node} holds the schedule {value} and its message"
        elif came and self.last_ns < extra["at_ns"]:
            yield f"{self.node} holds the message of {value} before its time"
        if not operation.is_ok:
            return
        if not waits and not came:
            yield f"the schedule {value} was acknowledged; {self.node} holds neither it nor its message"
        elif waits and self.first_ns > max(extra["at_ns"], operation.told("acked_ns")) + SLACK_NS:
            yield f"{self.node} holds the schedule {value}, whose time is over"

    def batch(self, batch: Operation) -> Iterator[str]:
        """A fast batch, committed or not."""
        values, subject = batch.value, batch.invoke.extra["subject"]
        found = [self.places.get((value, subject)) for value in values]
        present = [seq for seq in found if seq is not None]
        name = f"the fast batch {values[0]} to {values[-1]}"
        if present != sorted(present) or found[: len(present)] != present:
            yield f"{self.node} holds the members of {name} at {found}"
        if not batch.is_ok:
            return
        if len(present) < len(values) or batch.told("count") != len(values) or present[-1] != batch.told("seq"):
            text = f"{name} was acknowledged as {batch.told('count')} messages up to {batch.told('seq')}"
            yield f"{text}; {self.node} holds its members at {found}"
