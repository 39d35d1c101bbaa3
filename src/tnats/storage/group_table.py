"""The groups of a journal, by number and by name, and what records do to them once they are durable."""

from __future__ import annotations

from collections.abc import Callable

from tnats.storage import hot, record
from tnats.storage.group import Group
from tnats.storage.record import ENTRY
from tnats.storage.recover import GroupState, PartSummary, Recovery


class GroupTable:
    """See the module. `make` gives an owner's handle on a group's state."""

    def __init__(self, recovery: Recovery, make: Callable[[GroupState], Group]) -> None:
        self._make = make
        self._next_number = recovery.next_group
        self._by_number = {number: make(state) for number, state in recovery.groups.items()}
        self._by_name = {group.name: group for group in self._by_number.values() if group.name}

    @property
    def named(self) -> list[Group]:
        """All groups with a known name, in the order of their making."""
        return list(self._by_name.values())

    @property
    def has_nameless(self) -> bool:
        """Whether there are entries of a group whose name is lost."""
        return any(not group.name for group in self._by_number.values())

    def knows(self, name: str) -> bool:
        """Whether there is a group of this name."""
        return name in self._by_name

    def has_dropped(self, number: int) -> bool:
        """Whether there was a group of this number that is no more; False where nothing is known of it."""
        return number < self._next_number and number not in self._by_number

    def group(self, name: str) -> Group:
        """The group of this name; made if it is new."""
        found = self._by_name.get(name)
        if found is None:
            found = self._make(GroupState(self._next_number, name))
            self._next_number += 1
            self._by_name[name] = self._by_number[found.state.number] = found
        return found

    def adopt(self, number: int, name: str) -> None:
        """Take up a group that the journal has lost, under the number that its other files carry."""
        group = self._by_number.get(number)
        if group is None:
            group = self._by_number[number] = self._make(GroupState(number, name))
        group.state.name = name
        self._by_name[name] = group
        self._next_number = max(self._next_number, number + 1)

    def needing(self, part: PartSummary) -> list[Group]:
        """The groups that still have entries in `part`."""
        return [
            group
            for number, top in part.tops.items()
            if (group := self._by_number.get(number)) is not None and group.floor < top
        ]

    def states(self) -> list[hot.Record]:
        """For each group what tells its state."""
        records: list[hot.Record] = []
        for group in self._by_number.values():
            state = group.state
            records.append(state.record(state.floor, state.last, state.note))
            records += state.gap_records(state.gaps)
        return records

    def note(self, part: PartSummary, records: list[hot.Record], offsets: list[int]) -> None:
        """Records stand in `part` at these offsets for good: they count."""
        place = part.number << 32
        tops = part.tops
        groups = self._by_number
        for (kind, number, index, stamp, _, _, body), offset in zip(records, offsets, strict=True):
            group = groups.get(number)
            if group is None:
                continue
            state = group.state
            if kind == ENTRY:
                state.add(index, place | offset)
                if index > tops.get(number, 0):
                    tops[number] = index
            elif kind == record.GROUP:
                state.raise_floor(index)
                state.note = bytes(body)
                state.gaps.clear()
                state.state_at = part.number
            elif kind == record.GAP:
                state.keep_gaps(index, stamp, body)
            elif kind == record.DROP:
                del groups[number]
                self._by_name.pop(group.name, None)
