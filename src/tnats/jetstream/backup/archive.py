"""Archives of version 2: a sequence of entries with the stream's state, its consumers, and its messages.

Layout (nats-server 2.15, stream_backup.go): the eight bytes of MAGIC, then entries. An entry is a name's length
(uvarint), a time in ns (varint), a sequence, a header block's and a payload's size (uvarints), then name, header block
and payload. The first entry is `state.json`; those of consumers are named `consumers/<name>` and hold configuration and
state as JSON; a message's entry has its subject as name. An entry without a name is the end.

A sequence above 0 tells a message from the rest, so that any subject may be a name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from tnats.jetstream.api import fields
from tnats.jetstream.api.json_text import DecodeError
from tnats.jetstream.api.messages import StreamState
from tnats.jetstream.backup import consumer_state, varint
from tnats.jetstream.backup.contents import ArchivedConsumer, ArchivedMessage, BadArchive, Bounds, Item
from tnats.jetstream.consumer.config import ConsumerConfig
from tnats.jetstream.consumer.state import ConsumerState
from tnats.limits import BACKUP_ENTRY_BYTES_MAX, BACKUP_NAME_BYTES_MAX

MAGIC = b"NATSARC1"
STATE_NAME = b"state.json"
CONSUMER_PREFIX = b"consumers/"


# ------------------------------------------------------------------ writing


def begin(state: StreamState, now_ns: int) -> bytes:
    """The start of an archive."""
    return MAGIC + _entry(STATE_NAME, now_ns, 0, b"", orjson.dumps(fields.to_object(state)))


def consumer(name: str, config: ConsumerConfig, state: ConsumerState, now_ns: int) -> bytes:
    """A consumer's entry."""
    body = {"config": fields.to_object(config), "state": consumer_state.to_json(state)}
    return _entry(CONSUMER_PREFIX + name.encode(), now_ns, 0, b"", orjson.dumps(body))


def message(seq: int, time_ns: int, subject: bytes, headers: bytes, payload: bytes) -> bytes:
    """A message's entry."""
    return _entry(subject, time_ns, seq, headers, payload)


def end() -> bytes:
    """The last entry."""
    return _entry(b"", 0, 0, b"", b"")


def _entry(name: bytes, time_ns: int, seq: int, headers: bytes, payload: bytes) -> bytes:
    numbers = (len(name), varint.to_unsigned(time_ns), seq, len(headers), len(payload))
    return b"".join([*map(varint.encode, numbers), name, headers, payload])


# ------------------------------------------------------------------ reading


class ArchiveReader:
    """Takes an archive apart that comes in pieces. Holds at most one entry."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._is_begun = False
        self._has_state = False
        self._has_messages = False
        self.is_complete = False
        """The end was read."""

    def feed(self, data: bytes) -> Iterator[Item]:
        """The entries that are complete with `data`, in order. Raises BadArchive."""
        if data and self.is_complete:
            raise BadArchive("the archive goes on behind its end")
        self._held += data
        if not self._is_begun:
            if len(self._held) < len(MAGIC):
                return
            if not self._held.startswith(MAGIC):
                raise BadArchive("this is no archive of a stream")
            self._is_begun = True
            del self._held[: len(MAGIC)]
        at = 0
        while not self.is_complete:
            found = self._next(at)
            if found is None:
                break
            at, item = found
            if item is not None:
                yield item
        if self.is_complete and at < len(self._held):
            raise BadArchive("the archive goes on behind its end")
        del self._held[:at]

    def _next(self, at: int) -> tuple[int, Item | None] | None:
        """(where the next entry begins, what this one says), None while it is not complete."""
        held = self._held
        numbers = []
        for _ in range(5):
            value = shift = 0  # `varint.decode` written out: five calls an entry would take half as long again
            while True:
                if at >= len(held):
                    return None
                byte = held[at]
                at += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift >= 7 * varint.BYTES_MAX:
                    raise BadArchive("an entry's head is damaged")
            numbers.append(value)
        name_size, signed, seq, header_size, payload_size = numbers
        if name_size > BACKUP_NAME_BYTES_MAX or header_size + payload_size > BACKUP_ENTRY_BYTES_MAX:
            raise BadArchive(f"an entry of {name_size + header_size + payload_size} bytes is too large")
        end = at + name_size + header_size + payload_size
        if end > len(held):
            return None
        name = bytes(held[at : at + name_size])
        headers = bytes(held[at + name_size : end - payload_size])
        payload = bytes(held[end - payload_size : end])
        return end, self._item(name, varint.to_signed(signed), seq, headers, payload)

    def _item(self, name: bytes, time_ns: int, seq: int, headers: bytes, payload: bytes) -> Item | None:
        if not name:
            if not self._has_state:
                raise BadArchive("the stream's state is missing")
            self.is_complete = True
            return None
        if not self._has_state:
            if name != STATE_NAME or seq:
                raise BadArchive("the stream's state does not come first")
            self._has_state = True
            return bounds_of(payload)
        if seq:
            self._has_messages = True
            return ArchivedMessage(seq, time_ns, name, headers, payload)
        if name.startswith(CONSUMER_PREFIX) and not self._has_messages:
            return _consumer_of(name[len(CONSUMER_PREFIX) :], payload)
        raise BadArchive("an entry that does not belong there")


def bounds_of(state: bytes) -> Bounds:
    """The bounds in the JSON of a stream's state. Raises BadArchive."""
    try:
        found = fields.decode(StreamState, state, strict=False)
    except DecodeError as error:
        raise BadArchive(f"the stream's state is damaged ({error})") from None
    return Bounds(found.first_seq, found.last_seq, found.last_ts_ns or 0)


def _consumer_of(name: bytes, body: bytes) -> ArchivedConsumer:
    try:
        given: Any = orjson.loads(body)
        config = fields.decode(ConsumerConfig, orjson.dumps(given["config"]), strict=False)
        return ArchivedConsumer(name.decode(), config, consumer_state.from_json(given["state"]))
    except (DecodeError, ValueError, KeyError, TypeError) as error:
        raise BadArchive(f"consumer {name[:64]!r} is damaged ({error})") from None
