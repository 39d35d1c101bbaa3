"""The words machines of one group say to each other: plain records, no behaviour.

Every message names who speaks (`source`), to whom (`target`), the speaker's `term` and its `incarnation`: the
number of the boot, see `tnats.raft.identity`. The group is the envelope's business (`tnats.raft.codec`).

Entries are shared between the log, effects and messages and are never changed after they were made.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

from tnats.raft.membership import Membership
from tnats.records import define

NodeId: TypeAlias = int
"""Identity of a replica: a positive 64-bit number tied to its data directory. 0 means nobody."""


class EntryKind(IntEnum):
    """What an entry carries. NOOP opens a leader's term, DATA is the host's, CONFIG is an encoded Membership."""

    NOOP = 0
    DATA = 1
    CONFIG = 2


class Standing(IntEnum):
    """How far a replica may be trusted with votes and acknowledgements. Order is severity.

    SOUND     knows everything it ever promised
    FAULTY    cannot read some entries, but knows their identities: repairs them from any peer
    DIRTY     lost a suffix that was never synced (lazy sync and a power loss); term and vote are intact
    SHORT     lost a suffix that was durable; term and vote are intact
    AMNESIC   lost term and vote as well: wiped, rolled back, or the hard state is damaged
    FAILED    its storage refused a write; sticky until restart
    """

    SOUND = 0
    FAULTY = 1
    DIRTY = 2
    SHORT = 3
    AMNESIC = 4
    FAILED = 5


class Holding(IntEnum):
    """What a peer answers about the first index of a repair request."""

    HAVE = 0
    FAULTY = 1
    ABSENT = 2
    COMPACTED = 3
    CONFLICT = 4


@define
class Entry:
    """One log entry. `data` is opaque to the machine unless `kind` is CONFIG."""

    index: int
    term: int
    kind: int
    data: bytes


@define
class SnapshotMeta:
    """Names a snapshot: the state after applying `index` (of `term`), with the membership in force there.

    `size` and `digest` are of the host's snapshot bytes, so that a receiver verifies before it installs.
    """

    index: int
    term: int
    membership: Membership
    size: int = 0
    digest: int = 0


@define
class Message:
    source: NodeId
    target: NodeId
    term: int
    incarnation: int


@define
class VoteRequest(Message):
    """Ask for a vote (paper 5.2) or, with `pre`, whether a vote would be given (thesis 9.6).

    `term` is the term campaigned for. `transfer` passes over the lease of a live leader (thesis 3.10).
    `membership_index` and `admits` say what the candidate's log says of the target: the index of its latest
    configuration and the incarnation that this admits as a voter (0: no voter there).
    """

    pre: bool
    transfer: bool
    last_index: int
    last_term: int
    membership_index: int
    admits: int


@define
class VoteReply(Message):
    """`granted` with a `standing` other than SOUND is no vote but an answer to a census."""

    pre: bool
    granted: bool
    standing: int


@define
class Append(Message):
    """Entries after (`prev_index`, `prev_term`); none of them is a probe (paper 5.3)."""

    prev_index: int
    prev_term: int
    commit: int
    entries: list[Entry]


@define
class AppendReply(Message):
    """`index`: on success everything up to it matches and is durable; on rejection the probed `prev_index`.

    `hint_index`, `hint_term`: where a rejected leader should probe next. `last_index`: the replier's last.
    """

    rejected: bool
    index: int
    hint_index: int
    hint_term: int
    last_index: int
    standing: int


@define
class Heartbeat(Message):
    """Keeps the lease, carries the commit index the target is known to hold, and a read round (thesis 6.4).

    `quiet` asks for no answer: a commit notice. `quiesce` proposes that the group sleeps.
    """

    commit: int
    round: int
    quiet: bool
    quiesce: bool


@define
class HeartbeatReply(Message):
    round: int
    standing: int
    last_index: int


@define
class SnapshotChunk(Message):
    """A part of a snapshot. `leads`: sent by the leader to catch up a follower; otherwise by a peer for repair."""

    meta: SnapshotMeta
    leads: bool
    offset: int
    data: bytes


@define
class SnapshotReply(Message):
    """`done`: state up to `index` is durable here. Otherwise send on from `offset`."""

    index: int
    offset: int
    done: bool


@define
class TimeoutNow(Message):
    """The leader asks the target to campaign at once (thesis 3.10)."""


@define
class ReadIndex(Message):
    """A follower asks the leader for a read index (thesis 6.4). `question`: counted by the boot that asks."""

    question: int


@define
class ReadIndexReply(Message):
    """Answers the `question` of incarnation `nonce`: an answer to an earlier boot is too old to be one."""

    nonce: int
    question: int
    index: int


@define
class Relearn(Message):
    """A replica that is not sound asks the leader what it must hold before it counts again."""

    standing: int
    since: int


@define
class RelearnReply(Message):
    """Answers the Relearn of incarnation `nonce`: be at `last_index` of my log. `admitted`: that is enough.

    `membership` is the committed configuration, for one that lost even that.
    """

    nonce: int
    last_index: int
    admitted: bool
    membership: Membership


@define
class RepairRequest(Message):
    """Asks any peer for the entries `first..last`, the last of which has term `last_term`."""

    first: int
    last: int
    last_term: int


@define
class RepairReply(Message):
    """What the peer holds at `first`, and as many entries from there on as fit.

    `last`, `last_term` repeat the request, so that an answer to an older question is known as such.
    `leads`: the peer is the leader of `term`, whose CONFLICT is final. `commit`: up to where its log is committed,
    which by log matching holds for the asker too; 0 if the peer does not have the identity asked for.
    """

    first: int
    last: int
    last_term: int
    holding: int
    commit: int
    leads: bool
    entries: list[Entry]


@define
class Forgotten(Message):
    """Tells the target that it promised more than it seems to remember.

    `seen`: the newest incarnation of the target known here. (`acked_term`, `acked_index`): what it acknowledged.
    """

    seen: int
    acked_index: int
    acked_term: int
