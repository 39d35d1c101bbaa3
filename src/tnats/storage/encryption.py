"""What a server is told about encrypting its store. Apart from `cipher`, which is imported only where a key is set."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from tnats.records import frozen

if TYPE_CHECKING:
    from tnats.storage.cipher import KeyRing


class Cipher(enum.StrEnum):
    """Authenticated ciphers for records, by nats-server's names of the option."""

    CHACHA = "chacha"
    AES = "aes"

    @property
    def algorithm(self) -> str:
        """Its name in full."""
        return "ChaCha20-Poly1305" if self is Cipher.CHACHA else "AES-256-GCM"


@frozen
class Encryption:
    """The keys of a store. New files are written under `key` and `cipher`; files under any other pair of the two keys
    and ciphers are read, and written anew.
    """

    key: str = attrs.field(repr=False)
    cipher: Cipher = Cipher.CHACHA
    previous_key: str = attrs.field(default="", repr=False)


def make_keys(encryption: Encryption | None, store_id: bytes, entropy: Callable[[int], bytes]) -> KeyRing | None:
    """The keys of the store `store_id`."""
    if encryption is None:
        return None
    from tnats.storage.cipher import KeyRing  # the ciphers' library takes memory, which most servers can do without

    return KeyRing(encryption, store_id, entropy)
