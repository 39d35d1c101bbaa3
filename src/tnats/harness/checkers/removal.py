"""C13, with C1 and C3: a stream holds what was acknowledged, but for what was removed, and nothing else.

Property: an acknowledged message is served at its sequence unless a removal of it was asked for, or a message behind it
that rolls up (`rollup`), or a limit of the stream (`Limits`) justifies its absence, or a loss of power within a sync
interval does (`Evidence.is_lost`); what was removed with an acknowledgement, and what is beyond a limit, stays away;
what is served was published, on its subject, and not refused.
Cost: O(n log n). Source: the contract's K1 to K6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tnats.harness.checkers.evidence import Evidence, Replica, Result, result
from tnats.harness.history import Operation
from tnats.records import frozen


@frozen
class Limits:
    """What a stream removes by itself."""

    per_subject_max: int = 0
    messages_max: int = 0
    age_max_ns: int = 0
    age_slack_ns: int = 0
    """How far clocks may have been off."""
    bytes_max: int = 0
    refuses_new: bool = False
    """Nothing is removed for a limit: what would be beyond it is refused."""
    is_kept: bool = True
    """What is beyond them is gone; otherwise they were in force now and then."""


def check(evidence: Evidence, limits: Limits | None = None) -> Result:
    return result(
        "C13", "what was acknowledged is there, what was removed is not", faults(evidence, limits or Limits())
    )


@frozen
class Removals:
    """Sequences that are to be gone: single ones, and all below one."""

    single: frozenset[int]
    below: int

    def __contains__(self, seq: object) -> bool:
        return isinstance(seq, int) and (seq < self.below or seq in self.single)


def removals(operations: Iterable[Operation]) -> Removals:
    """What these removals and purges take away."""
    found = list(operations)
    single = frozenset(operation.value for operation in found if operation.f == "remove")
    return Removals(single, max((operation.value for operation in found if operation.f == "purge"), default=0))


def doomed(evidence: Evidence) -> Removals:
    """What somebody asked to have removed, with whatever result."""
    return removals(op for op in evidence.history.operations("remove", "purge") if not op.is_failed)


def removed(evidence: Evidence) -> Removals:
    """What was removed with an acknowledgement."""
    return removals(op for op in evidence.history.operations("remove", "purge") if op.is_ok)


def faults(evidence: Evidence, limits: Limits) -> Iterator[str]:
    for replica in evidence.readings:
        if replica.failure:
            yield f"{replica.node}: {replica.failure}"
            continue
        yield from strangers(evidence, replica)
        yield from risen(evidence, replica)
        yield from missing(evidence, replica, limits)
        if limits.is_kept:
            yield from beyond(replica, limits)
            yield from heavy(evidence, replica, limits)
        yield from overdue(evidence, replica, limits)
        yield from rolled_up(evidence, replica)


def strangers(evidence: Evidence, replica: Replica) -> Iterator[str]:
    attempts: dict[str, list[Operation]] = {}
    for operation in evidence.history.operations("publish"):
        attempts.setdefault(operation.value, []).append(operation)
    for operation in evidence.history.operations("batch"):
        for value in operation.value:
            attempts.setdefault(value, []).append(operation)
    for seq, stored in replica.messages.items():
        own = attempts.get(stored.value)
        if own is None:
            yield f"{replica.node} holds {stored.value!r} at {seq}, which nobody published"
        elif all(operation.is_failed for operation in own):
            yield f"{replica.node} holds {stored.value} at {seq}, which was refused"
        elif own[0].f == "publish" and stored.subject != own[0].invoke.extra["subject"]:
            subject = own[0].invoke.extra["subject"]
            yield f"{replica.node} holds {stored.value} on {stored.subject}, published on {subject}"


def risen(evidence: Evidence, replica: Replica) -> Iterator[str]:
    gone = removed(evidence)
    for seq, stored in replica.messages.items():
        if seq in gone:
            yield f"{replica.node} holds {stored.value} at {seq}, whose removal was acknowledged"


def missing(evidence: Evidence, replica: Replica, limits: Limits) -> Iterator[str]:
    gone = doomed(evidence)
    effects = Effects(evidence, replica, limits)
    for operation in evidence.acked():
        seq = operation.told("seq")
        stored = replica.messages.get(seq)
        if stored is not None and stored.value == operation.value:
            continue
        if stored is not None:
            yield f"{operation.value} was acknowledged at {seq}; {replica.node} holds {stored.value} there"
        elif seq not in gone and not effects.explain(operation) and not evidence.is_lost(operation, seq, replica):
            yield f"{operation.value} was acknowledged at {seq}; {replica.node} holds nothing there"


def ranks(evidence: Evidence, replica: Replica) -> dict[int, tuple[int, int]]:
    """Sequence: how many messages are known to have come behind it, on its subject and in the stream."""
    subjects = {seq: stored.subject for seq, stored in replica.messages.items()}
    for operation in evidence.acked():
        subjects.setdefault(operation.told("seq"), operation.invoke.extra["subject"])
    behind: dict[str, int] = {}
    found: dict[int, tuple[int, int]] = {}
    for count, seq in enumerate(sorted(subjects, reverse=True)):
        found[seq] = behind.get(subjects[seq], 0), count
        behind[subjects[seq]] = found[seq][0] + 1
    return found


class Effects:
    """What a stream's limits may have removed before a replica was read."""

    def __init__(self, evidence: Evidence, replica: Replica, limits: Limits) -> None:
        publishes = evidence.history.operations("publish")
        self._limits = limits
        self._ranks = ranks(evidence, replica)
        self._unknown_count = sum(1 for publish in publishes if publish.end is None)
        self._read_ns = replica.read_ns[1]
        self._rolling = [publish for publish in publishes if "rollup" in publish.invoke.extra and not publish.is_failed]
        self._publishes = publishes
        self._first_tries = {publish.value: publish for publish in reversed(publishes)}

    def explain(self, operation: Operation) -> bool:
        """Whether a limit explains that an acknowledged message is gone, or a message that rolls up. Messages that came
        and went unseen may count, so a limit of numbers is taken to explain what is at the edge of what is known.
        """
        limits = self._limits
        if any(is_rolled_up(operation, by) for by in self._rolling):
            return True
        if limits.refuses_new:
            return False
        on_subject, in_stream = self._ranks[operation.told("seq")]
        if limits.per_subject_max and on_subject + self._unknown_count >= limits.per_subject_max:
            return True
        if limits.messages_max and in_stream + self._unknown_count >= limits.messages_max:
            return True
        if limits.bytes_max and self._bytes_from(operation.told("seq")) > limits.bytes_max:
            return True
        if limits.age_max_ns:
            # It may be the first try that was stored.
            age_ns = self._read_ns - self._first_tries[operation.value].invoke.time_ns
            return age_ns + limits.age_slack_ns >= limits.age_max_ns
        return False

    def _bytes_from(self, seq: int) -> int:
        """Of a message and all that may have come behind it."""
        behind = [each for each in self._publishes if each.end is None or (each.is_ok and each.told("seq") >= seq)]
        return sum(each.invoke.extra["bytes"] for each in behind)


def is_rolled_up(operation: Operation, by: Operation) -> bool:
    """Whether a message may be gone because of one that rolls up."""
    if by.end is not None and by.told("seq") <= operation.told("seq"):
        return False
    extra = by.invoke.extra
    return bool(extra["rollup"] == "all" or extra["subject"] == operation.invoke.extra["subject"])


def rolled_up(evidence: Evidence, replica: Replica) -> Iterator[str]:
    """What stands before an acknowledged message that takes its place."""
    for by in evidence.acked():
        scope = by.invoke.extra.get("rollup")
        for seq, stored in replica.messages.items() if scope else ():
            if seq < by.told("seq") and (scope == "all" or stored.subject == by.invoke.extra["subject"]):
                text = f"{replica.node} holds {stored.value} on {stored.subject} at {seq}"
                yield f"{text}, before {by.value} at {by.told('seq')}, which rolled that up"


def heavy(evidence: Evidence, replica: Replica, limits: Limits) -> Iterator[str]:
    """More bytes than the limit allows."""
    if limits.bytes_max:
        sizes = {each.value: each.invoke.extra["bytes"] for each in evidence.history.operations("publish")}
        held = sum(sizes.get(stored.value, 0) for stored in replica.messages.values())
        if held > limits.bytes_max:
            yield f"{replica.node} holds {held} bytes; {limits.bytes_max} are allowed"


def beyond(replica: Replica, limits: Limits) -> Iterator[str]:
    """More than the limits allow."""
    counts: dict[str, int] = {}
    for stored in replica.messages.values():
        counts[stored.subject] = counts.get(stored.subject, 0) + 1
    for subject, count in counts.items():
        if limits.per_subject_max and count > limits.per_subject_max:
            yield f"{replica.node} holds {count} messages on {subject}; {limits.per_subject_max} are allowed"
    if limits.messages_max and len(replica.messages) > limits.messages_max:
        yield f"{replica.node} holds {len(replica.messages)} messages; {limits.messages_max} are allowed"


def overdue(evidence: Evidence, replica: Replica, limits: Limits) -> Iterator[str]:
    """What is older than it may be."""
    if not limits.age_max_ns:
        return
    for operation in evidence.acked():
        assert operation.end is not None
        stored = replica.messages.get(operation.told("seq"))
        age_ns = replica.read_ns[0] - operation.end.time_ns
        if stored is not None and age_ns > limits.age_max_ns + limits.age_slack_ns:
            yield f"{replica.node} holds {stored.value} at {operation.told('seq')}, {age_ns / 1e9:.3f} s old"
