"""Consumers: what to deliver to whom and when, and what acknowledgements mean. The hot loops are in `hot.py`."""

from __future__ import annotations

from tnats import speedups

speedups.select("tnats.jetstream.consumer.hot")
