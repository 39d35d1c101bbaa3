"""One TCP connection on a non-blocking socket.

`read_into` and `write` are the server's hottest calls: the bound socket methods are kept, and a healthy
connection is not asked whether it is broken. Once a call fails, the socket is closed, so that every later call
fails in the kernel (EBADF) and is answered with the remembered reason; the poller keeps reporting the connection
until its owner closes it, so a failure met while writing is seen by the reading side as well.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import trio

from tnats.runtime.api import Address, Buffer, ConnectionBroken, TlsSession

if TYPE_CHECKING:
    from tnats.runtime.live.poller import LivePoller

BUFFERS_PER_CALL_MAX = min(1024, os.sysconf("SC_IOV_MAX")) if hasattr(os, "sysconf") else 1024
JOIN_MEAN_BYTES_MAX = 1500
"""Below this mean size one joined copy is cheaper than the kernel's walk over many small pieces (measured)."""

DRAIN_BYTES_MAX = 1024 * 1024
LINGER_RESET = struct.pack("ii", 1, 0)


class LiveConn:
    """`tnats.runtime.api.Conn` over a connected, non-blocking TCP socket, which it owns."""

    __slots__ = ("_broken", "_local", "_recv_into", "_send", "_sendmsg", "_socket", "_waiters", "fd", "peer", "poller")

    def __init__(self, sock: socket.socket, peer: Address) -> None:
        self._socket = sock
        self._recv_into: Callable[..., int] = sock.recv_into
        self._send: Callable[..., int] = sock.send
        self._sendmsg: Callable[..., int] = sock.sendmsg
        self._local: Address | None = None
        self._broken: str | None = None
        self._waiters = 0
        self.fd = sock.fileno()
        self.peer = peer
        self.poller: LivePoller | None = None

    @property
    def tls(self) -> TlsSession | None:
        return None

    def __repr__(self) -> str:
        return f"<LiveConn {self.peer[0]}:{self.peer[1]} fd={self.fd}>"

    @property
    def local(self) -> Address:
        if self._local is None:
            try:
                self._local = numeric_address(self._socket.getsockname())
            except OSError:
                return ("", 0)
        return self._local

    def read_into(self, buffer: bytearray | memoryview) -> int | None:
        try:
            return self._recv_into(buffer)
        except BlockingIOError:
            return None
        except OSError as exc:
            raise self._fail(exc) from None

    def write(self, buffers: Sequence[Buffer]) -> int:
        try:
            if len(buffers) == 1:
                return self._send(buffers[0])
            return self._write_many(buffers)
        except BlockingIOError:
            return 0
        except OSError as exc:
            raise self._fail(exc) from None

    def _write_many(self, buffers: Sequence[Buffer]) -> int:
        accepted = 0
        for first in range(0, len(buffers), BUFFERS_PER_CALL_MAX):
            part = buffers[first : first + BUFFERS_PER_CALL_MAX]
            part_bytes = sum(map(len, part))
            try:
                if part_bytes <= len(part) * JOIN_MEAN_BYTES_MAX:
                    count = self._send(b"".join(part))
                else:
                    count = self._sendmsg(part)
            except BlockingIOError:
                break
            accepted += count
            if count < part_bytes:
                break
        return accepted

    def on_watched(self) -> None:
        """A poller has begun to watch this connection."""

    def flush(self) -> None:
        """Nothing is kept back here: what was accepted is in the kernel."""

    async def wait_writable(self) -> None:
        if self._broken is not None:
            raise ConnectionBroken(self._broken)
        self._waiters += 1
        try:
            await trio.lowlevel.wait_writable(self._socket)
        except trio.ClosedResourceError:
            raise ConnectionBroken(self._broken or f"{self.peer[0]}:{self.peer[1]}: closed") from None
        finally:
            self._waiters -= 1
        if self._broken is not None:  # found and closed by a reader since this task was woken
            raise ConnectionBroken(self._broken)
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise self._fail(OSError(code, os.strerror(code)))

    def close(self, *, reset: bool = False) -> None:
        if self.poller is not None:
            self.poller.remove(self)
        if self._broken is not None:
            return
        try:
            if reset:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
            else:
                self._drain()
        except OSError:
            pass  # the peer was quicker
        self._end("closed")

    def surrender(self) -> socket.socket:
        """Give up the socket to another object; this one is over. Raises ConnectionBroken."""
        if self._broken is not None:
            raise ConnectionBroken(self._broken)
        if self.poller is not None:
            self.poller.remove(self)
        self._broken = f"{self.peer[0]}:{self.peer[1]}: replaced by its encrypted form"
        self._recv_into = self._send = self._sendmsg = surrendered
        self.fd = -1
        return self._socket

    def _drain(self) -> None:
        """Take what was received but not read: closing over it would reset and so lose what we wrote before."""
        scratch = bytearray(65536)
        for _ in range(DRAIN_BYTES_MAX // len(scratch)):
            if self._recv_into(scratch) < len(scratch):
                return

    def _fail(self, exc: OSError) -> ConnectionBroken:
        if self._broken is None:
            self._end((exc.strerror or "broken").lower())
            if self.poller is not None:
                self.poller.hold(self)
        return ConnectionBroken(self._broken)

    def _end(self, reason: str) -> None:
        self._broken = f"{self.peer[0]}:{self.peer[1]}: {reason}"
        if self.poller is not None:
            self.poller.forget_descriptor(self)
        if self._waiters:
            trio.lowlevel.notify_closing(self._socket)
        self._socket.close()
        self.fd = -1


def surrendered(*_: object) -> int:
    """Stands for the socket's methods after `LiveConn.surrender`."""
    raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def numeric_address(name: tuple[str, int] | tuple[str, int, int, int]) -> Address:
    """The (host, port) of a socket name; an IPv4 peer of a dual-stack socket is given in its IPv4 form."""
    host = name[0]
    if host.startswith("::ffff:") and "." in host:
        host = host[7:]
    return host, name[1]
