"""What goes into a machine and what comes out: inputs, the `Ready` with its effects, and events.

The host's duties towards each of them are numbered in `tnats.raft.machine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias

import attrs

from tnats.raft.membership import Change, Membership
from tnats.raft.messages import Entry, Message, NodeId, SnapshotMeta, Standing
from tnats.raft.roles import Role
from tnats.records import define

# Inputs


@define
class Tick:
    """One tick of the host's clock has passed."""


@define
class Receive:
    message: Message


@define
class Propose:
    """Append these payloads, all or none of them."""

    payloads: list[bytes]


@define
class ProposeChange:
    change: Change


@define
class TransferLeader:
    target: NodeId


@define
class Read:
    """Ask for an index at which a read is linearizable. `context` comes back in `Ready.reads`."""

    context: int


@define
class Campaign:
    """Start an election now instead of at the next election timeout."""


@define
class Persisted:
    """The `Persist` of this number, and all before it, are durable."""

    number: int


@define
class Applied:
    """The state machine has applied everything up to `index`."""

    index: int


@define
class Loaded:
    """The answer to a `Load`: the entries `load.first ..` in order, at least one."""

    load: Load
    entries: list[Entry]


@define
class SnapshotTaken:
    """A snapshot of the state at `meta.index` is durable and verified."""

    meta: SnapshotMeta


@define
class Compact:
    """Let go of the log up to `index`, which a snapshot covers."""

    index: int


@define
class SnapshotPart:
    """The answer to a `SnapshotRead`. `data` None: this snapshot cannot be read (any more)."""

    read: SnapshotRead
    data: bytes | None


@define
class SnapshotStored:
    """All parts of `meta` were written. `ok`: durable, and size and digest are right."""

    meta: SnapshotMeta
    ok: bool


@define
class Faulty:
    """The host cannot read the entries `first..last` of the log, though they were durable."""

    first: int
    last: int


@define
class StorageFailed:
    """A write or a sync failed. Nothing more will be made durable until a restart."""

    reason: str


@define
class PeerLost:
    """The node liveness of `node` ended, or it restarted: wake up, its silence is no longer an agreement."""

    node: NodeId


Input: TypeAlias = (
    Tick
    | Receive
    | Propose
    | ProposeChange
    | TransferLeader
    | Read
    | Campaign
    | Persisted
    | Applied
    | Loaded
    | SnapshotTaken
    | Compact
    | SnapshotPart
    | SnapshotStored
    | Faulty
    | StorageFailed
    | PeerLost
)

# Effects


@define
class HardState:
    """What a replica must never forget. `seen`: newest incarnation known of each peer, sorted by node.

    `commit`: a lower bound of what is committed and durable here.
    `since`: the incarnation at which `standing` became AMNESIC. `version` counts the writes of this record: the
    promise names it, so that an older copy left by a lost write is known as such.
    """

    version: int = 0
    term: int = 0
    vote: NodeId = 0
    commit: int = 0
    incarnation: int = 0
    standing: Standing = Standing.SOUND
    since: int = 0
    seen: tuple[tuple[NodeId, int], ...] = ()


@define
class Rewrite:
    """A run of entries that were found again; `prev_term` is the term before the first of them."""

    prev_term: int
    entries: list[Entry]


@define
class Persist:
    """Make all of this durable, in this order, and nothing of a later number before it.

    hard        replaces the former hard state
    snapshot    begin at this received snapshot; `discard_log`: no entry kept so far continues it
    entries     replace whatever the log holds from the first of them on; `prev_term` is the term before it
    repairs     write these entries in their old places, nothing else changes
    membership  the configuration now in force, a second copy beside the one in the log
    """

    number: int
    hard: HardState | None = None
    snapshot: SnapshotMeta | None = None
    discard_log: bool = False
    prev_term: int = 0
    entries: list[Entry] = attrs.Factory(list)
    repairs: list[Rewrite] = attrs.Factory(list)
    membership: Membership | None = None


class Purpose(StrEnum):
    APPLY = "apply"
    APPEND = "append"
    REPAIR = "repair"


@define
class Load:
    """Read the entries `first..last` (or the first few of them, within `bytes_max`) back from disk."""

    purpose: Purpose
    node: NodeId
    first: int
    last: int
    bytes_max: int


@define
class SnapshotRead:
    """Read a part of the snapshot `meta`, to be sent to `node`."""

    node: NodeId
    meta: SnapshotMeta
    offset: int
    bytes_max: int


@define
class SnapshotWrite:
    """Write a part of an arriving snapshot. Offset 0 starts over. `last`: then verify and answer SnapshotStored."""

    meta: SnapshotMeta
    offset: int
    data: bytes
    last: bool


# Events: what a host may report. None of them asks for an action.


@define
class RoleChanged:
    role: Role
    term: int
    leader: NodeId
    cause: str


@define
class StandingChanged:
    standing: Standing
    reason: str


@define
class Halted:
    """The group cannot go on: no replica can read `first..last`. (0, 0): too many replicas lost their memory."""

    first: int
    last: int
    reason: str


@define
class Resumed:
    """What the last Halted said is no longer so."""


@define
class Census:
    """A leader was elected by the answers of all voters, some of which had lost unsynced or durable entries.

    Entries after `last_index` may have been acknowledged and are gone on every replica.
    """

    term: int
    last_index: int
    unsound: tuple[NodeId, ...]


@define
class Repaired:
    first: int
    last: int


Event: TypeAlias = RoleChanged | StandingChanged | Halted | Resumed | Census | Repaired


@define
class Accepted:
    """The proposal was appended at `first..last` of `term`. It is done when these come back in `committed`."""

    first: int
    last: int
    term: int


@define
class Refused:
    """Nothing was appended. `leader`: who to ask instead, 0 if unknown."""

    reason: str
    leader: NodeId = 0


@define
class ReadReady:
    """Read `context` may be answered from the applied state now. `ok` False: ask again, the leader changed."""

    context: int
    index: int
    ok: bool = True


_NOTHING: tuple[()] = ()


class Ready:
    """Everything a step asks of the host. Empty parts are empty sequences or None."""

    __slots__ = (
        "committed",
        "events",
        "loads",
        "messages",
        "persist",
        "proposals",
        "reads",
        "snapshot_reads",
        "snapshot_writes",
    )

    def __init__(self) -> None:
        self.persist: Persist | None = None
        self.snapshot_writes: Sequence[SnapshotWrite] = _NOTHING
        self.messages: Sequence[Message] = _NOTHING
        self.committed: Sequence[Entry] = _NOTHING
        self.loads: Sequence[Load] = _NOTHING
        self.snapshot_reads: Sequence[SnapshotRead] = _NOTHING
        self.reads: Sequence[ReadReady] = _NOTHING
        self.proposals: Sequence[Accepted | Refused] = _NOTHING
        self.events: Sequence[Event] = _NOTHING
