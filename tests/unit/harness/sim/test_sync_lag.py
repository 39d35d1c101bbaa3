"""How long acknowledgements wait for their sync."""

from __future__ import annotations

from tnats.harness.sim.recording import Recording
from tnats.harness.sim.sync_lag import SyncLag


def test_what_is_acknowledged_waits_for_a_sync_that_begins_behind_it() -> None:
    """A note lasts from the first acknowledgement to the end of such a sync; what came meanwhile begins another."""
    now = [0]
    recording = Recording(lambda: now[0])
    lag = SyncLag(recording, "server", lambda: now[0])
    for time_ns, act in (
        (5, lag.acked),
        (6, lambda: lag.synced(4)),
        (9, lag.acked),
        (11, lambda: lag.synced(7)),
        (20, lambda: lag.synced(15)),
        (21, lambda: lag.synced(16)),
        (30, lag.acked),
        (31, lag.end),
        (40, lambda: lag.synced(35)),
    ):
        now[0] = time_ns
        act()
    assert [(note.time_ns, note.until_ns) for note in recording.notes] == [(5, 11), (11, 20), (30, 31)]
