"""The findings that Jepsen published about NATS, as scenario files say them.

One TOML file a finding (`real.finding_files` reads them). A finding has variants (the same fault under another
configuration or another kind of damage) and profiles (how long, how fast).
"""

from __future__ import annotations

import tomllib
from typing import Any, Literal

import attrs

from tnats.errors import TnatsError
from tnats.harness.faults import Fault, FaultError, parse_fault
from tnats.harness.selection import check
from tnats.records import frozen

Expect = Literal["S", "W", "H"]
EXPECTATIONS = {
    "S": "nothing acknowledged may be lost",
    "W": "loss only inside the sync interval before a power loss, as a suffix, and reported",
    "H": "damaged data is an error that names it, everything else is served, and the health check fails",
}
"""What the contract asks of a server in a variant (one letter each)."""


class FindingError(TnatsError):
    """A scenario file that cannot be used, or a name that none has."""


@frozen
class Profile:
    """How a finding is run. `time_scale` multiplies every time in the faults."""

    worker_count: int
    rate_per_s: float
    quiet_s: float
    duration_s: float
    time_scale: float
    timeout_s: float


@frozen
class Variant:
    """One configuration and its faults."""

    name: str
    text: str
    workload: Literal["queue", "register"]
    store: Literal["directory", "faultfs"]
    expect: Expect
    faults: tuple[Fault, ...]
    sync_interval: str | None = None
    """None leaves it to the server."""
    names: Literal["journal", "posix"] = "journal"
    """When the fault file system makes names durable (see `real.faultfs`)."""
    nodes: int = 1
    """How many servers; as many as the finding says, unless the variant says otherwise."""
    write_back: bool = False
    """Whether data becomes durable by itself, as on a running machine: after 30 s, times the profile's scale."""


@frozen
class Finding:
    """One scenario file."""

    id: str
    title: str
    reference: str
    affected: str
    nodes: int
    seen_by_jepsen: str
    profiles: dict[str, Profile]
    variants: tuple[Variant, ...]
    log_words: tuple[str, ...] = ()
    """What servers were seen to log when it happened: it is counted, and proves nothing by itself."""


def parse_finding(text: str) -> Finding:
    """Read one scenario file's text. Raises FindingError."""
    try:
        table = tomllib.loads(text)
        profiles = {name: Profile(**options) for name, options in table.pop("profile").items()}
        variants = tuple(_variant({"nodes": table["nodes"], **options}) for options in table.pop("variant"))
        words = tuple(table.pop("log_words", ()))
        return Finding(profiles=profiles, variants=variants, log_words=words, **table)
    except (KeyError, TypeError, ValueError, FaultError) as exc:
        raise FindingError(f"{type(exc).__name__}: {exc}") from None


def _variant(options: dict[str, Any]) -> Variant:
    faults = tuple(parse_fault(text) for text in options.pop("faults"))
    variant = Variant(faults=faults, **{"workload": "queue", "store": "directory", **options})
    if variant.expect not in EXPECTATIONS:
        raise ValueError(f"variant {variant.name}: expect is one of {', '.join(EXPECTATIONS)}")
    check_targets(variant)
    return variant


def check_targets(variant: Variant) -> None:
    """Raise FaultError for a fault that hits nodes which the variant does not have."""
    names = [f"n{number}" for number in range(1, variant.nodes + 1)]
    for fault in variant.faults:
        check(fault.word("targets", "all"), names)


def with_nodes(variant: Variant, count: int) -> Variant:
    """The same in a cluster of another size; a variant on one node stays as it is. Raises FindingError."""
    if variant.nodes == 1:
        return variant
    resized = attrs.evolve(variant, nodes=count)
    try:
        check_targets(resized)
    except FaultError as exc:
        raise FindingError(f"variant {variant.name} does not fit into a cluster of {count}: {exc}") from None
    return resized
