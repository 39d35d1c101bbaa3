"""NKeys at log-in: what a key belongs to, and whether a signature was made with it. `tnats.ids` has their text form."""

from __future__ import annotations

import base64
import binascii

from tnats.ids import KeyKind, decode_public_key, decode_seed

_SIGNATURE_BYTES = 64


def kind_of_public_key(text: str) -> KeyKind | None:
    """What a public key belongs to, or None if `text` is not a well-formed public key."""
    decoded = decode_public_key(text)
    return decoded[0] if decoded is not None else None


def is_user_seed(text: str) -> bool:
    """Whether `text` is the well-formed private seed of a user key (`SU...`)."""
    decoded = decode_seed(text)
    return decoded is not None and decoded[0] is KeyKind.USER


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
    decoded = decode_public_key(public_key)
    if decoded is None or len(signature) != _SIGNATURE_BYTES:
        return False
    # Only servers with nkey users need it, and importing it takes longer than everything else here.
    from nacl.exceptions import BadSignatureError
    from nacl.signing import VerifyKey

    try:
        VerifyKey(decoded[1]).verify(message, signature)
    except (BadSignatureError, ValueError):
        return False
    return True
