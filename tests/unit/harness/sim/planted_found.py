"""What the drills found in earlier states of this code, planted again: each has an entry in the corpus that finds it.

`seeds` 0: the entry alone is asked for, since the fault is too rare for a search in a test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.harness.sim.planted import Planted

from tnats.client import ClientError
from tnats.client.jetstream.delivery import Delivery
from tnats.client.jetstream.errors import OUTAGE, ConsumerNotFound
from tnats.client.jetstream.fast_batch import FastBatch
from tnats.client.jetstream.ordered import OrderedMessages
from tnats.client.object_store.store import ObjectStore
from tnats.jetstream.api.direct import DirectGets
from tnats.jetstream.stream.service import StreamService
from tnats.jetstream.stream.timed import Timed
from tnats.limits import CLIENT_PRESENT_LOOK_NS
from tnats.runtime.api import DiskError
from tnats.storage.journal import Journal
from tnats.storage.journal_part import JournalPart

Method = Callable[..., Any]


def begins_as_before(original: Method) -> Method:
    """Takes another consumer that begins anew for the one that was lost before it delivered anything."""

    async def create(self: OrderedMessages) -> None:
        goes_on, count = self._next_stream_sequence, self.pending_count
        await original(self)
        if self._serial > 1 and not goes_on:
            self.pending_count = count
        if not goes_on:
            self._next_stream_sequence = 0

    return create


async def waits_for_ever(self: OrderedMessages) -> Delivery | None:
    """Does not see that what it waits for was removed on its way."""
    clock = self._api.client.runtime.clock
    while True:
        with clock.deadline(clock.mono_ns() + CLIENT_PRESENT_LOOK_NS):
            return await anext(self)
        try:
            info = await self._source.info()
        except (ConsumerNotFound, *OUTAGE):
            continue
        if info.num_pending + info.delivered.consumer_seq <= self._last_consumer_sequence:
            return None


def says_absent(original: Method) -> Method:
    def fail(self: DirectGets, seq: int, reply: bytes, failure: Exception) -> None:
        original(self, seq, reply, KeyError(seq) if isinstance(failure, DiskError) else failure)

    return fail


def clears_away(original: Method) -> Method:
    async def publish_info(self: ObjectStore, info: Any) -> None:
        try:
            await original(self, info)
        except ClientError:
            await self._clear_away(info)
            raise

    return publish_info


def looks_at_the_clock(original: Method) -> Method:
    """A stream in trouble whose deadlines wake it, though it can do nothing about them."""

    def set_timer(self: StreamService) -> None:
        trouble, self.trouble = self.trouble, None
        original(self)
        self.trouble = trouble

    return set_timer


def forgets_what_overtakes(original: Method) -> Method:
    """Deadlines that come at once though nothing can come of them before something in flight is stored."""

    def next_deadlines_ns(self: Timed) -> list[int | None]:
        self._is_overtaken = False
        found: list[int | None] = original(self)
        return found

    return next_deadlines_ns


def asks_for_ever(original: Method) -> Method:
    """A fast batch that takes every answer for progress."""

    async def wait_answer(self: FastBatch) -> None:
        self._asked_at = -1
        await original(self)

    return wait_answer


def frozen_is_clean(original: Any) -> property:
    """A journal that syncs nothing any more after a write that failed."""
    return property(lambda self: self.frozen is None and original.fget(self))


PLANTED_FOUND = (
    Planted(
        "a watch whose consumer is lost at once counts as before",
        "jetstream_kv",
        0,
        ("C14 ordered readers see everything once",),
        lambda: [(OrderedMessages, "_create", begins_as_before(OrderedMessages._create))],
    ),
    Planted(
        "a reader waits for what was removed on its way",
        "jetstream_objects",
        0,
        ("LIVE bound",),
        lambda: [(OrderedMessages, "next_present", waits_for_ever)],
    ),
    Planted(
        "what cannot be read now is said to be absent",
        "jetstream_objects",
        0,
        ("C3 objects are whole, and the newest",),
        lambda: [(DirectGets, "_fail", says_absent(DirectGets._fail))],
    ),
    Planted(
        "an object whose record was not answered loses its chunks",
        "jetstream_objects",
        0,
        ("C3 objects are whole, and the newest",),
        lambda: [(ObjectStore, "_publish_info", clears_away(ObjectStore._publish_info))],
    ),
    Planted(
        "a stream that takes no more writes looks at its clock without end",
        "jetstream_time",
        0,
        ("LIVE livelock",),
        lambda: [(StreamService, "_set_timer", looks_at_the_clock(StreamService._set_timer))],
    ),
    Planted(
        "what something in flight takes the place of is looked at without end",
        "jetstream_time",
        0,
        ("LIVE livelock",),
        lambda: [(Timed, "next_deadlines_ns", forgets_what_overtakes(Timed.next_deadlines_ns))],
    ),
    Planted(
        "a fast batch whose commit was lost asks for ever",
        "jetstream_time",
        0,
        ("LIVE bound",),
        lambda: [(FastBatch, "_wait_answer", asks_for_ever(FastBatch._wait_answer))],
    ),
    Planted(
        "a write that failed costs what was acknowledged before",
        "jetstream_publish",
        0,
        ("C13 what was acknowledged is there, what was removed is not",),
        lambda: [(Journal, "is_dirty", frozen_is_clean(Journal.is_dirty))],
    ),
    Planted(
        "goes on behind the end that a new part tells",
        "jetstream_mirror",
        0,
        ("C13 what was acknowledged is there, what was removed is not",),
        lambda: [(JournalPart, "close_up", lambda self: None)],
    ),
)
