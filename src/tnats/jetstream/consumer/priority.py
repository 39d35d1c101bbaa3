"""Priority groups of pull consumers (ADR-42): which waiting request may be served.

overflow: only while enough is pending, by the request's own thresholds. pinned_client: one client at a time, known
by an id that its messages carry; the pin ends when the client is silent for `priority_timeout`, or by request.
prioritized: lower numbers first, which the wait queue's order sees to.
"""

from __future__ import annotations

from collections.abc import Callable

from tnats.jetstream.consumer.config import ConsumerConfig, PriorityPolicy
from tnats.jetstream.consumer.requests import Wish
from tnats.records import define


@define
class Pin:
    """Who a group is pinned to, and until when without a sign of life."""

    client_id: str
    since_ns: int
    expires_ns: int


class PriorityGroups:
    """The groups of one consumer."""

    def __init__(self, config: ConsumerConfig, new_id: Callable[[], str]) -> None:
        """`new_id` gives the ids of pinned clients."""
        self.policy = config.priority_policy
        self.timeout_ns = config.priority_timeout_ns
        self.pins: dict[str, Pin] = {}
        self._new_id = new_id

    def pinned_ids(self) -> dict[str, str]:
        """The pinned client of each group that has one."""
        return {group: pin.client_id for group, pin in self.pins.items()}

    def heard_from(self, group: str, client_id: str, now_ns: int) -> None:
        """The pinned client sent a request."""
        pin = self.pins.get(group)
        if pin is not None and pin.client_id == client_id:
            pin.expires_ns = now_ns + self.timeout_ns

    def may_be_served(self, wish: Wish, pending_count: int, ack_pending_count: int) -> bool:
        """Whether requests that wish so may be served now."""
        if self.policy == PriorityPolicy.OVERFLOW:
            if not wish.min_pending and not wish.min_ack_pending:
                return True
            return (0 < wish.min_pending <= pending_count) or (0 < wish.min_ack_pending <= ack_pending_count)
        if self.policy == PriorityPolicy.PINNED_CLIENT:
            pin = self.pins.get(wish.group)
            return pin is None or pin.client_id == wish.pin_id
        return True

    def serve(self, group: str, wall_ns: int, now_ns: int) -> tuple[str, bool]:
        """(pin id for the message, whether the client was pinned just now) of a request that is being served."""
        if self.policy != PriorityPolicy.PINNED_CLIENT:
            return "", False
        pin = self.pins.get(group)
        if pin is not None:
            return pin.client_id, False
        pin = self.pins[group] = Pin(self._new_id(), wall_ns, now_ns + self.timeout_ns)
        return pin.client_id, True

    def next_deadline_ns(self) -> int | None:
        """When the next pin ends."""
        return min(pin.expires_ns for pin in self.pins.values()) if self.pins else None

    def expire(self, now_ns: int) -> list[str]:
        """End the pins of silent clients; their groups."""
        ended = [group for group, pin in self.pins.items() if pin.expires_ns <= now_ns]
        for group in ended:
            del self.pins[group]
        return ended
