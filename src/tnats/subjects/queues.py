"""Which member of a queue group gets a message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tnats.subjects.draw import Draw

Member = TypeVar("Member")


def choose_member(members: Sequence[Member], draw: Draw, accepts: Callable[[Member], bool]) -> Member | None:
    """One member that `accepts`, or None: a uniform start, then onward past those that cannot receive.

    Not round robin: with every member willing each gets an equal share whoever publishes (client protocol,
    "Delivery rules").
    """
    count = len(members)
    if not count:
        return None
    start = draw.below(count)
    for step in range(count):
        member = members[(start + step) % count]
        if accepts(member):
            return member
    return None
