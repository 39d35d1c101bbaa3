"""The states of a client connection, and the ways between them."""

from __future__ import annotations

import enum


class State(enum.Enum):
    GREETED = "greeted"
    """INFO is sent. Without CONNECT a client may go on if nobody needs to log in."""
    LOGGING_IN = "logging in"
    """CONNECT is being judged; nothing is handled meanwhile."""
    OPEN = "open"
    CLOSED = "closed"


MOVES = {
    State.GREETED: frozenset((State.LOGGING_IN, State.CLOSED)),
    State.LOGGING_IN: frozenset((State.OPEN, State.CLOSED)),
    State.OPEN: frozenset((State.LOGGING_IN, State.CLOSED)),  # a second CONNECT logs in anew
    State.CLOSED: frozenset(),
}
