"""Warnings about what may come and go many times a second."""

from __future__ import annotations

from tnats.jetstream.ports import Log
from tnats.limits import SPARSE_WARNING_NS
from tnats.records import define


@define(eq=False)
class SparseWarning:
    """About one state of one thing: told when it begins, and again after `limits.SPARSE_WARNING_NS` at the earliest."""

    _log: Log
    _next_ns: int = 0

    def tell(self, text: str, now_ns: int) -> None:
        """The state is, or still is."""
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + SPARSE_WARNING_NS
            self._log.warn(text)
