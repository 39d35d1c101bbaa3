"""What a server is told about encrypting its store. Apart from `cipher`, which is imported only where a key is set."""

from __future__ import annotations

import enum

import attrs

from tnats.records import frozen


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
