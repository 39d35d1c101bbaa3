"""C8b against brute force: a history of list-append is accepted if and only if some order explains it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import permutations

import pytest

from tnats.harness.checkers import list_append
from tnats.harness.history import History, Recorder

KEYS = ("x", "y")


def txn(recorder: Recorder, process: int, micros: list[list[object]], told: list[list[object]] | None = None) -> None:
    """One transaction, begun and ended at once; without `told` it was refused."""
    recorder.invoke(process, "txn", micros)
    recorder.end(process, "fail" if told is None else "ok", "txn", micros if told is None else told)


def history(*steps: tuple[int, list[list[object]], list[list[object]] | None]) -> History:
    clock = iter(range(1, 1000))
    recorder = Recorder(lambda: next(clock), 9)
    for process, micros, told in steps:
        txn(recorder, process, micros, told)
    return recorder.history


A, B, R = [["append", "x", "1"]], [["append", "x", "2"]], [["r", "x", None]]


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([(0, A, A), (1, R, [["r", "x", ["1"]]])], ""),
        ([(0, A, None), (1, R, [["r", "x", ["1"]]])], "G1a"),
        ([(1, R, [["r", "x", ["7"]]])], "nobody appended"),
        ([(0, A, A), (0, B, B), (1, R, [["r", "x", ["2", "1"]]])], "G0-realtime"),
        ([(0, A, A), (0, B, B), (1, R, [["r", "x", ["2"]]])], "no later read shows it"),
        ([(0, A, A), (0, R, [["r", "x", []]]), (1, R, [["r", "x", ["1"]]])], "G-single"),
        ([(0, A, A), (1, R, [["r", "x", ["1", "1"]]])], "twice"),
    ],
    ids=["sound", "aborted read", "invented", "against time", "lost", "own write unseen", "double"],
)  # fmt: skip
def test_anomalies_are_named(steps: list[tuple[int, list[list[object]], list[list[object]] | None]], text: str) -> None:
    """Each anomaly is told by its name; a sound history passes."""
    found = list_append.check(history(*steps))
    assert found.verdict == ("violated" if text else "ok")
    assert not text or text in found.text


def test_half_a_transaction_is_seen() -> None:
    """A read that shows one list of a transaction and not the other is a cycle (G-single)."""
    both: list[list[object]] = [["append", "x", "1"], ["append", "y", "2"]]
    ask: list[list[object]] = [["r", "x", None], ["r", "y", None]]
    half: list[list[object]] = [["r", "x", ["1"]], ["r", "y", []]]
    found = list_append.check(
        history((0, both, both), (1, ask, half), (2, ask, [["r", "x", ["1"]], ["r", "y", ["2"]]]))
    )
    assert "G-single" in found.text


Small = tuple[int, int, int, list[tuple[str, str, object]]]
"""process, invoke, end, micro-operations (reads with their values)"""


def draw(rng: random.Random) -> list[Small]:
    """A few overlapping transactions whose reads are drawn, most of them from some run that could have been."""
    state: dict[str, list[str]] = {key: [] for key in KEYS}
    found: list[Small] = []
    for number in range(rng.randint(2, 4)):
        start = rng.randrange(12)
        micros: list[tuple[str, str, object]] = []
        for place in range(rng.randint(1, 2)):
            key = rng.choice(KEYS)
            if rng.random() < 0.5:
                if any(micro[:2] == ("r", key) for micro in micros):
                    continue
                values = list(state[key])
                if rng.random() < 0.25 and values:
                    values.pop()
                micros.insert(0, ("r", key, values))
            else:
                value = f"{number}.{place}"
                state[key].append(value)
                micros.append(("append", key, value))
        found.append((number, start, start + rng.randint(1, 8), micros))
    found.append((9, 100, 101, [("r", key, list(state[key])) for key in KEYS]))
    return found


def explained(found: Sequence[Small]) -> bool:
    """Whether some order of all transactions shows every read what it saw, and keeps real time among writers."""
    for order in permutations(found):
        lists: dict[str, list[str]] = {key: [] for key in KEYS}
        place = {each[0]: at for at, each in enumerate(order)}
        if any(
            first[2] < second[1] and place[first[0]] > place[second[0]]
            for first in found
            for second in found
            if writes(first) and writes(second)
        ):
            continue
        if all(applies(each, lists) for each in order):
            return True
    return False


def writes(each: Small) -> bool:
    return any(micro[0] == "append" for micro in each[3])


def applies(each: Small, lists: dict[str, list[str]]) -> bool:
    for kind, key, value in each[3]:
        if kind == "append":
            lists[key].append(str(value))
        elif lists[key] != value:
            return False
    return True


def as_history(found: Sequence[Small]) -> History:
    clock = iter(range(1, 1000))
    recorder = Recorder(lambda: next(clock), 10)
    moments = sorted(
        [(each[1], 0, each) for each in found] + [(each[2], 1, each) for each in found], key=lambda m: m[:2]
    )
    for _, is_end, (process, _, _, micros) in moments:
        asked = [[kind, key, value if kind == "append" else None] for kind, key, value in micros]
        if is_end:
            recorder.end(process, "ok", "txn", [list(micro) for micro in micros])
        else:
            recorder.invoke(process, "txn", asked)
    return recorder.history


def test_the_verdict_is_that_of_brute_force() -> None:
    """Of random small histories, whose last read shows all lists, exactly those pass that some order explains."""
    verdicts = {True: 0, False: 0}
    for seed in range(1500):
        found = draw(random.Random(seed))
        sound = explained(found)
        result = list_append.check(as_history(found))
        assert (result.verdict == "ok") == sound, (seed, found, result)
        verdicts[sound] += 1
    assert min(verdicts.values()) > 200, verdicts
