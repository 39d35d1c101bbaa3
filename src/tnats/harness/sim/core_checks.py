"""C32: what core messaging promises, held against what was published and what arrived.

Promises (NATS core: at most once, ordered by publisher connection and subscription)
-----
* invented: what arrives was published, byte for byte, with its subject and headers.
* matching: it arrives only where its subject matches.
* duplicate: at most once in a subscription.
* queue: at most one member of a queue group gets it, and exactly one if all members were connected throughout.
* order: messages of one connection arrive in the order in which they were published.
* loss: a subscription that was connected throughout gets everything.
* past: a subscription gets nothing that was handled before it was made.
* responders: a request that nobody can answer is told so at once, and a reply is the one that was given.

"Connected throughout" is proved by round trips on the very connections (`Interest.saw_all`), so a message may be
missing without anybody's fault only when nobody can know better. A queue group is asked for nothing once a member's
connection ended: the server may give it messages until it learns of that. Cost: messages times subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tnats.harness.scenario import Violation
from tnats.harness.sim.core_evidence import NEVER, Asked, CoreEvidence, Got, Interest, Sent, Session, matches

REPLY_PREFIX = b"re "


def check(evidence: CoreEvidence) -> Iterator[Violation]:
    """Every violation, the most telling rule first."""
    evidence.prove_handled()
    rules: tuple[Callable[[CoreEvidence], Iterator[Violation]], ...] = (
        invented,
        matching,
        duplicate,
        queue_shared,
        past,
        order,
        loss,
        queue_loss,
        responders,
    )
    for rule in rules:
        yield from rule(evidence)


def violation(rule: str, text: str, tick: int) -> Violation:
    return Violation(text, rule=f"C32 {rule}", note_index=tick)


def shown(interest: Interest) -> str:
    queue = f" in queue {interest.queue}" if interest.queue else ""
    return f"{interest.actor} on {interest.subject}{queue}"


def each_delivery(evidence: CoreEvidence) -> Iterator[tuple[Interest, Got, Sent | None]]:
    for interest in evidence.interests:
        for got in interest.got:
            yield interest, got, evidence.sent.get(got.id)


def invented(evidence: CoreEvidence) -> Iterator[Violation]:
    for interest, got, sent in each_delivery(evidence):
        if sent is None:
            yield violation("invented", f"{shown(interest)} got {got.payload[:60]!r}, which nobody published", got.tick)
        elif got.payload != sent.payload or got.subject != sent.subject:
            text = f"{shown(interest)} got {got.id} on {got.subject} with {len(got.payload)} bytes"
            text += f", published on {sent.subject} with {len(sent.payload)}"
            yield violation("invented", text + ("" if got.payload == sent.payload else ", not the same"), got.tick)
        elif got.header != (sent.id if sent.headers else None):
            yield violation("invented", f"{shown(interest)} got {got.id} with header {got.header!r}", got.tick)


def matching(evidence: CoreEvidence) -> Iterator[Violation]:
    for interest, got, _ in each_delivery(evidence):
        if not matches(interest.subject, got.subject):
            yield violation("matching", f"{shown(interest)} got {got.id} on {got.subject}", got.tick)


def duplicate(evidence: CoreEvidence) -> Iterator[Violation]:
    for interest in evidence.interests:
        seen: dict[str, None] = {}
        for got in interest.got:
            if got.id in seen:
                yield violation("duplicate", f"{shown(interest)} got {got.id} twice", got.tick)
            seen[got.id] = None


def queue_shared(evidence: CoreEvidence) -> Iterator[Violation]:
    for name, members in evidence.groups():
        taken: dict[str, Interest] = {}
        for member in members:
            for got in member.got:
                other = taken.setdefault(got.id, member)
                if other is not member:
                    text = f"two members of queue {name} got {got.id}: {shown(other)} and {shown(member)}"
                    yield violation("queue", text, got.tick)


def past(evidence: CoreEvidence) -> Iterator[Violation]:
    for interest, got, sent in each_delivery(evidence):
        if sent is not None and sent.handled < interest.opened:
            text = f"{shown(interest)} got {got.id}, which was handled before it subscribed"
            yield violation("past", text, got.tick)


def order(evidence: CoreEvidence) -> Iterator[Violation]:
    for interest in evidence.interests:
        latest: dict[Session, Sent] = {}
        for got in interest.got:
            sent = evidence.sent.get(got.id)
            if sent is None or sent.session is None or sent.handled == NEVER:
                continue
            before = latest.get(sent.session)
            if before is not None and before.tick > sent.tick:
                yield violation("order", f"{shown(interest)} got {before.id} before {sent.id}", got.tick)
            else:
                latest[sent.session] = sent


def loss(evidence: CoreEvidence) -> Iterator[Violation]:
    for interest in evidence.interests:
        if interest.queue or interest.dropped:
            continue
        has = {got.id for got in interest.got}
        for sent in evidence.sent.values():
            if sent.id not in has and sent.handled < NEVER and matches(interest.subject, sent.subject):
                if interest.saw_all(sent.tick, sent.handled):
                    text = f"{shown(interest)} never got {sent.id} on {sent.subject}, though connected throughout"
                    yield violation("loss", text, sent.tick)


def queue_loss(evidence: CoreEvidence) -> Iterator[Violation]:
    for name, members in evidence.groups():
        has = {got.id for member in members for got in member.got}
        if any(member.dropped for member in members):
            continue
        for sent in evidence.sent.values():
            if sent.id in has or sent.handled == NEVER:
                continue
            able = [member for member in members if matches(member.subject, sent.subject)]
            able = [member for member in able if member.may_have(sent.tick, sent.handled)]
            if able and all(
                member.is_clean(sent.handled) and member.saw_all(sent.tick, sent.handled) for member in able
            ):
                text = (
                    f"no member of queue {name} got {sent.id} on {sent.subject}, though all were connected throughout"
                )
                yield violation("queue loss", text, sent.tick)


def responders(evidence: CoreEvidence) -> Iterator[Violation]:
    for asked in evidence.asked:
        if asked.outcome == "reply":
            if asked.reply != REPLY_PREFIX + asked.id.encode():
                yield violation("responders", f"request {asked.id} was answered {asked.reply[:60]!r}", asked.tick)
        elif asked.outcome == "timed out" and was_told_nothing(evidence, asked):
            text = f"request {asked.id} on {asked.subject} timed out: nobody listens there, and nobody said so"
            yield violation("responders", text, asked.tick)


def was_told_nothing(evidence: CoreEvidence, asked: Asked) -> bool:
    """Whether nobody ever listened, and a round trip began and ended on its connection while the request waited."""
    if asked.session is None or not evidence.must_be_refused(asked.actor, asked.subject):
        return False
    return asked.session.proof(asked.tick) < asked.ended
