"""Core messaging with a few clients."""

from __future__ import annotations

from tnats.harness.sim.core import CoreDrill


class Core(CoreDrill):
    """Three to eight clients under everything: order, no loss between the connected, queue groups, requests."""


scenario = Core
