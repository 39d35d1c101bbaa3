"""Push consumers of the real server."""

from __future__ import annotations

from tnats.harness.sim.jetstream_push import PushDrill


class JetStreamPush(PushDrill):
    """A deliver group, flow control and heartbeats, listeners that come and go, acknowledgements of every kind."""


scenario = JetStreamPush
