"""From what a disk still holds to what a replica may still claim: the verdicts of a start.

The host scans and verifies; this module judges. It tells a torn tail, which was never acknowledged and may go, from
damage, which keeps its place and is repaired; and it decides how far the replica may trust its own memory.

1. The promise, written after each sync, says how far the log was durable. Beyond it the first record that is
   missing or invalid ends the log, whatever lies behind: nobody was told of it. Up to it nothing is ever dropped.
2. Each record names the term of the one before it. So a lost record has an identity, and a record that an older
   write left behind (its successor names another term) is as good as lost.
3. The snapshot is the base. If the newest does not verify, an older one is, and what lies between it and the first
   record of the log is a faulty range like any other.
4. The hard state is believed unless the promise names a later version of it, a higher term or a later incarnation: it
   is stale then. (Without a promise any record may prove that.) Stale or missing, it makes the replica AMNESIC. A
   record beyond the promise of a term or boot that the hard state does not know was torn off from it: it goes.
5. The configuration is in the snapshot, in the log, and once more by itself; one copy is enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from tnats.raft import codec
from tnats.raft.codec import Damaged, Promise, StoredEntry
from tnats.raft.effects import HardState
from tnats.raft.identity import NONCE_BITS
from tnats.raft.log import FaultyRange
from tnats.raft.membership import EMPTY, Membership
from tnats.raft.messages import EntryKind, NodeId, SnapshotMeta, Standing
from tnats.records import define


@define
class Found:
    """What the host's scan brought up. Bytes are records as `tnats.raft.codec` wrote them, None is unreadable.

    hard, membership   None: nothing there, or unreadable
    promises           the slots of the promise, both if there are two
    snapshots          the meta records of the snapshots whose bytes verify against them
    entries            by the index at which the record was found or expected
    applied            what the host's state machine holds; at most the end of the log
    dirty              unsynced writes may be lost: the machine lost power while the sync was lazy
    """

    hard: bytes | None = None
    membership: bytes | None = None
    promises: Sequence[bytes | None] = ()
    snapshots: Sequence[bytes] = ()
    entries: Mapping[int, bytes | None] = attrs.Factory(dict)
    applied: int = 0
    dirty: bool = False


@define
class Restored:
    """What a machine starts from. `terms` begins with the base's own; `verdicts` says in words what was damaged."""

    hard: HardState
    snapshot: SnapshotMeta
    base: int
    terms: list[int | None]
    faulty: list[FaultyRange]
    memberships: list[Membership]
    commit: int
    applied: int
    memory: Standing
    verdicts: list[str] = attrs.Factory(list)


def founding(members: Membership) -> Restored:
    """A replica of a group that begins now. All founders begin with the same members; () for a later joiner."""
    return Restored(HardState(), SnapshotMeta(0, 0, members), 0, [0], [], [members], 0, 0, Standing.SOUND)


class _Recovery:
    def __init__(self, group: bytes, node: NodeId, found: Found) -> None:
        self.group = group
        self.node = node
        self.found = found
        self.newest_writer = 0  # highest boot counter on any record
        self.writers: dict[int, int] = {}  # boot counter on each entry
        self.last_writer = self.promise_writer = 0
        self.stored: HardState | None = None
        self.verdicts: list[str] = []
        self.memory = Standing.DIRTY if found.dirty else Standing.SOUND

    def forget(self, memory: Standing, verdict: str) -> None:
        self.memory = max(self.memory, memory)
        self.verdicts.append(verdict)

    def decode(self, decoder: object, data: bytes | None, what: str) -> object | None:
        """The decoded record, None if there is none or it is damaged."""
        if data is None:
            return None
        try:
            writer, value = decoder(self.group, self.node, data)  # type: ignore[operator]
        except Damaged as damage:
            self.verdicts.append(f"{what}: {damage}")
            return None
        self.last_writer = writer >> NONCE_BITS
        self.newest_writer = max(self.newest_writer, self.last_writer)
        return value  # type: ignore[no-any-return]

    def run(self) -> Restored:
        snapshot = self.snapshot()
        records = self.records()
        promise = self.promise()
        stored = self.decode(codec.decode_hard_state, self.found.hard, "hard state")
        self.stored = stored if isinstance(stored, HardState) else None
        base, terms, faulty, configs = self.log(snapshot, records, promise)
        hard = self.hard(terms, promise)
        last = base + len(terms) - 1
        if hard.commit > last:
            self.forget(Standing.SHORT, f"log ends at {last}, though {hard.commit} was committed and durable")
        memberships = self.memberships(snapshot, configs, faulty, base)
        self.memory = max(self.memory, hard.standing)
        applied = max(min(self.found.applied, last), snapshot.index)
        for fault in faulty:
            self.verdicts.append(f"entries {fault.first} to {fault.last} are unreadable")
        return Restored(
            hard,
            snapshot,
            base,
            terms,
            faulty,
            memberships,
            min(max(hard.commit, applied), last),
            applied,
            self.memory,
            self.verdicts,
        )

    def snapshot(self) -> SnapshotMeta:
        """The newest snapshot that verifies, or the empty one before the first entry."""
        metas = [self.decode(codec.decode_snapshot_meta, data, "snapshot") for data in self.found.snapshots]
        known = [meta for meta in metas if isinstance(meta, SnapshotMeta)]
        return max(known, key=lambda meta: meta.index, default=SnapshotMeta(0, 0, EMPTY))

    def records(self) -> dict[int, StoredEntry | None]:
        records: dict[int, StoredEntry | None] = {}
        for index, data in self.found.entries.items():
            record = self.decode(codec.decode_entry, data, f"entry {index}")
            if isinstance(record, StoredEntry):
                self.writers[index] = self.last_writer
            if isinstance(record, StoredEntry) and record.entry.index != index:
                self.verdicts.append(f"entry {index}: entry {record.entry.index} lies there")
                record = None
            records[index] = record if isinstance(record, StoredEntry) else None
        return records

    def promise(self) -> Promise | None:
        """The newest promise that verifies."""
        newest = None
        for data in self.found.promises:
            slot = self.decode(codec.decode_promise, data, "promise")
            if isinstance(slot, Promise):
                rank = (slot.hard_version, slot.term, slot.index)
                if newest is None or rank > (newest.hard_version, newest.term, newest.index):
                    newest = slot
                    self.promise_writer = self.last_writer
        return newest

    def log(
        self, snapshot: SnapshotMeta, records: dict[int, StoredEntry | None], promise: Promise | None
    ) -> tuple[int, list[int | None], list[FaultyRange], list[Membership]]:
        """Base, terms from the base on, faulty ranges, and the configurations found in the log."""
        last, tail_term = self.end(snapshot, records, promise)
        first = min((index for index in records if index <= last), default=last + 1)
        self.drop_stale(records, first, last, tail_term)
        base = min(first - 1, snapshot.index)
        head = records.get(base + 1)
        base_term = snapshot.term if base == snapshot.index else (head.prev_term if head is not None else None)
        if base_term is None:  # what the snapshot covers need not be kept when its beginning is damaged
            base, base_term = snapshot.index, snapshot.term
        if any(records.get(index) is None for index in range(base + 1, snapshot.index + 1)):
            base, base_term = snapshot.index, snapshot.term
        terms: list[int | None] = [base_term]
        configs: list[Membership] = []
        faulty: list[FaultyRange] = []
        for index in range(base + 1, last + 1):
            record = records.get(index)
            terms.append(record.entry.term if record is not None else None)
            if record is None:
                if faulty and faulty[-1].last == index - 1:
                    faulty[-1].last = index
                else:
                    faulty.append(FaultyRange(index, index, 0))
            elif record.entry.kind == EntryKind.CONFIG:
                configs.append(codec.decode_membership(record.entry.data, index))
        for fault in faulty:
            after = records.get(fault.last + 1)
            fault.last_term = after.prev_term if after is not None else tail_term
            terms[fault.last - base] = fault.last_term
        nameless = next((at for at, fault in enumerate(faulty) if not fault.last_term), None)
        if nameless is not None:
            cut = faulty[nameless].first
            self.forget(Standing.SHORT, f"entries from {cut} on cannot even be named")
            del terms[cut - base :], faulty[nameless:]
            configs = [config for config in configs if config.index < cut]
        return base, terms, faulty, configs

    def end(
        self, snapshot: SnapshotMeta, records: dict[int, StoredEntry | None], promise: Promise | None
    ) -> tuple[int, int]:
        """Rule 1: the last index, and the term that its entry must have (0: its own is right)."""
        intact = {i: record.entry.term for i, record in records.items() if record is not None}
        promised, promised_term = (promise.index, promise.term) if promise is not None else (0, 0)
        if promise is None and records:
            self.forget(Standing.SHORT, "the promise of how far the log was durable is lost")
            promised = max(intact, default=0)
            promised_term = intact.get(promised, 0)
        last, term = max((snapshot.index, snapshot.term), (promised, promised_term))
        # Records of a later term than the promise were written after it, and nobody was told of them.
        later = min(
            (i for i, own in intact.items() if own > promised_term and snapshot.index < i <= promised), default=0
        )
        if later:
            before = records[later]
            last = later - 1
            if before is not None and before.prev_term > promised_term:
                # The overwriting began further down and is torn: what it left of the older log ends here.
                while last > snapshot.index and last not in intact:
                    last -= 1
                self.verdicts.append(f"entries from {last + 1} on: a torn write after the promise")
                return last, intact.get(last, snapshot.term)
            term = before.prev_term if before is not None else 0
        while (record := records.get(last + 1)) is not None and record.prev_term == term:
            if promise is not None and self.is_torn_off(record):
                self.verdicts.append(f"entries from {last + 1} on: written with a hard state that is not there")
                break
            last += 1
            term = record.entry.term
        return last, term

    def is_torn_off(self, record: StoredEntry) -> bool:
        """Whether a record belongs to a term or a boot that the hard state does not know of."""
        stored = self.stored
        return stored is not None and (
            record.entry.term > stored.term or self.writers[record.entry.index] > stored.incarnation >> NONCE_BITS
        )

    def drop_stale(self, records: dict[int, StoredEntry | None], first: int, last: int, tail_term: int) -> None:
        """Rule 2, from the end to the beginning."""
        expected = tail_term
        for index in range(last, first - 1, -1):
            record = records.get(index)
            if record is not None and expected and record.entry.term != expected:
                if index == last and record.entry.term > expected:
                    expected = record.entry.term  # written after the promise
                else:
                    self.verdicts.append(f"entry {index}: an older write of term {record.entry.term} lies there")
                    records[index] = record = None
            expected = record.prev_term if record is not None else 0

    def hard(self, terms: list[int | None], promise: Promise | None) -> HardState:
        """Rule 4."""
        hard = self.stored
        newest_term = max((term for term in terms if term is not None), default=0)
        version = promise.hard_version if promise is not None else 0
        if hard is None:
            self.forget(Standing.AMNESIC, "term and vote are lost")
            return HardState(version, newest_term, incarnation=self.newest_writer << NONCE_BITS)
        writer = self.promise_writer if promise is not None else self.newest_writer
        term = promise.term if promise is not None else newest_term
        if term > hard.term or writer > hard.incarnation >> NONCE_BITS or version > hard.version:
            self.forget(Standing.AMNESIC, "term and vote are older than the log")
            newest = max(self.newest_writer << NONCE_BITS, hard.incarnation)
            return attrs.evolve(
                hard,
                version=max(version, hard.version),
                term=max(hard.term, newest_term),
                vote=0,
                incarnation=newest,
                standing=Standing.SOUND,
            )
        return hard

    def memberships(
        self, snapshot: SnapshotMeta, configs: list[Membership], faulty: list[FaultyRange], base: int
    ) -> list[Membership]:
        """Rule 5."""
        copy = self.decode(codec.decode_stored_membership, self.found.membership, "membership")
        chain = [snapshot.membership] if snapshot.membership.members else []
        chain += [config for config in configs if config.index > snapshot.membership.index or not chain]
        if isinstance(copy, Membership) and copy.members:
            hidden = any(fault.first <= copy.index <= fault.last for fault in faulty)
            if hidden or not chain or (copy.index < chain[0].index and not snapshot.membership.members):
                chain.append(copy)
        chain.sort(key=lambda membership: membership.index)
        if not chain:
            self.forget(Standing.SHORT, "the members of the group are unknown")
            return [EMPTY]
        return chain


def recover(group: bytes, node: NodeId, found: Found) -> Restored:
    """Judge what was found. Raises `codec.NewerFormat` if a later release wrote it."""
    return _Recovery(group, node, found).run()
