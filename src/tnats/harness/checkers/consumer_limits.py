"""C18: a consumer keeps its limits.

Property: no message is delivered more often than `max_deliver`, no fetch brings more than it asked for, and what the
consumer reports as pending never exceeds `max_ack_pending`. Cost: linear. Source: ADR-13, ADR-15.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tnats.harness.checkers.deliveries import deliveries
from tnats.harness.checkers.evidence import Evidence, Result, result
from tnats.records import frozen


@frozen
class ConsumerLimits:
    """-1: no limit."""

    max_deliver: int = -1
    max_ack_pending: int = -1


def check(evidence: Evidence, limits: Mapping[str, ConsumerLimits]) -> Result:
    return result("C18", "consumers keep their limits", faults(evidence, limits))


def faults(evidence: Evidence, limits: Mapping[str, ConsumerLimits]) -> Iterator[str]:
    for each in deliveries(evidence.history):
        most = limits[each.consumer].max_deliver
        if 0 < most < each.count:
            yield f"consumer {each.consumer} delivered {each.seq} {each.count} times; {most} are allowed"
    for fetch in evidence.history.operations("fetch"):
        if fetch.is_ok and len(fetch.result) > fetch.invoke.extra["count"]:
            yield f"a fetch of {fetch.invoke.extra['count']} brought {len(fetch.result)} messages"
    for info in evidence.history.operations("info"):
        most = limits[info.invoke.extra["consumer"]].max_ack_pending
        if info.is_ok and 0 < most < info.told("ack_pending"):
            consumer = info.invoke.extra["consumer"]
            yield f"consumer {consumer} has {info.told('ack_pending')} messages pending; {most} are allowed"
