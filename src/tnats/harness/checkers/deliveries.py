"""What consumers got and said, out of a history: for the checkers of consumers.

An operation `fetch` has `consumer` and `count`; its end lists [sequence, value, delivery count, consumer sequence], and
`life` tells at both ends which incarnation of the server it was. An operation `ack` has the sequence as its value,
`consumer`, and `kind`: sync (confirmed when it is ok), ack, nak, term, wpi.
"""

from __future__ import annotations

from collections.abc import Iterator

from tnats.harness.history import History, Operation
from tnats.records import frozen


@frozen
class Delivered:
    """One delivery of one message."""

    seq: int
    value: str
    count: int
    """1 at the first delivery."""
    consumer_seq: int
    consumer: str
    fetch: Operation

    @property
    def life(self) -> int:
        """The incarnation of the server that delivered it; 0 when nobody can tell."""
        life: int = self.fetch.told("life")
        return life if life == self.fetch.invoke.extra["life"] else 0

    @property
    def got_index(self) -> int:
        """The event by which it had arrived."""
        assert self.fetch.end is not None
        return self.fetch.end.index


def deliveries(history: History) -> Iterator[Delivered]:
    """All deliveries, in the order in which the fetches began."""
    for fetch in history.operations("fetch"):
        if fetch.is_ok:
            for seq, value, count, consumer_seq in fetch.result:
                yield Delivered(seq, value, count, consumer_seq, fetch.invoke.extra["consumer"], fetch)


def acks(history: History, *kinds: str) -> Iterator[Operation]:
    """Acknowledgements of these kinds that were sent."""
    for ack in history.operations("ack"):
        if ack.invoke.extra["kind"] in kinds and not ack.is_failed:
            yield ack


def ended(history: History) -> set[tuple[str, int]]:
    """(consumer, sequence) of what somebody acknowledged or terminated, whether that was heard or not."""
    return {(ack.invoke.extra["consumer"], ack.value) for ack in acks(history, "sync", "ack", "term")}


def confirmed(history: History) -> dict[tuple[str, int], Operation]:
    """(consumer, sequence): the first acknowledgement whose reception was confirmed."""
    found: dict[tuple[str, int], Operation] = {}
    for ack in acks(history, "sync"):
        if ack.is_ok:
            found.setdefault((ack.invoke.extra["consumer"], ack.value), ack)
    return found
