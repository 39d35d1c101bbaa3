"""NKeys: Ed25519 public keys as text, and the signatures made with them (security, "NKeys"; nats-io/nkeys).

A public key is base32 without padding of one prefix byte, 32 key bytes and a CRC-16/XMODEM of those, low byte first:
56 characters, the first of which tells what the key belongs to. Curve keys (X25519) use the same form.
"""

from __future__ import annotations

import base64
import binascii
import enum

_KEY_BYTES = 32
_PUBLIC_KEY_CHARS = 56
_SEED_CHARS = 58
_SEED_PREFIX = 18 << 3
_SIGNATURE_BYTES = 64


class KeyKind(enum.Enum):
    """Value: the prefix byte."""

    ACCOUNT = 0 << 3
    CLUSTER = 2 << 3
    SERVER = 13 << 3
    OPERATOR = 14 << 3
    USER = 20 << 3
    CURVE = 23 << 3


_KINDS = {kind.value: kind for kind in KeyKind}


def kind_of_public_key(text: str) -> KeyKind | None:
    """What a public key belongs to, or None if `text` is not a well-formed public key."""
    raw = _decoded(text, _PUBLIC_KEY_CHARS)
    if raw is None or len(raw) != 1 + _KEY_BYTES:
        return None
    return _KINDS.get(raw[0])


def is_public_key(text: str, kind: KeyKind) -> bool:
    """Whether `text` is a well-formed public key of that kind."""
    return kind_of_public_key(text) is kind


def is_user_seed(text: str) -> bool:
    """Whether `text` is the well-formed private seed of a user key (`SU...`)."""
    raw = _decoded(text, _SEED_CHARS)
    if raw is None or len(raw) != 2 + _KEY_BYTES:
        return False
    # The seed marker and the kind share two bytes: five bits of one, then five of the other.
    return raw[0] & 0xF8 == _SEED_PREFIX and (raw[0] & 7) << 5 | raw[1] >> 3 == KeyKind.USER.value


def decode_signature(text: str) -> bytes | None:
    """CONNECT's `sig`: base64 in the URL alphabet without padding, or standard base64. None if it is neither."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        try:
            raw = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            return None
    return raw if len(raw) == _SIGNATURE_BYTES else None


def verify(public_key: str, message: bytes, signature: bytes) -> bool:
    """Whether `signature` over `message` was made with the private half of `public_key`."""
    raw = _decoded(public_key, _PUBLIC_KEY_CHARS)
    if raw is None or len(signature) != _SIGNATURE_BYTES:
        return False
    # Only servers with nkey users need it, and importing it takes longer than everything else here.
    from nacl.exceptions import BadSignatureError
    from nacl.signing import VerifyKey

    try:
        VerifyKey(raw[1:]).verify(message, signature)
    except (BadSignatureError, ValueError):
        return False
    return True


def _decoded(text: str, chars: int) -> bytes | None:
    """The bytes before the checksum, or None if length, alphabet or checksum is wrong."""
    if len(text) != chars:
        return None
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        return None
    body, checksum = raw[:-2], raw[-2:]
    return body if binascii.crc_hqx(body, 0) == int.from_bytes(checksum, "little") else None
