"""C8b: transactions that append to lists and read them happen one after another.

Property: all transactions that took effect can be put into one order in which every read shows exactly the appends
before it, an order that agrees with real time between transactions that wrote, and with the order in which each
client did things. Method: what reads show gives the order of each list; that gives dependencies (the next writer of a
list, the reader of a write, the writer whose write a reader did not see yet), and a cycle of dependencies is the proof
that there is no such order. Cost: quadratic in the number of transactions. Source: Kingsbury and Alvaro, "Elle:
Inferring Isolation Anomalies from Experimental Observations", VLDB 2020; the names of the anomalies are Adya's.

An operation `txn` has as its value a list of `["append", key, value]` and `["r", key, values]`, values None until read.
Its reads come before its appends. One that only reads may ask any replica: it is bound by what its own client knew, and
not by real time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from tnats.harness.checkers.evidence import Result, result
from tnats.harness.history import History, Operation
from tnats.records import frozen

Micro = Sequence[object]
Edge = tuple[str, str]
"""What kind of dependency (ww, wr, rw, process, realtime), and on which key."""


@frozen(eq=False)
class Transaction:
    """One that took effect, or was seen to."""

    number: int
    appends: tuple[tuple[str, str], ...]
    reads: Mapping[str, Sequence[str]]
    invoked: int
    ended: int | None
    process: int | str

    @property
    def text(self) -> str:
        return f"T{self.number}"


def check(history: History) -> Result:
    return result("C8b", "transactions happen one after another", faults(history))


def faults(history: History) -> Iterator[str]:
    operations = history.operations("txn")
    writer_of: dict[str, Operation] = {}
    for operation in operations:
        for _, value in appends_of(operation.value):
            writer_of[value] = operation
    seen = {value for operation in operations if operation.is_ok for _, list_ in reads_of(operation) for value in list_}
    known = [each for each in operations if each.is_ok or any(value in seen for _, value in appends_of(each.value))]
    found = [transaction(number, each) for number, each in enumerate(known)]
    orders, unordered = versions(found)
    own = [*aborted(found, writer_of), *unordered, *lost(found, orders)]
    yield from own
    if not own:
        yield from cycles(found, orders)


def appends_of(micros: Iterable[Micro]) -> list[tuple[str, str]]:
    return [(str(micro[1]), str(micro[2])) for micro in micros if micro[0] == "append"]


def reads_of(operation: Operation) -> list[tuple[str, list[str]]]:
    return [(micro[1], list(micro[2] or ())) for micro in operation.result if micro[0] == "r"]


def transaction(number: int, operation: Operation) -> Transaction:
    reads = dict(reads_of(operation)) if operation.is_ok else {}
    ended = operation.end.index if operation.is_ok and operation.end is not None else None
    invoke = operation.invoke
    return Transaction(number, tuple(appends_of(operation.value)), reads, invoke.index, ended, invoke.process)


def aborted(found: list[Transaction], writer_of: Mapping[str, Operation]) -> Iterator[str]:
    """G1a: a read of what was refused, of what nobody appended (yet), or twice the same in one list."""
    for reader in found:
        for key, values in reader.reads.items():
            for value in values:
                writer = writer_of.get(value)
                if writer is None:
                    yield f"a read of {key} shows {value!r}, which nobody appended"
                elif writer.is_failed:
                    yield f"G1a: a read of {key} shows {value}, whose transaction was refused"
                elif (key, value) in reader.appends:
                    yield f"a read of {key} shows {value}, which its own transaction was still to append"
            if len(set(values)) < len(values):
                yield f"a read of {key} shows a value twice: {list(values)}"


def versions(found: list[Transaction]) -> tuple[dict[str, list[str]], list[str]]:
    """The order of each list as reads show it, and the reads that contradict each other."""
    orders: dict[str, list[str]] = {}
    for reader in found:
        for key, values in reader.reads.items():
            if len(values) > len(orders.get(key, ())):
                orders[key] = list(values)
    against = [
        f"two reads of {key} contradict each other: {list(values)} and {orders[key]}"
        for reader in found
        for key, values in reader.reads.items()
        if values and list(values) != orders[key][: len(values)]
    ]
    return orders, against


def lost(found: list[Transaction], orders: Mapping[str, list[str]]) -> Iterator[str]:
    """What was committed before a read began that shows the whole list, and is not in it."""
    for key, order in orders.items():
        longest = [each for each in found if key in each.reads and len(each.reads[key]) == len(order)]
        last = max(each.invoked for each in longest)
        for writer in found:
            for where, value in writer.appends:
                if where == key and value not in order and writer.ended is not None and writer.ended < last:
                    yield f"{value} was appended to {key}, and no later read shows it"


def cycles(found: list[Transaction], orders: Mapping[str, list[str]]) -> Iterator[str]:
    edges = dependencies(found, orders)
    for start in found:
        path = shortest_cycle(start.number, edges)
        if path:
            kinds = [edges[a][b][0] for a, b in zip(path, [*path[1:], path[0]], strict=True)]
            steps = [
                f"T{a} -{' '.join(edges[a][b]).strip()}-> " for a, b in zip(path, [*path[1:], path[0]], strict=True)
            ]
            yield f"{anomaly(kinds)}: {''.join(steps)}T{path[0]}, where {told(found, path)}"
            return


def anomaly(kinds: Sequence[str]) -> str:
    """Adya's name for a cycle."""
    timed = "-realtime" if "realtime" in kinds or "process" in kinds else ""
    against = kinds.count("rw")
    if against > 1:
        return f"G2{timed}"
    if against:
        return f"G-single{timed}"
    return f"G1c{timed}" if "wr" in kinds else f"G0{timed}"


def told(found: list[Transaction], path: Sequence[int]) -> str:
    texts = []
    for number in path:
        each = found[number]
        parts = [f"appends {value} to {key}" for key, value in each.appends]
        parts += [f"reads {key} {list(values)}" for key, values in each.reads.items()]
        texts.append(f"{each.text} (event {each.invoked}) {', '.join(parts)}")
    return "; ".join(texts)


def dependencies(found: list[Transaction], orders: Mapping[str, list[str]]) -> dict[int, dict[int, Edge]]:
    """Who must come before whom, and why."""
    edges: dict[int, dict[int, Edge]] = {each.number: {} for each in found}
    writer = {value: each.number for each in found for _, value in each.appends}

    def add(before: int, after: int, kind: str, key: str = "") -> None:
        if before != after:
            edges[before].setdefault(after, (kind, key))

    for key, order in orders.items():
        for one, next_one in pairwise(order):
            add(writer[one], writer[next_one], "ww", key)
        for reader in found:
            if key in reader.reads:
                count = len(reader.reads[key])
                if count:
                    add(writer[order[count - 1]], reader.number, "wr", key)
                if count < len(order):
                    add(reader.number, writer[order[count]], "rw", key)
    for first in found:
        for second in found:
            if first.ended is not None and first.ended < second.invoked:
                if first.process == second.process:
                    add(first.number, second.number, "process")
                elif first.appends and second.appends:
                    add(first.number, second.number, "realtime")
    return edges


def shortest_cycle(start: int, edges: Mapping[int, Mapping[int, Edge]]) -> list[int]:
    """The shortest way from `start` back to it; empty when there is none."""
    came_from: dict[int, int] = {}
    waiting = deque([start])
    while waiting:
        at = waiting.popleft()
        for next_one in edges[at]:
            if next_one == start:
                path = [at]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if next_one not in came_from:
                came_from[next_one] = at
                waiting.append(next_one)
    return []
