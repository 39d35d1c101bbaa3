"""The consumer machine against a model that keeps a list of messages and looks at all of them every time."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.bundles import Bundled
from tests.unit.jetstream.consumers import ListIndex, Rig, Sent, tell
from tests.unit.jetstream.stores import SECOND

from tnats.jetstream.consumer.acks import parse_subject
from tnats.jetstream.consumer.config import AckPolicy, DeliverPolicy, PriorityPolicy, ReplayPolicy
from tnats.jetstream.consumer.effects import Effects

ACK_WAIT_S = 10
SUBJECTS = ("s.a", "s.b", "t.a")
READERS = st.sampled_from(["R", "R", "Q"])
TAILS_AGAINST_MODEL = (
    '"no_wait":true',
    '"expires":3000000000',
    '"expires":30000000000,"idle_heartbeat":700000000',
    '"expires":3000000000,"no_wait":true',
    '"expires":3000000000,"max_bytes":200',
)


@attrs.define
class Known:
    """What the model knows of one message. `free_from_ns`: not before, but from then on, it may be sent again."""

    subject: str
    deliveries: int = 0
    is_acked: bool = False
    is_given_up: bool = False
    is_removed: bool = False
    sent_ns: int = 0
    free_from_ns: int = 0
    last: Sent | None = None


class ConsumerAgainstModel(RuleBasedStateMachine):
    """At-least-once, order, limits and counts, through restarts from the log."""

    @initialize(
        max_deliver=st.sampled_from([-1, 1, 3]),
        max_ack_pending=st.sampled_from([-1, 2, 5]),
        filters=st.sampled_from([[], ["s.>"], ["s.a", "t.a"]]),
        policy=st.sampled_from([AckPolicy.EXPLICIT, AckPolicy.ALL]),
        has_backoff=st.booleans(),
        per_subject=st.sampled_from(["", "1", "2"]),
        is_prioritized=st.booleans(),
    )
    def begin(
        self,
        max_deliver: int,
        max_ack_pending: int,
        filters: list[str],
        policy: AckPolicy,
        has_backoff: bool,
        per_subject: str,
        is_prioritized: bool,
    ) -> None:
        backoff_ns = [2 * SECOND, 7 * SECOND][: max_deliver if max_deliver > 0 else 2] if has_backoff else []
        self.per_subject = int(per_subject) if per_subject and policy == AckPolicy.EXPLICIT else 0
        metadata = {"tnats.max_ack_pending_per_subject": per_subject} if self.per_subject else {}
        self.group = '"group":"g",' if is_prioritized else ""
        self.rig = Rig(
            priority_groups=["g"] if is_prioritized else [],
            priority_policy=PriorityPolicy.PRIORITIZED if is_prioritized else PriorityPolicy.NONE,
            ack_policy=policy,
            max_deliver=max_deliver,
            max_ack_pending=max_ack_pending,
            filter_subjects=filters,
            ack_wait_ns=0 if has_backoff else ACK_WAIT_S * SECOND,
            backoff_ns=backoff_ns,
            metadata=metadata,
        )
        self.waits_ns = backoff_ns or [ACK_WAIT_S * SECOND]
        self.known: dict[int, Known] = {}
        self.floor = (0, 0)
        self.consumer_seq = 0
        self.highest_first = 0

    # ------------------------------------------------------------------ what happens

    @rule(subject=st.sampled_from(SUBJECTS), count=st.integers(1, 3))
    def publish(self, subject: str, count: int) -> None:
        for _ in range(count):
            self.known[self.rig.index.last_seq + 1] = Known(subject)
            self.rig.store(subject)
            self.hear()

    @rule(batch=st.integers(1, 4), tail=st.sampled_from(TAILS_AGAINST_MODEL), reply=READERS, priority=st.integers(0, 2))
    def pull(self, batch: int, tail: str, reply: str, priority: int) -> None:
        group = self.group and f'{self.group}"priority":{priority},'
        told = self.rig.pull(f'{{"batch":{batch},{group}{tail}}}', reply)
        self.hear()
        if f"{reply} 404 No Messages" in told:
            overdue = [
                one for one in self.known.values() if self.is_pending(one) and one.free_from_ns <= self.rig.now_ns
            ]
            assert not overdue, "nothing to be had, though a message is due again"

    @rule(reply=READERS, room=st.sampled_from([0, 1, 2**62]))
    def read_on_or_not(self, reply: str, room: int) -> None:
        """A client's reader falls behind, or catches up."""
        self.rig.read_on(reply.encode(), room)
        self.hear()

    @rule(is_sending=st.booleans())
    def send(self, is_sending: bool) -> None:
        """What was delivered has to be read first, or was sent."""
        was_sending, self.rig.is_sending = self.rig.is_sending, is_sending
        if was_sending and not is_sending:
            self.rig.take(self.rig.machine.stream_advanced(self.rig.now_ns))
            self.hear()

    @rule(seconds=st.sampled_from([0.5, 2.5, 8.0, 11.0]))
    def sleep(self, seconds: float) -> None:
        end_ns = self.rig.now_ns + round(seconds * SECOND)
        for _ in range(2000):
            deadline_ns = self.rig.machine.next_deadline_ns()
            if deadline_ns is None or deadline_ns > end_ns:
                break
            self.rig.now_ns = max(self.rig.now_ns, deadline_ns)
            self.rig.take(self.rig.machine.tick(self.rig.now_ns))
            self.note_given_up()
            self.hear()
        else:
            raise AssertionError("a deadline that never moves on")
        self.rig.now_ns = end_ns
        if seconds:
            self.check_that_nobody_was_forgotten()

    def check_that_nobody_was_forgotten(self) -> None:
        """Whoever waits, and reads, has got what there was."""
        limit = self.rig.config.max_ack_pending
        is_full = limit > 0 and sum(map(self.is_pending, self.known.values())) >= limit
        waiting = [request for request in self.rig.machine._waiting._queue if self.rig.rooms.get(request.reply) != 0]
        if waiting and not (self.rig.is_sending or self.per_subject or is_full):
            assert not any(map(self.is_ahead, self.known.values()))
            assert not any(self.is_pending(one) and one.free_from_ns <= self.rig.now_ns for one in self.known.values())

    @precondition(lambda self: any(one.last for one in self.known.values()))
    @rule(data=st.data(), word=st.sampled_from(["+ACK", "-NAK", '-NAK {"delay":4000000000}', "+WPI", "+TERM", "huh"]))
    def answer(self, data: st.DataObject, word: str) -> None:
        seq = data.draw(st.sampled_from([seq for seq, one in self.known.items() if one.last]))
        one = self.known[seq]
        assert one.last is not None
        was_pending = self.is_pending(one)
        delivered_seq = self.rig.machine.state.delivered_stream_seq
        effects = self.rig.ack(one.last, word, reply="A")
        if not one.is_removed:
            assert effects.acked_replies == [b"A"]
        if word in ("+ACK", "+TERM"):
            if self.rig.config.ack_policy == AckPolicy.ALL:  # a termination, too, is for all below
                for below in range(1, seq + 1):
                    if below in self.known and self.is_pending(self.known[below]):
                        self.known[below].is_acked = True
            elif was_pending:
                one.is_acked = True
        elif was_pending and word == "-NAK":
            one.free_from_ns = 0
        elif was_pending and "delay" in word:
            one.free_from_ns = self.rig.now_ns + 4 * SECOND
        elif was_pending and word == "+WPI":
            one.free_from_ns = self.rig.now_ns + self.wait_ns(one.deliveries)
        if was_pending and one.is_acked:
            self.check_floor(delivered_seq)
        self.note_given_up()
        self.hear()

    def check_floor(self, delivered_seq: int) -> None:
        """After an acknowledgement: the floor stands below the first of those up to `delivered_seq`, what had been
        delivered when it came, that is not done with.
        """
        open_seqs = [
            seq
            for seq, one in self.known.items()
            if seq <= delivered_seq and (self.is_pending(one) or self.is_ahead(one))
        ]
        wanted = max(min(open_seqs, default=delivered_seq + 1) - 1, self.floor[1])
        assert self.rig.machine.state.floor_stream_seq == wanted

    @precondition(lambda self: bool(self.rig.index.held))
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(sorted(self.rig.index.held)))
        self.known[seq].is_removed = True
        self.rig.remove(seq)
        self.hear()

    @precondition(lambda self: bool(self.rig.index.held))
    @rule(data=st.data())
    def purge(self, data: st.DataObject) -> None:
        below = data.draw(st.integers(1, self.rig.index.last_seq + 1))
        self.rig.index.remove_before(below)
        for seq, one in self.known.items():
            one.is_removed = one.is_removed or seq < below
        self.rig.take(self.rig.machine.stream_purged(below, self.rig.now_ns, is_counted=False))
        state = self.rig.machine.state
        assert min(state.delivered_stream_seq, state.floor_stream_seq) >= below - 1
        self.hear()

    @rule()
    def restart(self) -> None:
        """The leader is gone with its requests; a new one goes on from the log."""
        self.rig.restart()
        for one in self.known.values():
            if one.deliveries:
                one.free_from_ns = one.sent_ns + self.wait_ns(one.deliveries)
        self.sleep(0)

    # ------------------------------------------------------------------ what must hold

    def hear(self) -> None:
        """Check what was delivered since the last time."""
        for send in self.rig.sent:
            if isinstance(send, Sent):
                self.check_delivery(send)
        self.rig.sent.clear()

    def check_delivery(self, delivery: Sent) -> None:
        one = self.known[delivery.seq]
        place = parse_subject(delivery.ack_reply)
        assert place is not None
        assert not one.is_acked
        assert not one.is_given_up
        assert not one.is_removed
        assert self.is_wanted(one)
        assert one.free_from_ns <= self.rig.now_ns, "sent again before its time"
        assert self.rig.rooms.get(delivery.target) != 0, "sent to a reader that is behind"
        assert not self.rig.is_sending
        one.deliveries += 1
        assert place.deliveries == one.deliveries
        if self.rig.config.max_deliver > 0:
            assert one.deliveries <= self.rig.config.max_deliver
        assert place.consumer_seq == self.consumer_seq + 1
        self.consumer_seq += 1
        if one.deliveries == 1 and not self.per_subject:
            assert delivery.seq > self.highest_first, "first deliveries out of order"
            assert not any(
                self.is_ahead(other) for seq, other in self.known.items() if self.highest_first < seq < delivery.seq
            ), "a message was passed over"
            self.highest_first = delivery.seq
        one.sent_ns = self.rig.now_ns
        one.free_from_ns = self.rig.now_ns + self.wait_ns(one.deliveries)
        one.last = delivery

    def wait_ns(self, deliveries: int) -> int:
        return self.waits_ns[min(deliveries, len(self.waits_ns)) - 1]

    def note_given_up(self) -> None:
        last: Effects = self.rig.log[-1]
        for advisory in last.advisories:
            if advisory.type.endswith("max_deliver"):
                self.known[advisory.fields["stream_seq"]].is_given_up = True
                assert advisory.fields["deliveries"] == self.rig.config.max_deliver

    def is_wanted(self, one: Known) -> bool:
        filters = self.rig.config.filter_subjects
        return not filters or one.subject in filters or ("s.>" in filters and one.subject.startswith("s."))

    def is_ahead(self, one: Known) -> bool:
        return self.is_wanted(one) and not one.is_removed and not one.deliveries

    def is_pending(self, one: Known) -> bool:
        return bool(one.deliveries) and not (one.is_acked or one.is_given_up or one.is_removed)

    @invariant()
    def counts_are_the_models(self) -> None:
        info = self.rig.machine.info(self.rig.now_ns)
        assert info.num_pending == sum(1 for one in self.known.values() if self.is_ahead(one))
        assert info.num_ack_pending == sum(1 for one in self.known.values() if self.is_pending(one))
        assert info.delivered.consumer_seq == self.consumer_seq

    @invariant()
    def limits_hold(self) -> None:
        pending = [one for one in self.known.values() if self.is_pending(one)]
        if self.rig.config.max_ack_pending > 0:
            assert len(pending) <= self.rig.config.max_ack_pending
        if self.per_subject:
            for subject in SUBJECTS:
                assert sum(1 for one in pending if one.subject == subject) <= self.per_subject

    @invariant()
    def the_floor_only_rises(self) -> None:
        state = self.rig.machine.state
        floor = (state.floor_consumer_seq, state.floor_stream_seq)
        assert floor[0] >= self.floor[0]
        assert floor[1] >= self.floor[1]
        assert all(seq > floor[1] for seq, one in self.known.items() if self.is_pending(one) or (self.is_ahead(one))), (
            "the floor is above a message that is not done with"
        )
        self.floor = floor

    @invariant()
    def nobody_is_woken_too_late(self) -> None:
        ends_ns = [one.free_from_ns for one in self.known.values() if self.is_pending(one)]
        ends_ns = [end_ns for end_ns in ends_ns if end_ns > self.rig.now_ns]
        deadline_ns = self.rig.machine.next_deadline_ns()
        assert not ends_ns or (deadline_ns is not None and deadline_ns <= min(ends_ns))

    @invariant()
    def a_follower_has_the_same_state(self) -> None:
        assert self.rig.applied.encode() == self.rig.machine.state.encode()

    def teardown(self) -> None:
        """In the end everything wanted is delivered: acknowledge all that comes until nothing does."""
        if not hasattr(self, "rig"):
            return
        for target in list(self.rig.rooms):
            self.rig.read_on(target)
        self.send(False)
        for _ in range(200):
            self.sleep(11.0)
            self.pull(4, '"no_wait":true', "R", 0)
            for seq, one in list(self.known.items()):
                if one.last is not None and self.is_pending(one):
                    self.rig.ack(one.last)
                    if self.rig.config.ack_policy == AckPolicy.ALL:
                        for below in self.known:
                            if below <= seq and self.is_pending(self.known[below]):
                                self.known[below].is_acked = True
                    one.is_acked = True
                    self.hear()
            if not any(self.is_ahead(one) or self.is_pending(one) for one in self.known.values()):
                break
        assert not any(self.is_ahead(one) or self.is_pending(one) for one in self.known.values())


TestConsumerAgainstModel = ConsumerAgainstModel.TestCase
TestConsumerAgainstModel.settings = settings(stateful_step_count=25)


# ------------------------------------------------------------------ runs

CONFIGS = st.fixed_dictionaries(
    {
        "ack_policy": st.sampled_from([AckPolicy.EXPLICIT, AckPolicy.ALL, AckPolicy.NONE]),
        "max_deliver": st.sampled_from([-1, 2]),
        "max_ack_pending": st.sampled_from([-1, 7, 30]),
        "filter_subjects": st.sampled_from([[], ["s.>"], ["s.a", "t.a"]]),
        "headers_only": st.booleans(),
        "sample_freq": st.sampled_from(["", "60%"]),
        "deliver_policy": st.sampled_from([DeliverPolicy.ALL, DeliverPolicy.LAST_PER_SUBJECT]),
        "replay_policy": st.sampled_from([ReplayPolicy.INSTANT] * 4 + [ReplayPolicy.ORIGINAL]),
        "deliver_subject": st.sampled_from(["", "", "", "push"]),
    }
)
TAILS = [*['"expires":5000000000'] * 4, '"max_bytes":200,"expires":5000000000', '"no_wait":true']
PULLS = st.tuples(st.just("pull"), st.sampled_from(["R1", "R1", "R2", "R3"]), st.integers(1, 9), st.sampled_from(TAILS))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("store"), st.sampled_from(SUBJECTS), st.integers(1, 20)),
        PULLS,
        PULLS,
        st.tuples(st.just("ack"), st.lists(st.integers(0, 30), min_size=1, max_size=9), st.sampled_from(["+ACK", ""])),
        st.tuples(st.just("say"), st.integers(0, 30), st.sampled_from(["-NAK", '-NAK {"delay":3000000000}', "+TERM"])),
        st.tuples(st.just("remove"), st.integers(0, 30)),
        st.tuples(st.just("room"), st.sampled_from([b"R1", b"R2", b"push"]), st.sampled_from([0, 2**62])),
        st.tuples(st.just("sleep"), st.sampled_from([0.1, 2.0, 11.0])),
    ),
    max_size=30,
)


class Pair:
    """Two consumers that differ in nothing but how long their runs may be."""

    def __init__(self, config: dict[str, Any]) -> None:
        if config["deliver_policy"] == DeliverPolicy.LAST_PER_SUBJECT and not config["filter_subjects"]:
            config = {**config, "filter_subjects": [">"]}
        if config["ack_policy"] == AckPolicy.NONE:
            config = {**config, "max_deliver": -1, "max_ack_pending": -1, "sample_freq": ""}
        else:
            config = {**config, "ack_wait_ns": ACK_WAIT_S * SECOND}
        single = ListIndex()
        single.run_max = 1
        self.rigs = [Rig(**config), Rig(single, **config)]
        self.sent: list[Sent] = []
        if config["deliver_subject"]:
            for rig in self.rigs:
                rig.take(rig.machine.set_bound(True, 0))

    def do(self, what: str, *arguments: Any) -> None:
        for rig in self.rigs:
            if what == "store":
                rig.store(arguments[0], "xyz", arguments[1])
            elif what == "pull":
                reply, batch, bound = arguments
                rig.pull(f'{{"batch":{batch},{bound}}}', reply)
            elif what == "ack" and self.sent:
                chosen = [self.sent[number % len(self.sent)] for number in arguments[0]]
                rig.say(*(Bundled(one.ack_reply, b"A", 0, arguments[1].encode()) for one in chosen))
            elif what == "say" and self.sent:
                rig.ack(self.sent[arguments[0] % len(self.sent)], arguments[1])
            elif what == "remove" and rig.index.held:
                rig.remove(sorted(rig.index.held)[arguments[0] % len(rig.index.held)])
            elif what == "room":
                rig.rooms[arguments[0]] = arguments[1]
            elif what == "sleep":
                rig.sleep(arguments[0])
        self.compare()

    def compare(self) -> None:
        runs, singles = self.rigs
        assert runs.machine.state.encode() == singles.machine.state.encode()
        assert runs.applied.encode() == singles.applied.encode()
        infos = [attrs.asdict(rig.machine.info(rig.now_ns)) for rig in self.rigs]
        assert infos[0] == infos[1]
        targets = dict.fromkeys(send.target for send in singles.sent)
        for target in targets:
            told = [[tell(send) for send in rig.sent if send.target == target] for rig in self.rigs]
            assert told[0] == told[1]
        assert len(runs.sent) == len(singles.sent)
        for kind in ("acked_replies", "done", "advisories"):
            found = [[one for effects in rig.log for one in getattr(effects, kind)] for rig in self.rigs]
            assert found[0] == found[1], kind
        self.sent += [send for send in singles.sent if isinstance(send, Sent)]
        for rig in self.rigs:
            rig.sent.clear()
            rig.log.clear()


@given(CONFIGS, st.lists(PULLS, min_size=1, max_size=4), st.integers(5, 20), STEPS)
def test_runs_are_what_single_deliveries_are(
    config: dict[str, Any], pulls: list[tuple[Any, ...]], count: int, steps: list[tuple[Any, ...]]
) -> None:
    """Whatever is delivered, acknowledged and logged in runs is the same as message by message, for each target."""
    pair = Pair(config)
    for what, *arguments in [*pulls, ("store", "s.a", count), *steps]:
        pair.do(what, *arguments)
