"""C34: no unhandled exception, no internal alarm in a log, no node that ended because of its own bug."""

from __future__ import annotations

from collections.abc import Iterator

from tnats.errors import InvariantBroken
from tnats.harness.scenario import Violation
from tnats.runtime.sim.guard import Escape
from tnats.runtime.sim.node import Node
from tnats.runtime.sim.process import BugFound
from tnats.runtime.sim.world import Deadlock, Livelock

BUGS = ("Traceback", "InvariantBroken", "Failed to reload server configuration")
"""That the configuration, which no drill changes, cannot be read anew is a bug like the others."""
FATAL = "[FTL]"


def log_violations(node: Node, *, may_refuse: bool = False) -> Iterator[Violation]:
    """Lines that no fault of the world around explains; with `may_refuse` the server may have refused to start."""
    for time_ns, line in node.log_lines:
        if any(bug in line for bug in BUGS) or (FATAL in line and not may_refuse):
            yield Violation(f"{node.name} logged at {time_ns / 1e9:.3f} s: {line}", rule="C34 log")


def rule_of(error: BaseException) -> str:
    """The rule that an error breaks: a violation's own, or what it means that it escaped."""
    if isinstance(error, Violation):
        return error.rule
    if isinstance(error, Deadlock | Livelock):
        return f"LIVE {type(error).__name__.lower()}"
    if isinstance(error, BugFound | InvariantBroken | Escape):
        return f"C34 {type(error).__name__}"
    return f"C34 unhandled {type(error).__name__}"
