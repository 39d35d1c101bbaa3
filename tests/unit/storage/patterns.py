"""Subjects wanted by any rule, as an index takes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

import attrs


@attrs.frozen
class Such:
    """`tnats.storage.index_subjects.SubjectPattern` by a predicate."""

    is_wanted: Callable[[bytes], bool]
    beginnings: Collection[bytes] = (b"",)

    def __call__(self, subject: bytes) -> bool:
        return self.is_wanted(subject)

    def verdicts(self, subjects: Iterable[bytes]) -> Iterator[bool]:
        return map(self.is_wanted, subjects)
