"""The monitoring HTTP server over real sockets: what it answers and what it cuts off."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
import trio
from tests.live.server_process import PATIENCE_S

from tnats.edges.http_server import HttpServer, Request, Response
from tnats.limits import HTTP_CONNECTIONS_MAX, SECOND_NS
from tnats.runtime.live import live_runtime

BIG = b"x" * 3_000_000


def answer(request: Request) -> Response:
    if request.target == "/boom":
        raise ValueError("a fault of this endpoint")
    return Response(200, BIG if request.target == "/big" else request.target.encode())


@asynccontextmanager
async def serving(handle: Callable[[Request], Response] = answer) -> AsyncIterator[int]:
    runtime = live_runtime()
    listener = await runtime.network.listen("127.0.0.1", 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(HttpServer(runtime, listener, handle).run)
        yield listener.address[1]
        nursery.cancel_scope.cancel()


async def exchange(port: int, sent: bytes, until: bytes | None = None) -> bytes:
    """Send `sent`; return what comes back up to `until`, or to the end of the stream."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(sent)
        received = bytearray()
        while until is None or until not in received:
            data = await stream.receive_some()
            if not data:
                break
            received += data
    return bytes(received)


async def test_pipelined_requests_are_answered_in_order() -> None:
    """Many requests in one segment get as many answers, in order."""
    async with serving() as port:
        sent = b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % n for n in range(300))
        received = await exchange(port, sent, until=b"\r\n\r\n/299")
        bodies = [part.split(b"\r\n\r\n", 1)[1] for part in received.split(b"HTTP/1.1 200 OK")[1:]]
        assert bodies == [b"/%d" % n for n in range(300)]


async def test_others_have_their_turn_between_two_answers() -> None:
    """However many requests have arrived, one is answered for each turn of all other tasks."""
    turns: list[str] = []

    def slow(request: Request) -> Response:
        turns.append("answer")
        return Response(200, request.target.encode())

    async def other() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            turns.append("other")

    async with serving(slow) as port:
        streams = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(5)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            for stream in streams:
                await stream.send_all(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
            while turns.count("answer") < 100:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        for stream in streams:
            await stream.aclose()
    runs = [len(list(run)) for what, run in itertools.groupby(turns) if what == "answer"]
    assert max(runs) <= 2  # at the end of one turn and at the beginning of the next


async def test_connections_that_say_nothing_do_not_lock_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has a request is answered though as many as there may be are idle or in the middle of one, with time."""
    for name in ("HTTP_HEAD_TIMEOUT_NS", "HTTP_IDLE_TIMEOUT_NS"):
        monkeypatch.setattr(f"tnats.limits.{name}", 3600 * SECOND_NS)
    async with serving() as port, trio.open_nursery() as nursery:
        held = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(HTTP_CONNECTIONS_MAX + 20)]
        for stream in held[::2]:
            with suppress(trio.BrokenResourceError):
                await stream.send_all(b"GET /half HT")
        with trio.fail_after(PATIENCE_S):
            assert (await exchange(port, b"GET /whole HTTP/1.0\r\n\r\n")).endswith(b"/whole")
        for stream in held:
            nursery.start_soon(stream.aclose)


async def test_answer_larger_than_the_socket_buffer_arrives_whole() -> None:
    """A response that the kernel cannot take at once is sent to its end, and the next request is served."""
    async with serving() as port:
        sent = b"GET /big HTTP/1.1\r\nHost: x\r\n\r\nGET /after HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        received = await exchange(port, sent)
        assert received.count(b"x" * 1000) == len(BIG) // 1000
        assert received.endswith(b"\r\n\r\n/after")


async def test_fault_of_an_endpoint_is_500_and_the_connection_goes_on() -> None:
    """An exception in a handler is answered 500; the same connection serves the next request."""
    async with serving() as port:
        sent = b"GET /boom HTTP/1.1\r\nHost: x\r\n\r\nGET /fine HTTP/1.1\r\nHost: x\r\n\r\n"
        received = await exchange(port, sent, until=b"/fine")
        assert received.startswith(b"HTTP/1.1 500 ")
        assert b"HTTP/1.1 200 OK" in received


async def test_broken_request_is_refused_and_closed() -> None:
    """Bytes that are no HTTP get 400 and the end of the stream."""
    async with serving() as port:
        assert (await exchange(port, b"BROKEN\x00\r\n\r\n")).startswith(b"HTTP/1.1 400 Bad Request\r\n")


async def test_endless_head_is_refused() -> None:
    """A request line beyond the limit gets 431 and the end of the stream, long before memory suffers."""
    async with serving() as port:
        assert (await exchange(port, b"GET /" + b"x" * 20_000)).startswith(b"HTTP/1.1 431 ")


async def test_large_body_ends_the_connection() -> None:
    """A body beyond the limit is not read to its end."""
    async with serving() as port:
        sent = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + b"y" * 70_000
        assert await exchange(port, sent) == b""


async def test_head_request_has_no_body() -> None:
    """HEAD is answered with the length a GET would have, without the bytes."""
    async with serving() as port:
        received = await exchange(port, b"HEAD /abc HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        head, _, body = received.partition(b"\r\n\r\n")
        assert b"content-length: 4" in head.lower()
        assert body == b""
