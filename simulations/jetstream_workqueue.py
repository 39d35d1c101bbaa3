"""Work queues of the real server."""

from __future__ import annotations

from tnats.harness.sim.jetstream_consume import WorkQueueDrill


class JetStreamWorkQueue(WorkQueueDrill):
    """Work is done at least once, is with one worker at a time, and is gone once its acknowledgement is confirmed."""


scenario = JetStreamWorkQueue
