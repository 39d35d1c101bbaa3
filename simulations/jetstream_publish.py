"""Publishing to streams of the real server."""

from __future__ import annotations

from tnats.harness.sim.jetstream_publish import PublishDrill


class JetStreamPublish(PublishDrill):
    """Acknowledgements, message ids, expected sequences, batches, counters and limits under everything."""


scenario = JetStreamPublish
