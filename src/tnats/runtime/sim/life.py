"""One incarnation of a simulated node: from its start to its death, with what every facet must ask first.

Crash is freeze, then cancel. Cancelling runs `finally` blocks, which a power cut does not; so the incarnation is
first marked dead, from when on every seam call raises `NodeKilled`, and cancelled after that.
"""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING

import trio

from tnats.errors import NodeKilled

if TYPE_CHECKING:
    from tnats.runtime.sim.node import Node

current_life: contextvars.ContextVar[Life | None] = contextvars.ContextVar("current_life", default=None)
"""Whose task is running; tasks inherit it from the task that spawned them."""


class Life:
    """An incarnation. `number` counts the incarnations of `node` from 1."""

    __slots__ = ("dead", "ended", "node", "number", "scope")

    def __init__(self, node: Node, number: int) -> None:
        self.node = node
        self.number = number
        self.dead = False
        self.ended = trio.Event()
        """Set when no task of it is left."""
        self.scope = trio.CancelScope()

    def check(self) -> None:
        """Raise `NodeKilled` when dead."""
        if self.dead:
            raise NodeKilled(f"{self.node.name} (incarnation {self.number}) was killed")

    def alive(self) -> bool:
        """The opposite of `dead`, as a call."""
        return not self.dead


def life_of(task: trio.lowlevel.Task) -> object:
    """The incarnation that `task` belongs to, None for tasks of the world itself."""
    return task.context.get(current_life)
