"""TLS over a connection, in memory: OpenSSL sees bytes, never the socket.

What the poller cannot see is told to it. Bytes that were received and not yet handed out (decrypted, or whole
records behind them) make the connection held, that is ready without the kernel's word. Encrypted bytes that the
kernel did not take are flushed by the poller when it does, since their plaintext counts as accepted already.
At most one batch is kept so: while it lasts, `write` accepts nothing.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Sequence
from typing import cast

import trio

from tnats.errors import FeatureMissing
from tnats.records import frozen
from tnats.runtime.api import (
    Address,
    Buffer,
    ConnectionBroken,
    TlsCertificate,
    TlsError,
    TlsOptions,
    TlsSession,
)
from tnats.runtime.live.conn import LiveConn

RECORD_BYTES = 16384
BATCH_BYTES = 8 * RECORD_BYTES
"""How much plaintext one `write` encrypts at most."""

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


@frozen
class LiveTlsContext:
    """`tnats.runtime.api.TlsContext` on OpenSSL."""

    ssl_context: ssl.SSLContext
    server_side: bool


def load_context(options: TlsOptions, *, server_side: bool) -> LiveTlsContext:
    """The OpenSSL form of `options`. Raises TlsError, FeatureMissing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED if options.verify else ssl.CERT_NONE
    context.check_hostname = options.verify and not server_side
    context.minimum_version = VERSIONS[options.version_min]
    try:
        for certificate in options.certificates:
            load_certificate(context, certificate)
    except ssl.SSLError as exc:
        raise TlsError(f"tls: certificate or key cannot be used: {reason_of(exc)}") from None
    try:
        if options.authorities:
            context.load_verify_locations(cadata=options.authorities)
        elif options.verify:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH if server_side else ssl.Purpose.SERVER_AUTH)
    except ssl.SSLError as exc:
        raise TlsError(f"tls: certificate authorities cannot be used: {reason_of(exc)}") from None
    if options.cipher_suites:
        try:
            context.set_ciphers(":".join(map(openssl_name, options.cipher_suites)))
        except ssl.SSLError:
            raise TlsError(
                f"tls: none of the cipher suites {', '.join(options.cipher_suites)} is offered here"
            ) from None
    if options.curves:
        set_curves(context, options.curves)
    return LiveTlsContext(context, server_side)


def load_certificate(context: ssl.SSLContext, certificate: TlsCertificate) -> None:
    """OpenSSL reads chains and keys from files alone: give it one in memory that nobody else can open."""
    fd = os.memfd_create("tls")
    try:
        os.write(fd, f"{certificate.key}\n{certificate.chain}\n".encode())
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def set_curves(context: ssl.SSLContext, curves: Sequence[str]) -> None:
    """Offer `curves` alone. Raises TlsError, FeatureMissing."""
    set_groups = getattr(context, "set_groups", None)  # since Python 3.15
    try:
        if set_groups is not None:
            set_groups(":".join(curves))
        elif len(curves) == 1:
            context.set_ecdh_curve(curves[0])
        else:
            raise FeatureMissing("tls: more than one curve preference needs Python 3.15 or later; name one, or none")
    except (ssl.SSLError, ValueError):
        raise TlsError(f"tls: none of the curves {', '.join(curves)} is offered here") from None


def openssl_name(suite: str) -> str:
    """The name that OpenSSL has for a TLS 1.2 suite of the IANA registry.

    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256.
    """
    name = suite.removeprefix("TLS_").replace("_WITH_", "_").removeprefix("RSA_")
    if name.endswith("CHACHA20_POLY1305_SHA256"):
        name = name.removesuffix("_SHA256")
    name = name.replace("_CBC_", "_").replace("AES_128", "AES128").replace("AES_256", "AES256")
    return name.replace("3DES_EDE", "DES_CBC3").replace("_", "-")


class LiveTlsConn(LiveConn):
    """An encrypted connection. Made by `shake_hands`."""

    __slots__ = ("_batch", "_ended", "_incoming", "_outgoing", "_scratch", "_session", "_tls")

    def __init__(
        self,
        sock: socket.socket,
        peer: Address,
        tls: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        scratch: memoryview,
    ) -> None:
        """`scratch` is used within single calls only, and may be shared."""
        super().__init__(sock, peer)
        self._tls = tls
        self._incoming = incoming
        self._outgoing = outgoing
        self._scratch = scratch
        self._batch = memoryview(b"")
        """Encrypted bytes that the kernel has not taken."""
        self._ended = False
        self._session: TlsSession | None = None

    @property
    def tls(self) -> TlsSession | None:
        return self._session

    # ------------------------------------------------------------------ handshake

    async def shake_hands(self, limiter: trio.CapacityLimiter) -> None:
        """Raises TlsError, ConnectionBroken. The arithmetic is done on a worker thread, bounded by `limiter`."""
        while True:
            wants_more = False
            failure: ssl.SSLError | None = None
            try:
                await trio.to_thread.run_sync(self._tls.do_handshake, limiter=limiter)
            except ssl.SSLWantReadError:
                wants_more = True
            except ssl.SSLError as exc:
                failure = exc
            self.flush()  # also the alert that tells the other side of a failure
            while self._batch and failure is None:
                await super().wait_writable()
                self.flush()
            if failure is not None:
                raise TlsError(f"{self.peer[0]}:{self.peer[1]}: tls: {reason_of(failure)}")
            if not wants_more:
                break
            await trio.lowlevel.wait_readable(self._socket)
            count = super().read_into(self._scratch)
            if count == 0:
                raise TlsError(f"{self.peer[0]}:{self.peer[1]}: tls: closed during the handshake")
            self._incoming.write(self._scratch[: count or 0])
        cipher = self._tls.cipher()
        self._session = TlsSession(
            version=(self._tls.version() or "").removeprefix("TLSv"),
            cipher_suite=cipher[0] if cipher else "",
            peer_certificates=peer_certificates(self._tls),
        )

    # ------------------------------------------------------------------ data

    def read_into(self, buffer: bytearray | memoryview) -> int | None:
        if self._broken is not None:
            raise ConnectionBroken(self._broken)
        view = memoryview(buffer)
        total = 0
        while total < len(view):
            try:
                count = cast(int, self._tls.read(len(view) - total, view[total:]))
            except ssl.SSLWantReadError:
                if total or not self._receive():
                    break
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                self._ended = True
                break
            except ssl.SSLError as exc:
                raise self._fail(OSError(errno.EPROTO, f"tls: {reason_of(exc)}")) from None
            else:
                if count == 0:
                    self._ended = True
                    break
                total += count
        if self._outgoing.pending:
            self.flush()  # reading may have to answer, a key update for one
        self._tell_poller()
        return total or (0 if self._ended else None)

    def _receive(self) -> bool:
        """Take in what the socket has; whether there was anything, the end of the stream included."""
        count = super().read_into(self._scratch)
        if count is None:
            return False
        if count == 0:
            self._incoming.write_eof()
        else:
            self._incoming.write(self._scratch[:count])
        return True

    def _tell_poller(self) -> None:
        if self.poller is not None:
            if self._ended or self._tls.pending() or self._incoming.pending:
                self.poller.hold(self)
            else:
                self.poller.let_go(self)

    def on_watched(self) -> None:
        self._tell_poller()
        if self._batch and self.poller is not None:
            self.poller.flush_later(self)

    def write(self, buffers: Sequence[Buffer]) -> int:
        if self._broken is not None:
            raise ConnectionBroken(self._broken)
        if self._batch:
            self.flush()
            if self._batch:
                return 0
        plain = first_bytes(buffers, BATCH_BYTES)
        at = 0
        try:
            while at < len(plain):
                at += self._tls.write(plain[at : at + RECORD_BYTES])
        except ssl.SSLError as exc:
            raise self._fail(OSError(errno.EPROTO, f"tls: {reason_of(exc)}")) from None
        self.flush()
        return at

    def flush(self) -> None:
        if not self._batch:
            self._batch = memoryview(self._outgoing.read())
        while self._batch:
            sent = super().write((self._batch,))
            self._batch = self._batch[sent:]
            if self._batch and sent == 0:
                if self.poller is not None:
                    self.poller.flush_later(self)
                return
            if not self._batch:
                self._batch = memoryview(self._outgoing.read())
        if self.poller is not None:
            self.poller.flushed(self)

    async def wait_writable(self) -> None:
        await super().wait_writable()
        while self._batch:
            self.flush()
            if self._batch:
                await super().wait_writable()

    def close(self, *, reset: bool = False) -> None:
        if self._broken is None and not reset:
            try:
                self._tls.unwrap()
            except (ssl.SSLError, OSError):
                pass  # our farewell is written; the peer's is not waited for
            try:
                self.flush()
            except ConnectionBroken:
                pass
        super().close(reset=reset)


def first_bytes(buffers: Sequence[Buffer], count_max: int) -> memoryview:
    """Up to `count_max` bytes from the front of `buffers`, in one piece."""
    if len(buffers) == 1:
        return memoryview(buffers[0])[:count_max]
    chosen: list[Buffer] = []
    total = 0
    for buffer in buffers:
        chosen.append(buffer)
        total += len(buffer)
        if total >= count_max:
            break
    return memoryview(b"".join(chosen))[:count_max]


def peer_certificates(tls: ssl.SSLObject) -> tuple[bytes, ...]:
    """What the peer showed, DER, leaf first. Before Python 3.13 only the leaf can be had."""
    chain = getattr(tls, "get_unverified_chain", None)
    if chain is not None:
        return tuple(bytes(each) for each in chain())
    leaf = tls.getpeercert(binary_form=True)
    return () if leaf is None else (leaf,)


def reason_of(exc: ssl.SSLError) -> str:
    """OpenSSL's words, without its codes and source lines."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {exc.verify_message}"
    return (exc.reason or exc.strerror or str(exc)).lower().replace("_", " ")


async def start_tls(
    conn: LiveConn,
    context: LiveTlsContext,
    *,
    server_name: str,
    received: Buffer,
    timeout_s: float,
    limiter: trio.CapacityLimiter,
    scratch: memoryview,
) -> LiveTlsConn:
    """The work of `LiveNetwork.start_tls`."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    incoming.write(received)
    where = f"{conn.peer[0]}:{conn.peer[1]}: tls"
    encrypted: LiveTlsConn | None = None
    done = False
    try:
        name = None if context.server_side or not server_name else server_name
        if context.ssl_context.check_hostname and name is None:
            raise TlsError(f"{where}: a certificate can only be verified against a server name")
        tls = context.ssl_context.wrap_bio(incoming, outgoing, server_side=context.server_side, server_hostname=name)
        encrypted = LiveTlsConn(conn.surrender(), conn.peer, tls, incoming, outgoing, scratch)
        with trio.CancelScope(deadline=trio.current_time() + timeout_s):
            await encrypted.shake_hands(limiter)
            done = True
        if not done:
            raise TlsError(f"{where}: no handshake within {timeout_s:g} s")
    finally:
        if not done:
            (encrypted or conn).close()
    return encrypted
