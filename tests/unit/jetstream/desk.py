"""A stream with its leader over a list store: publish, commit at once or later, let time pass."""

from __future__ import annotations

import orjson
from tests.unit.jetstream.stores import T0, ListStore, Published

from tnats.jetstream.api.advisories import Advisory
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.api.fields import decode
from tnats.jetstream.stream import entries, rules
from tnats.jetstream.stream.batches import BatchBudget
from tnats.jetstream.stream.config import StreamConfig
from tnats.jetstream.stream.entries import Append, Entry, Reply
from tnats.jetstream.stream.interest import InterestTable
from tnats.jetstream.stream.leader import Admission, StreamLeader
from tnats.jetstream.stream.machine import Applied, StreamMachine
from tnats.subjects.draw import Draw


class Desk:
    """The stream T on `a.>` and `b`. A follower applies the same entries from their bytes."""

    def __init__(self, **config: object) -> None:
        body = orjson.dumps({"name": "T", "subjects": ["a.>", "b"], **config})
        checked = rules.check_create(decode(StreamConfig, body), rules.Surroundings())
        assert not isinstance(checked, ApiError), checked
        self.now_ns = T0
        self.store = ListStore()
        self.machine = StreamMachine(checked, self.store)
        self.follower = StreamMachine(checked, ListStore())
        self.interest = InterestTable(checked.retention)
        self.budget = BatchBudget()
        self.leader = StreamLeader(self.machine, self.interest, self.budget, Draw(1), account="$G", domain="")
        self.proposed: list[Entry] = []
        self.advisories: list[Advisory] = []
        self.applied: list[Applied] = []

    def admit(self, *batch: Published) -> Admission:
        """Judge, and propose what is to be stored."""
        for seq in self.leader.wanted_totals(batch):
            one = self.store.held[seq]
            self.leader.learn_total(seq, (one.subject, one.headers, one.payload))
        return self.propose(self.leader.admit(batch, self.now_ns))

    def propose(self, admission: Admission) -> Admission:
        self.advisories.extend(admission.advisories)
        if admission.entry is not None:
            self.proposed.append(admission.entry)
        return admission

    def commit(self) -> list[Reply]:
        """Apply everything proposed; the answers."""
        answers: list[Reply] = []
        while self.proposed:
            answers += self.apply(self.proposed.pop(0))
        return answers

    def apply(self, entry: Entry) -> list[Reply]:
        self.follower.apply(entries.decode(entries.encode(entry)))
        self.applied.append(self.machine.apply(entry))
        self.leader.applied(entry)
        return self.leader.answers(entry) if isinstance(entry, Append) else []

    def publish(self, *batch: Published) -> list[Reply]:
        """Judge and commit at once; all answers."""
        return self.admit(*batch).replies + self.commit()

    def say(self, *batch: Published) -> list[str]:
        """The answers as text: "3" for a PubAck, "!10071" for an error, the payload for anything else."""
        return [tell(answer) for _, answer in self.publish(*batch)]

    def sleep(self, seconds: float) -> None:
        """Let time pass, serving every deadline on the way."""
        end_ns = self.now_ns + round(seconds * 1_000_000_000)
        for _ in range(10_000):
            deadline_ns = self.leader.next_deadline_ns()
            if deadline_ns is None or deadline_ns > end_ns:
                break
            self.now_ns = max(self.now_ns, deadline_ns)
            self.serve()
        else:
            raise AssertionError("a deadline that never moves on")
        self.now_ns = end_ns

    def serve(self) -> None:
        """What is due now."""
        expire, markers = self.leader.expire(self.now_ns)
        if expire is not None:
            self.proposed.append(expire)
        self.propose(markers)
        self.commit()
        for due in self.leader.due_schedules(self.now_ns):
            one = self.store.held[due.seq]
            schedule = (one.subject, one.headers, one.payload)
            source = self.store.held.get(self.store.last_seq_of(due.source)) if due.source else None
            content = (source.headers, source.payload) if source else (one.headers, one.payload)
            self.propose(self.leader.fire(due, schedule, content, self.now_ns))
        self.commit()

    def held(self, machine: StreamMachine | None = None) -> list[tuple[int, str, str]]:
        """(sequence, subject, payload) of what is stored."""
        store = (machine or self.machine).store
        assert isinstance(store, ListStore)
        return [(seq, one.subject.decode(), one.payload.decode()) for seq, one in store.held.items()]

    def seqs(self) -> list[int]:
        return list(self.store.held)


def tell(answer: bytes) -> str:
    if not answer:
        return ""
    body = orjson.loads(answer)
    if "error" in body:
        return f"!{body['error']['err_code']}"
    if set(body) == {"stream", "seq"}:
        return str(body["seq"])
    return answer.decode()
