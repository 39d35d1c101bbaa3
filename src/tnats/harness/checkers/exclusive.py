"""C17, and C18 for waits: a message is with one worker at a time, and leaves a work queue by an acknowledgement only.

Property: two deliveries of one message in one incarnation of the server, with nothing said about it before the second
(what was said of an earlier one may still be under way), are at least the ack wait apart, or the wait that the backoff
has for that delivery: the second did not arrive earlier than that after the first was asked for. In a work queue, an
acknowledged message that is gone was acknowledged or terminated by somebody; one that is confirmed is gone.
Cost: O(n log n). Source: the contract's K6; ADR-42, JetStream documentation, "WorkQueuePolicy".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from tnats.harness.checkers.deliveries import Delivered, acks, confirmed, deliveries, ended
from tnats.harness.checkers.evidence import Evidence, Result, result

DRIFT = 0.02
"""How much clocks may differ."""


def check(evidence: Evidence, waits_ns: Mapping[str, Sequence[int]]) -> Result:
    """`waits_ns` by consumer: behind its first delivery, its second, ...; the last one counts for all others too."""
    return result("C17", "a message is with one worker at a time", early(evidence, waits_ns))


def check_queue(evidence: Evidence) -> Result:
    """For streams with work-queue retention."""
    return result("C17", "work leaves its queue when it is done", gone(evidence))


def early(evidence: Evidence, waits_ns: Mapping[str, Sequence[int]]) -> Iterator[str]:
    said: dict[tuple[str, int], list[int]] = {}
    for ack in acks(evidence.history, "sync", "ack", "nak", "term", "wpi"):
        said.setdefault((ack.invoke.extra["consumer"], ack.value), []).append(ack.invoke.index)
    by_message: dict[tuple[str, int, int], list[Delivered]] = {}
    for each in deliveries(evidence.history):
        if each.life:
            by_message.setdefault((each.consumer, each.seq, each.life), []).append(each)
    for (consumer, seq, _), got in by_message.items():
        got.sort(key=lambda one: one.count)
        for first, second in pairwise(got):
            assert second.fetch.end is not None
            apart_ns = second.fetch.end.time_ns - first.fetch.invoke.time_ns
            spoken = any(index < second.got_index for index in said.get((consumer, seq), ()))
            wait_ns = waits_ns[consumer][min(first.count, len(waits_ns[consumer])) - 1]
            if second.count > first.count and not spoken and apart_ns < wait_ns * (1 - DRIFT):
                yield (
                    f"consumer {consumer} delivered {seq} again after {apart_ns / 1e9:.3f} s at most; its wait is "
                    f"{wait_ns / 1e9:.3f} s, and nobody had said anything of it"
                )


def gone(evidence: Evidence) -> Iterator[str]:
    spoken = {seq for _, seq in ended(evidence.history)}
    done = {seq: ack for (_, seq), ack in confirmed(evidence.history).items()}
    for replica in evidence.readings:
        if replica.failure:
            yield f"{replica.node}: {replica.failure}"
            continue
        for publish in evidence.acked():
            seq = publish.told("seq")
            if seq not in replica.messages and seq not in spoken:
                yield f"{publish.value} at {seq} is gone from {replica.node}, though nobody acknowledged it"
        for seq in done:
            if seq in replica.messages:
                text = f"{replica.node} still holds {replica.messages[seq].value} at {seq}"
                yield text + ", whose acknowledgement was confirmed"
