"""What a stream holds and what its server says it has lost, for the checkers: of a real server or a simulated one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from tnats.client.jetstream import JetStream, StoredMessage
from tnats.client.jetstream.delivery import NOT_FOUND_STATUS, from_direct
from tnats.client.jetstream.stream import END_OF_BATCH_STATUS

LOST_RANGE = re.compile(r"lost \S*/(\S+) ([0-9]+)-([0-9]+) messages")
"""How our health check and our log name what a stream has lost."""


async def read_batch(js: JetStream, stream: str, first_seq: int, count: int) -> tuple[list[StoredMessage], bool]:
    """Up to `count` messages from `first_seq` on, gaps passed over, and whether the server said that this was all.

    Unlike `Stream.direct_get_batch` it keeps what came before the server fell silent: that is evidence too.
    """
    query = json.dumps({"seq": first_seq, "batch": count, "next_by_subj": ">"}).encode()
    found: list[StoredMessage] = []
    async with js.client.request_many(
        js.api.subject(f"DIRECT.GET.{stream}"), query, count_max=count + 1, timeout_s=js.api.timeout_s
    ) as replies:
        async for reply in replies:
            if reply.status in (NOT_FOUND_STATUS, END_OF_BATCH_STATUS):
                return found, True
            found.append(from_direct(reply))
    return found, False


def told_lost(stream: str, texts: Iterable[str]) -> Iterator[tuple[int, int]]:
    """The ranges (first, last) of its sequences that health checks or lines of a log name as lost."""
    for text in texts:
        for name, first, last in LOST_RANGE.findall(text):
            if name == stream:
                yield int(first), int(last)
