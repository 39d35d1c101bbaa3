"""What `tnats.runtime.api` promises of encrypted connections, held against OpenSSL and the simulated stand-in."""

from __future__ import annotations

import random
import ssl

import attrs
import pytest
import trio
import trustme
from tests.contract.stage import SECOND_NS, Stage, read_exactly, write_all

from tnats.runtime.api import Conn, ConnectionBroken, TlsCertificate, TlsError, TlsOptions

RANDOM_BYTES = random.Random(2).randbytes(1_000_000)
AUTHORITY = trustme.CA()
STRANGER = trustme.CA()
AUTHORITIES = AUTHORITY.cert_pem.bytes().decode()


def issue(authority: trustme.CA, *names: str) -> TlsCertificate:
    issued = authority.issue_cert(*names)
    return TlsCertificate(
        "".join(part.bytes().decode() for part in issued.cert_chain_pems), issued.private_key_pem.bytes().decode()
    )


SERVER = TlsOptions(certificates=(issue(AUTHORITY, "server.example", "127.0.0.1"),))
CLIENT = TlsOptions(authorities=AUTHORITIES, verify=True)
OWN = issue(AUTHORITY, "client.example")


async def encrypt(
    stage: Stage, server_options: TlsOptions = SERVER, client_options: TlsOptions = CLIENT, name: str = "server.example"
) -> tuple[Conn, Conn]:
    """An encrypted pair, (client's end, server's end). Raises what the first side to fail raises."""
    client, server = await stage.pair()
    ends: dict[str, Conn] = {}

    async def start(side: str) -> None:
        network = stage.server.network if side == "server" else stage.client.network
        context = network.tls_context(
            server_options if side == "server" else client_options, server_side=side == "server"
        )
        conn = server if side == "server" else client
        ends[side] = await network.start_tls(
            conn, context, server_name="" if side == "server" else name, timeout_ns=30 * SECOND_NS
        )
        stage.keep(ends[side])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(start, "server")
        nursery.start_soon(start, "client")
    return ends["client"], ends["server"]


def test_session_tells_what_was_agreed(stage: Stage) -> None:
    """Both ends know version and suite; the client has the server's certificate, the server none without asking."""

    async def scene(stage: Stage) -> None:
        plain, other = await stage.pair()
        assert plain.tls is None
        assert other.tls is None
        client, server = await encrypt(stage)
        assert client.tls is not None
        assert server.tls is not None
        assert client.tls.version == server.tls.version == "1.3"
        assert client.tls.cipher_suite == server.tls.cipher_suite != ""
        expected = ssl.PEM_cert_to_DER_cert(SERVER.certificates[0].chain)
        assert client.tls.peer_certificates[0] == expected
        assert server.tls.peer_certificates == ()

    stage.run(scene)


def test_client_certificates_are_asked_for(stage: Stage) -> None:
    """A verifying server gets the client's certificate."""

    async def scene(stage: Stage) -> None:
        asking = attrs.evolve(SERVER, authorities=AUTHORITIES, verify=True)
        _, server = await encrypt(stage, asking, attrs.evolve(CLIENT, certificates=(OWN,)))
        assert server.tls is not None
        assert server.tls.peer_certificates[0] == ssl.PEM_cert_to_DER_cert(OWN.chain)

    stage.run(scene)


def test_client_without_certificate_is_refused(stage: Stage) -> None:
    """A verifying server refuses a client that shows no certificate."""

    async def scene(stage: Stage) -> None:
        asking = attrs.evolve(SERVER, authorities=AUTHORITIES, verify=True)
        with pytest.raises(BaseExceptionGroup) as caught:
            await encrypt(stage, asking)
        assert caught.group_contains(TlsError, match="peer did not return a certificate")

    stage.run(scene)


def test_bytes_arrive_in_order(stage: Stage) -> None:
    """A megabyte each way at once comes out as it went in."""

    async def scene(stage: Stage) -> None:
        client, server = await encrypt(stage)
        received: dict[str, bytes] = {}

        async def receive(name: str) -> None:
            conn, runtime = (server, stage.server) if name == "server" else (client, stage.client)
            received[name] = await read_exactly(runtime, conn, len(RANDOM_BYTES))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write_all, client, RANDOM_BYTES)
            nursery.start_soon(write_all, server, RANDOM_BYTES[::-1])
            nursery.start_soon(receive, "server")
            nursery.start_soon(receive, "client")
        assert received == {"server": RANDOM_BYTES, "client": RANDOM_BYTES[::-1]}

    stage.run(scene)


def test_what_is_decrypted_already_counts_as_ready(stage: Stage) -> None:
    """A connection with decrypted bytes inside is reported until they are read, though the socket has nothing."""

    async def scene(stage: Stage) -> None:
        client, server = await encrypt(stage)
        poller = stage.client.network.poller()
        poller.add(client)
        server.write([b"0123456789"])
        received = b""
        buffer = bytearray(3)
        while len(received) < 10:
            assert client in await poller.wait()
            count = client.read_into(buffer)
            received += buffer[: count or 0]
        assert received == b"0123456789"
        poller.remove(client)
        server.write([b"ab"])
        await stage.client.clock.sleep_ns(30_000_000)
        assert client.read_into(bytearray(1)) == 1
        poller.add(client)
        assert await poller.wait() == [client]
        assert client.read_into(buffer) == 1
        assert client.read_into(buffer) is None
        assert poller.ready_nowait() == []

    stage.run(scene)


def test_accepted_bytes_are_sent_by_the_poller(stage: Stage) -> None:
    """What `write` took is delivered when the peer reads, though the writer does nothing more than poll."""

    async def scene(stage: Stage) -> None:
        client, server = await encrypt(stage)
        poller = stage.client.network.poller()
        poller.add(client)
        written = 0
        idle_count = 0
        while idle_count < 20:
            count = client.write([RANDOM_BYTES[:65536]])
            written += count
            idle_count = idle_count + 1 if count == 0 else 0
            await stage.client.clock.sleep_ns(1_000_000)

        async def poll() -> None:
            while True:
                await poller.wait()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll)
            received = await read_exactly(stage.server, server, written)
            nursery.cancel_scope.cancel()
        assert len(received) == written
        assert received == (RANDOM_BYTES[:65536] * (written // 65536 + 1))[:written]

    stage.run(scene)


def test_paused_writer_is_still_flushed(stage: Stage) -> None:
    """Pausing a connection stops its reports, not the bytes that were accepted for sending."""

    async def scene(stage: Stage) -> None:
        client, server = await encrypt(stage)
        poller = stage.client.network.poller()
        poller.add(client)
        poller.pause(client)
        server.write([b"unread while paused"])
        taken = 1
        written = 0
        while taken:
            taken = client.write([RANDOM_BYTES[:65536]])
            written += taken

        async def poll() -> None:
            while True:
                await poller.wait()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll)
            assert len(await read_exactly(stage.server, server, written)) == written
            nursery.cancel_scope.cancel()
        poller.resume(client)
        assert await poller.wait() == [client]

    stage.run(scene)


def test_reset_while_bytes_are_kept_back_is_reported(stage: Stage) -> None:
    """A peer that resets before all accepted bytes were sent makes the connection ready, and reading raises."""

    async def scene(stage: Stage) -> None:
        client, server = await encrypt(stage)
        poller = stage.client.network.poller()
        poller.add(client)
        while client.write([RANDOM_BYTES[:65536]]):
            await stage.client.clock.sleep_ns(1_000_000)
        server.close(reset=True)
        assert await poller.wait() == [client]
        with pytest.raises(ConnectionBroken):
            client.read_into(bytearray(10))
        client.close()

    stage.run(scene)


def test_end_of_stream(stage: Stage) -> None:
    """After the peer's orderly close its last bytes come, then 0, reported again and again."""

    async def scene(stage: Stage) -> None:
        client, server = await encrypt(stage)
        server.write([b"last words"])
        server.close()
        assert await read_exactly(stage.client, client, 100) == b"last words"
        poller = stage.client.network.poller()
        poller.add(client)
        for _ in range(3):
            assert await poller.wait() == [client]
            assert client.read_into(bytearray(10)) == 0

    stage.run(scene)


def test_reset_breaks_the_other_end(stage: Stage) -> None:
    """A reset raises ConnectionBroken as in plaintext, and so do calls after the own close."""

    async def scene(stage: Stage) -> None:
        client, server = await encrypt(stage)
        server.close(reset=True)
        poller = stage.client.network.poller()
        poller.add(client)
        assert await poller.wait() == [client]
        with pytest.raises(ConnectionBroken):
            client.read_into(bytearray(10))
        with pytest.raises(ConnectionBroken):
            client.write([b"x"])
        for call in (lambda: server.read_into(bytearray(1)), lambda: server.write([b"x"])):
            with pytest.raises(ConnectionBroken):
                call()

    stage.run(scene)


def test_bytes_read_before_are_part_of_the_handshake(stage: Stage) -> None:
    """A server that peeked at the first bytes hands them to `start_tls`; they begin with 0x16."""

    async def scene(stage: Stage) -> None:
        client, server = await stage.pair()

        async def serve() -> None:
            peeked = await read_exactly(stage.server, server, 1)
            assert peeked == b"\x16"
            context = stage.server.network.tls_context(SERVER, server_side=True)
            conn = await stage.server.network.start_tls(server, context, received=peeked, timeout_ns=30 * SECOND_NS)
            stage.keep(conn)
            assert conn.write([b"hello"]) == 5

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            context = stage.client.network.tls_context(CLIENT, server_side=False)
            conn = await stage.client.network.start_tls(
                client, context, server_name="server.example", timeout_ns=30 * SECOND_NS
            )
            stage.keep(conn)
            assert await read_exactly(stage.client, conn, 5) == b"hello"

    stage.run(scene)


def test_plaintext_is_no_handshake(stage: Stage) -> None:
    """A peer that speaks plaintext makes the handshake fail at once, and the connection is closed."""

    async def scene(stage: Stage) -> None:
        client, server = await stage.pair()
        client.write([b"CONNECT {}\r\nPING\r\n"])
        context = stage.server.network.tls_context(SERVER, server_side=True)
        with pytest.raises(TlsError, match=r":.*: tls: "):
            await stage.server.network.start_tls(server, context, timeout_ns=30 * SECOND_NS)
        with pytest.raises(ConnectionBroken):
            server.write([b"x"])
        poller = stage.client.network.poller()
        poller.add(client)
        await poller.wait()

    stage.run(scene)


def test_silent_peer_times_out(stage: Stage) -> None:
    """A handshake that the peer does not begin ends with the time-out."""

    async def scene(stage: Stage) -> None:
        _, server = await stage.pair()
        context = stage.server.network.tls_context(SERVER, server_side=True)
        with pytest.raises(TlsError, match=r"tls: no handshake within 0\.02 s"):
            await stage.server.network.start_tls(server, context, timeout_ns=20_000_000)

    stage.run(scene)


def test_verifying_client_must_name_the_server(stage: Stage) -> None:
    """Without a server name there is nothing to hold the certificate against."""

    async def scene(stage: Stage) -> None:
        client, _ = await stage.pair()
        context = stage.client.network.tls_context(CLIENT, server_side=False)
        with pytest.raises(TlsError, match="can only be verified against a server name"):
            await stage.client.network.start_tls(client, context, timeout_ns=SECOND_NS)

    stage.run(scene)
