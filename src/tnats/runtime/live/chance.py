"""The system's randomness."""

from __future__ import annotations

import os
import random


class LiveChance:
    """`tnats.runtime.api.Chance` seeded by the operating system."""

    __slots__ = ()

    def rng(self, label: str) -> random.Random:
        return random.Random()

    entropy = staticmethod(os.urandom)
