"""Tracing of the client protocol: what clients say and are told, one log line per operation.

Theory of operation: the hot loop knows nothing of tracing. A connection that is traced has its two ends replaced,
`Inbound.read_into` and `Outbound.write`, by ones that look at the bytes on their way through a `Scanner`; where
tracing is off these are the plain ones and nothing is spent. Operations that came in one read are therefore all
logged before what they cause. Subscriptions that end are heard of as an `InterestObserver`.

Tracing may be switched while connections are open. The half that reads begins with what the connection holds of an
unfinished operation; the half that writes waits until everything queued before has gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tnats.auth.users import ConnectionType
from tnats.broker.account import Account
from tnats.broker.broker import Broker
from tnats.broker.connection import Connection
from tnats.broker.hot.message import Subscription
from tnats.broker.state import State
from tnats.limits import CONTROL_LINE_BYTES_MAX
from tnats.runtime.api import Buffer, Conn
from tnats.server.log import ServerLog
from tnats.server.log_lines import traced_end, traced_operation, traced_payload
from tnats.wire.client import parse_size

_INBOUND = ("CONNECT", "PUB", "HPUB", "SUB", "UNSUB", "PING", "PONG")
_OUTBOUND = ("MSG", "HMSG", "PING", "PONG", "+OK", "-ERR")
_WITH_PAYLOAD = frozenset(("PUB", "HPUB", "MSG", "HMSG"))
_WITH_HEADERS = frozenset(("HPUB", "HMSG"))
_LINE_END = b"\r\n"


class Scanner:
    """Cuts one direction of a connection into operations and hands their trace lines to `tell`.

    Bytes that are no operation end the scan: the connection is about to be closed for them.
    """

    def __init__(
        self, tell: Callable[[str], None], *, outbound: bool, max_traced_msg_len: int, headers_only: bool
    ) -> None:
        self._tell = tell
        self._outbound = outbound
        self._verbs = _OUTBOUND if outbound else _INBOUND
        self._max_traced_msg_len = max_traced_msg_len
        self._headers_only = headers_only
        self._held = bytearray()
        self._size = -1
        """Of the payload that comes next; -1: a line does."""
        self._header_size = 0
        self._broken = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        if self._broken:
            return
        self._held += data
        at, end = -1, 0
        while end > at and not self._broken:
            at = end
            end = self._take_line(at) if self._size < 0 else self._take_payload(at)
        if self._broken:
            self._held.clear()
        else:
            del self._held[:at]

    def _take_line(self, at: int) -> int:
        """Tell of the control line at `at`; where it ends (`at` itself when it is not complete)."""
        line_end = self._held.find(b"\n", at)
        if line_end < 0:
            self._broken = len(self._held) - at > CONTROL_LINE_BYTES_MAX
            return at
        line = bytes(self._held[at:line_end]).rstrip(b"\r")
        word = line.split(None, 1)[0] if line.strip() else b""
        verb = _verb_of(word, self._verbs)
        if verb is None:
            self._broken = not word.upper().startswith(b"INFO")  # which is not traced
            return line_end + 1
        arguments = line[len(verb) :].strip()
        self._tell(traced_operation(verb, arguments, outbound=self._outbound))
        if verb in _WITH_PAYLOAD:
            words = arguments.split()
            self._size = parse_size(words[-1]) if words else -1
            self._header_size = parse_size(words[-2]) if verb in _WITH_HEADERS and len(words) > 1 else 0
            self._broken = not 0 <= self._header_size <= self._size
        return line_end + 1

    def _take_payload(self, at: int) -> int:
        """Tell of the payload at `at`; where the next line begins (`at` itself when it is not complete)."""
        end = at + self._size
        if len(self._held) < end + len(_LINE_END):
            return at
        payload = bytes(self._held[at:end])
        self._size = -1
        if self._headers_only:
            payload = payload[: self._header_size].removesuffix(2 * _LINE_END)
        if payload:
            self._tell(traced_payload(payload, self._max_traced_msg_len, outbound=self._outbound))
        return end + len(_LINE_END)


def _verb_of(word: bytes, verbs: Sequence[str]) -> str | None:
    """The verb that `word` is, or begins with where its arguments may follow at once."""
    text = word.upper()
    for verb in verbs:
        if text == verb.encode() or (verb in ("CONNECT", "PING", "PONG") and text.startswith(verb.encode())):
            return verb
    return None


class _Ends:
    """The two ends of one traced connection."""

    def __init__(self, connection: Connection, inbound: Scanner, outbound: Scanner) -> None:
        self._connection = connection
        self._read = connection.conn.read_into
        self._write = connection.conn.write
        self._inbound = inbound
        self._outbound = outbound
        self._in_step = not connection.outbound.pending()
        body = connection.inbound.body
        inbound.feed(bytes(body[: connection.inbound.have]) if body is not None else connection.inbound.tail)

    def read_into(self, buffer: bytearray | memoryview) -> int | None:
        count = self._read(buffer)
        if count:
            self._inbound.feed(bytes(memoryview(buffer)[:count]))
        return count

    def end_reading(self) -> None:
        """The connection is closed: what is left to write is still told, until its `Outbound` lets go of `write`."""
        self._connection.inbound.read_into = self._read  # no cycle is left for the collector

    def write(self, buffers: Sequence[Buffer]) -> int:
        data = b"".join(buffers)
        pending = self._connection.outbound.pending()
        count = self._write(buffers)
        if self._in_step:
            self._outbound.feed(data[:count])
        elif count == len(data) == pending:
            self._in_step = True
        return count


class Tracer:
    """Traces the connections of one broker while it is asked to. An `InterestObserver`."""

    def __init__(self, broker: Broker, log: ServerLog) -> None:
        self._broker = broker
        self._log = log
        self._ends: dict[int, _Ends] = {}
        """By cid."""
        self._accounts: dict[str, Account] = {}
        self._max_traced_msg_len = 0
        self._headers_only = False

    def configure(self, *, max_traced_msg_len: int, headers_only: bool) -> None:
        """Begin or end tracing, as the log asks, of the connections there are and of those to come."""
        self._max_traced_msg_len = max_traced_msg_len
        self._headers_only = headers_only
        for connection in list(self._broker.connections.values()):
            self._release(connection)
            self.on_accepted(connection)
        if not self._log.traces:
            for account in self._accounts.values():
                account.observers.remove(self)
            self._accounts.clear()

    def on_accepted(self, connection: Connection) -> None:
        """Trace `connection` from now on, if anything is traced."""
        if not self._log.traces or connection.state is State.CLOSED:
            return
        ends = _Ends(connection, self._scanner(connection, outbound=False), self._scanner(connection, outbound=True))
        self._ends[connection.cid] = ends
        connection.inbound.read_into = ends.read_into
        connection.outbound.write = ends.write
        self._observe(connection.account)

    def on_connected(self, cid: int) -> None:
        """It may have entered an account that we do not observe yet."""
        if cid in self._ends:
            self._observe(self._broker.connections[cid].account)

    def on_disconnected(self, cid: int) -> None:
        ends = self._ends.pop(cid, None)
        if ends is not None:
            ends.end_reading()

    def on_subscribed(self, subscription: Subscription) -> None:
        """Seen as SUB already."""

    def on_unsubscribed(self, subscription: Subscription) -> None:
        client = subscription.client
        if isinstance(client, Connection) and client.cid in self._ends:
            self._log.trace(f"{client} - {traced_end(subscription.sid)}")

    def _observe(self, account: Account) -> None:
        if account.name not in self._accounts:
            self._accounts[account.name] = account
            account.observers.append(self)

    def _release(self, connection: Connection) -> None:
        if self._ends.pop(connection.cid, None) is not None:
            connection.inbound.read_into = connection.conn.read_into
            connection.outbound.write = connection.conn.write

    def _scanner(self, connection: Connection, *, outbound: bool) -> Scanner:
        return Scanner(
            lambda line: self._log.trace(f"{connection} - {line}"),
            outbound=outbound,
            max_traced_msg_len=self._max_traced_msg_len,
            headers_only=self._headers_only,
        )


class TracedBroker(Broker):
    """A broker that shows its tracer each connection before anything was said on it."""

    tracer: Tracer

    def adopt(self, conn: Conn, connection_type: ConnectionType = ConnectionType.STANDARD) -> Connection:
        connection = super().adopt(conn, connection_type)  # which queues INFO, but writes nothing
        self.tracer.on_accepted(connection)
        return connection
