"""The origins that a stream follows now: one task for each, for as long as the configuration names it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import trio

from tnats.jetstream.stream.config import StreamSource
from tnats.jetstream.stream.remote_sourcing import RemoteIntake
from tnats.jetstream.stream.sourcing import Intake, LocalIntake

if TYPE_CHECKING:
    from tnats.jetstream.stream.service import StreamService


class Intakes:
    """Those of one stream, in the order of its configuration."""

    def __init__(self) -> None:
        self._intakes: list[Intake] = []
        self._scope = trio.CancelScope()

    def __iter__(self) -> Iterator[Intake]:
        return iter(self._intakes)

    def follow(self, stream: StreamService) -> None:
        """Follow the origins of mirror and sources, and no others; those of a sealed stream are shown, and rest."""
        self.rest()
        config = stream.config
        self._intakes = [_make(stream, one, is_mirror=config.mirror is not None) for one in config.origins()]
        if self._intakes and not config.sealed:
            for intake in self._intakes:
                intake.join()  # at once: an interest stream drops what comes while none of its readers is there
            self._scope = trio.CancelScope()
            stream.host.spawn(self._run, self._scope, self._intakes)

    def rest(self) -> None:
        """Follow none any more; they still tell how far they have come."""
        self._scope.cancel()
        for intake in self._intakes:
            intake.leave()

    def stop(self) -> None:
        """Follow none any more, and forget them."""
        self.rest()
        self._intakes = []

    async def _run(self, scope: trio.CancelScope, intakes: list[Intake]) -> None:
        with scope:
            async with trio.open_nursery() as nursery:
                for intake in intakes:
                    nursery.start_soon(intake.run)


def _make(stream: StreamService, source: StreamSource, *, is_mirror: bool) -> Intake:
    external, domain = source.external, stream.host.options.domain
    if external is None or external.api in ("", f"$JS.{domain}.API"):
        return LocalIntake(stream, source, is_mirror=is_mirror)
    return RemoteIntake(stream, source, is_mirror=is_mirror)
