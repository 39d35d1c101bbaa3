"""The match cache: what was found for recent subjects, bounded and deterministic.

Rules. A subject is admitted on its second miss, so that subjects used once (reply inboxes) never push out the
ones in steady use. Storage is two generations: entries land in the young one and move back there when hit; when
it is full it becomes the old one and the former old one is forgotten. That keeps what was used lately, in
constant time, without chance. The same shape serves the memory of first misses. Subjects longer than
SUBJECT_BYTES_CACHED_MAX are not admitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from tnats.limits import SUBJECT_BYTES_CACHED_MAX

Value = TypeVar("Value")


class MatchCache(Generic[Value]):
    """At most `entries_max` values keyed by subject; two slots for values, two for subjects seen once."""

    __slots__ = ("_half", "_old", "_once_old", "_once_young", "_pushed_out", "_young")

    def __init__(self, entries_max: int, pushed_out: Callable[[Iterable[Value]], None] | None = None) -> None:
        """`pushed_out` is told the values that others took the place of."""
        self._pushed_out = pushed_out
        self._half = max(1, entries_max // 2)
        self._young: dict[bytes, Value] = {}
        self._old: dict[bytes, Value] = {}
        self._once_young: dict[bytes, None] = {}
        self._once_old: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, subject: bytes) -> Value | None:
        """The cached value of `subject`, or None."""
        value = self._young.get(subject)
        if value is None and self._old:
            value = self._old.pop(subject, None)
            if value is not None:
                self._store(subject, value)
        return value

    def offer(self, subject: bytes, value: Value) -> None:
        """Keep `value` if this is the second miss of `subject`; otherwise remember the first one."""
        if len(subject) > SUBJECT_BYTES_CACHED_MAX:
            return
        if subject in self._once_young or subject in self._once_old:
            self._once_young.pop(subject, None)
            self._once_old.pop(subject, None)
            self._store(subject, value)
            return
        if len(self._once_young) >= self._half:
            self._once_old = self._once_young
            self._once_young = {}
        self._once_young[subject] = None

    def _store(self, subject: bytes, value: Value) -> None:
        if len(self._young) >= self._half:
            former = self._old
            self._old = self._young
            self._young = {}
            if former and self._pushed_out is not None:
                self._pushed_out(former.values())
        self._young[subject] = value

    def clear(self) -> None:
        """Drop all values. Subjects in use come back at their next match: they stay admitted."""
        if self._young or self._old:
            self._once_old = dict.fromkeys(self._young)
            self._once_old.update(dict.fromkeys(self._old))
            self._young = {}
            self._old = {}

    def values(self) -> list[Value]:
        """All cached values, old generation first."""
        return [*self._old.values(), *self._young.values()]
