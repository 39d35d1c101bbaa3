"""C14 for ordered readers: the whole stream, each message once, in order.

Property: what one ordered reader saw are rising sequences, and it passed over nothing that the stream held: each
acknowledged message between the first and the last it saw is among them. `watches` are lists of (sequence, value).
Cost: O(n log n). Source: ADR-17.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tnats.harness.checkers.evidence import Result, result

Watches = Mapping[str, Sequence[tuple[int, str]]]


def check(acked: Iterable[tuple[int, str]], watches: Watches) -> Result:
    """`acked`: what was acknowledged, and not removed."""
    return result("C14", "ordered readers see everything once", faults(sorted(acked), watches))


def faults(acked: Sequence[tuple[int, str]], watches: Watches) -> Iterator[str]:
    for name, seen in watches.items():
        last = 0
        for seq, value in seen:
            if seq <= last:
                yield f"{name} saw {value} at {seq} after {last}"
            last = seq
        values = dict(seen)
        for seq, value in acked:
            if seen and seen[0][0] <= seq <= last and values.get(seq, "nothing") != value:
                yield f"{name} saw {values.get(seq, 'nothing')} at {seq}, where {value} was acknowledged"
