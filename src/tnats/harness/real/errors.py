"""Why a run against real processes could not be made."""

from __future__ import annotations

from tnats.errors import TnatsError


class CouldNotRun(TnatsError):
    """The run says nothing about the target: it did not start, could not be fetched, or the mount failed."""
