"""An origin on the real server that is deleted and made anew under what gathers from it."""

from __future__ import annotations

from tnats.harness.sim.jetstream_anew import AnewDrill


class JetStreamAnew(AnewDrill):
    """Each life of an origin comes once and in order, under everything."""


scenario = JetStreamAnew
