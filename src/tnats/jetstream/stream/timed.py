"""What time does to a stream: messages end, delete markers take their place, schedules fire.

The leader alone looks at the clock, and turns what it sees into entries. One step of each kind is under way at a time:
what is in flight is not decided again. A sealed stream takes in nothing: it gets no markers, and its schedules rest.
"""

from __future__ import annotations

from collections.abc import Callable

from tnats.jetstream.stream import headers as header
from tnats.jetstream.stream import schedules
from tnats.jetstream.stream.entries import Append, Expire, Message
from tnats.jetstream.stream.in_flight import InFlight
from tnats.jetstream.stream.interest import InterestTable
from tnats.jetstream.stream.machine import StreamMachine
from tnats.jetstream.stream.ttl import marker_headers
from tnats.limits import SECOND_NS

SCHEDULE_REST_NS = SECOND_NS
"""A schedule that could not be read is left alone for so long."""


class Timed:
    """See the module's text."""

    def __init__(
        self,
        machine: StreamMachine,
        interest: InterestTable,
        in_flight: InFlight,
        stored_subject: Callable[[bytes], bytes],
    ) -> None:
        """`stored_subject`: what a message on a subject is stored under."""
        self._machine = machine
        self._interest = interest
        self._in_flight = in_flight
        self._stored_subject = stored_subject
        self._expiries_in_flight = 0
        self._is_overtaken = False
        """Of what has ended, something in flight takes the place: nothing comes of it until that is stored."""
        self._markers: Append | None = None
        self._firing: dict[bytes, Append] = {}
        """Schedules whose firing is in flight."""
        self._handed_out: dict[bytes, None] = {}
        """Schedules that the host is about to fire."""
        self._schedules_from_ns = 0

    def next_deadlines_ns(self) -> list[int | None]:
        """When something is due; None: nothing is, of one kind."""
        deadlines_ns = []
        if not self._expiries_in_flight and not self._is_overtaken:
            deadlines_ns.append(self._machine.next_expiry_ns())
        if not self._firing and not self._handed_out and not self._machine.config.sealed:
            due_ns = self._machine.schedules.next_deadline_ns()
            deadlines_ns.append(due_ns and max(due_ns, self._schedules_from_ns))
        return deadlines_ns

    def expire(self, now_ns: int) -> tuple[Expire | None, Append]:
        """An entry that removes what has ended, and one, which may be empty, with the markers to store behind it."""
        markers = self._in_flight.begin(now_ns)
        entry = None
        if not self._expiries_in_flight:
            removed, marked = self._machine.expired(now_ns)
            if removed:
                entry = Expire(now_ns)
            marker_ttl_ns = self._machine.config.subject_delete_marker_ttl_ns
            for seq in marked:
                subject = self._machine.store.subject_of(seq)
                if subject is not None and self._in_flight.last_seq_of(subject, markers) == seq:
                    self._in_flight.add(markers, (subject, marker_headers(marker_ttl_ns), b""))
            if markers.messages:
                self._markers = markers
            self._expiries_in_flight = (entry is not None) + bool(markers.messages)
            self._is_overtaken = bool(marked) and not self._expiries_in_flight
        return entry, markers

    def due_schedules(self, now_ns: int) -> list[schedules.Due]:
        """The schedules whose time has come, each once: the host owes each a `fire` or a `put_off`."""
        if self._machine.config.sealed:
            return []
        due = [
            one
            for one in self._machine.schedules.due(now_ns)
            if one.subject not in self._firing and one.subject not in self._handed_out
        ]
        self._handed_out.update((one.subject, None) for one in due)
        return due

    def put_off(self, due: schedules.Due, now_ns: int) -> None:
        """A schedule could not be read: it stays due, and is tried again in a while."""
        self._handed_out.pop(due.subject, None)
        self._schedules_from_ns = now_ns + SCHEDULE_REST_NS

    def fire(self, due: schedules.Due, schedule: Message, content: tuple[bytes, bytes], now_ns: int) -> Append:
        """One firing of a schedule as an entry, which is empty if it was cancelled or replaced meanwhile.

        `schedule`: its message; `content`: header block and payload of the sampled message, or of the schedule.
        """
        self._handed_out.pop(due.subject, None)
        entry = self._in_flight.begin(now_ns)
        if self._machine.schedules.seq_of(due.subject) == due.seq:
            headers = header.nats_headers(schedule[1])
            next_value = self._machine.schedules.next_of(due.subject, now_ns)
            target, block, payload = schedules.fired_message(due.subject, headers, content, next_value)
            subject = self._stored_subject(target)
            self._in_flight.add(entry, (subject, block, payload), is_dropped=self._interest.drops(subject))
            self._firing[due.subject] = entry
        return entry

    def applied(self, entry: Append | Expire) -> None:
        """The machine applied `entry`: what it was for may be decided anew."""
        self._is_overtaken = False
        if isinstance(entry, Expire):
            self._expiries_in_flight -= 1
        elif entry is self._markers:
            self._markers = None
            self._expiries_in_flight -= 1
        elif self._firing:
            for subject in [subject for subject, firing in self._firing.items() if firing is entry]:
                del self._firing[subject]

    def reset(self) -> None:
        """Leadership began or ended: nothing is under way."""
        self._expiries_in_flight = 0
        self._is_overtaken = False
        self._markers = None
        self._firing.clear()
        self._handed_out.clear()
