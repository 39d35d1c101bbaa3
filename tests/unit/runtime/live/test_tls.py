"""What OpenSSL checks for us: chains, names, versions, suites; and what it says when it refuses."""

from __future__ import annotations

import attrs
import pytest
import trio
import trustme

from tnats.runtime.api import Conn, ConnectionBroken, NetworkError, TlsCertificate, TlsError, TlsOptions
from tnats.runtime.live.network import LiveNetwork
from tnats.runtime.live.tls import load_context, openssl_name

SECOND_NS = 1_000_000_000
AUTHORITY, STRANGER = trustme.CA(), trustme.CA()


def issue(authority: trustme.CA, name: str) -> TlsCertificate:
    issued = authority.issue_cert(name)
    return TlsCertificate(
        "".join(part.bytes().decode() for part in issued.cert_chain_pems), issued.private_key_pem.bytes().decode()
    )


def pem(authority: trustme.CA) -> str:
    return authority.cert_pem.bytes().decode()


SERVER = TlsOptions(certificates=(issue(AUTHORITY, "server.example"),))
CLIENT = TlsOptions(authorities=pem(AUTHORITY), verify=True)


async def handshake(server: TlsOptions, client: TlsOptions, name: str) -> dict[str, str]:
    """What came of each side: the version, or the error's text. Both sides exchange a byte after it."""
    network = LiveNetwork()
    listener = await network.listen("127.0.0.1", 0)
    results: dict[str, str] = {}

    async def side(who: str, conn: Conn, options: TlsOptions) -> None:
        poller = network.poller()
        encrypted = conn
        try:
            context = network.tls_context(options, server_side=who == "server")
            server_name = "" if who == "server" else name
            encrypted = await network.start_tls(conn, context, server_name=server_name, timeout_ns=30 * SECOND_NS)
            assert encrypted.tls is not None
            encrypted.write([b"x"])
            poller.add(encrypted)
            while (count := encrypted.read_into(bytearray(1))) is None:
                await poller.wait()
            results[who] = f"{encrypted.tls.version} {encrypted.tls.cipher_suite}" if count else "closed"
        except NetworkError as exc:
            results[who] = str(exc)
        poller.remove(encrypted)
        encrypted.close()

    with trio.fail_after(60):
        conn = await network.connect(*listener.address, timeout_ns=30 * SECOND_NS)
        accepted = listener.accept()
        while accepted is None:
            await trio.lowlevel.checkpoint()
            accepted = listener.accept()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(side, "server", accepted, server)
            nursery.start_soon(side, "client", conn, client)
    listener.close()
    return results


async def test_a_good_certificate_is_accepted() -> None:
    """With the right authority and name both sides agree on TLS 1.3."""
    results = await handshake(SERVER, CLIENT, "server.example")
    assert results["client"] == results["server"]
    assert results["client"].startswith("1.3 TLS_")


async def test_a_wrong_name_is_refused() -> None:
    """A certificate for another name is refused, in words that name the wanted one."""
    results = await handshake(SERVER, CLIENT, "other.example")
    assert "certificate verify failed: Hostname mismatch" in results["client"]
    assert "other.example" in results["client"]
    assert "certificate" in results["server"]


async def test_an_unknown_authority_is_refused() -> None:
    """A certificate of somebody else is refused by the client; unverified, it is taken."""
    results = await handshake(SERVER, attrs.evolve(CLIENT, authorities=pem(STRANGER)), "server.example")
    assert "certificate verify failed: unable to get local issuer certificate" in results["client"]
    results = await handshake(SERVER, TlsOptions(), "")
    assert results["client"].startswith("1.3")


async def test_a_stranger_is_refused_by_the_server() -> None:
    """A client certificate of somebody else is refused by a verifying server, and the client hears of it."""
    asking = attrs.evolve(SERVER, authorities=pem(AUTHORITY), verify=True)
    stranger = attrs.evolve(CLIENT, certificates=(issue(STRANGER, "client.example"),))
    results = await handshake(asking, stranger, "server.example")
    assert "certificate verify failed" in results["server"]
    assert "tls: " in results["client"]


async def test_versions_and_suites_are_limited() -> None:
    """`version_min` and `cipher_suites` are kept; sides without a common ground fail on both ends."""
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    results = await handshake(attrs.evolve(SERVER, version_min="1.3"), CLIENT, "server.example")
    assert results["server"].startswith("1.3 ")
    assert load_context(attrs.evolve(SERVER, cipher_suites=(suite,)), server_side=True).server_side
    with pytest.raises(TlsError, match="none of the cipher suites TLS_NO_SUCH_THING is offered here"):
        load_context(attrs.evolve(SERVER, cipher_suites=("TLS_NO_SUCH_THING",)), server_side=True)
    with pytest.raises(TlsError, match="none of the curves no-such-curve is offered here"):
        load_context(attrs.evolve(SERVER, curves=("no-such-curve",)), server_side=True)


def test_unusable_certificates_are_refused_when_loaded() -> None:
    """A key that does not belong to its certificate, and texts that are no PEM, fail with what is wrong."""
    mixed = TlsCertificate(SERVER.certificates[0].chain, issue(AUTHORITY, "other.example").key)
    with pytest.raises(TlsError, match="certificate or key cannot be used: key values mismatch"):
        load_context(TlsOptions(certificates=(mixed,)), server_side=True)
    with pytest.raises(TlsError, match="certificate or key cannot be used"):
        load_context(TlsOptions(certificates=(TlsCertificate("nonsense", "nonsense"),)), server_side=True)
    with pytest.raises(TlsError, match="certificate authorities cannot be used"):
        load_context(TlsOptions(authorities="nonsense"), server_side=False)


@pytest.mark.parametrize(
    ("iana", "openssl"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", "ECDHE-ECDSA-AES128-SHA"),
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_3DES_EDE_CBC_SHA", "DES-CBC3-SHA"),
    ],
)
def test_cipher_suites_by_their_registered_names(iana: str, openssl: str) -> None:
    """The registry's name of a suite is turned into OpenSSL's."""
    assert openssl_name(iana) == openssl


def test_keys_are_not_shown() -> None:
    """A private key does not appear in the printed form of the options."""
    assert "PRIVATE KEY" not in repr(SERVER)


async def test_surrendered_connection_is_over() -> None:
    """The plaintext form of an upgraded connection refuses everything."""
    network = LiveNetwork()
    listener = await network.listen("127.0.0.1", 0)
    conn = await network.connect(*listener.address, timeout_ns=30 * SECOND_NS)
    sock = conn.surrender()
    with pytest.raises(ConnectionBroken, match="replaced by its encrypted form"):
        conn.write([b"x"])
    conn.close()
    sock.close()
    listener.close()
