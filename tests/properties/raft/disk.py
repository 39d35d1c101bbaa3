"""A disk for one replica: records, a page cache, and what a power cut leaves of the writes that were not synced.

The durable image is what survives; the cached image is what reads see. Writes are operations on records. Damage is
done to both images, as a worn-out medium would.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any

import attrs

from tnats.raft import codec
from tnats.raft.codec import Damaged, Identity, Promise
from tnats.raft.effects import Persist
from tnats.raft.messages import Entry, SnapshotMeta
from tnats.raft.recovery import Found

Operation = tuple[Any, ...]

POLICIES = ("lost", "prefix", "subset", "torn", "all")


def digest_of(data: bytes) -> int:
    return zlib.crc32(data)


@attrs.define
class Image:
    """Everything one replica keeps. An entry of None is there but unreadable."""

    hard: bytes | None = None
    membership: bytes | None = None
    promises: list[bytes | None] = attrs.Factory(lambda: [None, None])
    snapshots: dict[int, tuple[bytes, bytes]] = attrs.Factory(dict)
    entries: dict[int, bytes | None] = attrs.Factory(dict)

    def copy(self) -> Image:
        return Image(self.hard, self.membership, list(self.promises), dict(self.snapshots), dict(self.entries))

    def apply(self, operation: Operation) -> None:
        match operation:
            case ("hard", data):
                self.hard = data
            case ("membership", data):
                self.membership = data
            case ("promise", slot, data):
                self.promises[slot] = data
            case ("entry", index, data, cut):
                if cut:
                    self.apply(("cut", index))
                self.entries[index] = data
            case ("cut", index):
                for key in [key for key in self.entries if key >= index]:
                    del self.entries[key]
            case ("release", index):
                for key in [key for key in self.entries if key <= index]:
                    del self.entries[key]
            case ("snapshot", index, meta, data):
                self.snapshots[index] = (meta, data)
                for key in sorted(self.snapshots)[:-2]:
                    del self.snapshots[key]


@attrs.define
class Disk:
    group: bytes
    node: int
    durable: Image = attrs.Factory(Image)
    cached: Image = attrs.Factory(Image)
    pending: list[Operation] = attrs.Factory(list)
    promise_slot: int = 0
    older: dict[int, bytes] = attrs.Factory(dict)  # earlier contents of entry slots, for stale writes
    older_hard: bytes | None = None

    # Writing

    def write(self, operation: Operation) -> None:
        if operation[0] == "entry":
            before = self.cached.entries.get(operation[1])
            if before is not None and before != operation[2]:
                self.older[operation[1]] = before
        elif operation[0] == "hard":
            self.older_hard = self.cached.hard
        self.cached.apply(operation)
        self.pending.append(operation)

    def persist(self, persist: Persist, incarnation: int, snapshot_data: bytes) -> None:
        """The operations of one Persist, in its order."""
        identity = Identity(self.group, self.node, incarnation)
        if persist.hard is not None:
            self.write(("hard", codec.encode_hard_state(identity, persist.hard)))
        if persist.snapshot is not None:
            self.store_snapshot(persist.snapshot, snapshot_data, incarnation)
            self.write(("cut", 0) if persist.discard_log else ("release", persist.snapshot.index))
        if persist.entries:
            records = codec.encode_entries(identity, persist.entries, persist.prev_term)
            for entry, record in zip(persist.entries, records, strict=True):
                self.write(("entry", entry.index, record, True))
        for rewrite in persist.repairs:
            records = codec.encode_entries(identity, rewrite.entries, rewrite.prev_term)
            for entry, record in zip(rewrite.entries, records, strict=True):
                self.write(("entry", entry.index, record, False))
        if persist.membership is not None:
            self.write(("membership", codec.encode_stored_membership(identity, persist.membership)))

    def store_snapshot(self, meta: SnapshotMeta, data: bytes, incarnation: int) -> None:
        identity = Identity(self.group, self.node, incarnation)
        self.write(("snapshot", meta.index, codec.encode_snapshot_meta(identity, meta), data))

    def sync(self) -> None:
        for operation in self.pending:
            self.durable.apply(operation)
        self.pending.clear()

    def promise(self, index: int, term: int, incarnation: int) -> None:
        """Note, after a sync, how far the log is durable now. Durable at once."""
        record = codec.encode_promise(
            Identity(self.group, self.node, incarnation), Promise(index, term, self.hard_version())
        )
        self.promise_slot ^= 1
        operation = ("promise", self.promise_slot, record)
        self.durable.apply(operation)
        self.cached.apply(operation)

    def hard_version(self) -> int:
        if self.durable.hard is None:
            return 0
        try:
            return codec.decode_hard_state(self.group, self.node, self.durable.hard)[1].version
        except Damaged:
            return 0

    # Losing power

    def power_cut(self, policy: str, rng: random.Random) -> bool:
        """Whether anything was lost."""
        pending = self.pending
        kept: list[Operation] = []
        if policy == "all":
            kept = pending
        elif policy in ("prefix", "torn"):
            kept = pending[: rng.randrange(len(pending) + 1)]
            if policy == "torn" and len(kept) < len(pending) and pending[len(kept)][0] == "entry":
                _, index, record, _ = pending[len(kept)]
                if index not in self.durable.entries:
                    kept = [*kept, ("entry", index, record[: rng.randrange(len(record))], False)]
        elif policy == "subset":
            kept = [operation for operation in pending if rng.random() < 0.5]
        for operation in kept:
            self.durable.apply(operation)
        lost = kept != pending
        self.pending = []
        self.cached = self.durable.copy()
        return lost

    # Reading

    def read(self, index: int) -> Entry | None:
        data = self.cached.entries.get(index)
        if data is None:
            return None
        try:
            _, stored = codec.decode_entry(self.group, self.node, data)
        except Damaged:
            return None
        return stored.entry if stored.entry.index == index else None

    def snapshot_data(self, meta: SnapshotMeta) -> bytes | None:
        found = self.cached.snapshots.get(meta.index)
        if found is None or len(found[1]) != meta.size or digest_of(found[1]) != meta.digest:
            return None
        return found[1]

    def found(self, *, dirty: bool) -> Found:
        """The scan of a start: snapshots are verified against their meta data, records are left to recovery."""
        snapshots = []
        for meta_record, data in self.durable.snapshots.values():
            try:
                _, meta = codec.decode_snapshot_meta(self.group, self.node, meta_record)
            except Damaged:
                continue
            if len(data) == meta.size and digest_of(data) == meta.digest:
                snapshots.append(meta_record)
        return Found(
            hard=self.durable.hard,
            membership=self.durable.membership,
            promises=[promise for promise in self.durable.promises if promise is not None],
            snapshots=snapshots,
            entries=dict(self.durable.entries),
            dirty=dirty,
        )

    # Damage

    def change(self, alter: Callable[[Image], None]) -> None:
        alter(self.durable)
        alter(self.cached)


def flipped(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
