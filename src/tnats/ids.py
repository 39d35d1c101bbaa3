"""Identifiers: nkeys, unique ids, short hashes of names, nonces. Pure: entropy and generators are passed in.

An nkey is base32 without padding of: a prefix byte, 32 bytes of key, and the CRC-16 (XMODEM, low byte first) of
all that (github.com/nats-io/nkeys). Its first letter tells the kind. A seed has two prefix bytes, `S` and kind.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
NONCE_ENTROPY_BYTES = 11
NUID_CHARACTERS = 22

_KEY_BYTES = 32
_CHECKSUM_BYTES = 2
_SEED_PREFIX = 18 << 3
_NUID_PREFIX_CHARACTERS = 12
_NUID_SEQUENCE_MAX = 62**10
_NUID_STEP_MIN = 33
_NUID_STEP_MAX = 333


class KeyKind(enum.IntEnum):
    """The prefix byte of an nkey; the comment is the letter that the text begins with."""

    ACCOUNT = 0  # A
    CLUSTER = 2 << 3  # C
    SERVER = 13 << 3  # N
    OPERATOR = 14 << 3  # O
    USER = 20 << 3  # U
    CURVE = 23 << 3  # X


_KINDS = {int(kind): kind for kind in KeyKind}


def encode_public_key(kind: KeyKind, key: bytes) -> str:
    """The nkey text of a 32-byte public key: 56 characters. A server's id is one of kind SERVER."""
    return _encode(bytes((kind,)) + key)


def decode_public_key(text: str) -> tuple[KeyKind, bytes] | None:
    """Kind and 32 bytes of a public nkey, or None if it is none (length, alphabet, checksum, kind)."""
    raw = _decode(text, 1 + _KEY_BYTES)
    if raw is None or raw[0] not in _KINDS:
        return None
    return _KINDS[raw[0]], raw[1:]


def is_public_key(text: str, kind: KeyKind) -> bool:
    """Whether `text` is a public nkey of `kind`."""
    decoded = decode_public_key(text)
    return decoded is not None and decoded[0] is kind


def decode_seed(text: str) -> tuple[KeyKind, bytes] | None:
    """Kind and 32 bytes of a seed nkey, or None if it is none."""
    raw = _decode(text, 2 + _KEY_BYTES)
    if raw is None or raw[0] & 0xF8 != _SEED_PREFIX:
        return None
    kind = (raw[0] & 7) << 5 | raw[1] >> 3
    return (_KINDS[kind], raw[2:]) if kind in _KINDS else None


def _encode(body: bytes) -> str:
    checked = body + binascii.crc_hqx(body, 0).to_bytes(2, "little")
    return base64.b32encode(checked).decode("ascii").rstrip("=")


def _decode(text: str, body_bytes: int) -> bytes | None:
    if len(text) != -(-(body_bytes + _CHECKSUM_BYTES) * 8 // 5):
        return None
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except ValueError:
        return None
    body, checksum = raw[:-2], raw[-2:]
    if len(body) != body_bytes or binascii.crc_hqx(body, 0).to_bytes(2, "little") != checksum:
        return None
    return body


class Nuid:
    """Unique ids of 22 base62 digits: 12 random ones, then a counter that grows by random steps.

    When the counter runs over, the random part is drawn anew (github.com/nats-io/nuid).
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._draw_prefix()

    def _draw_prefix(self) -> None:
        self._prefix = "".join(self._rng.choices(DIGITS, k=_NUID_PREFIX_CHARACTERS))
        self._sequence = self._rng.randrange(_NUID_SEQUENCE_MAX)
        self._step = self._rng.randrange(_NUID_STEP_MIN, _NUID_STEP_MAX)

    def next(self) -> str:
        """An id that this generator has not given before."""
        self._sequence += self._step
        if self._sequence >= _NUID_SEQUENCE_MAX:
            self._draw_prefix()
        rest = self._sequence
        digits = []
        for _ in range(NUID_CHARACTERS - _NUID_PREFIX_CHARACTERS):
            rest, digit = divmod(rest, len(DIGITS))
            digits.append(DIGITS[digit])
        return self._prefix + "".join(reversed(digits))


def name_hash(name: str, size: int = 8) -> str:
    """`size` base62 digits from the SHA-256 of `name`: Raft peer ids (8), cluster and gateway names (6)."""
    return "".join(
        DIGITS[byte % len(DIGITS)] for byte in hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()[:size]
    )


def encode_nonce(entropy: bytes) -> str:
    """The nonce of an INFO from NONCE_ENTROPY_BYTES of entropy: 15 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(entropy).decode("ascii").rstrip("=")
