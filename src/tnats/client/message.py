"""One received message, and how headers look to users: str names and lists of str values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tnats.client.errors import ClientError
from tnats.subjects.tokens import to_bytes, to_text
from tnats.wire.headers import Headers, build_headers, parse_headers

if TYPE_CHECKING:
    from tnats.client.client import Client

NO_STATUS = b"NATS/1.0\r\n"
"""How the header block of an ordinary message begins."""

HeadersLike = Mapping[str, str | Sequence[str]]
"""Headers to send: a value, or several for the same name."""


class Message:
    """A message as it came off the wire. Headers are parsed when first asked for."""

    __slots__ = ("_client", "_headers", "block", "data", "reply", "size", "subject")

    def __init__(self, client: Client, subject: str, reply: str, block: bytes, data: bytes) -> None:
        """`block` is the raw header block, empty without headers."""
        self._client = client
        self.subject = subject
        self.reply = reply
        """Where an answer goes; empty when none is expected."""
        self.data = data
        self.size = len(block) + len(data)
        """Headers and payload in bytes."""
        self.block = block
        """The header block as it came."""
        self._headers: Headers | None = None

    def __repr__(self) -> str:
        reply = f" reply={self.reply!r}" if self.reply else ""
        return f"<Message {self.subject!r}{reply} {self.size} bytes>"

    @property
    def headers(self) -> dict[str, list[str]] | None:
        """Values by name, both as sent; None without headers, or when they are malformed."""
        return header_values(self._parsed())

    @property
    def status(self) -> int:
        """The status code of the header block, as servers send it (404, 503, ...); 0 for none."""
        if self.block.startswith(NO_STATUS):
            return 0
        parsed = self._parsed()
        return 0 if parsed is None else parsed.status

    @property
    def description(self) -> str:
        """The text after the status code."""
        parsed = self._parsed()
        return "" if parsed is None else to_text(parsed.description)

    def _parsed(self) -> Headers | None:
        if self._headers is None and self.block:
            self._headers = parse_headers(self.block)
        return self._headers

    async def respond(self, data: bytes = b"", *, headers: HeadersLike | None = None) -> None:
        """Publish on the reply subject. Raises ClientError when the sender expects no answer, and like `publish`."""
        if not self.reply:
            raise ClientError(f"message on {self.subject!r}: the sender expects no answer")
        await self._client.answer(self.reply, data, headers)


def header_values(parsed: Headers | None) -> dict[str, list[str]] | None:
    """Values by name, both as sent; None without headers."""
    if parsed is None:
        return None
    headers: dict[str, list[str]] = {}
    for name, value in parsed.fields:
        headers.setdefault(to_text(name), []).append(to_text(value))
    return headers


def encode_headers(headers: HeadersLike) -> bytes:
    """The header block. Raises `tnats.wire.headers.HeaderError` for what cannot be written."""
    fields: list[tuple[bytes, bytes]] = []
    for name, value in headers.items():
        key = to_bytes(name)
        fields += [(key, to_bytes(text)) for text in ((value,) if isinstance(value, str) else value)]
    return build_headers(fields)
