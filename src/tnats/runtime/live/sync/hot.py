"""The loop of the sync thread. Compiled it runs without the interpreter's lock: no sync begins or ends later because
the reactor's thread computes.

One source, compiled where a C compiler is there (`hot.pxd`). It touches nothing but descriptors (`calls`).
"""

from __future__ import annotations

from tnats.runtime.live.sync.calls import DESCRIPTOR_BITS

try:
    import cython
except ImportError:  # interpreted, where nobody compiles
    from tnats import speedups as cython

if not cython.compiled:
    from tnats.runtime.live.sync.calls import answer, begin_writing, next_request, sync


def carry_out_syncs(pipe: int) -> None:
    """Carry out one sync after another, as they are asked for, until the other end of `pipe` is closed.

    The outcome is 1, or 1 + errno: an eventfd takes no 0.
    """
    with cython.nogil:
        request = next_request(pipe)
        while request >= 0:
            answer(request & ((1 << DESCRIPTOR_BITS) - 1), 1 + sync(request >> DESCRIPTOR_BITS))
            request = next_request(pipe)


def write_ahead(file: int) -> None:
    """Have the disk begin with what the sync of `file` is to wait for, while the thread wakes up."""
    with cython.nogil:
        begin_writing(file)
