"""Rare branches made common, from inside the code (after FoundationDB's BUGGIFY)."""

from __future__ import annotations

from collections.abc import Callable

from tnats.runtime.sim.chance import stream

SITE_CHANCE = 0.25
FIRE_CHANCES = (0.01, 0.05, 0.25, 0.5)


class Buggify:
    """One world's sites: each is on for the whole run with 25 %, then fires with a chance of its own."""

    def __init__(self, seed: int, *, enabled: bool) -> None:
        self.enabled = enabled
        """Off while a world must come to rest (the liveness phase)."""
        self.observer: Callable[[str], None] | None = None
        """Told of every site that is reached, whether it fires or not."""
        self._seed = seed
        self._rng = stream(seed, "buggify")
        self._chances: dict[str, float] = {}

    def __call__(self, name: str) -> bool:
        """Whether site `name` fires now."""
        if self.observer is not None:
            self.observer(name)
        if not self.enabled:
            return False
        chance = self._chances.get(name)
        if chance is None:
            # From a stream of the site's own: whether it is on must not depend on which sites were met before.
            rng = stream(self._seed, "buggify", name)
            chance = rng.choice(FIRE_CHANCES) if rng.random() < SITE_CHANCE else 0.0
            self._chances[name] = chance
        return chance > 0 and self._rng.random() < chance

    def sites(self) -> dict[str, float]:
        """The sites met so far, with their chances."""
        return dict(self._chances)
