"""What TLS is in simulation: identities and a round trip, without the arithmetic.

Each side sends one record that looks like a handshake to whoever peeks, with its certificates and what it demands;
after that the connection carries plaintext. A certificate is valid here if there is one: chains, dates and names
are checked by OpenSSL alone, in the live form.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import trio

from tnats.records import frozen
from tnats.runtime.api import Buffer, TlsError, TlsOptions, TlsSession
from tnats.runtime.sim.conn import SimConn
from tnats.runtime.sim.poller import SimPoller

HEADER = struct.Struct(">3sI")
MAGIC = b"\x16\x03\x01"
BODY_BYTES_MAX = 1024 * 1024


@frozen
class SimTlsContext:
    """`tnats.runtime.api.TlsContext` in simulation."""

    options: TlsOptions
    server_side: bool


async def shake_hands(
    conn: SimConn, context: SimTlsContext, poller: SimPoller, *, server_name: str, received: Buffer
) -> TlsSession:
    """The exchange over `conn`, watched by `poller`. Raises TlsError, ConnectionBroken."""
    options = context.options
    where = f"{conn.peer[0]}:{conn.peer[1]}: tls"
    if not context.server_side and options.verify and not server_name:
        raise TlsError(f"{where}: a certificate can only be verified against a server name")
    own = {"certificates": [certificate.chain for certificate in options.certificates], "alert": ""}
    if context.server_side:
        theirs = await receive(conn, poller, bytes(received), where)
        if options.verify and not theirs["certificates"]:
            await send(conn, {"certificates": [], "alert": "certificate required"})
            raise TlsError(f"{where}: peer did not return a certificate")
        await send(conn, own)
    else:
        await send(conn, own)
        theirs = await receive(conn, poller, bytes(received), where)
        if theirs["alert"]:
            raise TlsError(f"{where}: {theirs['alert']}")
        if options.verify and not theirs["certificates"]:
            raise TlsError(f"{where}: certificate verify failed: the server has none")
    return TlsSession("1.3", "TLS_AES_128_GCM_SHA256", tuple(map(der_of, theirs["certificates"])))


async def send(conn: SimConn, message: dict[str, Any]) -> None:
    """Send one record."""
    body = json.dumps(message).encode()
    record = memoryview(HEADER.pack(MAGIC, len(body)) + body)
    while record:
        record = record[conn.write([record]) :]
        if record:
            await conn.wait_writable()


async def receive(conn: SimConn, poller: SimPoller, received: bytes, where: str) -> dict[str, Any]:
    """One record; `received` is its beginning."""
    data = received
    wanted = HEADER.size
    while len(data) < wanted:
        buffer = bytearray(wanted - len(data))
        count = conn.read_into(buffer)
        if count is None:
            await poller.wait()
            continue
        if count == 0:
            raise TlsError(f"{where}: closed during the handshake")
        data += buffer[:count]
        if not MAGIC.startswith(data[: len(MAGIC)]):
            raise TlsError(f"{where}: first record does not look like a TLS handshake")
        if len(data) == HEADER.size:
            wanted = HEADER.size + min(HEADER.unpack(data)[1], BODY_BYTES_MAX)
    message: dict[str, Any] = json.loads(data[HEADER.size :])
    return message


def der_of(chain: str) -> bytes:
    """The first certificate of a PEM chain, in DER; a text that is no PEM stands for itself."""
    body = chain.partition("-----BEGIN CERTIFICATE-----")[2].partition("-----END CERTIFICATE-----")[0]
    return base64.b64decode(body) if body else chain.encode()


async def start_tls(
    conn: SimConn,
    context: SimTlsContext,
    poller: SimPoller,
    *,
    server_name: str,
    received: Buffer,
    deadline: trio.CancelScope,
    timeout_s: float,
) -> None:
    """The work of `SimNetwork.start_tls`; `deadline` is a scope that ends after `timeout_s`."""
    poller.add(conn)
    done = False
    try:
        with deadline:
            conn.tls = await shake_hands(conn, context, poller, server_name=server_name, received=received)
            done = True
        if not done:
            raise TlsError(f"{conn.peer[0]}:{conn.peer[1]}: tls: no handshake within {timeout_s:g} s")
    finally:
        poller.remove(conn)
        if not done:
            conn.end(reset=False)
