"""Answers of the JetStream API, from JSON to records or to the exception that they stand for."""

from __future__ import annotations

from typing import Any, TypeVar

import orjson

from tnats.client.jetstream.errors import JetStreamError, api_error
from tnats.client.message import Message
from tnats.jetstream.api.fields import BOOL, INT, TEXT, UINT64, Record, row
from tnats.jetstream.api.json_text import DecodeError
from tnats.records import frozen

T = TypeVar("T")


@frozen
class PubAck:
    """The stream has stored a message, durably (JetStream documentation, "PubAck")."""

    stream: str = row("stream", TEXT)
    seq: int = row("seq", UINT64)
    domain: str = row("domain", TEXT, default="")
    duplicate: bool = row("duplicate", BOOL, default=False)
    """A message with this id was stored before: `seq` is that one's, nothing was stored now."""
    val: str = row("val", TEXT, default="")
    """The counter's new value, where the subject is one (ADR-49)."""
    batch: str = row("batch", TEXT, default="")
    count: int = row("count", INT, default=0)
    """Id and size of the batch that this acknowledges (ADR-50)."""


def decode_answer(message: Message, record: type[T], call: str) -> T:
    """The record that the answer to `call` holds.

    Raises ApiError for a refusal, JetStreamError for what is no answer.
    """
    return decode_object(answer_object(message, call), record, message)


def answer_object(message: Message, call: str) -> dict[str, Any]:
    """The JSON object of an answer. Raises like `decode_answer`."""
    try:
        answer = orjson.loads(message.data)
    except orjson.JSONDecodeError:
        answer = None
    if type(answer) is not dict:
        if message.status:
            raise api_error(message.status, 0, message.description or "an answer without a reason", call)
        raise JetStreamError(f"answer on {message.subject!r} is no JSON object: {bytes(message.data[:80])!r}")
    error = answer.get("error")
    if error:
        refusal = error.get("code", 0), error.get("err_code", 0), error.get("description", "no reason given")
        raise api_error(*refusal, call)
    return answer


def decode_object(answer: dict[str, Any], record: type[T], message: Message) -> T:
    """`answer` as a record; keys that the record does not know are passed over. Raises JetStreamError."""
    try:
        value: T = Record(record).decode(answer, record.__name__, strict=False)
    except (DecodeError, TypeError) as exc:
        raise JetStreamError(f"answer on {message.subject!r} cannot be read: {exc}") from None
    return value
