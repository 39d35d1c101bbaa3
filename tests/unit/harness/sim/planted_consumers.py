"""Deliberately broken builds of JetStream's consumers: see `planted`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from tests.unit.harness.sim.planted import Planted

from tnats.client.jetstream.ordered import OrderedMessages
from tnats.jetstream.consumer import state
from tnats.jetstream.consumer.acknowledge import Acknowledgements
from tnats.jetstream.consumer.core import Core
from tnats.jetstream.consumer.machine import ConsumerMachine
from tnats.jetstream.consumer.service import ConsumerService
from tnats.jetstream.host import Host

Method = Callable[..., Any]


def confirms_first(original: Method) -> Method:
    """Confirms acknowledgements as they are heard."""

    def flush(self: ConsumerService) -> None:
        for reply in self._after.replies:
            self._client.publish(reply, b"")
        self._after.replies.clear()
        original(self)

    return flush


def lets_go_at_delivery(original: Method) -> Method:
    """A work queue that forgets a message once somebody has it."""

    def deliver(self: ConsumerService, send: Any, messages: list[Any]) -> None:
        original(self, send, messages)
        self.stream.done_with(list(send.seqs[: len(messages)]), None)

    return deliver


def waits_by_the_wall(original: Method) -> Method:
    """Ack waits that the wall clock measures."""

    def pulls(self: ConsumerService, messages: Any) -> None:
        original(self, messages)
        self.carry_out(self.machine.tick(self.host.mono_ns()))

    return pulls


def wall_for_mono() -> Callable[[Host], int]:
    """`Host.mono_ns` on the wall clock, beginning where the monotonic one was."""
    ahead_ns: dict[object, int] = {}

    def mono_ns(self: Host) -> int:
        clock = self.runtime.clock
        return clock.wall_ns() - ahead_ns.setdefault(clock, clock.wall_ns() - clock.mono_ns())

    return mono_ns


def gives_up_at_nak(self: Acknowledgements, place: Any, ack: Any, now_ns: int) -> None:
    self.end_pending(place.stream_seq, state.GIVEN_UP)


def forgets_pending(self: ConsumerMachine, now_ns: int) -> None:
    """Takes what was delivered before a start for done."""
    for seq in self._core.state.pending.seqs():
        self._core.op(state.GIVEN_UP, seq)


def sends_without_end(original: Method) -> Method:
    """Does not count what is out."""

    def use(self: Core, config: Any) -> None:
        original(self, attrs.evolve(config, max_ack_pending=-1))

    return use


def tells_a_low_floor(original: Method) -> Method:
    def info(self: ConsumerMachine, now_ns: int) -> Any:
        found = original(self, now_ns)
        found.ack_floor.stream_seq = max(0, found.ack_floor.stream_seq - 3)
        return found

    return info


def begins_one_early(original: Method) -> Method:
    """An ordered reader that, with another consumer, begins with the last message that it has."""

    async def create(self: OrderedMessages) -> None:
        if self._serial >= 1 and self._next_stream_sequence > 1:
            self._next_stream_sequence -= 1
        await original(self)

    return create


C14 = "C14 consumers get everything, in order"

PLANTED_CONSUMERS = (
    Planted(
        "acknowledgements are confirmed before they are written",
        "jetstream_consume",
        20,
        ("C15 confirmed acknowledgements survive a crash", "C16 confirmed acknowledgements hold"),
        lambda: [(ConsumerService, "flush", confirms_first(ConsumerService.flush))],
    ),
    Planted(
        "a message is delivered once too often",
        "jetstream_consume",
        20,
        ("C18 consumers keep their limits",),
        lambda: [(Acknowledgements, "gives_up", lambda *arguments: False)],
    ),
    Planted(
        "ack waits follow the wall clock",
        "jetstream_workqueue",
        10,
        ("C17 a message is with one worker at a time",),
        lambda: [
            (ConsumerService, "pulls", waits_by_the_wall(ConsumerService.pulls)),
            (Host, "mono_ns", wall_for_mono()),
        ],
    ),
    Planted(
        "a work queue lets go at delivery",
        "jetstream_workqueue",
        5,
        ("C17 work leaves its queue when it is done",),
        lambda: [(ConsumerService, "_deliver", lets_go_at_delivery(ConsumerService._deliver))],
    ),
    Planted(
        "what is given back is not sent again",
        "jetstream_consume",
        5,
        (C14,),
        lambda: [(Acknowledgements, "_give_back", gives_up_at_nak)],
    ),
    Planted(
        "what was out at a start is taken for done",
        "jetstream_workqueue",
        5,
        (C14,),
        lambda: [(ConsumerMachine, "_restore", forgets_pending)],
    ),
    Planted(
        "what was out at a start is not pushed again",
        "jetstream_push",
        5,
        (C14,),
        lambda: [(ConsumerMachine, "_restore", forgets_pending)],
    ),
    Planted(
        "more is out than may be",
        "jetstream_push",
        5,
        ("C18 consumers keep their limits",),
        lambda: [(Core, "use", sends_without_end(Core.use))],
    ),
    Planted(
        "a floor is told too low",
        "jetstream_consume",
        5,
        ("C16 confirmed acknowledgements hold",),
        lambda: [(ConsumerMachine, "info", tells_a_low_floor(ConsumerMachine.info))],
    ),
    Planted(
        "an ordered reader begins again one early",
        "jetstream_consume",
        5,
        ("C14 ordered readers see everything once",),
        lambda: [(OrderedMessages, "_create", begins_one_early(OrderedMessages._create))],
    ),
)
