"""`tls { }` and the OCSP options: the records and their rows (configuration reference, "tls").

Only words are read here. Certificates and keys are loaded by whoever opens the listener.
"""

from __future__ import annotations

import enum

from tnats.limits import SECOND_NS
from tnats.notation import parse_duration, quote
from tnats.records import define
from tnats.server.config.features import Feature
from tnats.server.config.parser import Node
from tnats.server.config.readers import (
    BOOLEAN,
    INTEGER,
    TEXT,
    as_text,
    choice,
    section_list,
    texts,
    timeout,
    urls,
)
from tnats.server.config.table import Reader, Reading, Refused, Section, describe, option, read_section

HANDSHAKE_FIRST_FALLBACK_NS = 50_000_000
"""How long `handshake_first: auto` waits for a TLS client before it sends INFO."""

CIPHER_SUITES = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
)
INSECURE_CIPHER_SUITES = (
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
)
CURVES = (
    "CurveP256",
    "CurveP384",
    "CurveP521",
    "SecP256r1MLKEM768",
    "SecP384r1MLKEM1024",
    "X25519",
    "X25519MLKEM768",
)
_TLS_VERSIONS = {"1.0": 10, "1.1": 11, "1.2": 12, "1.3": 13}


def _names(known: tuple[str, ...], what: str) -> Reader:
    def read(reading: Reading, node: Node, key: str) -> list[str]:
        if not isinstance(node.value, list):
            raise Refused(f"error parsing tls config, {quote(key)} should be an array, got {describe(node)}")
        if not node.value:
            raise Refused(f"error parsing tls config, '{key.lower()}' cannot be empty")
        found = []
        for item in node.value:
            name = as_text(item, key)
            if name not in known:
                raise Refused(f"unrecognized {what} {name}", item.position)
            found.append(name)
        return found

    return Reader("list of names", read)


def _min_version(reading: Reading, node: Node, key: str) -> str:
    if not isinstance(node.value, str):
        raise Refused(f"error parsing tls config: 'min_version' wrong type: {describe(node)}")
    if node.value not in _TLS_VERSIONS:
        raise Refused(f"error parsing tls config: unknown version: {node.value}")
    if _TLS_VERSIONS[node.value] < _TLS_VERSIONS["1.2"]:
        raise Refused(f"error parsing tls config: unsupported TLS version: TLS {node.value}")
    return node.value


def _pinned(reading: Reading, node: Node, key: str) -> list[str]:
    what = "hex-encoded sha256 of DER encoded SubjectPublicKeyInfo"
    if not isinstance(node.value, list):
        raise Refused(f"error parsing tls config, expected 'pinned_certs' to be a list of {what}")
    found = []
    for item in node.value:
        pin = as_text(item, key).lower()
        if len(pin) != 64 or any(char not in "0123456789abcdef" for char in pin):
            raise Refused(
                f"error parsing tls config, 'pinned_certs' key {pin} does not look like {what}", item.position
            )
        found.append(pin)
    return found


def _handshake_first(reading: Reading, node: Node, key: str) -> tuple[bool, int]:
    """(TLS before INFO, how long to wait for it before sending INFO after all; 0 = for ever)"""
    if isinstance(node.value, bool):
        return node.value, 0
    if not isinstance(node.value, str):
        raise Refused(f"field {quote(key)} should be a boolean or a string, got {describe(node)}")
    word = node.value.lower()
    if word in ("true", "on", "false", "off"):
        return word in ("true", "on"), 0
    if word in ("auto", "auto_fallback"):
        return True, HANDSHAKE_FIRST_FALLBACK_NS
    fallback_ns = parse_duration(node.value)
    if fallback_ns is None:
        raise Refused(f"field {quote(key)}'s value {quote(node.value)} is invalid")
    return True, fallback_ns


@define(eq=False, repr=False)
class OcspPeerOptions(Section):
    UNKNOWN_KEY = "error parsing ocsp peer config: unknown field {}"

    verify: bool = option(BOOLEAN, False, doc="check client certificates with their issuer's OCSP responder")
    allowed_clockskew_ns: int = option(timeout("ocsp peer"), 30 * SECOND_NS, key="allowed_clockskew")
    ca_timeout_ns: int = option(timeout("ocsp peer"), 2 * SECOND_NS, key="ca_timeout")
    cache_ttl_when_next_update_unset_ns: int = option(
        timeout("ocsp peer"), 3600 * SECOND_NS, key="cache_ttl_when_next_update_unset"
    )
    warn_only: bool = option(BOOLEAN, False)
    unknown_is_good: bool = option(BOOLEAN, False)
    allow_when_ca_unreachable: bool = option(BOOLEAN, False)


def _ocsp_peer(reading: Reading, node: Node, key: str) -> OcspPeerOptions:
    if isinstance(node.value, bool):
        return OcspPeerOptions(verify=node.value)
    return read_section(reading, OcspPeerOptions, node, "ocsp_peer")


@define(eq=False, repr=False)
class CertificatePair(Section):
    UNKNOWN_KEY = "error parsing tls certs config, unknown field {}"

    cert_file: str = option(TEXT, "")
    key_file: str = option(TEXT, "")

    def finish(self, reading: Reading, node: Node) -> None:
        if not self.cert_file or not self.key_file:
            raise Refused("error parsing certificates config: both 'cert_file' and 'key_file' options are required")


@define(eq=False, repr=False)
class TlsOptions(Section):
    """`tls { }` of a listener or of an outgoing connection."""

    UNKNOWN_KEY = "error parsing tls config, unknown field {}"

    cert_file: str = option(TEXT, "", doc="PEM file with the certificate chain")
    key_file: str = option(TEXT, "", doc="PEM file with the private key")
    ca_file: str = option(TEXT, "", doc="PEM file with the authorities that certificates of peers are checked by")
    certs: list[CertificatePair] = option(
        section_list(CertificatePair, "a certificates entry"),
        factory=list,
        aliases=("certificates",),
        doc="several certificate and key pairs, in place of `cert_file` and `key_file`",
    )
    verify: bool = option(BOOLEAN, False, doc="clients must show a certificate")
    verify_and_map: bool = option(BOOLEAN, False, doc="as `verify`; the certificate's names tell the user")
    verify_cert_and_check_known_urls: bool = option(
        BOOLEAN, False, doc="as `verify`; the certificate must name a configured host (cluster and gateway)"
    )
    insecure: bool = option(BOOLEAN, False, doc="do not check the certificate of the server connected to")
    cipher_suites: list[str] = option(_names(CIPHER_SUITES + INSECURE_CIPHER_SUITES, "cipher"), factory=list)
    allow_insecure_cipher_suites: bool = option(BOOLEAN, False)
    curve_preferences: list[str] = option(_names(CURVES, "curve preference"), factory=list)
    min_version: str = option(Reader("`1.2` or `1.3`", _min_version), "1.2")
    timeout_ns: int = option(
        timeout("tls"), 2 * SECOND_NS, key="timeout", zero_is_default=True, doc="time for the handshake"
    )
    connection_rate_limit: int = option(INTEGER, 0, doc="handshakes per second; 0 = any number")
    pinned_certs: list[str] = option(
        Reader("list of hex sha256", _pinned), factory=list, doc="public keys that are accepted, and no others"
    )
    handshake_first: tuple[bool, int] = option(
        Reader("boolean, `auto` or duration", _handshake_first),
        (False, 0),
        aliases=("first", "immediate"),
        feature=Feature.TLS_HANDSHAKE_FIRST,
        doc="TLS before INFO; a duration waits so long for a TLS client, then sends INFO (`auto` = 50ms)",
    )
    ocsp_peer: OcspPeerOptions = option(
        Reader("boolean or map", _ocsp_peer, OcspPeerOptions), factory=OcspPeerOptions, feature=Feature.OCSP
    )
    cert_store: str = option(TEXT, "", feature=Feature.WINDOWS_CERTIFICATE_STORE)
    cert_match_by: str = option(TEXT, "", feature=Feature.WINDOWS_CERTIFICATE_STORE)
    cert_match: str = option(TEXT, "", feature=Feature.WINDOWS_CERTIFICATE_STORE)
    cert_match_skip_invalid: bool = option(BOOLEAN, False, feature=Feature.WINDOWS_CERTIFICATE_STORE)
    ca_certs_match: list[str] = option(texts("ca_certs_match"), factory=list, feature=Feature.WINDOWS_CERTIFICATE_STORE)

    def finish(self, reading: Reading, node: Node) -> None:
        if self.certs and self.cert_file:
            raise Refused("error parsing tls config, cannot combine 'cert_file' option with 'certs' option")
        if self.cert_file and not self.key_file:
            raise Refused("missing 'key_file' in TLS configuration")
        if self.key_file and not self.cert_file:
            raise Refused("missing 'cert_file' in TLS configuration")
        insecure = [name for name in self.cipher_suites if name in INSECURE_CIPHER_SUITES]
        if insecure and not self.allow_insecure_cipher_suites:
            raise Refused(
                "insecure cipher suites configured without 'allow_insecure_cipher_suites' option set: "
                + ", ".join(insecure)
            )
        if self.verify_and_map or self.verify_cert_and_check_known_urls:
            self.verify = True


def _client_tls(reading: Reading, node: Node, key: str) -> TlsOptions:
    tls = read_section(reading, TlsOptions, node, "tls")
    if tls.verify_cert_and_check_known_urls:
        raise Refused("verify_cert_and_check_known_urls not supported in this context")
    return tls


def _mutual_tls(reading: Reading, node: Node, key: str) -> TlsOptions:
    tls = read_section(reading, TlsOptions, node, "tls")
    tls.verify = True
    return tls


TLS = Reader("map", _client_tls, TlsOptions)
MUTUAL_TLS = Reader("map", _mutual_tls, TlsOptions)
"""Between servers of a cluster or gateway: both sides always show certificates."""


class OcspMode(enum.Enum):
    AUTO = "auto"
    ALWAYS = "always"
    MUST = "must"
    NEVER = "never"


@define(eq=False, repr=False)
class OcspOptions(Section):
    UNKNOWN_KEY = "error parsing ocsp config: unsupported field {}"

    mode: OcspMode = option(
        choice(
            {mode.value: mode for mode in OcspMode},
            lambda word: f"error parsing ocsp config: unsupported ocsp mode {quote(word)}",
        ),
        OcspMode.AUTO,
    )
    urls: list[str] = option(
        urls("ocsp", one=True), factory=list, aliases=("url",), doc="responders, in place of the certificate's"
    )


def _ocsp(reading: Reading, node: Node, key: str) -> OcspOptions:
    if isinstance(node.value, bool):
        return OcspOptions(mode=OcspMode.AUTO if node.value else OcspMode.NEVER)
    return read_section(reading, OcspOptions, node, "ocsp")


@define(eq=False, repr=False)
class OcspCacheOptions(Section):
    UNKNOWN_KEY = "error parsing ocsp cache config: unknown field {}"

    type: str = option(
        choice(
            {"none": "none", "local": "local"},
            lambda word: f"error parsing ocsp cache config: unknown cache type {quote(word)}",
        ),
        "local",
    )
    local_store: str = option(TEXT, "_rc_", doc="directory of the cache")
    preserve_revoked: bool = option(BOOLEAN, False)
    save_interval_ns: int = option(timeout("ocsp cache"), 300 * SECOND_NS, key="save_interval", doc="at least 1s")

    def finish(self, reading: Reading, node: Node) -> None:
        self.save_interval_ns = max(self.save_interval_ns, SECOND_NS)


def _ocsp_cache(reading: Reading, node: Node, key: str) -> OcspCacheOptions:
    if isinstance(node.value, bool):
        return OcspCacheOptions(type="local" if node.value else "none")
    return read_section(reading, OcspCacheOptions, node, "ocsp_cache")


OCSP = Reader("boolean or map", _ocsp, OcspOptions)
OCSP_CACHE = Reader("boolean or map", _ocsp_cache, OcspCacheOptions)
