"""Storage: records, segments, the journal, and the message stores above them. See docs/storage.md."""

from __future__ import annotations

from tnats import speedups

speedups.select("tnats.storage.hot")
