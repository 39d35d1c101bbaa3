"""A listening TCP socket."""

from __future__ import annotations

import errno
import resource
import socket
from typing import TYPE_CHECKING

from tnats.runtime.api import Address, Conn, NetworkError, OutOfDescriptors
from tnats.runtime.live.conn import LiveConn, numeric_address

if TYPE_CHECKING:
    from tnats.runtime.live.poller import LivePoller

ACCEPT_AGAIN = frozenset(
    {
        errno.ECONNABORTED,  # gone while it waited in the backlog
        errno.EPROTO,
        # Linux hands errors of the new connection to accept (accept(2), "Error handling"): the next may be fine.
        errno.ENETDOWN,
        errno.ENOPROTOOPT,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EOPNOTSUPP,
        errno.ENETUNREACH,
        errno.ETIMEDOUT,
        errno.ECONNRESET,
        errno.EPERM,
    }
)


class LiveListener:
    """`tnats.runtime.api.Listener` over one listening socket."""

    __slots__ = ("_accept", "_address", "_closed", "_socket", "fd", "poller")

    def __init__(self, sock: socket.socket, address: Address) -> None:
        self._socket = sock
        self._accept = sock.accept
        self._address = address
        self._closed = False
        self.fd = sock.fileno()
        self.poller: LivePoller | None = None

    def __repr__(self) -> str:
        return f"<LiveListener {self._address[0]}:{self._address[1]} fd={self.fd}>"

    @property
    def address(self) -> Address:
        return self._address

    def accept(self) -> Conn | None:
        while True:
            try:
                sock, name = self._accept()
                break
            except BlockingIOError:
                return None
            except OSError as exc:
                where = f"accept on {self._address[0]}:{self._address[1]}"
                if exc.errno in (errno.ENOMEM, errno.ENOBUFS):
                    raise OutOfDescriptors(f"{where}: {reason_of(exc)}") from None
                if exc.errno in (errno.EMFILE, errno.ENFILE):
                    files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
                    raise OutOfDescriptors(
                        f"{where}: {reason_of(exc)} (this process may open {files_max}); raise the limit (ulimit -n)"
                    ) from None
                if exc.errno not in ACCEPT_AGAIN:
                    raise NetworkError(f"{where}: {'closed' if self._closed else reason_of(exc)}") from None
        sock.setblocking(False)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            pass  # gone already: the first read tells
        return LiveConn(sock, numeric_address(name))

    def on_watched(self) -> None:
        """A poller has begun to watch this listener."""

    def flush(self) -> None:
        """A listener sends nothing."""

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self.poller is not None:
                self.poller.remove(self)
            self._socket.close()


def reason_of(exc: OSError) -> str:
    """The system's words for `exc`, lower case as the tail of our sentence."""
    return (exc.strerror or str(exc)).lower()
