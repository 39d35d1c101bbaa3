"""JetStream on a disk that damages what it keeps."""

from __future__ import annotations

from tnats.harness.sim.jetstream_damage import DamageDrill


class JetStreamDamage(DamageDrill):
    """What is damaged is an error that the health check names, all else is served, nothing is made up."""


scenario = JetStreamDamage
