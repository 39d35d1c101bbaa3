"""One bucket: values by key, with revisions to compare and set by (ADR-8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tnats.client.jetstream.delivery import Delivery
from tnats.client.jetstream.errors import MessageNotFound, WrongLastSequence
from tnats.client.jetstream.publish import Conditions
from tnats.client.jetstream.watch import Watch
from tnats.client.kv.config import STREAM_PREFIX, BucketConfig, checked_filter, checked_key, from_stream, subject_prefix
from tnats.client.kv.entry import (
    OPERATION_HEADER,
    Entry,
    KeyDeleted,
    KeyExists,
    KeyNotFound,
    Operation,
    from_delivery,
    from_stored,
)
from tnats.client.options import nanoseconds
from tnats.jetstream.api.messages import StreamInfo
from tnats.jetstream.consumer.config import ConsumerConfig, DeliverPolicy
from tnats.records import frozen

if TYPE_CHECKING:
    from tnats.client.jetstream.context import JetStream
    from tnats.jetstream.stream.config import StreamConfig

PURGE_AGE_S = 1800.0
"""Marks of removal that are older are removed themselves, unless told otherwise (ADR-8, "Purge deletes")."""

CREATE_TRIES_MAX = 10


@frozen
class Status:
    """A bucket's settings and size. `value_count`: all kept revisions, marks of removal included."""

    config: BucketConfig
    value_count: int
    bytes: int
    info: StreamInfo


class KeyValue:
    """A bucket: made by `create_bucket` and `open_bucket`."""

    def __init__(self, js: JetStream, bucket: str, stream: StreamConfig) -> None:
        """`stream` is the configuration of the stream behind it."""
        self._js = js
        self._stream = js.stream(stream.name)
        self._is_direct = stream.allow_direct or stream.mirror_direct
        self.bucket = bucket
        self._prefix = subject_prefix(bucket)
        self._put_prefix = self._prefix
        if js.api.is_foreign:
            self._put_prefix = f"{js.api.prefix}.{self._prefix}"
        if stream.mirror is not None:
            # A mirror holds its origin's subjects, and writes go to the origin.
            self._prefix = self._put_prefix = subject_prefix(stream.mirror.name.removeprefix(STREAM_PREFIX))
            if stream.mirror.external is not None and stream.mirror.external.api:
                self._put_prefix = f"{stream.mirror.external.api}.{self._prefix}"

    def __repr__(self) -> str:
        return f"<KeyValue {self.bucket!r}>"

    # ---------------------------------------------------------------- reading

    async def get(self, key: str, *, revision: int = 0, from_leader: bool = False) -> Entry:
        """The value of a key, the present one or that of a revision.

        Any replica or mirror may answer, perhaps a little behind; with `from_leader` what was written before is
        seen. Raises KeyNotFound, and KeyDeleted where the key was removed.
        """
        entry = await self._read(key, revision, is_direct=self._is_direct and not from_leader)
        if not entry.is_live:
            raise KeyDeleted(f"bucket {self.bucket!r}: key {key!r} was removed in revision {entry.revision}", entry)
        return entry

    async def _read(self, key: str, revision: int, *, is_direct: bool) -> Entry:
        subject = self._prefix + checked_key(key)
        get = self._stream.direct_get if is_direct else self._stream.get
        try:
            message = await (get(revision) if revision else get(last_on=subject))
        except MessageNotFound:
            message = None
        if message is None or message.subject != subject:
            raise KeyNotFound(
                f"bucket {self.bucket!r}: no key {key!r}" + (f" in revision {revision}" if revision else "")
            )
        return from_stored(self.bucket, key, message)

    async def history(self, key: str) -> list[Entry]:
        """The revisions of a key that are kept, oldest first, marks of removal included. Raises KeyNotFound."""
        async with self.watch(checked_key(key), include_history=True) as entries:
            found = await entries.present()
        if not found:
            raise KeyNotFound(f"bucket {self.bucket!r}: no key {key!r}")
        return found

    async def keys(self, *filters: str) -> list[str]:
        """The keys that have a value, or those of them that match one of `filters`, in the order of their revisions."""
        async with self.watch(*filters, ignore_deletes=True, headers_only=True) as entries:
            return [entry.key for entry in await entries.present()]

    def watch(
        self,
        *filters: str,
        include_history: bool = False,
        ignore_deletes: bool = False,
        headers_only: bool = False,
        updates_only: bool = False,
        from_revision: int = 0,
    ) -> Watch[Entry]:
        """What the keys hold, and then what happens to them: see `Watch`.

        `filters` are keys in which whole tokens may be wildcards; none: all keys. It begins with the newest entry of
        each key, or with every kept one (`include_history`), or with the next change (`updates_only`), or it resumes
        at `from_revision`. `headers_only` leaves the values out.
        """
        subjects = [self._prefix + checked_filter(pattern) for pattern in filters or (">",)]
        config = ConsumerConfig(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT, headers_only=headers_only)
        if len(subjects) == 1:
            config.filter_subject = subjects[0]
        else:
            config.filter_subjects = subjects
        if from_revision:
            config.deliver_policy, config.opt_start_seq = DeliverPolicy.BY_START_SEQUENCE, from_revision
        elif updates_only:
            config.deliver_policy = DeliverPolicy.NEW
        elif include_history:
            config.deliver_policy = DeliverPolicy.ALL

        def convert(message: Delivery) -> Entry | None:
            entry = from_delivery(self.bucket, message.subject.removeprefix(self._prefix), message)
            return entry if entry.is_live or not ignore_deletes else None

        return Watch(self._stream.ordered(config), convert, tells_caught_up=not updates_only)

    # ---------------------------------------------------------------- writing

    async def put(self, key: str, value: bytes) -> int:
        """Set a key whatever it holds; returns the revision. Raises like `JetStream.publish`."""
        return await self._write(key, value, None, {})

    async def create(self, key: str, value: bytes, *, ttl_s: float | None = None) -> int:
        """Set a key that has no value; returns the revision. It ends after `ttl_s` (the bucket needs limit markers).

        Raises KeyExists.
        """
        conditions: Conditions = {"expected_last_subject_sequence": 0}
        if ttl_s is not None:
            conditions["ttl_s"] = ttl_s
        for _ in range(CREATE_TRIES_MAX):
            try:
                return await self._write(key, value, None, conditions)
            except WrongLastSequence:
                # A removed key has a mark: then that is what is expected.
                try:
                    entry = await self._read(key, 0, is_direct=False)
                except KeyNotFound:
                    conditions["expected_last_subject_sequence"] = 0
                    continue
                if entry.is_live:
                    break
                conditions["expected_last_subject_sequence"] = entry.revision
        raise KeyExists(f"bucket {self.bucket!r}: key {key!r} has a value")

    async def update(self, key: str, value: bytes, last_revision: int) -> int:
        """Set a key if its newest revision is `last_revision`; returns the new one. Raises WrongLastSequence."""
        return await self._write(key, value, None, {"expected_last_subject_sequence": last_revision})

    async def delete(self, key: str, *, last_revision: int | None = None) -> int:
        """Remove a key; its history stays. With `last_revision` only if that is its newest: WrongLastSequence.

        Returns the revision of the mark that says so.
        """
        return await self._write(key, b"", Operation.DELETE, _expecting(last_revision))

    async def purge(self, key: str, *, last_revision: int | None = None, ttl_s: float | None = None) -> int:
        """As `delete`, with the history; the mark itself ends after `ttl_s` (the bucket needs limit markers)."""
        conditions = _expecting(last_revision)
        if ttl_s is not None:
            conditions["ttl_s"] = ttl_s
        return await self._write(key, b"", Operation.PURGE, conditions)

    async def _write(self, key: str, value: bytes, removal: Operation | None, conditions: Conditions) -> int:
        headers = {}
        if removal is not None:
            headers[OPERATION_HEADER] = removal.value
        if removal is Operation.PURGE:
            headers["Nats-Rollup"] = "sub"
        subject = self._put_prefix + checked_key(key)
        return (await self._js.publish(subject, value, headers=headers or None, **conditions)).seq

    # ---------------------------------------------------------------- administration

    async def status(self) -> Status:
        """Settings and size."""
        info = await self._stream.info()
        return Status(from_stream(info.config), info.state.messages, info.state.bytes, info)

    async def purge_deletes(self, *, older_than_s: float = PURGE_AGE_S) -> int:
        """Remove what removed keys still hold, and their marks if older than this (0: all); returns how many keys."""
        async with self.watch(headers_only=True) as entries:
            removed = [entry for entry in await entries.present() if not entry.is_live]
        limit_ns = self._js.client.runtime.clock.wall_ns() - nanoseconds(older_than_s)
        for entry in removed:
            keep = 1 if older_than_s > 0 and entry.created_ns > limit_ns else 0
            await self._stream.purge(subject=self._prefix + entry.key, keep=keep)
        return len(removed)


def _expecting(last_revision: int | None) -> Conditions:
    return {} if last_revision is None else {"expected_last_subject_sequence": last_revision}
