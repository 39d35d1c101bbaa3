"""The origins that a stream follows now: one task for each, for as long as the configuration names it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import trio

from tnats.jetstream.stream.config import StreamConfig, StreamSource
from tnats.jetstream.stream.remote_sourcing import RemoteIntake
from tnats.jetstream.stream.sourcing import Intake, LocalIntake

if TYPE_CHECKING:
    from tnats.jetstream.stream.service import StreamService


class Intakes:
    """Those of one stream, in the order of its configuration."""

    def __init__(self, stream: StreamService) -> None:
        self._stream = stream
        self._running: list[Intake] = []
        self._scope = trio.CancelScope()

    def __iter__(self) -> Iterator[Intake]:
        return iter(self._running)

    def follow(self, config: StreamConfig) -> None:
        """Follow the origins of mirror and sources, and no others."""
        self.stop()
        if config.mirror is not None:
            self._running = [self._make(config.mirror, is_mirror=True)]
        else:
            self._running = [self._make(source, is_mirror=False) for source in config.live_sources()]
        if self._running:
            self._scope = trio.CancelScope()
            self._stream.host.spawn(self._run, self._scope, self._running)

    def stop(self) -> None:
        """Follow none."""
        self._scope.cancel()
        self._running = []

    async def _run(self, scope: trio.CancelScope, intakes: list[Intake]) -> None:
        with scope:
            async with trio.open_nursery() as nursery:
                for intake in intakes:
                    nursery.start_soon(intake.run)

    def _make(self, source: StreamSource, *, is_mirror: bool) -> Intake:
        external, domain = source.external, self._stream.host.options.domain
        if external is None or external.api in ("", f"$JS.{domain}.API"):
            return LocalIntake(self._stream, source, is_mirror=is_mirror)
        return RemoteIntake(self._stream, source, is_mirror=is_mirror)
