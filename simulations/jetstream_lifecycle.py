"""Streams come and go on the real server."""

from __future__ import annotations

from tnats.harness.sim.jetstream_lifecycle import LifecycleDrill


class JetStreamLifecycle(LifecycleDrill):
    """Streams live until they are deleted, and a new one has nothing of the old, under everything."""


scenario = JetStreamLifecycle
