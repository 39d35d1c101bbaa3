"""Pacing of a push consumer: the flow-control window, the rate limit, original replay. Pure arithmetic over times.

Flow control: bytes sent and not yet known to be consumed are counted; past half the window a request for a sign of
life goes out with a reply subject, and past the whole window sending stops until it is answered. The window begins
small and doubles with each answer, up to 32 MiB.
"""

from __future__ import annotations

from tnats.jetstream.consumer.config import ConsumerConfig, ReplayPolicy
from tnats.limits import (
    CONSUMER_FLOW_WINDOW_BYTES,
    CONSUMER_FLOW_WINDOW_BYTES_MAX,
    CONSUMER_RATE_BURST_BYTES,
    SECOND_NS,
)


class FlowControl:
    """The window of one push consumer."""

    def __init__(self) -> None:
        self.window_bytes = CONSUMER_FLOW_WINDOW_BYTES
        self.pending_bytes = 0
        self.request_subject = b""
        """The reply subject of the request that is not answered yet; empty: there is none."""
        self._request_bytes = 0

    def is_open(self) -> bool:
        """Whether another message may be sent."""
        return self.pending_bytes <= self.window_bytes

    def sent(self, size: int) -> None:
        """A message went out."""
        self.pending_bytes += size

    def wants_request(self) -> bool:
        """Whether it is time to ask for a sign of life."""
        return not self.request_subject and self.pending_bytes > self.window_bytes // 2

    def request(self, subject: bytes) -> None:
        """The request went out."""
        self.request_subject = subject
        self._request_bytes = self.pending_bytes

    def answered(self, subject: bytes) -> bool:
        """Whether `subject` answers the request that is awaited."""
        if not self.request_subject or subject != self.request_subject:
            return False
        self.request_subject = b""
        self.pending_bytes -= self._request_bytes
        self.window_bytes = min(self.window_bytes * 2, CONSUMER_FLOW_WINDOW_BYTES_MAX)
        return True


class Pace:
    """When the next message may be sent at the earliest: rate limit (`rate_limit_bps`, bits) and original replay."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._bytes_per_second = config.rate_limit_bps // 8
        self._is_original = config.replay_policy == ReplayPolicy.ORIGINAL
        self.is_free = not self._bytes_per_second and not self._is_original
        """Any message may go at any time."""
        self._paid_until_ns = 0
        self._last_sent_ns: int | None = None
        self._last_ts_ns = 0

    def earliest_ns(self, ts_ns: int) -> int:
        """When a message of the stream time `ts_ns` may go."""
        earliest_ns = 0
        if self._bytes_per_second:
            burst_ns = CONSUMER_RATE_BURST_BYTES * SECOND_NS // self._bytes_per_second
            earliest_ns = self._paid_until_ns - burst_ns
        if self._is_original and self._last_sent_ns is not None:
            earliest_ns = max(earliest_ns, self._last_sent_ns + max(ts_ns - self._last_ts_ns, 0))
        return earliest_ns

    def sent(self, ts_ns: int, size: int, now_ns: int) -> None:
        """A message went out."""
        if self._bytes_per_second:
            cost_ns = size * SECOND_NS // self._bytes_per_second
            self._paid_until_ns = max(self._paid_until_ns, now_ns) + cost_ns
        self._last_sent_ns = now_ns
        self._last_ts_ns = ts_ns
