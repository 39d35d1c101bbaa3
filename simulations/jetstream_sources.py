"""A chain of sources and a mirror on the real server."""

from __future__ import annotations

from tnats.harness.sim.jetstream_sources import SourcesDrill


class JetStreamSources(SourcesDrill):
    """Two streams, one that gathers from both, and its mirror: once, in order, complete."""


scenario = JetStreamSources
