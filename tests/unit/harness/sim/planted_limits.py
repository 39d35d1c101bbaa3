"""Deliberately broken builds of the limits of streams: see `planted`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.harness.sim.planted import Patch, Planted

from tnats.jetstream import account
from tnats.jetstream import service as jetstream_service
from tnats.jetstream.api.errors import ApiError, ErrorKind
from tnats.jetstream.host import Host
from tnats.jetstream.stream import open as stream_open
from tnats.jetstream.stream.config import Discard
from tnats.jetstream.stream.dedup import DuplicateWindow
from tnats.jetstream.stream.headers import ROLLUP_ALL
from tnats.jetstream.stream.judge import Judge
from tnats.jetstream.stream.machine import StreamMachine
from tnats.jetstream.stream.service import StreamService
from tnats.storage.memory_log import MemoryLog
from tnats.storage.stream_checkpoint import StreamCheckpoints

Method = Callable[..., Any]


def makes_room(self: StreamMachine, applied: Any) -> None:
    """A stream that lets old messages go, whatever its policy is."""
    while 0 < self.config.max_msgs < self.store.messages:
        self._remove(self.store.first_seq, applied)


def sees_one_more(original: Method) -> Method:
    """Refuses the last message that there is room for."""

    def check_limits(self: Judge, message: Any, entry: Any, *, rolls_up: bool) -> None:
        entry.added_count += 1
        try:
            original(self, message, entry, rolls_up=rolls_up)
        finally:
            entry.added_count -= 1

    return check_limits


def takes_one_more(original: Method) -> Method:
    """A limit of bytes that removes more than it must."""

    def enforce(self: StreamMachine, applied: Any) -> None:
        before = self.store.messages
        original(self, applied)
        if self.config.max_bytes > 0 and self.config.discard == Discard.OLD and self.store.messages < before:
            self._remove(self.store.first_seq, applied)

    return enforce


def rolls_up_everything(original: Method) -> Method:
    def rollup(self: StreamMachine, seq: int, subject: bytes, value: bytes, applied: Any) -> None:
        original(self, seq, subject, value and ROLLUP_ALL, applied)

    return rollup


def knows_for(share: float) -> Method:
    """A window of another length."""

    def find(self: DuplicateWindow, msg_id: bytes, now_ns: int) -> int:
        seq, ts_ns = self._known.get(msg_id, (0, 0))
        return seq if ts_ns > now_ns - int(share * self.window_ns) else 0

    return find


def remembers() -> list[Patch]:
    """A server whose streams in memory outlive it."""
    original = jetstream_service.open_stream
    place: list[Any] = [None]
    kept: dict[Any, MemoryLog] = {}
    """By machine and stream."""

    async def open_stream(host: Host, owner: Any, record: Any) -> StreamService:
        disk: Any = host.runtime.disk
        place[0] = (disk.drive, record.group)
        return await original(host, owner, record)

    def open_log(**keywords: Any) -> MemoryLog:
        return kept.setdefault(place[0], MemoryLog(**keywords))

    return [
        (jetstream_service, "open_stream", open_stream),
        (account, "open_stream", open_stream),
        (stream_open, "MemoryLog", open_log),
    ]


async def erases_nothing(self: StreamCheckpoints, holder: Any, count: int) -> None:
    for _ in range(count):
        holder.erasures.popleft()


def with_another_code(original: Method) -> Method:
    def make(self: ErrorKind, **values: object) -> ApiError:
        error: ApiError = original(self, **values)
        return ApiError(error.code, error.err_code + 20_000, error.description)

    return make


C13 = "C13 what was acknowledged is there, what was removed is not"
C2 = "C2 no sequence is acknowledged twice"
C4 = "C4 a message id is stored once"

PLANTED_LIMITS = (
    Planted(
        "a full stream lets old messages go",
        "jetstream_limits",
        5,
        (C13,),
        lambda: [
            (Judge, "_check_limits", lambda *arguments, **keywords: None),
            (StreamMachine, "_enforce_totals", makes_room),
        ],
    ),
    Planted(
        "a stream is full one message early",
        "jetstream_limits",
        20,
        ("C13 what is refused had no room",),
        lambda: [(Judge, "_check_limits", sees_one_more(Judge._check_limits))],
    ),
    Planted(
        "a limit of bytes is not kept",
        "jetstream_limits",
        5,
        (C13,),
        lambda: [(StreamMachine, "_enforce_totals", lambda *arguments: None)],
    ),
    Planted(
        "a limit of bytes takes too much",
        "jetstream_limits",
        5,
        (C13,),
        lambda: [(StreamMachine, "_enforce_totals", takes_one_more(StreamMachine._enforce_totals))],
    ),
    Planted(
        "nothing is rolled up",
        "jetstream_limits",
        5,
        (C13,),
        lambda: [(StreamMachine, "_rollup", lambda *arguments: None)],
    ),
    Planted(
        "a roll-up of a subject takes the whole stream",
        "jetstream_limits",
        5,
        (C13,),
        lambda: [(StreamMachine, "_rollup", rolls_up_everything(StreamMachine._rollup))],
    ),
    Planted(
        "streams in memory outlive the server",
        "jetstream_memory",
        5,
        (C13, C2, "C11 counters add up"),
        remembers,
    ),
    Planted(
        "what is erased stays on the disk",
        "jetstream_publish",
        5,
        ("C13 erased",),
        lambda: [(StreamCheckpoints, "_erase", erases_nothing)],
    ),
    Planted(
        "errors have other numbers than the published ones",
        "jetstream_publish",
        5,
        ("C34 error",),
        lambda: [(ErrorKind, "__call__", with_another_code(ErrorKind.__call__))],
    ),
    Planted(
        "an id is known for too long", "jetstream_limits", 10, (C4,), lambda: [(DuplicateWindow, "find", knows_for(2))]
    ),
    Planted(
        "an id is forgotten early", "jetstream_limits", 10, (C4,), lambda: [(DuplicateWindow, "find", knows_for(0.5))]
    ),
)
