"""What every command that talks to a server shares: its options, and one way to run, fail and be interrupted."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

import click
import trio

import tnats.client
from tnats.cli.connection import CONNECTION_OPTIONS, connection_options, given_early
from tnats.client import Client, ConnectOptions, ErrorReported, Event, ServerError
from tnats.errors import FeatureMissing, sole_cause
from tnats.records import frozen
from tnats.runtime.api import Runtime
from tnats.runtime.live import live_runtime

F = TypeVar("F", bound=Callable[..., Any])

SIGNALS_ENDING = {"HUP": 1, "INT": 2, "TERM": 15}
"""Signals that end a command, with the numbers that its exit code tells (128 + n)."""


@frozen
class Session:
    """The parsed connection options of one command."""

    servers: str
    options: ConnectOptions

    def connect(self, runtime: Runtime, **more: Any) -> AbstractAsyncContextManager[Client]:
        """`tnats.client.connect` with these options; `more` overrides single ones."""
        return tnats.client.connect(self.servers, runtime=runtime, **{**self.options, **more})

    @asynccontextmanager
    async def connect_to_publish(self, runtime: Runtime) -> AsyncIterator[Client]:
        """As `connect`; once all in the block is flushed, raises the first refusal of it (ServerError)."""
        refusals: list[ServerError] = []

        def note_refusal(event: Event) -> None:
            if isinstance(event, ErrorReported) and not refusals:
                refusals.append(event.error)

        async with self.connect(runtime, on_event=note_refusal) as client:
            yield client
            await client.flush()
        if refusals:
            raise refusals[0]


def session_options(command: F) -> F:
    """Decorator: adds the connection options and passes them on as the keyword `session`."""

    @functools.wraps(command)
    def with_session(**arguments: Any) -> Any:
        given = {option.parameter: arguments.pop(option.parameter) for option in CONNECTION_OPTIONS}
        given |= given_early(click.get_current_context())
        if given["creds"]:
            raise FeatureMissing("--creds: credentials files are not available yet; use --user or --token")
        options: ConnectOptions = {
            "name": given["connection_name"],
            "user": given["user"],
            "password": given["password"],
            "token": given["token"],
        }
        return command(session=Session(given["servers"], options), **arguments)

    decorated: Any = connection_options(with_session)
    result: F = decorated
    return result


def run(work: Callable[[Runtime], Awaitable[None]]) -> int:
    """Run `work` on the live runtime until it returns or a signal ends it; returns the exit code.

    What `work` raises comes out as itself, not wrapped in a group.
    """
    runtime = live_runtime()
    failure: BaseException | None = None
    exit_code = 0

    async def supervise() -> None:
        nonlocal failure, exit_code
        with runtime.process.signals() as signals:
            async with trio.open_nursery() as nursery:

                async def attempt() -> None:
                    nonlocal failure
                    try:
                        await work(runtime)
                    except Exception as exc:
                        failure = sole_cause(exc)
                    nursery.cancel_scope.cancel()

                nursery.start_soon(attempt)
                while True:
                    name = await signals.next()
                    if name in SIGNALS_ENDING:
                        exit_code = 128 + SIGNALS_ENDING[name]
                        nursery.cancel_scope.cancel()

    trio.run(supervise)
    if failure is not None:
        raise failure
    return exit_code
