"""Mirrors on the real server."""

from __future__ import annotations

from tnats.harness.sim.jetstream_mirror import MirrorDrill


class JetStreamMirror(MirrorDrill):
    """A mirror is the image of its origin, whatever happens to the server in between."""


scenario = JetStreamMirror
