"""Requests to the JetStream API: subjects below one prefix, records out, records or exceptions back."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import attrs
import orjson

from tnats.client.client import Client
from tnats.client.errors import ClientError, NoResponders
from tnats.client.jetstream.answers import decode_answer
from tnats.client.jetstream.errors import JetStreamUnavailable
from tnats.client.message import Message
from tnats.jetstream.api.fields import to_object

T = TypeVar("T")

_NAME = re.compile(r"[^\s.*>/\\]+")

OWN_PREFIX = "$JS.API"


class Api:
    """The API of the client's account, of a domain, or of another account through an import."""

    def __init__(self, client: Client, *, domain: str, prefix: str, timeout_s: float) -> None:
        """`domain` is short for the prefix `$JS.<domain>.API`; without both it is `$JS.API`."""
        if domain and prefix:
            raise ClientError("JetStream: give domain or api_prefix, not both")
        self.client = client
        self.prefix = prefix.rstrip(".") or (f"$JS.{domain}.API" if domain else OWN_PREFIX)
        self.timeout_s = timeout_s

    @property
    def is_foreign(self) -> bool:
        """Whether it is reached through another prefix than the account's own."""
        return self.prefix != OWN_PREFIX

    def subject(self, call: str) -> str:
        """The full subject of a call."""
        return f"{self.prefix}.{call}"

    async def ask(self, call: str, request: Any, answer: type[T]) -> T:
        """Ask with a record of `tnats.jetstream.api` as the body, or None for an empty one.

        Raises ApiError and its kin, JetStreamUnavailable, TimedOut, and what `Client.request` raises.
        """
        return decode_answer(await self.exchange(call, request), answer, call)

    async def exchange(self, call: str, request: Any) -> Message:
        """As `ask`, for answers that are messages themselves."""
        subject = self.subject(call)
        try:
            return await self.client.request(subject, encode_request(request), timeout_s=self.timeout_s)
        except NoResponders:
            raise JetStreamUnavailable(
                f"nobody answers {subject!r}: JetStream is not enabled for this account, or what the subject names "
                "has no server now"
            ) from None

    async def pages(self, call: str, request: Any, answer: type[Any], key: str) -> list[Any]:
        """All items of a list, page after page: `request` has an `offset`, `answer` a `total` and items as `key`."""
        items: list[Any] = []
        while True:
            page = await self.ask(call, attrs.evolve(request, offset=len(items)), answer)
            found = getattr(page, key) or []
            items += found
            if not found or len(items) >= page.total:
                return items


def checked_name(name: str, what: str) -> str:
    """`name`; raises ClientError for what cannot be the name of a stream or consumer, as `what` says (ADR-6)."""
    if not _NAME.fullmatch(name):
        raise ClientError(f"{what} {name!r}: a name is not empty and has no white space and none of . * > / \\")
    return name


def encode_request(request: Any) -> bytes:
    """The body of a request; empty for None."""
    return b"" if request is None else orjson.dumps(to_object(request))
