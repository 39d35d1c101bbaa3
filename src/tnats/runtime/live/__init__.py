"""The seam on the real machine: one `Runtime` per process."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tnats.runtime.api import Runtime
from tnats.runtime.live.chance import LiveChance
from tnats.runtime.live.clock import LiveClock
from tnats.runtime.live.disk import LiveDisk
from tnats.runtime.live.network import LiveNetwork
from tnats.runtime.live.process import LiveProcess
from tnats.runtime.live.processor import LiveProcessor


def live_runtime(*, argv: Sequence[str] | None = None) -> Runtime:
    """The machine's clock, entropy, TCP stack, file system and process. `argv` defaults to the program's own."""
    process = LiveProcess(sys.argv if argv is None else argv)
    return Runtime(
        clock=LiveClock(),
        chance=LiveChance(),
        network=LiveNetwork(),
        disk=LiveDisk(),
        processor=LiveProcessor(threads_max=max(2, process.core_count)),
        process=process,
        buggify=never,
    )


def never(name: str) -> bool:
    """`Runtime.buggify` outside simulation."""
    return False
