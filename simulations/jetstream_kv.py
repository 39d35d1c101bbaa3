"""Key-value buckets of the real server."""

from __future__ import annotations

from tnats.harness.sim.jetstream_kv import KvDrill


class JetStreamKv(KvDrill):
    """Keys are linearizable, updates compare and set, watchers miss nothing, under everything."""


scenario = JetStreamKv
