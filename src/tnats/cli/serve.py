"""`tnats serve`: nats-server's command line on the real machine.

Imports what a start needs and no more: suites start servers by the thousand, and wait for each.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

import trio

from tnats import NATS_VERSION, __version__
from tnats.errors import TnatsError, sole_cause
from tnats.limits import SECOND_NS
from tnats.runtime.api import Clock, Runtime
from tnats.runtime.live import live_runtime
from tnats.runtime.live.process import complete_standard_streams
from tnats.server.compose import build, settle
from tnats.server.config.load import read_options
from tnats.server.config.options import Options
from tnats.server.config.problems import ConfigError
from tnats.server.flags import Answer, Flags, merge, parse_flags
from tnats.server.node import Node

PROGRAM = "nats-server"
"""As scripts know it: the texts they look for begin with this name."""

ALLOCATIONS_PER_COLLECTION = 50_000
"""The garbage collector's first threshold: routing makes no cycles, so looking for them more often is waste."""

COLLECTIONS_PER_OLDER_ONE = (2, 5)
"""Its other thresholds. What is removed leaves no cycles; what others do leave, libraries and errors, is not to pile up
for hours. All are looked through once some 900,000 objects have come, if that is a quarter of all (the collector's own
rule)."""

FIRST_COLLECTION_NS = SECOND_NS
"""How long after the start the first collection comes: it takes some 20 ms, in which nobody is served."""


def main(argv: Sequence[str]) -> int:
    """Run a server by the flags in `argv` until it ends; the exit code."""
    complete_standard_streams()
    flags = parse_flags(argv, program=PROGRAM, version=NATS_VERSION, own_version=__version__)
    if isinstance(flags, Answer):
        sys.stdout.write(flags.stdout)
        sys.stderr.write(flags.stderr)
        return flags.exit_code
    runtime = live_runtime(argv=argv)
    try:
        if flags.signal is not None:
            return _signal(*flags.signal)
        options = _options(runtime, flags)
        if flags.check_only:
            return _check(options)
        again = (lambda: _options(runtime, flags)) if flags.config_file else None
        node = build(runtime, options, read_options=again, colors=sys.stderr.isatty())
    except TnatsError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"{PROGRAM}: {line}\n")
        return 1
    return trio.run(_serve, node)


def _options(runtime: Runtime, flags: Flags) -> Options:
    """What file and command line ask for together. Raises ConfigError."""
    process = runtime.process
    path = flags.config_file
    options = read_options(path, read=process.read_text, env=process.environment) if path else Options()
    if flags.check_only and options.warnings:
        raise ConfigError((), options.warnings)
    merge(options, flags)
    return options


def _check(options: Options) -> int:
    settle(options)
    sys.stderr.write(f"{PROGRAM}: configuration file {options.config_file} is valid ({options.config_digest})\n")
    return 0


def _signal(name: str, target: str) -> int:
    from tnats.runtime.live.signals import send_signal

    send_signal(name, target)
    return 0


class _Ready(trio.TaskStatus[object]):
    """Tells when a node is ready."""

    def __init__(self) -> None:
        self.event = trio.Event()

    def started(self, value: object = None) -> None:
        self.event.set()


async def _serve(node: Node) -> int:
    try:
        async with trio.open_nursery() as nursery:
            ready = _Ready()
            nursery.start_soon(collect_garbage, node.runtime.clock, ready.event)
            await node.run(task_status=ready)
            nursery.cancel_scope.cancel()
    except Exception as failure:
        cause = sole_cause(failure)
        if not isinstance(cause, TnatsError):
            raise
        if node.log.has_file:  # where whoever started it may not look
            sys.stderr.write(f"{PROGRAM}: {cause}\n")
        return 1
    return 0


async def collect_garbage(clock: Clock, ready: trio.Event) -> None:
    """Have garbage collected, which it is not during the start, once whoever waited for the start is served.

    What the start has made is not looked through again: modules and options live as long as the server does, and a
    stream that is removed goes without the collector.
    """
    await ready.wait()
    await clock.sleep_ns(FIRST_COLLECTION_NS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(ALLOCATIONS_PER_COLLECTION, *COLLECTIONS_PER_OLDER_ONE)
    gc.enable()
