"""C15 and C16: a confirmed acknowledgement is for ever.

Property: a fetch that began after a message's acknowledgement was confirmed never brings that message; what a consumer
reports of its floor (`info`) never lies below a gap-free run of confirmed acknowledgements that ended before it was
asked, in any incarnation of the server. Cost: O(n log n). Source: the contract's K2, K4; ADR-15, "double ack".
"""

from __future__ import annotations

from collections.abc import Iterator

from tnats.harness.checkers.deliveries import confirmed, deliveries
from tnats.harness.checkers.evidence import Evidence, Result, result


def check(evidence: Evidence) -> Result:
    return result("C16", "confirmed acknowledgements hold", faults(evidence))


def faults(evidence: Evidence) -> Iterator[str]:
    done = confirmed(evidence.history)
    for each in deliveries(evidence.history):
        ack = done.get((each.consumer, each.seq))
        if ack is not None and ack.end is not None and ack.end.index < each.fetch.invoke.index:
            yield (
                f"consumer {each.consumer} delivered {each.value} at {each.seq} (delivery {each.count}), "
                f"whose acknowledgement had been confirmed"
            )
    for info in evidence.history.operations("info"):
        if not info.is_ok:
            continue
        consumer, floor = info.invoke.extra["consumer"], info.told("floor")
        held = 0
        while (ack := done.get((consumer, held + 1))) is not None:
            assert ack.end is not None
            if ack.end.index > info.invoke.index:
                break
            held += 1
        if floor < held:
            yield f"consumer {consumer} says that its floor is {floor}; everything up to {held} was confirmed before"
