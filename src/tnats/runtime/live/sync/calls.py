"""The calls of the sync thread as the interpreter makes them; `hot.pxd` has each again as a few lines of C.

A request is eight bytes in a pipe: the eventfd that is to have the outcome, and in the bits above it the file.
"""

from __future__ import annotations

import errno
import os
import sys

REQUEST_SIZE = 8
DESCRIPTOR_BITS = 31


def next_request(pipe: int) -> int:
    """The next request, waited for; -1 when the other end of the pipe is closed."""
    request = os.read(pipe, REQUEST_SIZE)
    return int.from_bytes(request, sys.byteorder) if request else -1


def begin_writing(file: int) -> None:
    """sync_file_range, to begin writing what is dirty. The interpreter has no such call: all is left to the sync."""


def sync(file: int) -> int:
    """fdatasync: 0 or its errno."""
    try:
        os.fdatasync(file)
    except OSError as exc:
        return exc.errno or errno.EIO
    return 0


def answer(event: int, outcome: int) -> None:
    """Set an eventfd."""
    os.eventfd_write(event, outcome)
