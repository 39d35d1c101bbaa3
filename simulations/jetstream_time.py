"""Lifetimes, schedules and fast batches on the real server."""

from __future__ import annotations

from tnats.harness.sim.jetstream_time import TimeDrill


class JetStreamTime(TimeDrill):
    """What is to go goes in time, what is to come comes once, whatever happens to the server in between."""


scenario = JetStreamTime
