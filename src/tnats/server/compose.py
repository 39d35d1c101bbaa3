"""One way to put a node together, live or simulated: from a world and options to a `Node` ready to run."""

from __future__ import annotations

from tnats.ids import KeyKind, encode_public_key
from tnats.runtime.api import Runtime
from tnats.server.config.baseline import complete
from tnats.server.config.options import Options
from tnats.server.config.problems import ConfigError
from tnats.server.config.validation import unsupported, validate
from tnats.server.log import ServerLog
from tnats.server.node import Node, ReadOptions

_PUBLIC_KEY_BYTES = 32


def build(runtime: Runtime, options: Options, *, read_options: ReadOptions | None = None, colors: bool = False) -> Node:
    """A node that serves `options` in `runtime`.

    `read_options` reads the options anew when asked to reload, `colors` make a log on standard error colourful.

    Raises ConfigError when options contradict each other or ask for what this release does not offer, DiskError
    when the log file cannot be opened.
    """
    settle(options)
    log = ServerLog(runtime, options, colors=colors)
    server_id = encode_public_key(KeyKind.SERVER, runtime.chance.entropy(_PUBLIC_KEY_BYTES))
    return Node(runtime, options, server_id, log, read_options and (lambda: settle(read_options())))


def settle(options: Options) -> Options:
    """Fill in the defaults that depend on other options, then make sure that a node can serve the whole.

    Returns `options`. Raises ConfigError with every problem.
    """
    complete(options)
    problems = [*validate(options), *unsupported(options)]
    if problems:
        raise ConfigError(problems)
    return options
