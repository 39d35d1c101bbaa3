"""The tiny profile: a server whose files are so small that a run fills several."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs

from tnats import limits
from tnats.jetstream import service
from tnats.storage.journal import JournalOptions
from tnats.storage.store import StoreOptions
from tnats.storage.stream_log import StreamLogOptions

PART_BYTES, SEGMENT_BYTES, RECENT_BYTES = 32 * 1024, 16 * 1024, 1024


@contextmanager
def tiny_profile() -> Iterator[None]:
    """Small files inside the block, so that rolling, releasing and compacting happen within a run; and few contents are
    kept in memory, so that reads come from the disk.
    """

    def sized(journal: JournalOptions, **others: Any) -> StoreOptions:
        small = attrs.evolve(journal, part_bytes=PART_BYTES)
        return StoreOptions(small, StreamLogOptions(segment_bytes=SEGMENT_BYTES), **others)

    recent_bytes_max = limits.RECENT_BYTES_MAX
    service.StoreOptions = sized  # type: ignore[assignment,attr-defined]
    limits.RECENT_BYTES_MAX = RECENT_BYTES
    try:
        yield
    finally:
        service.StoreOptions = StoreOptions  # type: ignore[attr-defined]
        limits.RECENT_BYTES_MAX = recent_bytes_max
