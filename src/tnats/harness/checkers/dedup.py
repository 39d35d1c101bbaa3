"""C4 with message ids: what is published again with the same id is stored once.

Property: attempts with one message id inside the duplicate window leave one message at most; an acknowledgement that
says "duplicate" gives the sequence of the stored one, and one that does not is the only one of its kind, but for those
that a loss of power within a sync interval took before. Values without an id are attempted once each, so they stand at
one sequence at most. Where clocks were moved the window is where nobody can say, so nothing is asked (`is_windowed`).
Where a run goes on beyond the window (`check_window`) two acknowledgements in a row are asked: what came for certain
within it is a duplicate, and what came for certain behind it is none.
Cost: linear in history and store. Source: the contract's K4; JetStream documentation, "Message Deduplication".
"""

from __future__ import annotations

from collections.abc import Iterator

from tnats.harness.checkers.evidence import Evidence, Result, result
from tnats.harness.history import Operation
from tnats.limits import MILLISECOND_NS

TITLE = "a message id is stored once"


def check(evidence: Evidence, *, is_windowed: bool = True) -> Result:
    return result("C4", TITLE, faults(evidence) if is_windowed else ())


def faults(evidence: Evidence) -> Iterator[str]:
    for replica in evidence.replicas:
        places: dict[str, list[int]] = {}
        for seq, stored in replica.messages.items():
            places.setdefault(stored.value, []).append(seq)
        for value, seqs in places.items():
            if len(seqs) > 1:
                yield f"{replica.node} holds {value} at {' and '.join(map(str, sorted(seqs)))}"
    first: dict[str, Operation] = {}
    for operation in evidence.acked():
        seq = operation.told("seq")
        before = first.setdefault(operation.value, operation)
        known = before.told("seq")
        if known != seq and evidence.was_lost(before, operation):
            first[operation.value] = operation
        elif operation.told("duplicate") and known != seq:
            yield f"{operation.value} was acknowledged at {known}, and as a duplicate of {seq}"
        elif known != seq:
            yield f"{operation.value} was acknowledged at {known} and at {seq}, not as a duplicate"


WINDOW_SLACK_NS = 10 * MILLISECOND_NS
"""A message's time is that of the read that brought it."""


def check_window(evidence: Evidence, window_ns: int) -> Result:
    return result("C4", TITLE, around(evidence, window_ns))


def values(evidence: Evidence) -> dict[str, list[Operation]]:
    """The attempts of each value, those that failed for certain left out."""
    found: dict[str, list[Operation]] = {}
    for operation in evidence.history.operations("publish"):
        if not operation.is_failed:
            found.setdefault(operation.value, []).append(operation)
    return found


def around(evidence: Evidence, window_ns: int) -> Iterator[str]:
    for value, attempts in values(evidence).items():
        stored: Operation | None = None
        """The last attempt that was stored, if it is known."""
        for attempt in attempts:
            if attempt.end is None:
                stored = None
                continue
            if stored is not None and stored.end is not None:
                least_ns = attempt.invoke.time_ns - stored.end.time_ns
                most_ns = attempt.end.time_ns - stored.invoke.time_ns
                known, seq = stored.told("seq"), attempt.told("seq")
                if attempt.told("duplicate") and seq != known:
                    yield f"{value} was acknowledged at {known}, and as a duplicate of {seq}"
                if attempt.told("duplicate") and least_ns > window_ns + WINDOW_SLACK_NS:
                    yield f"{value} was a duplicate {least_ns / 1e9:.3f} s later, when its id was to be forgotten"
                if not attempt.told("duplicate") and most_ns < window_ns:
                    yield f"{value} was stored again {most_ns / 1e9:.3f} s later, when its id was to be known"
            if not attempt.told("duplicate"):
                stored = attempt
