"""`connect`: the one way to make a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Unpack

import trio

from tnats.client.client import Client
from tnats.client.connection import Connection
from tnats.client.options import ConnectOptions, Options, parse_addresses
from tnats.runtime.api import Runtime


@asynccontextmanager
async def connect(
    servers: str | Iterable[str] = "nats://127.0.0.1:4222",
    *,
    runtime: Runtime | None = None,
    **options: Unpack[ConnectOptions],
) -> AsyncIterator[Client]:
    """A connected client for the length of the block.

    `servers` is one address, several with commas, or an iterable of them: `host:port`,
    `nats://user:password@host:port`. `runtime` is the seam to run on, the live one by default. `options` are the
    fields of `tnats.client.options.Options`.

    At the end of the block the client is closed: in order (`Client.close`), or at once if the block failed or was
    cancelled. What the block raises comes out as it is. Raises ConnectFailed, AuthorizationFailed.
    """
    if runtime is None:
        from tnats.runtime.live import live_runtime

        runtime = live_runtime()
    connection = Connection(runtime, Options(**options), parse_addresses(servers))
    client = Client(connection)
    await connection.open_first()
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        try:
            yield client
            await client.close()
        except BaseException as exc:
            # Carried around the nursery, which would wrap it in a group.
            failure = exc
            connection.stop()
    if failure is not None:
        raise failure
