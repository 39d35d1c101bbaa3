"""Messages of one stream that stand in memory only, until they are written to a segment."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

from tnats.storage.hot import Content


class _Run:
    """Consecutive messages that came together; some may be wanted no more (`gone`)."""

    __slots__ = ("_messages", "_taken", "first", "gone")

    def __init__(self, first: int, messages: Sequence[Content], gone: set[int]) -> None:
        self.first = first
        self.gone = gone
        self._messages = messages
        self._taken = 0

    def __len__(self) -> int:
        return len(self._messages) - self._taken

    def content(self, sequence: int) -> Content:
        return self._messages[self._taken + sequence - self.first]

    def front(self, count: int) -> Sequence[Content]:
        return self._messages[self._taken : self._taken + count]

    def take(self, count: int) -> None:
        self.first += count
        self._taken += count


_first_of = attrgetter("first")


class HeldMessages:
    """See the module. Those that came alone are kept one by one, the others in the runs that they came in."""

    __slots__ = ("_runs", "_singles", "bytes")

    def __init__(self) -> None:
        self._singles: dict[int, Content] = {}
        self._runs: list[_Run] = []
        """Ascending."""
        self.bytes = 0
        """Their size, as the owner counts it."""

    def __bool__(self) -> bool:
        return bool(self._singles or self._runs)

    def put(self, sequence: int, content: Content, size: int) -> None:
        """Hold one message."""
        self._singles[sequence] = content
        self.bytes += size

    def put_run(self, first: int, messages: Sequence[Content], size: int, gone: set[int]) -> None:
        """Hold the messages of consecutive sequences behind all runs, without those in `gone`; `size` of the others."""
        self._runs.append(_Run(first, messages, gone))
        self.bytes += size

    def content(self, sequence: int) -> Content:
        """A message that is held."""
        return self._singles.get(sequence) or self._run_of(sequence).content(sequence)

    def _run_of(self, sequence: int) -> _Run:
        return self._runs[bisect_right(self._runs, sequence, key=_first_of) - 1]

    def drop(self, sequence: int, size: int) -> None:
        """Let go of one message."""
        self.bytes -= size
        if self._singles.pop(sequence, None) is None:
            run = self._run_of(sequence)
            run.gone.add(sequence)
            if len(run.gone) == len(run):
                self._runs.remove(run)

    def sequences(self) -> list[int]:
        """All that are held."""
        found = [seq for run in self._runs for seq in range(run.first, run.first + len(run)) if seq not in run.gone]
        return found + list(self._singles)

    @property
    def first(self) -> int:
        """The message that is to be written next; 0 when there is none."""
        while self._runs and self._runs[0].gone:
            run = self._runs.pop(0)
            wanted = [seq for seq in range(run.first, run.first + len(run)) if seq not in run.gone]
            self._singles.update((seq, run.content(seq)) for seq in wanted)
        return self._runs[0].first if self._runs else next(iter(self._singles), 0)

    def front(self, count_max: int) -> Sequence[Content]:
        """Some of the consecutive messages from `first` on."""
        first = self.first
        if self._runs:
            return self._runs[0].front(count_max)
        contents: list[Content] = []
        for sequence, content in self._singles.items():
            if sequence != first + len(contents) or len(contents) == count_max:
                break
            contents.append(content)
        return contents

    def take(self, count: int, size: int) -> None:
        """Let go of the first `count` messages of what `front` gave, `size` of all."""
        self.bytes -= size
        if not self._runs:
            first = self.first
            for sequence in range(first, first + count):
                del self._singles[sequence]
            return
        run = self._runs[0]
        run.take(count)
        if not len(run):
            del self._runs[0]
