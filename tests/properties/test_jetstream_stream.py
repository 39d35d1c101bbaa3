"""The stream machine against a list: limits, TTL, markers, roll-ups, purges, duplicates, entries in flight."""

from __future__ import annotations

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.jetstream.desk import Desk, tell
from tests.unit.jetstream.stores import SECOND, ListStore, publish

from tnats.jetstream.api.messages import JSApiMsgDeleteRequest, JSApiStreamPurgeRequest
from tnats.jetstream.stream import snapshot
from tnats.jetstream.stream.entries import Message
from tnats.jetstream.stream.machine import StreamMachine

SUBJECTS = ("a.1", "a.2", "b")


@attrs.define
class Kept:
    """One message of the model. `ends_ns`: by its own TTL; `is_marker`: a delete marker."""

    seq: int
    subject: str
    ts_ns: int
    ends_ns: int | None
    is_marker: bool = False


class StreamAgainstModel(RuleBasedStateMachine):
    """What is stored, what is refused and what is a duplicate are as a list that is filtered anew would have it."""

    @initialize(
        max_msgs=st.sampled_from([-1, 3]),
        per_subject=st.sampled_from([-1, 1, 2]),
        max_age=st.sampled_from([0, 20 * SECOND]),
        discard=st.sampled_from(["old", "new"]),
        marker=st.sampled_from([0, 3 * SECOND]),
    )
    def begin(self, max_msgs: int, per_subject: int, max_age: int, discard: str, marker: int) -> None:
        self.desk = Desk(
            max_msgs=max_msgs,
            max_msgs_per_subject=per_subject,
            max_age=max_age,
            discard=discard,
            allow_msg_ttl=True,
            allow_rollup_hdrs=True,
            subject_delete_marker_ttl=marker,
            duplicate_window=0 if max_age else 15 * SECOND,
        )
        self.config = self.desk.machine.config
        self.kept: list[Kept] = []
        self.last_seq = 0
        self.ids: dict[str, tuple[int, int]] = {}

    # ------------------------------------------------------------------ the model

    def of(self, subject: str) -> list[Kept]:
        return [one for one in self.kept if one.subject == subject]

    def model_store(self, subject: str, rollup: str, ttl_s: int) -> str:
        limit = self.config.max_msgs_per_subject
        replaces = bool(self.of(subject)) and (rollup != "" or 0 < limit <= len(self.of(subject)))
        if self.config.discard == "new" and 0 < self.config.max_msgs <= len(self.kept) and not replaces:
            return "!10077"
        self.model_add(subject, rollup, ttl_s)
        return str(self.last_seq)

    def model_add(self, subject: str, rollup: str, ttl_s: int, *, is_marker: bool = False) -> None:
        self.last_seq += 1
        floor_s = 0 if self.config.max_msgs_per_subject == 1 else self.config.subject_delete_marker_ttl_ns // SECOND
        ends_ns = self.desk.now_ns + max(ttl_s, floor_s) * SECOND if ttl_s else None
        self.kept.append(Kept(self.last_seq, subject, self.desk.now_ns, ends_ns, is_marker))
        if rollup == "all":
            self.kept = self.kept[-1:]
        if rollup == "sub":
            self.kept = [one for one in self.kept if one.subject != subject or one.seq == self.last_seq]
        limit = self.config.max_msgs_per_subject
        if limit > 0 and len(self.of(subject)) > limit:
            self.kept.remove(self.of(subject)[0])
        if 0 < self.config.max_msgs < len(self.kept):
            del self.kept[0]

    def model_expire(self) -> None:
        """One round: what is over goes, or leaves a marker in its place if nothing else is left of its subject."""
        now_ns, age_ns = self.desk.now_ns, self.config.max_age_ns
        over = [
            one
            for one in self.kept
            if (one.ends_ns is not None and one.ends_ns <= now_ns) or (age_ns and one.ts_ns + age_ns <= now_ns)
        ]
        marked: list[str] = []
        for one in over:
            leaves_marker = self.config.subject_delete_marker_ttl_ns and not one.is_marker
            if leaves_marker and self.of(one.subject) == [one]:
                marked.append(one.subject)
            else:
                self.kept.remove(one)
        order = {one.subject: (one.ends_ns is None or one.ends_ns > now_ns, one.ends_ns or 0, one.seq) for one in over}
        for subject in sorted(marked, key=lambda subject: order[subject]):
            ttl_s = self.config.subject_delete_marker_ttl_ns // SECOND
            self.model_add(subject, "sub", ttl_s, is_marker=True)

    # ------------------------------------------------------------------ what happens

    @rule(
        subject=st.sampled_from(SUBJECTS),
        rollup=st.sampled_from(["", "", "", "sub", "all"]),
        ttl_s=st.sampled_from([0, 0, 0, 5, 30]),
        msg_id=st.sampled_from(["", "", "x", "y"]),
    )
    def publish(self, subject: str, rollup: str, ttl_s: int, msg_id: str) -> None:
        headers = {"Nats_Rollup": rollup, "Nats_TTL": str(ttl_s) if ttl_s else "", "Nats_Msg_Id": msg_id}
        known = self.ids.get(msg_id)
        is_duplicate = known is not None and known[1] + self.config.duplicate_window_ns > self.desk.now_ns
        expected = f'{{"stream":"T","seq":{known[0]},"duplicate": true}}' if known and is_duplicate else ""
        if not is_duplicate:
            expected = self.model_store(subject, rollup, ttl_s)
            if msg_id and not expected.startswith("!"):
                self.ids[msg_id] = (self.last_seq, self.desk.now_ns)
        message = publish(subject, **{key: value for key, value in headers.items() if value})
        admission = self.desk.admit(message)
        answers = admission.replies + self.desk.commit()
        assert [tell(answer) for _, answer in answers] == [expected]

    @rule(subjects=st.lists(st.sampled_from(SUBJECTS), min_size=2, max_size=5))
    def publish_in_flight(self, subjects: list[str]) -> None:
        """Batches of one message each, all admitted before the first is applied."""
        expected = [self.model_store(subject, "", 0) for subject in subjects]
        replies = [answer for subject in subjects for _, answer in self.desk.admit(publish(subject)).replies]
        answers = replies + [answer for _, answer in self.desk.commit()]
        assert sorted(tell(answer) for answer in answers) == sorted(expected)

    @rule(seconds=st.sampled_from([1, 4, 9, 25]))
    def sleep(self, seconds: int) -> None:
        end_ns = self.desk.now_ns + seconds * SECOND
        for _ in range(1000):
            deadline_ns = self.desk.leader.next_deadline_ns()
            if deadline_ns is None or deadline_ns > end_ns:
                break
            self.desk.now_ns = max(self.desk.now_ns, deadline_ns)
            self.model_expire()
            self.desk.serve()
        else:
            raise AssertionError("a deadline that never moves on")
        self.desk.now_ns = end_ns

    @precondition(lambda self: bool(self.kept))
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.kept))
        self.kept.remove(one)
        entry = self.desk.leader.delete_message(JSApiMsgDeleteRequest(seq=one.seq))
        assert not hasattr(entry, "err_code")
        self.desk.apply(entry)  # type: ignore[arg-type]

    @rule(pattern=st.sampled_from(["", "a.*", "b"]), keep=st.integers(0, 2), below=st.integers(0, 12))
    def purge(self, pattern: str, keep: int, below: int) -> None:
        below = 0 if keep else below
        entry = self.desk.leader.purge(JSApiStreamPurgeRequest(filter=pattern, keep=keep, seq=below))
        matching = [one for one in self.kept if not pattern or one.subject.split(".")[0] == pattern[0]]
        gone = [one for one in matching if not below or one.seq < below]
        gone = gone[: len(gone) - keep] if keep else gone
        self.kept = [one for one in self.kept if one not in gone]
        self.desk.apply(entry)  # type: ignore[arg-type]

    # ------------------------------------------------------------------ what must hold

    @invariant()
    def the_store_is_the_models(self) -> None:
        store = self.desk.store
        assert [(seq, one.subject.decode()) for seq, one in store.held.items()] == [
            (one.seq, one.subject) for one in self.kept
        ]
        assert store.last_seq == self.last_seq

    @invariant()
    def a_follower_has_the_same_state(self) -> None:
        follower = self.desk.follower.store
        assert isinstance(follower, ListStore)
        assert follower.held == self.desk.store.held
        assert snapshot.save(self.desk.follower) == snapshot.save(self.desk.machine)

    @invariant()
    def a_restored_machine_has_the_same_state(self) -> None:
        def read(seq: int) -> tuple[int, Message] | None:
            one = self.desk.store.held.get(seq)
            return (one.ts_ns, (one.subject, one.headers, one.payload)) if one else None

        saved = snapshot.save(self.desk.machine)
        restored = StreamMachine(self.config, self.desk.store)
        assert snapshot.load(restored, snapshot.decode(saved), read) == self.last_seq
        assert snapshot.save(restored) == saved

    @invariant()
    def no_deadline_outlives_its_message(self) -> None:
        assert len(self.desk.machine.deadlines) == sum(1 for one in self.kept if one.ends_ns is not None)


TestStreamAgainstModel = StreamAgainstModel.TestCase
TestStreamAgainstModel.settings = settings(stateful_step_count=20)
