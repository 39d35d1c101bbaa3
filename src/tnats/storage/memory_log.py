"""Messages in memory: the store of memory streams. Lost with the process, as they are meant to be."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from tnats.errors import InvariantBroken
from tnats.storage.errors import DataDamaged, StorageError
from tnats.storage.group import Group
from tnats.storage.index import MessageIndex
from tnats.storage.index_columns import LOST, PLACE_MIN
from tnats.storage.message_log import Content, Message, Stored
from tnats.storage.message_run import subjects_of
from tnats.storage.record import Finding


class MemoryLog:
    """A `MessageLog` without a disk."""

    def __init__(self, *, first_sequence: int = 1) -> None:
        self.index = MessageIndex(first_sequence)
        self.last_time_ns = 0
        self.trouble: StorageError | None = None
        self.findings: list[Finding] = []
        self.unwritten_bytes = 0
        self.is_packing = False
        self.unreadable: dict[int, None] = {}
        self._messages: dict[int, Content] = {}

    def size_of(self, subject: bytes, headers: bytes, payload: bytes) -> int:
        return len(subject) + len(headers) + len(payload) + 16

    async def append(self, messages: Sequence[Message]) -> None:
        self.hold(messages)

    def hold(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if self.index.place(message.sequence) != LOST:
                continue
            if message.sequence > self.index.last:
                self.last_time_ns = message.time_ns
            size = self.size_of(message.subject, message.headers, message.payload)
            self.index.put(message.sequence, message.subject, size, PLACE_MIN, message.time_ns)
            self._messages[message.sequence] = (message.subject, message.headers, message.payload)

    def hold_run(self, time_ns: int, messages: Sequence[Content]) -> None:
        first = self.index.last + 1
        sizes = [len(subject) + len(headers) + len(payload) + 16 for subject, headers, payload in messages]
        self._messages.update(zip(range(first, first + len(messages)), messages, strict=True))
        self.last_time_ns = time_ns
        self.index.put_run(
            subjects_of(messages), sizes, array("Q", [PLACE_MIN]) * len(sizes), array("Q", [time_ns]) * len(sizes)
        )

    @property
    def is_recovering(self) -> bool:
        return False

    def hold_replayed(self, times_ns: array[int], messages: Sequence[Content]) -> None:
        raise InvariantBroken("a memory log has nothing to replay")

    def write_nowait(self) -> bool:
        return True

    async def write(self) -> None:
        pass

    def load_nowait(self, sequence: int) -> Message | None:
        content = self._messages.get(sequence)
        if content is None:
            if self.index.start <= sequence <= self.index.last and self.index.place(sequence) == LOST:
                raise DataDamaged(f"message {sequence} is lost")
            raise KeyError(sequence)
        return Message(sequence, self.index.time_ns(sequence), *content)

    def load_run_nowait(self, sequences: Sequence[int]) -> list[Stored | None]:
        if len(sequences) == 1:
            content = self._messages.get(sequences[0])
            return [content and (sequences[0], self.index.time_ns(sequences[0]), *content)]
        times_ns = self.index.times_of(sequences)
        contents = map(self._messages.get, sequences)
        return [
            None if content is None else (sequence, time_ns, *content)
            for sequence, time_ns, content in zip(sequences, times_ns, contents, strict=True)
        ]

    async def load(self, sequence: int) -> Message:
        message = self.load_nowait(sequence)
        assert message is not None
        return message

    def remove(self, sequences: Iterable[int], *, erase: bool = True) -> int:
        count = 0
        for sequence in sequences:
            if self.index.remove(sequence):
                del self._messages[sequence]
                count += 1
        return count

    def raise_start(self, start: int) -> int:
        removed = self.index.raise_start(start)
        for sequence, _, _ in removed:
            del self._messages[sequence]
        return len(removed)

    def skip(self, first: int, last: int) -> None:
        self.index.skip(first, last)

    async def checkpoint(self, group: Group) -> bytes:
        return b""

    async def release(self) -> None:
        pass

    async def close(self) -> None:
        self._messages.clear()
