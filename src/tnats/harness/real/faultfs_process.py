"""The process that serves one fault file system: `... faultfs_process MOUNTPOINT SEED posix|journal SECONDS`.

A process of its own, so that a server blocked in a disk call can never block the loop that has to answer it. Commands
come as JSON lines on standard input, each with one JSON line in return on standard output: `{"ok": ...}` or
`{"error": "one line"}`. The end of standard input (the harness has gone, however it went) unmounts and ends.

| command | does |
|---|---|
| `{"do": "power", "policy": "strict"}` | loses what is not durable, by that `CrashPolicy` |
| `{"do": "rule", "kinds": [...], "effect": {"name": "Fail", "errno": 28}, "glob": "*.blk", ...}` | adds a `DiskFault` |
| `{"do": "clear"}` | removes all rules |
| `{"do": "capacity", "bytes": n}` | sets the size of the disk |
| `{"do": "list", "glob": "*"}` | paths and sizes |
| `{"do": "flip", "path": p, "bits": n}`, `truncate` | damage at rest; answers with what was done |
| `{"do": "survives", "base64": text, "glob": "*"}` | whether these bytes would outlive a power loss now |
| `{"do": "counts"}` | calls so far, by kind |
"""

from __future__ import annotations

import base64
import json
import random
import sys
from typing import Any, Literal

import pyfuse3
import trio

from tnats.harness.real.faultfs import FaultFileSystem
from tnats.runtime.sim import disk_faults
from tnats.runtime.sim.disk import SimDrive
from tnats.runtime.sim.disk_image import CrashPolicy, ImageError

EFFECTS = {
    effect.__name__: effect
    for effect in (
        disk_faults.Fail,
        disk_faults.SyncFault,
        disk_faults.Flip,
        disk_faults.Misdirect,
        disk_faults.Lose,
        disk_faults.Delay,
    )
}
COMMAND_BYTES_MAX = 1 << 20
CAPACITY_BYTES = 10 << 30


class Control:
    """Carries out the commands on one file system."""

    def __init__(self, files: FaultFileSystem) -> None:
        self.files = files

    def carry_out(self, command: dict[str, Any]) -> Any:
        """The answer of one command. Raises ImageError, KeyError, TypeError, ValueError for what is no command."""
        arguments = dict(command)
        return getattr(self, "do_" + arguments.pop("do"))(**arguments)

    def do_power(self, policy: str) -> None:
        self.files.power_loss(CrashPolicy(policy))

    def do_rule(self, kinds: list[disk_faults.Kind], effect: dict[str, Any], **options: Any) -> None:
        arguments = dict(effect)
        made = EFFECTS[arguments.pop("name")](**arguments)
        self.files.drive.faults.append(disk_faults.DiskFault(tuple(kinds), made, **options))

    def do_clear(self) -> None:
        self.files.drive.faults.clear()

    def do_capacity(self, bytes: int) -> None:
        self.files.drive.capacity_bytes = bytes

    def do_list(self, glob: str) -> list[list[Any]]:
        image = self.files.drive.image
        return [[path, image.size(image.file(path))] for path in disk_faults.matching(image, glob)]

    def do_flip(self, path: str, bits: int) -> None:
        disk_faults.damage_bits(self.files.drive.image, path, bits, self.files.drive.rng)

    def do_truncate(self, path: str) -> int:
        image = self.files.drive.image
        before = len(image.content(path))
        disk_faults.damage_tail(image, path, self.files.drive.rng)
        return before - len(image.content(path))

    def do_survives(self, base64: str, glob: str) -> bool:
        return self.files.would_survive(decode(base64), glob)

    def do_counts(self) -> dict[str, int]:
        return self.files.call_counts


def decode(text: str) -> bytes:
    return base64.b64decode(text)


def say(record: dict[str, Any]) -> None:
    """One line on standard output."""
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


async def serve_commands(control: Control, scope: trio.CancelScope) -> None:
    """Answer command lines until standard input ends, then stop the file system."""
    buffer = bytearray()
    async with trio.lowlevel.FdStream(0) as stream:
        async for chunk in stream:
            buffer += chunk
            while (end := buffer.find(b"\n")) >= 0:
                line = bytes(buffer[:end])
                del buffer[: end + 1]
                try:
                    say({"ok": control.carry_out(json.loads(line))})
                except (ImageError, AttributeError, KeyError, TypeError, ValueError) as exc:
                    say({"error": f"{type(exc).__name__}: {exc}"})
            if len(buffer) > COMMAND_BYTES_MAX:
                break
    scope.cancel()


async def run(files: FaultFileSystem, write_back_s: float) -> None:
    async with trio.open_nursery() as nursery:
        if write_back_s:
            nursery.start_soon(files.write_back, write_back_s)
        nursery.start_soon(serve_commands, Control(files), nursery.cancel_scope)
        nursery.start_soon(pyfuse3.main)
        say({"ok": "mounted"})


def main(mountpoint: str, seed: str, names: Literal["posix", "journal"], write_back_s: float) -> int:
    """Mount, serve until standard input ends, unmount. `write_back_s` 0: nothing is written back by itself."""
    files = FaultFileSystem(SimDrive(random.Random(int(seed)), capacity_bytes=CAPACITY_BYTES), names)
    try:
        pyfuse3.init(files, mountpoint, {"fsname=tnats-faultfs", "default_permissions"})
    except RuntimeError as exc:
        say({"error": f"cannot mount at {mountpoint}: {exc}"})
        return 1
    try:
        trio.run(run, files, write_back_s)
    finally:
        pyfuse3.close(unmount=True)
    return 0


if __name__ == "__main__":
    _, where, number, rule, age = sys.argv
    sys.exit(main(where, number, "posix" if rule == "posix" else "journal", float(age)))
