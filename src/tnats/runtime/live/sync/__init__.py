"""Syncs on a thread of their own: `thread` is its owner's side, `hot` its loop, `calls` what the loop calls."""

from __future__ import annotations

from tnats import speedups

speedups.select("tnats.runtime.live.sync.hot")
