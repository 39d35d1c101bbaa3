"""C14: a consumer delivers everything until it is acknowledged, and new messages in order.

Property: each acknowledged message was delivered by each consumer that never gives up, until somebody acknowledged or
terminated it (asked at the end, when consumers say that nothing is left); what is delivered was published, at that
sequence; within one incarnation of the server first deliveries follow the stream's order.
Cost: O(n log n). Source: the contract's K5; ADR-13.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tnats.harness.checkers.deliveries import Delivered, deliveries, ended
from tnats.harness.checkers.evidence import Evidence, Result, result


def check(evidence: Evidence, complete: Iterable[str]) -> Result:
    """`complete`: the consumers that must have got everything."""
    return result("C14", "consumers get everything, in order", faults(evidence, list(complete)))


def faults(evidence: Evidence, complete: list[str]) -> Iterator[str]:
    got = list(deliveries(evidence.history))
    seen = {(each.consumer, each.seq) for each in got}
    done = ended(evidence.history)
    for publish in evidence.acked():
        seq = publish.told("seq")
        for consumer in complete:
            if (consumer, seq) not in seen:
                yield f"{publish.value} was acknowledged at {seq}; consumer {consumer} never delivered it"
            elif (consumer, seq) not in done:
                yield f"consumer {consumer} delivers {publish.value} at {seq} no more, and nobody acknowledged it"
    attempted = {operation.value: operation for operation in evidence.history.operations("publish")}
    for each in got:
        source = attempted.get(each.value)
        if source is None or source.is_failed:
            yield f"consumer {each.consumer} delivered {each.value!r} at {each.seq}, which was never published"
        elif source.is_ok and source.told("seq") != each.seq and not source.told("duplicate"):
            text = f"consumer {each.consumer} delivered {each.value} at {each.seq}"
            yield f"{text}, acknowledged at {source.told('seq')}"
    yield from out_of_order(got)


def out_of_order(got: list[Delivered]) -> Iterator[str]:
    highest: dict[tuple[str, int], Delivered] = {}
    for each in sorted(got, key=lambda one: one.consumer_seq):
        if each.count > 1 or not each.life:
            continue
        before = highest.get((each.consumer, each.life))
        if before is not None and before.seq >= each.seq and before.consumer_seq < each.consumer_seq:
            yield (
                f"consumer {each.consumer} delivered {each.seq} for the first time as its number {each.consumer_seq}, "
                f"behind {before.seq} as number {before.consumer_seq}"
            )
        highest[each.consumer, each.life] = each
