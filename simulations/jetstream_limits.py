"""Streams on the real server that are full, rolled up, and know message ids for a moment."""

from __future__ import annotations

from tnats.harness.sim.jetstream_limits import LimitsDrill


class JetStreamLimits(LimitsDrill):
    """Limits, roll-ups and duplicate windows are kept, and take no more than they must, under everything."""


scenario = JetStreamLimits
