"""Key-value histories: the register with revisions, and its linearizability.

Every successful write tells its revision, a sequence of the bucket's stream, so the order of the writes to a key is
given and need not be searched for. The fast path puts each call at its slot in that order and asks only whether real
time agrees: exact, in O(n log n), and a violation is one line. Where it cannot decide (a refused update that only a
write of unknown fate could explain) the general search does.

Keyed calls come from `calls_by_key`; in a call
  `f`         is put, create, update, delete or get
  `argument`  is (value, expected revision): a marker's text for delete, revision None where nothing is expected
  `result`    is (value, revision) for what succeeded, CONFLICT for a refused update or create
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

from tnats.harness.history import History
from tnats.harness.linearizability import Call, Judgement, Verdict, search
from tnats.harness.workloads.register import CONFLICT, DELETED
from tnats.records import frozen

State = tuple[str | None, int, int]
"""Value (a marker's text when deleted, None when absent), revision (`UNTOLD`: nobody was ever told it), and the
highest revision that was told so far."""
UNTOLD = -1
WRITES = ("put", "create", "update", "delete")


def calls_by_key(history: History) -> dict[str, list[Call]]:
    """The register calls of a history, those that were refused for other reasons than a conflict left out.

    A write of unknown fate gets the revision that a read reported with its value.
    """
    told: dict[tuple[str, str], int] = {}
    for operation in history.operations("get", "get-direct"):
        if operation.is_ok and operation.result[1] is not None:
            told[tuple(operation.result)] = operation.told("seq")
    found: dict[str, list[Call]] = {}
    for operation in history.operations(*WRITES, "get"):
        key, value = operation.value
        argument = (value, operation.invoke.extra.get("revision", 0 if operation.f == "create" else None))
        end = operation.end
        result: Any = None
        if end is None:
            if operation.f == "get":
                continue
            if (key, value) in told:
                result = (value, told[key, value])
        elif end.type == "ok":
            result = (end.value[1], end.extra["seq"])
        elif end.error == CONFLICT:
            result = CONFLICT
        else:
            continue
        call = Call(operation.invoke.index, None if end is None else end.index, operation.f, argument, result)
        found.setdefault(key, []).append(call)
    return found


class RegisterModel:
    """The sequential register."""

    def initial(self) -> State:
        return None, 0, 0

    def step(self, state: State, call: Call) -> State | None:
        value, revision, highest = state
        if call.f == "get":
            return state if call.result == (value, revision) else None
        wanted = call.argument[0]
        fits = met_expectation(call, value, revision)
        if call.result == CONFLICT:
            return None if fits else state
        if not fits:
            return None if call.end is not None else state
        if call.result is None:
            return wanted, UNTOLD, highest
        told: int = call.result[1]
        return (wanted, told, told) if told > highest else None


def is_free(value: str | None) -> bool:
    """Whether a key with this value can be created."""
    return value is None or value.startswith(DELETED)


# ------------------------------------------------------------------ the fast path


@frozen
class Slots:
    """The writes of a key in the order of their revisions. Write i stands at slot 2i + 2, reads of it at 2i + 3;
    reads of the untouched key at 1.
    """

    writes: tuple[Call, ...]
    place_of: dict[int, int]
    """Revision: index in `writes`."""

    def state(self, slot: int) -> tuple[str | None, int]:
        """Value and revision of the key at a read slot."""
        if slot == 1:
            return None, 0
        write = self.writes[(slot - 3) // 2]
        return write.argument[0], write.result[1]


def judge_key(calls: Sequence[Call]) -> tuple[Verdict | Literal["unsure"], str]:
    """The fast path on the calls of one key: a verdict with one line that explains it, or "unsure"."""
    known = [call for call in calls if call.f != "get" and call.result not in (None, CONFLICT)]
    writes = tuple(sorted(known, key=lambda call: int(call.result[1])))
    for earlier, later in pairwise(writes):
        if earlier.result[1] == later.result[1]:
            return "violated", f"revision {later.result[1]} was given to two writes: {shown(earlier)}, {shown(later)}"
    slots = Slots(writes, {call.result[1]: index for index, call in enumerate(writes)})
    has_untold = any(call.f != "get" and call.result is None for call in calls)
    for index, call in enumerate(writes):
        if not met_expectation(call, *slots.state(2 * index + 1)):
            if call.f == "create" and has_untold:  # a delete of unknown fate may have come before
                return "unsure", ""
            before = slots.state(2 * index + 1)[1]
            return "violated", f"{shown(call)} succeeded although the revision before it was {before}"
    placed: list[tuple[int, Call]] = [(2 * index + 2, call) for index, call in enumerate(writes)]
    for call in calls:
        if call.f == "get":
            slot = read_slot(slots, call)
            if slot is None:
                return "violated", f"{shown(call)} read what no write wrote at that revision"
            placed.append((slot, call))
    fault = against_time(placed)
    if fault:
        return "violated", fault
    return judge_conflicts(slots, placed, [call for call in calls if call.result == CONFLICT], has_untold=has_untold)


def read_slot(slots: Slots, call: Call) -> int | None:
    """Where a read stands; None if no write explains it."""
    value, revision = call.result
    if revision == 0:
        return 1 if value is None else None
    place = slots.place_of.get(revision)
    if place is None or slots.writes[place].argument[0] != value:
        return None
    return 2 * place + 3


def met_expectation(call: Call, value: str | None, revision: int) -> bool:
    """C9: whether a key with this value and revision is what an update or create expects."""
    if call.f == "create":
        return is_free(value)
    return call.argument[1] is None or bool(revision == call.argument[1])


def against_time(placed: Sequence[tuple[int, Call]]) -> str:
    """The first call that stands before one that had ended when it began."""
    ended = sorted(((call.end, slot, call) for slot, call in placed if call.end is not None), key=lambda item: item[0])
    highest: tuple[int, Call] | None = None
    position = 0
    for slot, call in sorted(placed, key=lambda item: item[1].start):
        while position < len(ended) and ended[position][0] < call.start:
            if highest is None or ended[position][1] > highest[0]:
                highest = ended[position][1:]
            position += 1
        if highest is not None and highest[0] > slot:
            return f"{shown(call)} began after {shown(highest[1])} had ended, but comes before it"
    return ""


def judge_conflicts(
    slots: Slots, placed: Sequence[tuple[int, Call]], conflicts: Sequence[Call], *, has_untold: bool
) -> tuple[Verdict | Literal["unsure"], str]:
    """Find each refused update a read slot whose state explains the refusal, as early as real time allows."""
    fixed: list[tuple[int, Call]] = list(placed)
    last = 2 * len(slots.writes) + 1
    for call in sorted(conflicts, key=lambda conflict: conflict.start):
        assert call.end is not None
        low = max((slot for slot, other in fixed if other.end is not None and other.end < call.start), default=1)
        high = min((slot for slot, other in placed if other.start > call.end), default=last)
        for slot in range(low | 1, high + 1, 2):
            value, revision = slots.state(slot)
            if not met_expectation(call, value, revision):
                fixed.append((slot, call))
                break
        else:
            if has_untold:
                return "unsure", ""
            return "violated", f"{shown(call)} was refused although the revision was the expected one throughout"
    return "ok", ""


def shown(call: Call) -> str:
    """A call for people: what, its argument, its result, and between which events of the history."""
    value, revision = call.argument
    expected = "" if revision is None or call.f == "create" else f" if revision {revision}"
    what = "" if call.f in ("get", "delete") else f" {value!r}"
    return f"{call.f}{what}{expected} -> {call.result} (events {call.start}..{'?' if call.end is None else call.end})"


def judge(calls: Sequence[Call]) -> tuple[Verdict, str]:
    """The verdict on one key, with one line that explains it."""
    verdict, text = judge_key(calls)
    if verdict != "unsure":
        return verdict, text
    found: Judgement = search(RegisterModel(), calls)
    if found.verdict == "ok":
        return "ok", ""
    next_calls = "; ".join(shown(calls[index]) for index in found.blocked[:3])
    return found.verdict, f"no order found beyond {len(found.order)} of {len(calls)} calls; next would be {next_calls}"
