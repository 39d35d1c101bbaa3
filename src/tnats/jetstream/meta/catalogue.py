"""The catalogue of a server on its own: which streams and consumers there are, durable before anybody is told.

It is a log of its own in the node's journal: one JSON entry for each asset made, changed or removed. At a checkpoint
the whole table becomes the note of that log. An asset is known by a number that is never given out again, so that what
is left on disk of a removed one is never taken for its successor.

A change is carried out here as soon as its entry is written: a checkpoint, which may come at any time, forgets all
entries that are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from tnats.jetstream.api import fields
from tnats.jetstream.consumer.config import ConsumerConfig
from tnats.jetstream.stream.config import StreamConfig
from tnats.records import define
from tnats.storage.commit_log import LocalLog
from tnats.storage.group import Group, Ticket
from tnats.storage.journal import Journal

GROUP = "catalogue"


@define(eq=False)
class StreamRecord:
    """A stream that exists."""

    account: str
    number: int
    created_ns: int
    config: StreamConfig

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def label(self) -> str:
        """What people are told of it by."""
        return f"JetStream stream '{self.account} > {self.name}'"

    @property
    def group(self) -> str:
        """Name of its log in the journal."""
        return f"stream/{self.number}/{self.account}/{self.name}"


@define(eq=False)
class ConsumerRecord:
    """A consumer that exists, on the stream of that number. Its configuration may leave the name open."""

    stream: int
    number: int
    name: str
    created_ns: int
    config: ConsumerConfig

    @property
    def group(self) -> str:
        """Name of its log in the journal."""
        return f"consumer/{self.number}/{self.stream}/{self.name}"


class Catalogue:
    """See the module's text. Changes are durable when their method returns; they raise StorageError."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._group: Group = journal.group(GROUP)
        self._next_number = 1
        self.streams: dict[int, StreamRecord] = {}
        """By number."""
        self.consumers: dict[int, ConsumerRecord] = {}
        """By number."""
        self.lost_count = 0
        """Entries that could not be read: assets may be missing, or be there again."""

    async def open(self) -> None:
        """Read what there is."""
        log = LocalLog(self._group)
        if log.note:
            for change in orjson.loads(log.note):
                self._apply(change)
        for entry in await log.replay():
            if entry.body is None:
                self.lost_count += 1
            else:
                self._apply(orjson.loads(bytes(entry.body)))

    def next_number(self) -> int:
        """A number for an asset."""
        self._next_number += 1
        return self._next_number - 1

    async def put_stream(self, record: StreamRecord) -> None:
        """A stream is made or changed."""

        def put() -> None:
            self.streams[record.number] = record

        await self._commit(_stream_change(record), put)

    async def put_restored(self, record: StreamRecord, consumers: list[ConsumerRecord]) -> None:
        """A stream and its consumers are there, all at once."""

        def put() -> None:
            self.streams[record.number] = record
            self.consumers.update({consumer.number: consumer for consumer in consumers})

        await self._commit({"restored": [_stream_change(record), *map(_consumer_change, consumers)]}, put)

    async def put_consumer(self, record: ConsumerRecord) -> None:
        """A consumer is made or changed."""

        def put() -> None:
            self.consumers[record.number] = record

        await self._commit(_consumer_change(record), put)

    async def drop_stream(self, number: int) -> None:
        """A stream is removed, its consumers with it."""
        await self._commit({"drop_stream": number}, lambda: self._drop_stream(number), frees_space=True)

    async def drop_consumer(self, number: int) -> None:
        """A consumer is removed."""
        await self._commit({"drop_consumer": number}, lambda: self._drop_consumer(number), frees_space=True)

    async def checkpoint(self) -> None:
        """Let the journal forget the single changes."""
        changes: list[dict[str, Any]] = [{"next": self._next_number}]
        changes += [_stream_change(record) for record in self.streams.values()]
        changes += [_consumer_change(record) for record in self.consumers.values()]
        await self._group.set_state_nowait(self._group.last, orjson.dumps(changes)).wait()

    async def _commit(
        self, change: dict[str, Any], carry_out: Callable[[], None], *, frees_space: bool = False
    ) -> None:
        def written(ticket: Ticket) -> None:
            if ticket.error is None:
                carry_out()

        await self._group.append_nowait([orjson.dumps(change)], callback=written, frees_space=frees_space).wait()
        await self._journal.flush()

    def _apply(self, change: dict[str, Any]) -> None:
        if "next" in change:
            self._next_number = max(self._next_number, change["next"])
        elif "stream" in change:
            given = change["stream"]
            config = _from_json(StreamConfig, given["config"])
            self.streams[given["number"]] = StreamRecord(given["account"], given["number"], given["created"], config)
            self._next_number = max(self._next_number, given["number"] + 1)
        elif "consumer" in change:
            given = change["consumer"]
            consumer = _from_json(ConsumerConfig, given["config"])
            number = given["number"]
            self.consumers[number] = ConsumerRecord(given["of"], number, given["name"], given["created"], consumer)
            self._next_number = max(self._next_number, number + 1)
        elif "restored" in change:
            for each in change["restored"]:
                self._apply(each)
        elif "drop_stream" in change:
            self._drop_stream(change["drop_stream"])
        else:
            self._drop_consumer(change["drop_consumer"])

    def _drop_stream(self, number: int) -> None:
        self.streams.pop(number, None)
        for gone in [one.number for one in self.consumers.values() if one.stream == number]:
            del self.consumers[gone]

    def _drop_consumer(self, number: int) -> None:
        self.consumers.pop(number, None)


def _stream_change(record: StreamRecord) -> dict[str, Any]:
    given = {"number": record.number, "account": record.account, "created": record.created_ns}
    return {"stream": {**given, "config": fields.to_object(record.config)}}


def _consumer_change(record: ConsumerRecord) -> dict[str, Any]:
    given = {"number": record.number, "of": record.stream, "name": record.name, "created": record.created_ns}
    return {"consumer": {**given, "config": fields.to_object(record.config)}}


def _from_json(record: type[Any], given: dict[str, Any]) -> Any:
    return fields.decode(record, orjson.dumps(given), strict=False)


def encode_config(config: Any) -> bytes:
    """The JSON of a configuration."""
    return orjson.dumps(fields.to_object(config))
