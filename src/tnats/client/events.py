"""What happens to a client over its life, as records handed to the `on_event` option.

The callback runs synchronously inside the client's own tasks: it must not block, and what it raises ends the client.
To handle events in a task, send them through a trio memory channel with `send_nowait`.
"""

from __future__ import annotations

from tnats.client.errors import ClientError, ServerError
from tnats.records import frozen


@frozen
class Connected:
    """The first connection stands."""

    url: str


@frozen
class Disconnected:
    """A connection ended. The client tries again unless `Closed` follows."""

    url: str
    reason: str


@frozen
class Reconnected:
    """A later connection stands and every live subscription has been renewed on it."""

    url: str


@frozen
class ReconnectFailed:
    """One attempt to come back failed; others follow unless this was the last."""

    url: str
    reason: str


@frozen
class ServersDiscovered:
    """The server named members of its cluster that were not known before."""

    urls: tuple[str, ...]


@frozen
class LameDuck:
    """The server is about to shut down and will close this connection; other servers are preferred from now on."""

    url: str


@frozen
class SlowConsumer:
    """The queue of a subscription was full and messages are being dropped: reported once, until it has been emptied."""

    subject: str
    pending_count: int
    pending_bytes: int


@frozen
class ErrorReported:
    """The server sent `-ERR` that concerns no waiting call, for instance a denied publish."""

    error: ServerError


@frozen
class Closed:
    """The end. `error` tells why the client gave up; None when it was closed on purpose."""

    error: ClientError | None


Event = (
    Connected
    | Disconnected
    | Reconnected
    | ReconnectFailed
    | ServersDiscovered
    | LameDuck
    | SlowConsumer
    | ErrorReported
    | Closed
)
