"""`tnats check`: look at a store that no server runs on, and name what is damaged."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TextIO

import attrs
import click

from tnats.cli.output import json_option, print_json
from tnats.cli.session import run
from tnats.cli.values import show_counted
from tnats.errors import TnatsError
from tnats.jetstream.stream import entries
from tnats.runtime.api import Runtime
from tnats.storage.check import Report, check_store, repair_store
from tnats.storage.encryption import Encryption

EXIT_CLEAN, EXIT_DAMAGED, EXIT_MISUSE = 0, 1, 2


def sequences_of(body: bytes) -> tuple[int, int] | None:
    """See `storage.check`."""
    entry = entries.decode(body)
    if isinstance(entry, entries.Append):
        return entry.first_seq, entry.next_seq - 1
    return (0, entry.next_seq - 1) if isinstance(entry, entries.Skip) else None


def encryption(file_key: str, environment: Mapping[str, str]) -> Encryption | None:
    """The keys to read a store with. Either cipher will do: files say which it is."""
    previous = environment.get("TNATS_STORE_PREV_KEY", "")
    key = file_key or environment.get("TNATS_STORE_KEY", "") or previous
    return Encryption(key, previous_key=previous) if key else None


@click.command("check")
@click.argument("store_dir")
@click.option("--repair", is_flag=True, help="Write back what other bytes prove: flipped bits, copies of headers.")
@click.option(
    "--key-file",
    type=click.File("r"),
    help="File with the key of an encrypted store. Or set TNATS_STORE_KEY, and TNATS_STORE_PREV_KEY if it is changing.",
)
@json_option
def command(store_dir: str, repair: bool, key_file: TextIO | None, as_json: bool) -> int:
    """Verify the store in STORE_DIR, with its server stopped. Nothing is ever removed.

    What is counted are messages in segment files; the newest may stand in the journal alone, which is verified too.

    Exit codes: 0 clean, 1 damage was found (with --repair: damage is left), 2 it could not be checked.
    """
    directory = store_dir.rstrip("/") or "/"
    file_key = "" if key_file is None else key_file.read().strip()
    exit_code = EXIT_CLEAN

    async def check(runtime: Runtime) -> None:
        nonlocal exit_code
        entropy = runtime.chance.rng("check").randbytes
        keys = encryption(file_key, runtime.process.environment)
        report = await check_store(runtime.disk, runtime.clock, entropy, directory, sequences_of, keys)
        written = 0
        if repair and report.corrections:
            await repair_store(runtime.disk, directory, report)
            written = len(report.corrections)
            left = await check_store(runtime.disk, runtime.clock, entropy, directory, sequences_of, keys)
            exit_code = EXIT_CLEAN if left.is_clean else EXIT_DAMAGED
        else:
            exit_code = EXIT_CLEAN if report.is_clean else EXIT_DAMAGED
        (print_records if as_json else print_text)(directory, report, written)

    try:
        return run(check) or exit_code
    except TnatsError as exc:
        print(f"tnats check: {exc}", file=sys.stderr)
        return EXIT_MISUSE


def print_text(directory: str, report: Report, written: int) -> None:
    """A line for each stream and each finding, then the sum."""
    for stream in report.streams:
        held = show_counted(stream.messages, "message")
        print(f"stream {stream.group}: {held} in files, sequences {stream.first}-{stream.last}")
    for finding in report.findings:
        print(finding)
    verdict = "clean" if report.is_clean else show_counted(len(report.findings), "finding")
    repaired = f", {show_counted(written, 'place')} repaired" if written else ""
    print(f"{directory}: {show_counted(len(report.streams), 'stream')}, {verdict}{repaired}")


def print_records(directory: str, report: Report, written: int) -> None:
    """The same as JSON lines."""
    for stream in report.streams:
        print_json({"type": "stream", **attrs.asdict(stream)})
    for finding in report.findings:
        print_json({"type": "finding", **attrs.asdict(finding)})
    print_json({"type": "summary", "directory": directory, "is_clean": report.is_clean, "repaired": written})
