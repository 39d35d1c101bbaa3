"""Subject mappings of an account: source -> weighted destinations, first matching source wins.

Applied once to what clients and leaf nodes publish, before permissions are tested (client protocol, "Delivery
rules"). Weights are percent. What they leave of 100 goes to the source subject itself, unless the source is
listed as a destination: then the rest of the messages is dropped on purpose. Destinations may be meant for one
cluster; a server of another cluster takes those without.
"""

from __future__ import annotations

from collections.abc import Sequence

from tnats.records import frozen
from tnats.subjects.draw import Draw
from tnats.subjects.tokens import is_subset, is_valid_subject
from tnats.subjects.transforms import Transform, TransformError, with_placeholders

DROPPED = b""
"""What a message maps to when the weights lose it."""


@frozen
class Destination:
    """One destination as configured: `weight` in percent, `cluster` empty for any."""

    subject: bytes
    weight: int = 100
    cluster: str = ""


class Mapping:
    """One source with its destinations, for a server in `cluster` (empty: in none)."""

    __slots__ = ("_choices", "is_fixed", "source")

    def __init__(self, source: bytes, destinations: Sequence[Destination], cluster: str = "") -> None:
        """Raises TransformError for a bad subject, a weight above 100 (alone or in sum), or a repeated one."""
        if not is_valid_subject(source):
            raise TransformError("invalid subject")
        self.source = source
        by_cluster = _checked(source, destinations)
        chosen = by_cluster.get(cluster) or by_cluster.get("", [])
        weighted = [(Transform(source, one.subject), one.weight) for one in chosen]
        rest = 100 - sum(weight for _, weight in weighted)
        if rest and all(one.subject != source for one in destinations):
            weighted.append((Transform(source, with_placeholders(source)), rest))
        self._choices: list[tuple[int, Transform]] = []
        upper = 0
        for transform, weight in weighted:
            upper += weight
            self._choices.append((upper, transform))
        self.is_fixed = len(self._choices) == 1 and upper == 100 and self._choices[0][1].is_fixed
        """Whether equal subjects always map alike, so that a result may be cached."""

    def matches(self, subject: bytes) -> bool:
        """Whether `subject` lies within the source."""
        return is_subset(subject, self.source)

    def apply(self, subject: bytes, draw: Draw) -> bytes:
        """The mapped subject, or DROPPED."""
        if self.is_fixed:
            return self._choices[0][1].apply(subject, draw)
        point = draw.below(100)
        for upper, transform in self._choices:
            if point < upper:
                return transform.apply(subject, draw)
        return DROPPED


def find_mapping(mappings: Sequence[Mapping], subject: bytes) -> Mapping | None:
    """The first mapping, in the order of configuration, whose source holds `subject`."""
    for mapping in mappings:
        if mapping.matches(subject):
            return mapping
    return None


def _checked(source: bytes, destinations: Sequence[Destination]) -> dict[str, list[Destination]]:
    """The destinations by cluster, all of them checked, also those of other clusters."""
    seen: dict[bytes, None] = {}
    by_cluster: dict[str, list[Destination]] = {}
    for one in destinations:
        if one.subject in seen:
            raise TransformError(f'duplicate entry for "{one.subject.decode("utf-8", "replace")}"')
        seen[one.subject] = None
        if not 0 <= one.weight <= 100:
            raise TransformError("individual weights need to be <= 100")
        group = by_cluster.setdefault(one.cluster, [])
        group.append(one)
        if sum(member.weight for member in group) > 100:
            raise TransformError("total weight needs to be <= 100")
        Transform(source, one.subject)
    return by_cluster
