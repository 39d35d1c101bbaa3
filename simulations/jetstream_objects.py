"""An object store on the real server."""

from __future__ import annotations

from tnats.harness.sim.jetstream_objects import ObjectDrill


class JetStreamObjects(ObjectDrill):
    """Chunked objects are whole and the newest for every reader, under everything."""


scenario = JetStreamObjects
