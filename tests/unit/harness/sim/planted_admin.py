"""Deliberately broken builds of JetStream's administration: see `planted`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.harness.sim.planted import Patch, Planted

from tnats.jetstream import account
from tnats.jetstream.account import AccountService
from tnats.jetstream.api.advisories import Advisory
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.backup import archive
from tnats.jetstream.consumer.state import ConsumerState
from tnats.jetstream.meta.catalogue import Catalogue
from tnats.jetstream.stream.service import StreamService
from tnats.jetstream.stream.sourcing import Intake
from tnats.storage import store, store_open
from tnats.storage.journal import Journal
from tnats.storage.store_directory import DELETED, remove_tree

Method = Callable[..., Any]


async def drops_in_memory(self: Catalogue, number: int) -> None:
    self._drop_consumer(number)


def changes_consumers_in_memory(original: Method) -> Method:
    """Only the making of a consumer is logged."""

    async def put_consumer(self: Catalogue, record: Any) -> None:
        if record.number in self.consumers:
            self.consumers[record.number] = record
        else:
            await original(self, record)

    return put_consumer


def changes_streams_in_memory(original: Method) -> Method:
    """Only the making of a stream is logged."""

    async def put_stream(self: Catalogue, record: Any) -> None:
        if record.number in self.streams:
            self.streams[record.number] = record
        else:
            await original(self, record)

    return put_stream


def keeps_its_limit(original: Method) -> Method:
    """A change of a stream that leaves its limit of messages as it was."""

    async def reconfigure(self: StreamService, config: Any) -> None:
        config.max_msgs = self.config.max_msgs
        await original(self, config)

    return reconfigure


def leaves_out(original: Method) -> Method:
    """A backup without each seventh message."""

    def message(seq: int, *content: Any) -> bytes:
        entry: bytes = original(seq, *content)
        return b"" if seq % 7 == 0 else entry

    return message


def goes_on_as_before() -> list[Patch]:
    """A consumer that takes up where the one before it of that name was."""
    left: dict[str, ConsumerState] = {}
    delete, start = AccountService.delete_consumer, account.start_state

    async def delete_consumer(self: AccountService, stream: StreamService, consumer: Any) -> ApiError | None:
        left[consumer.name] = consumer.machine.state
        return await delete(self, stream, consumer)

    def start_state(config: Any, store: Any) -> ConsumerState:
        return left.get(config.durable_name) or start(config, store)

    return [(AccountService, "delete_consumer", delete_consumer), (account, "start_state", start_state)]


def goes_on_in_any(self: Intake) -> int:
    """Where a source goes on that takes every stream of the origin's name for the same."""
    if self._is_mirror:
        return self._stream.store.last_seq
    return self._stream.machine.sourced.get(self._place, (0, b""))[0]


def begins_anew(original: Method) -> Method:
    """A source that takes its origin for a new one at each start."""
    begun: dict[Intake, int] = {}

    def last_taken(self: Intake) -> int:
        seq: int = original(self)
        return seq if self._is_mirror or begun.setdefault(self, seq) != seq else 0

    return last_taken


def advises_of(count: int) -> Callable[[], list[Patch]]:
    """A server that sends each advisory of a consumer's end so many times."""

    def patches() -> list[Patch]:
        original = AccountService.advise

        def advise(self: AccountService, events: list[Advisory]) -> None:
            for event in events:
                for _ in range(count if "DELETED" in event.subject else 1):
                    original(self, [event])

        return [(AccountService, "advise", advise)]

    return patches


async def renames_alone(disk: Any, path: str) -> None:
    """Removes a directory, and does not see to it that it stays away."""
    await disk.rename(path, path + DELETED)
    await remove_tree(disk, path + DELETED)


C18 = "C18 what is done is told to who listens"
C19 = "C19 sources bring everything, once and in order"
C12 = "C12 assets are as they were made, until they are deleted"

PLANTED_ADMIN = (
    Planted(
        "deleting a consumer is not logged",
        "jetstream_admin",
        5,
        (C12,),
        lambda: [(Catalogue, "drop_consumer", drops_in_memory)],
    ),
    Planted(
        "changing a consumer is not logged",
        "jetstream_admin",
        10,
        (C12,),
        lambda: [(Catalogue, "put_consumer", changes_consumers_in_memory(Catalogue.put_consumer))],
    ),
    Planted(
        "a new consumer goes on where the one before it was",
        "jetstream_admin",
        20,
        (C12,),
        goes_on_as_before,
    ),
    Planted(
        "changing a stream is not logged",
        "jetstream_admin",
        10,
        (C12,),
        lambda: [(Catalogue, "put_stream", changes_streams_in_memory(Catalogue.put_stream))],
    ),
    Planted(
        "a change leaves a limit as it was",
        "jetstream_admin",
        5,
        (C12, "C13 a limit that was confirmed is kept"),
        lambda: [(StreamService, "reconfigure", keeps_its_limit(StreamService.reconfigure))],
    ),
    Planted(
        "a backup leaves messages out",
        "jetstream_admin",
        5,
        ("C12 a backup restores to what it told",),
        lambda: [(archive, "message", leaves_out(archive.message))],
    ),
    Planted(
        "a source takes another origin for the one it knows",
        "jetstream_anew",
        5,
        (C19,),
        lambda: [(Intake, "_last_taken", goes_on_in_any)],
    ),
    Planted(
        "a source takes its origin for another at a start",
        "jetstream_anew",
        10,
        (C19,),
        lambda: [(Intake, "_last_taken", begins_anew(Intake._last_taken))],
    ),
    Planted(
        "the end of a consumer is told to nobody",
        "jetstream_admin",
        10,
        (C18,),
        advises_of(0),
    ),
    Planted(
        "the end of a consumer is told twice",
        "jetstream_admin",
        5,
        (C18,),
        advises_of(2),
    ),
    Planted(
        "a deleted stream's files come back with a loss of power",
        "jetstream_admin",
        5,
        ("C31 left over",),
        lambda: [
            (store, "remove_directory", renames_alone),
            (store_open, "remove_directory", renames_alone),
            (Journal, "has_dropped", lambda self, number: False),
        ],
    ),
)
