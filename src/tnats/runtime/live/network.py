"""Listening, connecting and resolving on the machine's TCP stack."""

from __future__ import annotations

import errno
import socket

import trio

from tnats.errors import ensure
from tnats.limits import SECOND_NS
from tnats.runtime.api import Buffer, Conn, NetworkError, TlsContext, TlsOptions
from tnats.runtime.live.conn import LiveConn, numeric_address
from tnats.runtime.live.listener import LiveListener, reason_of
from tnats.runtime.live.poller import LivePoller
from tnats.runtime.live.tls import LiveTlsContext, load_context, start_tls

SCRATCH_BYTES = 64 * 1024
"""For what is read from encrypted connections; one for all, since it is used within single calls only."""


class LiveNetwork:
    """`tnats.runtime.api.Network` over the machine's TCP stack."""

    __slots__ = ("_handshakes", "_scratch")

    def __init__(self, handshakes_max: int = 2) -> None:
        """`handshakes_max` bounds the threads that TLS handshakes compute on."""
        self._handshakes = trio.CapacityLimiter(handshakes_max)
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))

    async def listen(self, host: str, port: int, *, backlog: int = 1024) -> LiveListener:
        where = f"cannot listen on {host}:{port}"
        sock: socket.socket | None = None
        try:
            sock = await self._bind(host, port)
            sock.listen(backlog)
        except OSError as exc:
            if sock is not None:
                sock.close()
            raise NetworkError(f"{where}: {reason_of(exc)}") from None
        return LiveListener(sock, (host, sock.getsockname()[1]))

    async def _bind(self, host: str, port: int) -> socket.socket:
        if host in ("", "0.0.0.0", "::") and socket.has_dualstack_ipv6():
            # A wildcard means both families, as nats-server has it.
            try:
                return bound_socket(socket.AF_INET6, ("::", port), dual=True)
            except OSError as exc:
                if exc.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                    raise
        if host == "":
            host = "0.0.0.0"
        (family, name), *_ = await addresses_of(host, port, flags=socket.AI_PASSIVE)
        return bound_socket(family, name)

    async def connect(self, host: str, port: int, *, timeout_ns: int) -> LiveConn:
        where = f"cannot connect to {host}:{port}"
        last = "no address"
        with trio.CancelScope(deadline=trio.current_time() + timeout_ns / SECOND_NS):
            try:
                candidates = await addresses_of(host, port)
            except OSError as exc:
                raise NetworkError(f"{where}: {reason_of(exc)}") from None
            for family, name in candidates:
                try:
                    return await connect_socket(family, name)
                except OSError as exc:
                    last = reason_of(exc)
            raise NetworkError(f"{where}: {last}")
        raise NetworkError(f"{where}: no answer within {timeout_ns / SECOND_NS:g} s")

    def tls_context(self, options: TlsOptions, *, server_side: bool) -> LiveTlsContext:
        return load_context(options, server_side=server_side)

    async def start_tls(
        self, conn: Conn, context: TlsContext, *, server_name: str = "", received: Buffer = b"", timeout_ns: int
    ) -> LiveConn:
        ensure(isinstance(conn, LiveConn), f"{conn!r} is not a live connection")
        ensure(isinstance(context, LiveTlsContext), f"{context!r} is not a live TLS context")
        return await start_tls(
            conn,  # type: ignore[arg-type]  # just ensured
            context,  # type: ignore[arg-type]
            server_name=server_name,
            received=received,
            timeout_s=timeout_ns / SECOND_NS,
            limiter=self._handshakes,
            scratch=self._scratch,
        )

    async def resolve(self, host: str) -> list[str]:
        try:
            found = await addresses_of(host, None)
        except OSError as exc:
            raise NetworkError(f"cannot resolve {host}: {reason_of(exc)}") from None
        return list(dict.fromkeys(str(name[0]) for _, name in found))

    def poller(self) -> LivePoller:
        return LivePoller()

    def interface_addresses(self) -> list[str]:
        import psutil  # type: ignore[import-untyped]  # heavy, and asked only once a server advertises a wildcard address

        addresses: dict[str, None] = {}
        for interface in psutil.net_if_addrs().values():
            for address in interface:
                if address.family in (socket.AF_INET, socket.AF_INET6):
                    host = address.address.partition("%")[0]
                    if not host.startswith(("127.", "fe80:")) and host != "::1":
                        addresses[host] = None
        return list(addresses)


async def addresses_of(host: str, port: int | None, *, flags: int = 0) -> list[tuple[int, tuple[object, ...]]]:
    """The families and socket addresses that `host` stands for. Raises OSError, for what cannot be a name as well."""
    try:
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except ValueError:  # a NUL, an empty label, one of more than 63 characters: Python's own checks
        raise OSError(errno.EINVAL, "not a host name") from None
    return [(family, name) for family, _, _, _, name in found]


def bound_socket(family: int, name: tuple[object, ...], *, dual: bool = False) -> socket.socket:
    """A non-blocking TCP socket bound to `name`, closed again if that fails with OSError."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual else 1)
        sock.bind(name)
    except BaseException:
        sock.close()
        raise
    return sock


async def connect_socket(family: int, name: tuple[object, ...]) -> LiveConn:
    """Connect to the numeric address `name`. Raises OSError."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            sock.connect(name)
            await trio.lowlevel.checkpoint()
        except BlockingIOError:
            await trio.lowlevel.wait_writable(sock)
            sock.connect(name)  # the second call answers with the outcome of the first
        return LiveConn(sock, numeric_address(sock.getpeername()))
    except BaseException:
        sock.close()
        raise
