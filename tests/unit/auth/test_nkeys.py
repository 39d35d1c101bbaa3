"""Public keys, seeds and signatures."""

from __future__ import annotations

import base64
import binascii

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from tnats.auth.nkeys import decode_signature, is_user_seed, kind_of_public_key, verify
from tnats.ids import KeyKind, is_public_key


def encode(prefix: bytes, key: bytes) -> str:
    body = prefix + key
    return base64.b32encode(body + binascii.crc_hqx(body, 0).to_bytes(2, "little")).decode().rstrip("=")


SIGNER = SigningKey(bytes(range(32)))
USER_KEY = encode(bytes([KeyKind.USER.value]), bytes(SIGNER.verify_key))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4", KeyKind.USER),
        ("ABJHLOVMPA4CI6R5KLNGOB4GSLNIY7IOUPAJC4YFNDLQVIOBYQGUWVLA", KeyKind.ACCOUNT),
    ],
)
def test_published_keys_are_recognised(text: str, kind: KeyKind) -> None:
    """Keys from nats documentation."""
    assert kind_of_public_key(text) is kind


@pytest.mark.parametrize(("kind", "letter"), list(zip(KeyKind, "ACNOUX", strict=True)))
def test_first_letter_tells_the_kind(kind: KeyKind, letter: str) -> None:
    """The prefix byte is chosen so that it shows in the text."""
    text = encode(bytes([kind.value]), bytes(32))
    assert text[0] == letter
    assert is_public_key(text, kind)


@given(st.integers(0, 55), st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"))
def test_a_changed_character_is_noticed(index: int, char: str) -> None:
    """The checksum covers all of the key."""
    changed = USER_KEY[:index] + char + USER_KEY[index + 1 :]
    assert (kind_of_public_key(changed) is KeyKind.USER) == (changed == USER_KEY)


@given(st.text(max_size=60))
def test_any_text_may_be_asked_about(text: str) -> None:
    """Nothing but a key is a key, and nothing raises."""
    assert kind_of_public_key(text) is None
    assert not is_user_seed(text)
    assert not verify(text, b"", bytes(64))
    decode_signature(text)


def test_user_seeds_are_told_from_others() -> None:
    """Seeds of accounts, and public keys, are no user seeds."""
    user = bytes([0x90 | KeyKind.USER.value >> 5, (KeyKind.USER.value & 31) << 3])
    account = bytes([0x90 | KeyKind.ACCOUNT.value >> 5, (KeyKind.ACCOUNT.value & 31) << 3])
    assert encode(user, bytes(32)).startswith("SU")
    assert is_user_seed(encode(user, bytes(32)))
    assert not is_user_seed(encode(account, bytes(32)))
    assert not is_user_seed(USER_KEY)


def test_signature_is_verified() -> None:
    """Only the key's own signature over the very message counts."""
    signature = SIGNER.sign(b"nonce").signature
    assert verify(USER_KEY, b"nonce", signature)
    assert not verify(USER_KEY, b"other", signature)
    assert not verify(encode(bytes([KeyKind.USER.value]), bytes(range(32))), b"nonce", signature)
    assert not verify(USER_KEY, b"nonce", signature[:63])


def test_signature_may_be_written_in_two_alphabets() -> None:
    """URL alphabet without padding, as clients send it, or standard base64."""
    signature = b"\xfb\xff" * 32
    assert decode_signature(base64.urlsafe_b64encode(signature).decode().rstrip("=")) == signature
    assert decode_signature(base64.b64encode(signature).decode()) == signature
    assert decode_signature("****") is None
    assert decode_signature("AAAA") is None
