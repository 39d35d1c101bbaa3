"""What is read back from a server at the end of a run."""

from __future__ import annotations

from tnats.client.jetstream import StreamState
from tnats.harness.real.inspection import named_lost
from tnats.harness.workloads.jetstream import STREAM
from tnats.jetstream.api.messages import LostStreamData
from tnats.storage.record import Finding


def test_losses_are_taken_from_the_stream_and_from_health_checks() -> None:
    """Single sequences of the stream's state, and ranges in the words in which the storage engine names them; those of
    another stream do not count.
    """
    group = f"stream/1/$G/{STREAM}"
    ours = Finding("lost", "/s/1", 3, 10, group=group, text="messages")
    unsynced = Finding("lost", "/s/1", 20, 4_000_000, group=group, text="messages, as many as there were: power failed")
    other = Finding("lost", "/s/2", 50, 60, group="stream/2/$G/other", text="messages")
    reports = [f'{{"status":"unavailable","error":"JetStream {finding}"}}' for finding in (ours, unsynced, other)]
    state = StreamState(lost=LostStreamData(msgs=[15, 16]))
    assert named_lost(state, reports) == ((15, 15), (16, 16), (3, 9), (20, 3_999_999))
    assert named_lost(StreamState(), ['{"status":"ok"}']) == ()
