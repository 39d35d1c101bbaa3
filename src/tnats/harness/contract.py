"""What a server promises, and whether a run kept it.

`CLAUSES` is the contract. `judge` holds the checkers' results against it: which clause each violation breaks depends
on what the variant expects (see `findings.EXPECTATIONS`). Losses are excused only where the contract says so, and
then only if the server reported them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import attrs

from tnats.harness.checkers.evidence import Evidence, Replica, Result
from tnats.harness.faults import parse_duration
from tnats.harness.findings import Variant
from tnats.harness.history import History, Operation
from tnats.harness.selection import minority_count
from tnats.limits import SECOND_NS
from tnats.records import define, frozen

CLAUSES = {
    "K1": "an acknowledged write is committed",
    "K2": "with sync always, an acknowledged write survives power loss",
    "K3": "with a sync interval, loss is confined to that interval, is a suffix, and is reported",
    "K4": "a sequence stands for one message for ever",
    "K5": "what cannot be read is an error that names it, never skipped",
    "K6": "user data goes only by a committed removal",
    "K7": "a fault of a minority neither loses data nor stops service",
    "K8": "after the faults, service resumes and replicas converge",
    "K9": "writes are linearizable, reads show a committed past",
}
CLAUSE_OF = {"C2": "K4", "C3": "K4", "C4": "K4", "C5": "K9", "C6": "K8", "C7": "K9", "C8": "K9", "C9": "K9"}
DEFAULT_WINDOW = "2m"
"""nats-server's `sync_interval` when it is not set."""
SLACK_NS = SECOND_NS
NUMBER = re.compile(r"[0-9]+")
RECORD_BYTES_MIN = 16
"""No stored message is smaller: subject, value and sequence alone take more."""


@frozen
class PowerLoss:
    """Whose server was dead, since when, and when it was started again: what was acknowledged in between (the last
    answers still on their way) belongs to the time before.
    """

    node: str
    killed_ns: int
    started_ns: int


@define
class Observed:
    """What a run saw beside the history and the stores."""

    power_losses: list[PowerLoss] = attrs.field(factory=list)
    hit: dict[str, None] = attrs.field(factory=dict)
    """Nodes that lost power or whose files were damaged."""
    early_removals: list[str] = attrs.field(factory=list)
    """Removals of members that were confirmed while too few ran to agree on anything."""
    unavailable: str = ""
    """Why there was no service after the faults; empty when there was."""
    not_serving: dict[str, str] = attrs.field(factory=dict)
    """Which nodes did not serve, though a majority did, and why."""
    not_current: str = ""
    """Which replicas the leader does not call current, so long after the faults; empty when all are."""
    stream_gone: bool = False
    on_disk: dict[str, int] = attrs.field(factory=dict)
    """By node how many bytes of message files its store holds at the end, however well it serves."""
    values_on_disk: dict[str, set[str]] = attrs.field(factory=dict)
    """By node which values stand in these files, where their form is known."""
    logged: dict[str, list[str]] = attrs.field(factory=dict)
    """By node which of the finding's telling words stand in its log."""
    reports: dict[str, list[str]] = attrs.field(factory=dict)
    """By node what the health check said after each start: a loss may be told once, and need not be told for ever."""
    audited_count: int = 0
    """Acknowledgements at which the fault file systems were asked whether the message would survive on a majority."""
    audited_volatile_count: int = 0


@frozen
class Judgement:
    """The verdict on one run: broken clauses with a line each, and what is worth saying besides."""

    verdict: Literal["kept", "broken", "unknown"]
    broken: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def judge(variant: Variant, evidence: Evidence, results: Sequence[Result], observed: Observed) -> Judgement:
    """Hold the results of one run against the contract."""
    broken = list(availability(evidence, observed))
    notes: list[str] = []
    if variant.expect == "S" and variant.sync_interval == "always" and observed.audited_volatile_count:
        text = f"{observed.audited_volatile_count} of {observed.audited_count} sampled acknowledgements were volatile"
        broken.append(("K2", text))
    elif observed.audited_count:
        durable = observed.audited_count - observed.audited_volatile_count
        notes.append(f"{durable} of {observed.audited_count} sampled acknowledgements were durable when they arrived")
    if variant.workload == "queue" and not observed.stream_gone:
        found, said = losses(variant, evidence, observed)
        broken += found
        notes += said
    unknown = not any(operation.is_ok and operation.f != "fetch" for operation in evidence.history.operations())
    if unknown:
        notes.append("no write of a client was acknowledged, so nothing was shown")
    for result in results:
        unknown = unknown or result.verdict == "unknown"
        if result.verdict == "violated" and result.checker in CLAUSE_OF:
            broken.append((CLAUSE_OF[result.checker], f"{result.checker} {result.title}: {result.text}"))
    verdict: Literal["kept", "broken", "unknown"] = "broken" if broken else "unknown" if unknown else "kept"
    return Judgement(verdict, tuple(broken), tuple(notes))


def availability(evidence: Evidence, observed: Observed) -> Iterator[tuple[str, str]]:
    """Broken clauses about what became of the servers, whatever the messages say."""
    if observed.stream_gone:
        acked_count = len(evidence.acked())
        yield "K6", f"the stream no longer exists, though nobody deleted it; {acked_count} acknowledged values with it"
    for text in observed.early_removals:
        yield "K1", text
    for node in emptied(evidence, observed):
        yield "K6", f"{node} has nothing of the stream on its disk any more, though nobody removed it"
    if observed.unavailable:
        yield "K8", f"no service after the faults: {observed.unavailable}"
    for node, reason in observed.not_serving.items():
        yield "K8", f"{node} does not serve after the faults: {reason}"
    if observed.not_current:
        yield "K8", f"not current long after the faults: {observed.not_current}"


def emptied(evidence: Evidence, observed: Observed) -> list[str]:
    """Nodes of a cluster whose disk holds no message, though others' do and it never left."""
    left = {str(event.value).partition("-")[0] for event in evidence.history.nemesis() if event.f == "leave"}
    if not any(observed.on_disk.values()):
        return []
    return [node for node, size in observed.on_disk.items() if not size and node not in left]


def losses(variant: Variant, evidence: Evidence, observed: Observed) -> tuple[list[tuple[str, str]], list[str]]:
    """Broken clauses and notes about acknowledged values that are not there."""
    acked = {operation.value for operation in evidence.acked()}
    broken = list(passed_over(evidence))
    notes: list[str] = []
    for replica in evidence.replicas:
        if replica.node in observed.not_serving:
            continue
        if replica.failure:
            if acked <= observed.values_on_disk.get(replica.node, set()):
                notes.append(
                    f"{replica.node} was not read, {replica.failure}; its files hold all that was acknowledged"
                )
            else:
                broken.append(("K5", f"{replica.node} could not be read to the end: {replica.failure}"))
            continue
        if replica.unanswered_count:
            broken.append(("K5", f"{replica.node} gave no answer to {replica.unanswered_count} reads of one sequence"))
        broken += misplaced(replica, evidence)
        lost = lost_on(replica, evidence)
        if not lost:
            continue
        if variant.expect == "W":
            broken += judge_window(variant, evidence, observed, replica, lost)
            notes.append(f"{replica.node}: lost {len(lost)}, {span_text(lost)}")
        elif variant.expect == "H":
            broken += judge_damage(replica, lost, touched_at_most(evidence.history))
        else:
            clause = loss_clause(variant, observed)
            broken.append((clause, f"{replica.node} lost {len(lost)} acknowledged values, {span_text(lost)}"))
    return broken, notes


def loss_clause(variant: Variant, observed: Observed) -> str:
    """Which promise a loss breaks that nothing excuses."""
    if variant.nodes > 1 and 0 < len(observed.hit) <= minority_count(variant.nodes):
        return "K7"
    return "K2" if observed.power_losses else "K1"


@frozen
class NodeFigures:
    """What one node holds at the end. Counts are of acknowledged values."""

    node: str
    held_count: int
    lost_count: int
    diverged_count: int
    """Sequences at which it holds another message than the first node, or one of both holds none."""
    drained_lost_count: int | None
    """Values that consumers connected to it did not get; None where none read."""
    on_disk_bytes: int
    on_disk_count: int | None
    """Acknowledged values in its files, served or not; None where their form is not known."""
    logged: tuple[str, ...]
    failure: str


def node_figures(evidence: Evidence, observed: Observed) -> list[NodeFigures]:
    """A row for each node whose disk was looked at."""
    acked = {operation.value for operation in evidence.acked()}
    drained = evidence.drained()
    readable = [replica for replica in evidence.replicas if not replica.failure]
    by_node = {replica.node: replica for replica in evidence.replicas}
    rows = []
    for node, on_disk_bytes in observed.on_disk.items():
        replica = by_node.get(node, Replica(node, {}, failure="no node was read"))
        lost_count = 0 if replica.failure else len(lost_on(replica, evidence))
        got = {value for _, value in drained.get(node, ())}
        values = observed.values_on_disk.get(node)
        rows.append(
            NodeFigures(
                node,
                held_count=0 if replica.failure else len(acked) - lost_count,
                lost_count=lost_count,
                diverged_count=0 if replica.failure else diverged_count(readable[0], replica),
                drained_lost_count=len(acked - got) if node in drained else None,
                on_disk_bytes=on_disk_bytes,
                on_disk_count=len(acked & values) if values is not None else None,
                logged=tuple(observed.logged.get(node, ())),
                failure=replica.failure,
            )
        )
    return rows


def diverged_count(one: Replica, other: Replica) -> int:
    """How many sequences the two do not hold the same message at."""
    seqs = one.messages.keys() | other.messages.keys()
    return len([seq for seq in seqs if one.messages.get(seq) != other.messages.get(seq)])


def lost_on(replica: Replica, evidence: Evidence) -> list[Operation]:
    """Acknowledged publishes whose value the replica does not hold at all, by sequence."""
    held = {stored.value for stored in replica.messages.values()}
    lost = [operation for operation in evidence.acked() if operation.value not in held]
    return sorted(lost, key=lambda operation: int(operation.told("seq")))


def misplaced(replica: Replica, evidence: Evidence) -> Iterator[tuple[str, str]]:
    """K4: values that are there, but not where they were acknowledged."""
    held = {stored.value for stored in replica.messages.values()}
    kept = [operation for operation in evidence.acked() if operation.value in held]
    moved = [op for op in kept if getattr(replica.messages.get(op.told("seq")), "value", None) != op.value]
    if moved:
        text = f"{moved[0].value} was acknowledged at {moved[0].told('seq')} and is elsewhere"
        yield "K4", f"{replica.node} holds {len(moved)} values at other sequences: {text}"


def passed_over(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """K5: values that are there, and that the consumers of a node did not get."""
    holders = [replica for replica in evidence.replicas if not replica.failure]
    held = {stored.value for replica in holders for stored in replica.messages.values()}
    kept = [operation for operation in evidence.acked() if operation.value in held]
    where = holders[0].node if len(holders) == 1 else "some replica"
    for node, pairs in evidence.drained().items():
        got = {value for _, value in pairs}
        missed = [op for op in kept if op.value not in got]
        if missed:
            yield "K5", f"consumers at {node} missed {len(missed)} values that {where} holds, {span_text(missed)}"


def span_text(lost: Sequence[Operation]) -> str:
    return f"between sequences {lost[0].told('seq')} and {lost[-1].told('seq')}"


def judge_window(
    variant: Variant, evidence: Evidence, observed: Observed, replica: Replica, lost: Sequence[Operation]
) -> Iterator[tuple[str, str]]:
    """K3: which power loss took each lost value, and whether the rules of the window were kept."""
    window_ns = parse_duration(variant.sync_interval or DEFAULT_WINDOW)
    held = {stored.value for stored in replica.messages.values()}
    start_ns = 0
    unexplained = len(lost)
    for power in (power for power in observed.power_losses if power.node == replica.node):
        before = [operation for operation in evidence.acked() if start_ns <= acked_ns(operation) < power.started_ns]
        taken = [operation for operation in lost if start_ns <= acked_ns(operation) < power.started_ns]
        start_ns = power.started_ns
        unexplained -= len(taken)
        if not taken:
            continue
        oldest_ns = power.killed_ns - min(acked_ns(operation) for operation in taken)
        first_lost = min(operation.told("seq") for operation in taken)
        later = [op for op in before if op.value in held and op.told("seq") > first_lost]
        place = f"power loss at {power.killed_ns / SECOND_NS:.1f} s: {len(taken)} lost"
        if oldest_ns > window_ns + SLACK_NS:
            window = f"the window is {window_ns / SECOND_NS:g} s"
            yield "K3", f"{place}, the oldest {oldest_ns / SECOND_NS:.1f} s old; {window}"
        if later:
            yield "K3", f"{place}, not a suffix: {len(later)} values after sequence {first_lost} were kept"
        if not replica.health and not all(replica.is_named_lost(operation.told("seq")) for operation in taken):
            yield "K3", f"{place}, up to {oldest_ns / SECOND_NS:.1f} s old, and the server reports no loss"
    if unexplained:
        yield "K1", f"{unexplained} lost without a power loss after their acknowledgement"


def acked_ns(operation: Operation) -> int:
    assert operation.end is not None
    return operation.end.time_ns


def touched_at_most(history: History) -> int:
    """How many records the nemesis can have damaged: one a flipped bit, and what fits into the tails it cut off."""
    count = 0
    for event in history.nemesis():
        if event.f == "bitflip":
            count += int(event.value[2])
        elif event.f == "truncate":
            count += int(event.value[2]) // RECORD_BYTES_MIN + 1
    return count


def judge_damage(replica: Replica, lost: Sequence[Operation], touched_count: int) -> Iterator[tuple[str, str]]:
    """K5: each lost value is named, by the answer to a read of its sequence or among what the server says is lost; and
    the health check must know. K6: what was not damaged is served.
    """
    if len(lost) > touched_count:
        yield (
            "K6",
            f"{replica.node} lost {len(lost)} acknowledged values, though the damage touched {touched_count} at most",
        )
    silent = [op for op in lost if not is_named(replica, op.told("seq"))]
    if silent:
        text = f"{replica.node} lost {len(lost)} acknowledged values, {span_text(lost)}; "
        yield "K5", text + f"for {len(silent)} it answers as if they had never been"
    if not replica.health:
        yield "K5", f"{replica.node} lost {len(lost)} acknowledged values and its health check says ok"


def is_named(replica: Replica, seq: int) -> bool:
    """Whether the server says that this sequence is damaged: in its answer to a read (some other error tells a reader
    nothing of it), or in a list of what it has lost, in which case "no message found" is answer enough.
    """
    return replica.is_named_lost(seq) or str(seq) in NUMBER.findall(replica.missing.get(seq, ""))
