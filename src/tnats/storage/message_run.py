"""Messages as the bytes of the entry that carries them: taken apart one by one when asked, and measured all at once.

A start replays entries with hundreds of thousands of messages, of which hardly one is looked at. So they stay as they
were read, and what the index wants to know of them comes from loops over the bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import overload

from tnats.storage import hot
from tnats.storage.hot import MESSAGE_HEAD_SIZE, Content


class MessageRun(Sequence[Content]):
    """The messages (subject, header block, payload) that stand in `body` from `start` to its end."""

    __slots__ = ("_body", "_places", "has_headers", "is_uniform")

    def __init__(self, body: bytes, start: int, count: int) -> None:
        """Raises ValueError for bytes that are no `count` messages."""
        self._body = body
        self._places, self.has_headers, self.is_uniform = hot.find_messages(body, start, count)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, offset: int) -> Content: ...

    @overload
    def __getitem__(self, offset: slice) -> list[Content]: ...

    def __getitem__(self, offset: int | slice) -> Content | list[Content]:
        if isinstance(offset, slice):
            return [self._content(place) for place in self._places[offset]]
        return self._content(self._places[offset])

    def __iter__(self) -> Iterator[Content]:
        return map(self._content, self._places)

    def _content(self, place: int) -> Content:
        body = self._body
        subject_at = place + MESSAGE_HEAD_SIZE
        headers_at = subject_at + int.from_bytes(body[place : place + 2], "little")
        payload_at = headers_at + int.from_bytes(body[place + 2 : place + 6], "little")
        end = payload_at + int.from_bytes(body[place + 6 : place + 10], "little")
        return body[subject_at:headers_at], body[headers_at:payload_at], body[payload_at:end]

    def subjects(self) -> list[bytes]:
        """The subject of each."""
        if self.is_uniform and self._places:
            return [self._content(self._places[0])[0]] * len(self._places)
        return hot.subjects_of_messages(self._body, self._places)

    def sizes(self, base: int, headers_cost: int) -> array[int]:
        """`base` and the bytes of each, with `headers_cost` for those that have headers."""
        return hot.measure_messages(self._body, self._places, base, headers_cost)


def subjects_of(messages: Sequence[Content]) -> list[bytes]:
    """The subject of each."""
    return messages.subjects() if type(messages) is MessageRun else [content[0] for content in messages]
