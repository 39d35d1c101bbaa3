"""One received message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tnats.client.errors import ClientError
from tnats.wire.headers import Headers, parse_headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tnats.client.client import Client

NO_RESPONDERS_STATUS = 503


class Message:
    """A message as it came off the wire. Headers are parsed when first asked for."""

    __slots__ = ("_client", "_header_block", "_headers", "data", "reply", "size", "subject")

    def __init__(self, client: Client, subject: str, reply: str, header_block: bytes, data: bytes) -> None:
        self._client = client
        self.subject = subject
        self.reply = reply
        """The subject to answer to; empty when no answer is expected."""
        self.data = data
        self.size = len(data) + len(header_block)
        """Payload and headers in bytes."""
        self._header_block = header_block
        self._headers: Headers | None = None

    def __repr__(self) -> str:
        reply = f" reply={self.reply!r}" if self.reply else ""
        return f"<Message {self.subject!r}{reply} {self.size} bytes>"
