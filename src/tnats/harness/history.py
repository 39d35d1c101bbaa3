"""What clients saw: one event when an operation starts, one when it ends, in the order they happened.

Rules (Jepsen's, so that its tools can read our histories)
-----
* `ok`: it took effect. `fail`: it definitely did not. `info`: nobody knows; it may take effect at any later time.
* A process does one thing at a time, and is never used again after `info`: its worker goes on under another number
  with the same remainder modulo the number of workers.
* `index` is dense from 0, `time_ns` counts from the start of the run and never goes back.
* What the nemesis does stands in the same history, as `info` events of the process "nemesis".

Text forms: Jepsen's EDN (one map a line, keywords for type and function) and JSON lines with the same keys. The value
of a transaction is Elle's, `[[:append key value] [:r key [value ...]]]`. Keys beyond Jepsen's: `:node`, and for
acknowledged writes `:stream`, `:seq`, `:duplicate`; for KV reads `:seq` alone. Source: jepsen.history, "Histories".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import attrs

from tnats.harness import edn
from tnats.records import frozen

Type = Literal["invoke", "ok", "fail", "info"]
TYPES: tuple[Type, ...] = ("invoke", "ok", "fail", "info")
NEMESIS = "nemesis"
TRANSACTION = "txn"
CORE_KEYS = ("index", "time", "type", "process", "f", "value")


@frozen
class Event:
    """One line of a history. `value` is JSON-like: text, numbers, lists, None."""

    index: int
    time_ns: int
    type: Type
    process: int | str
    f: str
    value: Any = None
    error: str | None = None
    extra: dict[str, Any] = attrs.field(factory=dict)
    """Further keys, by name: node, stream, seq, duplicate, ..."""

    def record(self) -> dict[str, Any]:
        """The event as a flat map with Jepsen's keys."""
        record: dict[str, Any] = {
            "index": self.index,
            "time": self.time_ns,
            "type": self.type,
            "process": self.process,
            "f": self.f,
            "value": self.value,
        }
        if self.error is not None:
            record["error"] = self.error
        return {**record, **self.extra}


@frozen
class Operation:
    """An invocation with its end; `end` is None while nobody knows (never ended, or `info`)."""

    invoke: Event
    end: Event | None

    @property
    def is_ok(self) -> bool:
        return self.end is not None and self.end.type == "ok"

    @property
    def is_failed(self) -> bool:
        return self.end is not None and self.end.type == "fail"

    @property
    def f(self) -> str:
        return self.invoke.f

    @property
    def value(self) -> Any:
        """What was asked for."""
        return self.invoke.value

    @property
    def result(self) -> Any:
        """The value of the end."""
        return None if self.end is None else self.end.value

    def told(self, key: str) -> Any:
        """A further key of the end, None if there is none."""
        return None if self.end is None else self.end.extra.get(key)


class History:
    """Events in order, with their recording and their text forms."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events: list[Event] = list(events)

    def operations(self, *functions: str) -> list[Operation]:
        """Clients' operations in the order of their invocations; only the named functions, if any are named."""
        found: list[Operation] = []
        open_at: dict[int | str, int] = {}
        for event in self.events:
            if event.process == NEMESIS or (functions and event.f not in functions):
                continue
            if event.type == "invoke":
                open_at[event.process] = len(found)
                found.append(Operation(event, None))
                continue
            place = open_at.pop(event.process)
            if event.type != "info":
                found[place] = Operation(found[place].invoke, event)
        return found

    def nemesis(self) -> Iterator[Event]:
        """What was done to the system."""
        return (event for event in self.events if event.process == NEMESIS)

    def to_edn(self) -> Iterator[str]:
        """One line an event."""
        for event in self.events:
            record = event.record()
            for key in ("type", "f"):
                record[key] = edn.Keyword(record[key])
            if event.process == NEMESIS:
                record["process"] = edn.Keyword(NEMESIS)
            if event.f == TRANSACTION:
                record["value"] = [[edn.Keyword(f), *rest] for f, *rest in event.value]
            yield edn.write(record)

    def to_json_lines(self) -> Iterator[str]:
        """One object an event."""
        for event in self.events:
            yield json.dumps(event.record(), separators=(",", ":"))


def from_edn(lines: Iterable[str]) -> History:
    """A history from Jepsen's `history.edn` or `History.to_edn`. Raises EdnError, KeyError, ValueError."""
    return History(_event(edn.read(line)) for line in lines if line.strip())


def from_json_lines(lines: Iterable[str]) -> History:
    """A history from `History.to_json_lines`. Raises KeyError, ValueError."""
    return History(_event(json.loads(line)) for line in lines if line.strip())


def _event(record: dict[str, Any]) -> Event:
    record = {str(key): _plain(value) for key, value in record.items()}
    if record["type"] not in TYPES:
        raise ValueError(f"event {record['index']}: unknown type {record['type']!r}")
    error = record.get("error")
    return Event(
        index=record["index"],
        time_ns=record["time"],
        type=record["type"],
        process=record["process"],
        f=record["f"],
        value=record["value"],
        error=error if error is None or isinstance(error, str) else json.dumps(error),
        extra={key: value for key, value in record.items() if key not in (*CORE_KEYS, "error")},
    )


def _plain(value: Any) -> Any:
    """Without keywords."""
    if isinstance(value, edn.Keyword):
        return str(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return value


class Recorder:
    """Writes a history while it happens. `now_ns` is the runtime's monotonic clock."""

    def __init__(self, now_ns: Callable[[], int], process_count: int) -> None:
        self.history = History()
        self._now_ns = now_ns
        self._start_ns = now_ns()
        self._process_count = process_count
        self._process_of: dict[int, int] = {}
        """Worker: the process number that it goes by now."""

    def time_ns(self) -> int:
        """Since the start of the run."""
        return self._now_ns() - self._start_ns

    def _note(
        self, type: Type, process: int | str, f: str, value: Any, error: str | None, extra: dict[str, Any]
    ) -> Event:
        event = Event(len(self.history.events), self.time_ns(), type, process, f, value, error, extra)
        self.history.events.append(event)
        return event

    def process(self, worker: int) -> int:
        """The number that `worker` goes by now."""
        return self._process_of.setdefault(worker, worker)

    def invoke(self, worker: int, f: str, value: Any = None, **extra: Any) -> Event:
        """A worker starts an operation."""
        return self._note("invoke", self.process(worker), f, value, None, extra)

    def end(self, worker: int, type: Type, f: str, value: Any, *, error: str | None = None, **extra: Any) -> Event:
        """It ended. After `info` the worker has a new process number."""
        event = self._note(type, self.process(worker), f, value, error, extra)
        if type == "info":
            self._process_of[worker] += self._process_count
        return event

    def nemesis(self, f: str, value: Any = None) -> None:
        """Something was done to the system."""
        self._note("info", NEMESIS, f, value, None, {})
