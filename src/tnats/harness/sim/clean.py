"""C34: no unhandled exception, no internal alarm in a log, no node that ended because of its own bug, no error in an
answer that is not in the published table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tnats.errors import InvariantBroken
from tnats.harness.scenario import Violation
from tnats.jetstream.api.errors import TABLE
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


ERROR = re.compile(rb'"error": ?\{"code": ?(\d+), ?"err_code": ?(\d+), ?"description": ?"((?:[^"\\]|\\.)*)"')


class ErrorAudit:
    """Looks at the errors in what one server writes to its clients: number, code and words are those of the table."""

    def __init__(self) -> None:
        self.audited_count = 0
        self.strange: dict[str, None] = {}

    def on_write(self, data: bytes) -> None:
        """The server writes to a client (`Host.on_write`)."""
        if b'"err_code"' not in data:
            return
        for code, err_code, description in ERROR.findall(data):
            self.audited_count += 1
            row = TABLE.get(int(err_code))
            if row is None or row.code != int(code) or not says(row.template, description.decode("utf-8", "replace")):
                self.strange[f"{int(err_code)}, code {int(code)}: {description.decode('utf-8', 'replace')}"] = None


def says(template: str, text: str) -> bool:
    """Whether a text is a template with something in its places."""
    words = re.split(r"\{\w+\}", template)
    return re.fullmatch(".*".join(map(re.escape, words)), text, re.DOTALL) is not None
