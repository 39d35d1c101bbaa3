"""Changing the configuration of a group, one member at a time (thesis 4.1, 4.2.1, 4.4).

1. A configuration is in force from the moment it is appended.
2. The next one may be appended only when this one is committed, and when the leader has committed in its own term:
   otherwise two leaders could each be right by a configuration that the other does not know.
3. A new member starts as a learner. It becomes a voter when it has caught up.
4. A change is done when its entry is committed, not before: a removal is reported then.
"""

from __future__ import annotations

from tnats.raft import codec
from tnats.raft.core import Core
from tnats.raft.effects import Accepted, Refused
from tnats.raft.membership import Change, ChangeKind, changed
from tnats.raft.messages import Entry, EntryKind
from tnats.raft.replication import Replication
from tnats.raft.roles import Role


def propose_change(core: Core, replication: Replication, change: Change) -> Accepted | Refused:
    """Append the configuration after `change`."""
    if core.role is not Role.LEADER:
        return Refused("not the leader", core.leader)
    if core.transfer_target:
        return Refused("leadership is being transferred", core.transfer_target)
    if core.change_pending():
        return Refused(f"the change at {core.membership.index} is not committed yet", core.leader)
    if core.log.commit < replication.term_first:
        return Refused("the leader has not committed in its term yet", core.leader)
    if change.kind is ChangeKind.PROMOTE:
        progress = core.progress.get(change.node)
        if progress is None or progress.match < core.log.commit:
            return Refused(f"node {change.node} has not caught up", core.leader)
    index = core.log.last_index + 1
    membership = changed(core.membership, change, index)
    if isinstance(membership, str):
        return Refused(membership, core.leader)
    core.adopt_membership(membership)
    replication.follow_membership()
    replication.append([Entry(index, core.term, EntryKind.CONFIG, codec.encode_membership(membership))])
    return Accepted(index, index, core.term)
