"""C31: nothing is left over once everything works again.

Property, asked of a server at rest behind one more start: its store has no temporary file and no file that is none of
its own (docs/storage.md, "Files"), no file is open more often than once for its owner and once for a reader, no
connection is there but those of the machines around, and the disk holds no more than a small store takes. (That a
second start finds what the first one found is asked by comparing the readings.)
Cost: the number of files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tnats.harness.scenario import Violation
from tnats.runtime.sim.disk_faults import matching
from tnats.runtime.sim.node import Node

OWN = re.compile(
    r"tnats\.lock|tnats/((identity|marker|used)(\.tmp)?|journal/\d+\.part|streams/\d+/\d+\.seg|(.*/)?quarantine/[^/]+)"
)
"""A death while one of the small files is replaced leaves the next one beside it until it is replaced again."""
OPEN_MAX = 2
USED_BYTES_MAX = 4 << 20


def leftovers(machine: Node, store: str) -> Iterator[Violation]:
    """What a server at rest should not have."""
    image = machine.drive.image
    for path in matching(image, f"{store}/*"):
        if not OWN.fullmatch(path.removeprefix(f"{store}/")):
            yield Violation(f"at rest {machine.name}'s store has {path}", rule="C31 left over")
        count = machine.drive.opened.get(image.file(path), 0)
        if count > OPEN_MAX:
            yield Violation(f"at rest {machine.name} has {path} open {count} times", rule="C31 left over")
    if image.used_bytes > USED_BYTES_MAX:
        text = f"at rest {machine.name}'s disk holds {image.used_bytes} bytes; a store of this size takes less"
        yield Violation(text, rule="C31 left over")
    count, others = len(machine.host.conns), len(machine.world.nodes) - 1
    if count > others:
        text = f"at rest {machine.name} has {count} connections, and {others} machines are there to have one"
        yield Violation(text, rule="C31 left over")
