"""Publishing to streams in memory of the real server."""

from __future__ import annotations

from tnats.harness.sim.jetstream_memory import MemoryDrill


class JetStreamMemory(MemoryDrill):
    """Streams in memory have what was acknowledged since the start, under everything."""


scenario = JetStreamMemory
