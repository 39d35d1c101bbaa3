"""What a stream's checkpoint keeps in the journal behind the note of its message log.

Layout: one version byte; the last sequence (8 bytes, little endian), the size of the configuration (4 bytes), its JSON,
then the machine's snapshot. The configuration is the one in force at the checkpoint: replaying with a later one would
apply its limits too early.
"""

from __future__ import annotations

import struct

from tnats.records import frozen
from tnats.storage.errors import StoreRefused

FORMAT_VERSION = 1
_HEAD = struct.Struct("<BQI")


@frozen
class Note:
    """The machine's state at a checkpoint. `config`: JSON; `machine`: bytes of `stream.snapshot`."""

    config: bytes
    last_seq: int
    machine: bytes

    def encode(self) -> bytes:
        return _HEAD.pack(FORMAT_VERSION, self.last_seq, len(self.config)) + self.config + self.machine

    @classmethod
    def decode(cls, data: bytes) -> Note:
        """Raises StoreRefused for a newer format."""
        version, last_seq, size = _HEAD.unpack_from(data)
        if version != FORMAT_VERSION:
            raise StoreRefused(f"a stream's checkpoint has format {version}, this server knows {FORMAT_VERSION}")
        at = _HEAD.size + size
        return cls(data[_HEAD.size : at], last_seq, data[at:])
