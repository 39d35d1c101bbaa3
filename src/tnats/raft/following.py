"""Following: taking over the leader's log (paper 5.3).

Rules beyond the paper

1. An acknowledgement leaves only when what it acknowledges is durable.
2. A rejection carries a hint, the last place where the logs may meet, so that a leader skips whole terms.
3. A committed entry is never overwritten; a leader that asks for it contradicts itself, and the node stops.
4. Where damage hides the terms of own entries, an append is taken only if it reaches the entry that names them:
   equal there, it repairs them all; different there, they were never committed and go.
"""

from __future__ import annotations

from tnats.errors import ensure
from tnats.raft import codec
from tnats.raft.core import Core
from tnats.raft.messages import Append, AppendReply, Entry, EntryKind, Heartbeat, HeartbeatReply, Standing
from tnats.raft.roles import Role


class Following:
    def __init__(self, core: Core) -> None:
        self.core = core

    def append(self, message: Append) -> None:
        core, log = self.core, self.core.log
        core.election_elapsed = 0
        prev = message.prev_index
        entries = message.entries
        if prev < log.base:
            # The leader's view is older than our snapshot: everything up to the commit is known to match.
            skip = log.base - prev
            if skip >= len(entries):
                self._accept(log.commit, message.commit)
                return
            entries = entries[skip:]
            prev = log.base
            if log.faulty and not self._repairs(prev, entries):
                return  # damage behind our snapshot: repair comes first, the leader asks again
        elif log.term(prev) != message.prev_term or (log.faulty and not self._repairs(prev, entries)):
            self._reject(message)
            return
        last = prev + len(entries)
        if entries:
            self._take(entries)
        self._accept(last, message.commit)

    def _take(self, entries: list[Entry]) -> None:
        """Append what is new, after dropping what differs."""
        core, log = self.core, self.core.log
        first = entries[0].index
        if first <= log.last_index:
            at = next((k for k, entry in enumerate(entries) if log.term(entry.index) != entry.term), len(entries))
            entries = entries[at:]
            if not entries:
                return
            if entries[0].index <= log.last_index:
                ensure(
                    entries[0].index > log.commit,
                    f"the leader of term {core.term} overwrites entry {entries[0].index}, committed is {log.commit}",
                )
                core.verified = min(core.verified, entries[0].index - 1)
                core.truncate(entries[0].index)
        log.append(entries)
        for entry in entries:
            if entry.kind == EntryKind.CONFIG:
                core.adopt_membership(codec.decode_membership(entry.data, entry.index))

    def _repairs(self, prev: int, entries: list[Entry]) -> bool:
        """Rule 4. Whether the append may be taken into a log with faulty ranges."""
        core, log = self.core, self.core.log
        last = prev + len(entries)
        for fault in list(log.faulty):
            if fault.first > last or fault.last <= prev:
                continue
            if log.term(fault.first) is None:
                if fault.first != prev + 1 or last < fault.last:
                    return False
                if entries[fault.last - prev - 1].term != fault.last_term:
                    if fault.first <= log.commit:
                        return False
                    core.truncate(fault.first)
                    return True
            elif (
                fault.first <= prev or log.term(min(fault.last, last)) != entries[min(fault.last, last) - prev - 1].term
            ):
                continue
            found = entries[fault.first - prev - 1 : fault.last - prev]
            core.fill(fault, found)
        core.refresh_standing()
        return True

    def _accept(self, index: int, commit: int) -> None:
        core = self.core
        core.verified = max(core.verified, index)
        self.commit_to(min(commit, index))
        core.send_durable(self._reply(index, rejected=False))

    def _reject(self, message: Append) -> None:
        core, log = self.core, self.core.log
        hint_index, hint_term = log.hint(min(message.prev_index, log.last_index), message.prev_term)
        if log.faulty and log.term(log.faulty[0].first) is None:
            hint_index = min(hint_index, log.faulty[0].first - 1)
            hint_term = log.term(hint_index) or 0
        core.send(self._reply(message.prev_index, rejected=True, hint=(hint_index, hint_term)))

    def refuse_stale(self, source: int) -> None:
        """Tell the sender of an older term that it is over."""
        core = self.core
        core.send(AppendReply(*core.header(source), True, 0, 0, 0, core.log.last_index, core.standing))

    def _reply(self, index: int, *, rejected: bool, hint: tuple[int, int] = (0, 0)) -> AppendReply:
        core = self.core
        return AppendReply(*core.header(core.leader), rejected, index, *hint, core.log.last_index, core.standing)

    def commit_to(self, index: int) -> None:
        log = self.core.log
        if index > log.commit:
            ensure(index <= log.last_index, f"commit {index} beyond the log's end {log.last_index}")
            log.commit = index

    def heartbeat(self, message: Heartbeat, *, may_sleep: bool) -> None:
        core, log = self.core, self.core.log
        core.election_elapsed = 0
        # A leader tells only what this incarnation acknowledged in this term, or an earlier one kept.
        if message.commit <= core.verified:
            self.commit_to(message.commit)
        if message.quiesce and (
            may_sleep
            and core.standing is Standing.SOUND
            and core.role is Role.FOLLOWER
            and log.applied == log.commit == log.last_index == message.commit
        ):
            core.quiescent = True
            return
        if not message.quiet:
            core.send(HeartbeatReply(*core.header(message.source), message.round, core.standing, log.last_index))
