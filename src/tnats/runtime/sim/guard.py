"""Catches code that reaches around the seam while a simulation runs.

Clocks, entropy, module-level random functions, sockets, files and threads are replaced by functions that raise
`Escape` naming the caller. What C code or an early `from ... import` holds is out of reach; that is banned by name
in tests/tidy. A module imported during a simulation may keep one of the replacements for good, so they work
normally outside of simulations.
"""

from __future__ import annotations

import builtins
import io
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

GUARDED: tuple[tuple[object, tuple[str, ...]], ...] = (
    (
        time,
        (
            "time",
            "time_ns",
            "monotonic",
            "monotonic_ns",
            "perf_counter",
            "perf_counter_ns",
            "process_time",
            "process_time_ns",
            "sleep",
        ),
    ),
    (
        os,
        ("urandom", "getrandom", "open", "read", "write", "fsync", "fdatasync", "listdir", "scandir", "mkdir",
         "rename", "replace", "unlink", "remove", "rmdir", "fork"),
    ),
    (
        random,
        ("random", "randint", "randrange", "choice", "choices", "shuffle", "sample", "uniform", "getrandbits",
         "randbytes", "seed", "_urandom"),
    ),
    (builtins, ("open",)),
    (io, ("open",)),
    (socket, ("create_connection", "getaddrinfo", "gethostbyname", "gethostname")),
    (socket.socket, ("connect", "connect_ex", "bind", "listen", "accept")),
    (threading.Thread, ("start",)),
)  # fmt: skip


class Escape(BaseException):
    """Simulated code reached around the seam; the text names what was called, and from where."""


_active = False


@contextmanager
def guarded() -> Iterator[None]:
    """Make what is GUARDED raise `Escape` inside the block."""
    global _active  # noqa: PLW0603  # the functions replaced are global too
    replaced: list[tuple[object, str, object]] = []
    for owner, names in GUARDED:
        for name in names:
            original = vars(owner).get(name)
            inherited = original is None
            original = getattr(owner, name, None)
            if original is None:
                continue
            setattr(owner, name, raiser(owner, name, original))
            replaced.append((owner, name, None if inherited else original))
    _active = True
    try:
        yield
    finally:
        _active = False
        for owner, name, original in reversed(replaced):
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


def raiser(owner: object, name: str, original: Callable[..., object]) -> Callable[..., object]:
    """A function that raises `Escape` while the guard is active, and else does what `original` does."""
    title = f"{owner.__name__ if isinstance(owner, ModuleType) else owner.__qualname__}.{name}"  # type: ignore[attr-defined]

    def guarded_call(*arguments: object, **keywords: object) -> object:
        if not _active:
            return original(*arguments, **keywords)
        frame = sys._getframe(1)
        raise Escape(
            f"{title} called in a simulation by {frame.f_globals.get('__name__')} "
            f"({frame.f_code.co_filename}:{frame.f_lineno}); use the runtime's facets"
        )

    return guarded_call
