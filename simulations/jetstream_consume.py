"""Consumers of the real server, shared by several workers."""

from __future__ import annotations

from tnats.harness.sim.jetstream_consume import ConsumeDrill


class JetStreamConsume(ConsumeDrill):
    """Pulls, acknowledgements of every kind, redelivery, limits of deliveries, ordered readers, under everything."""


scenario = JetStreamConsume
