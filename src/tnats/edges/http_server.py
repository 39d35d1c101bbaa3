"""A small HTTP/1.1 server on the seam: synchronous handlers, bounded in every direction. h11 speaks the protocol.

Theory of operation: one task owns a poller and all connections. Ready bytes are fed to the connection's h11
machine, and the connection is due: it is not read until its requests are answered. Another task answers what is due,
one request and then the next connection's: `handle` gives a response, a finished byte string, and between two of them
all other tasks of the server have their turn, since a report may take as long as thousands of messages. What the
kernel does not take is sent by a short-lived task, so that a slow reader delays nobody and holds one response at most.
One scan a second closes what is late or idle. Where there are HTTP_CONNECTIONS_MAX, a new one takes the place of the
one that has said nothing for longest: neither idle clients nor half a request lock others out.

A request that breaks HTTP gets the status h11 suggests and the connection ends.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from email.utils import formatdate

import h11
import trio

from tnats import limits
from tnats.records import define, frozen
from tnats.runtime.api import Conn, ConnectionBroken, Listener, NetworkError, OutOfDescriptors, Runtime


@frozen
class Request:
    """One request: `target` as sent, with its query."""

    method: str
    target: str


@frozen
class Response:
    """A finished answer."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "text/plain; charset=utf-8"),)


class _After(enum.Enum):
    """What follows once an answer is sent."""

    WAIT = enum.auto()  # for bytes of the next request
    MORE = enum.auto()  # it stays due: a further request may have arrived already
    CLOSE = enum.auto()


Handler = Callable[[Request], Response]

_REASONS = {200: b"OK", 400: b"Bad Request", 404: b"Not Found", 431: b"Request Header Fields Too Large"}
_READ_BYTES = 16 * limits.KIB
_SCAN_NS = limits.SECOND_NS


@define(eq=False)
class _Exchange:
    """One connection: its protocol machine and since when it owes us a request."""

    conn: Conn
    machine: h11.Connection
    since_ns: int
    in_head: bool = False
    is_busy: bool = False
    """It is due, or being sent an answer."""
    body_bytes: int = 0
    request: h11.Request | None = None


class HttpServer:
    """Serves `handle` on `listener` until cancelled."""

    def __init__(self, runtime: Runtime, listener: Listener, handle: Handler) -> None:
        self._runtime = runtime
        self._listener = listener
        self._handle = handle
        self._poller = runtime.network.poller()
        self._exchanges: dict[Conn, _Exchange] = {}
        self._due: deque[_Exchange] = deque()
        """Those whose machine may hold a request; they are not read meanwhile."""
        self._became_due = trio.Event()
        self._buffer = bytearray(_READ_BYTES)
        self._accepting = True

    async def run(self) -> None:
        """Serve; on cancellation every connection is reset and the listener closed."""
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._scan)
                self._nursery.start_soon(self._answer_in_turn)
                self._poller.add(self._listener)
                while True:
                    for source in await self._poller.wait():
                        if source is self._listener:
                            self._accept()
                        elif source in self._exchanges:
                            self._read(self._exchanges[source])
        finally:
            self._listener.close()
            for exchange in list(self._exchanges.values()):
                self._drop(exchange, reset=True)
            self._poller.close()

    def _accept(self) -> None:
        while len(self._exchanges) < limits.HTTP_CONNECTIONS_MAX or self._make_room():
            try:
                conn = self._listener.accept()
            except OutOfDescriptors:
                break
            except NetworkError:
                continue
            if conn is None:
                return
            machine = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.HTTP_REQUEST_HEAD_BYTES_MAX)
            self._exchanges[conn] = _Exchange(conn, machine, self._runtime.clock.mono_ns())
            self._poller.add(conn)
        self._poller.pause(self._listener)
        self._accepting = False

    def _make_room(self) -> bool:
        waiting = [exchange for exchange in self._exchanges.values() if not exchange.is_busy]
        if waiting:
            self._drop(min(waiting, key=lambda exchange: exchange.since_ns))
        return bool(waiting)

    def _read(self, exchange: _Exchange) -> None:
        try:
            count = exchange.conn.read_into(self._buffer)
        except ConnectionBroken:
            self._drop(exchange)
            return
        if count is not None:
            exchange.machine.receive_data(bytes(self._buffer[:count]))
            self._poller.pause(exchange.conn)
            self._put_due(exchange)

    def _put_due(self, exchange: _Exchange) -> None:
        exchange.is_busy = True
        self._due.append(exchange)
        self._became_due.set()

    async def _answer_in_turn(self) -> None:
        while True:
            await self._became_due.wait()
            self._became_due = trio.Event()
            while self._due:
                exchange = self._due.popleft()
                if exchange.conn in self._exchanges:
                    self._answer(exchange)
                await trio.lowlevel.checkpoint()

    def _answer(self, exchange: _Exchange) -> None:
        """Answer one request, if a whole one is there."""
        answer, after = self._answer_one(exchange)
        try:
            sent = exchange.conn.write([answer]) if answer else 0
        except ConnectionBroken:
            self._drop(exchange)
            return
        if sent < len(answer):
            self._nursery.start_soon(self._send_rest, exchange, answer[sent:], after)
        else:
            self._go_on(exchange, after)

    def _go_on(self, exchange: _Exchange, after: _After) -> None:
        if after is _After.CLOSE:
            self._drop(exchange)
        elif after is _After.MORE:
            self._put_due(exchange)
        else:
            exchange.is_busy = False
            self._poller.resume(exchange.conn)

    def _answer_one(self, exchange: _Exchange) -> tuple[bytes, _After]:
        """The bytes due for the next complete request, if it has arrived, and what to do when they are sent."""
        machine = exchange.machine
        try:
            while True:
                event = machine.next_event()
                if event is h11.NEED_DATA:
                    self._note_progress(exchange)
                    return b"", _After.WAIT
                if event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                    return b"", _After.CLOSE
                if isinstance(event, h11.Request):
                    exchange.request, exchange.body_bytes = event, 0
                elif isinstance(event, h11.Data):
                    exchange.body_bytes += len(event.data)
                    if exchange.body_bytes > limits.HTTP_REQUEST_BODY_BYTES_MAX:
                        return b"", _After.CLOSE
                elif isinstance(event, h11.EndOfMessage) and exchange.request is not None:
                    request = Request(exchange.request.method.decode(), exchange.request.target.decode("latin-1"))
                    answer = self._encode(machine, self._respond(request), request.method)
                    exchange.request = None
                    if machine.our_state is not h11.DONE:
                        return answer, _After.CLOSE
                    machine.start_next_cycle()
                    return answer, _After.MORE
        except h11.RemoteProtocolError as error:
            return self._refusal(machine, error), _After.CLOSE

    def _respond(self, request: Request) -> Response:
        try:
            return self._handle(request)
        except Exception as error:  # a bulkhead: one endpoint's fault must not end monitoring
            self._runtime.process.on_bug(error, f"http {request.method} {request.target}")
            return Response(500, b"internal error, see the server's log\n")

    def _encode(self, machine: h11.Connection, response: Response, method: str) -> bytes:
        date = formatdate(self._runtime.clock.wall_ns() / limits.SECOND_NS, usegmt=True)
        headers = [*response.headers, ("Date", date), ("Content-Length", str(len(response.body)))]
        head = h11.Response(status_code=response.status, headers=headers, reason=_REASONS.get(response.status, b""))
        body = b"" if method == "HEAD" else response.body
        parts = (machine.send(head), machine.send(h11.Data(data=body)), machine.send(h11.EndOfMessage()))
        return b"".join(part for part in parts if part)

    def _refusal(self, machine: h11.Connection, error: h11.RemoteProtocolError) -> bytes:
        if machine.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return b""
        text = f"{error}\n".encode("utf-8", "replace")
        return self._encode(machine, Response(error.error_status_hint, text), "GET")

    def _note_progress(self, exchange: _Exchange) -> None:
        in_head = bool(exchange.machine.trailing_data[0]) and exchange.request is None
        if in_head and exchange.in_head:
            return  # the time a head may take counts from its first byte
        exchange.in_head = in_head
        exchange.since_ns = self._runtime.clock.mono_ns()

    async def _send_rest(self, exchange: _Exchange, rest: bytes, after: _After) -> None:
        view = memoryview(rest)
        try:
            while view:
                await exchange.conn.wait_writable()
                sent = exchange.conn.write([view])
                view = view[sent:]
                exchange.since_ns = self._runtime.clock.mono_ns()
        except ConnectionBroken:
            self._drop(exchange)
            return
        if exchange.conn in self._exchanges:
            self._go_on(exchange, after)

    async def _scan(self) -> None:
        while True:
            await self._runtime.clock.sleep_ns(_SCAN_NS)
            now_ns = self._runtime.clock.mono_ns()
            for exchange in list(self._exchanges.values()):
                patience_ns = limits.HTTP_HEAD_TIMEOUT_NS if exchange.in_head else limits.HTTP_IDLE_TIMEOUT_NS
                if now_ns - exchange.since_ns > patience_ns:
                    self._drop(exchange)

    def _drop(self, exchange: _Exchange, *, reset: bool = False) -> None:
        if self._exchanges.pop(exchange.conn, None) is None:
            return
        self._poller.remove(exchange.conn)
        exchange.conn.close(reset=reset)
        if not self._accepting:
            self._accepting = True
            self._poller.resume(self._listener)
