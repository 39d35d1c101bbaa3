"""C13 for streams that refuse what is new: a message is refused only where there was no room for it.

Property: when a publish was refused for want of room, as many messages as the limit allows (in the stream, or on its
subject) can have been there: published before it was answered, and not known to be removed before it was sent.
Cost: refusals times history. Source: the contract's K6; JetStream documentation, "DiscardPolicy".
"""

from __future__ import annotations

from collections.abc import Iterator

from tnats.harness.checkers.evidence import Evidence, Result, result
from tnats.harness.checkers.removal import Limits, removals
from tnats.harness.history import Operation

REFUSAL = "maximum "
"""How such a refusal begins."""


def check(evidence: Evidence, limits: Limits) -> Result:
    return result("C13", "what is refused had no room", faults(evidence, limits))


def refusals(evidence: Evidence) -> list[Operation]:
    """Publishes that were refused for want of room."""
    return [
        publish
        for publish in evidence.history.operations("publish")
        if publish.is_failed and publish.end is not None and (publish.end.error or "").startswith(REFUSAL)
    ]


def faults(evidence: Evidence, limits: Limits) -> Iterator[str]:
    publishes = evidence.history.operations("publish")
    for refused in refusals(evidence):
        assert refused.end is not None
        subject = refused.invoke.extra["subject"]
        gone = removals(
            each
            for each in evidence.history.operations("remove", "purge")
            if each.is_ok and each.end is not None and each.end.index < refused.invoke.index
        )
        there = [
            publish.invoke.extra["subject"]
            for publish in publishes
            if not publish.is_failed and publish.invoke.index < refused.end.index and publish.told("seq") not in gone
        ]
        on_subject = there.count(subject)
        is_full = 0 < limits.messages_max <= len(there) or 0 < limits.per_subject_max <= on_subject
        if not is_full:
            text = f"{refused.value} was refused ({refused.end.error}); there were at most {len(there)} messages"
            yield f"{text}, {on_subject} of them on {subject}"
