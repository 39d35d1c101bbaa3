"""The files by which a running server is found, on a simulated disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import orjson
import pytest

from tnats.runtime.api import DiskError, Runtime
from tnats.runtime.sim.world import World, run_world
from tnats.server import files


def test_contents() -> None:
    """The pid alone; the URLs by kind as JSON, in a file named as scripts expect it."""

    async def scene(runtime: Runtime) -> None:
        disk = runtime.disk
        await files.write_pid_file(disk, "x.pid", 12)
        assert await disk.read_file("x.pid", bytes_max=9) == b"12"
        path = files.ports_path("", 12)
        assert path == "nats-server_12.ports"
        await files.write_ports_file(disk, path, {"nats": ["nats://a:1"]})
        assert orjson.loads(await disk.read_file(path, bytes_max=99)) == {"nats": ["nats://a:1"]}

    run(scene)


def test_a_missing_folder_is_named() -> None:
    """The error says which file could not be written and why."""

    async def scene(runtime: Runtime) -> None:
        with pytest.raises(DiskError, match=r"Could not write pidfile \(none/x.pid\): .*ENOENT"):
            await files.write_pid_file(runtime.disk, "none/x.pid", 1)
        with pytest.raises(DiskError, match=r"Error writing ports file \(none/nats-server_1.ports\): .*ENOENT"):
            await files.write_ports_file(runtime.disk, files.ports_path("none", 1), {})

    run(scene)


def run(scene: Callable[[Runtime], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        node = world.node("a")
        node.start(scene)
        await node.wait_ended()

    run_world(1, main).unwrap()
