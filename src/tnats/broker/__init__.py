"""Core messaging: connections in, plans, deliveries out. Start at `broker.Broker`; the hot loop is `hot.py`."""

from __future__ import annotations

from tnats import speedups

speedups.select("tnats.broker.hot")
