"""The findings that Jepsen published about NATS, as scenario files say them.

One TOML file a finding (`real.finding_files` reads them). A finding has variants (the same fault under another
configuration or another kind of damage) and profiles (how long, how fast).
"""

from __future__ import annotations

import tomllib
from typing import Any, Literal

import attrs
from attrs.validators import ge, gt, in_, instance_of, matches_re, optional

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
COUNT: list[Any] = [instance_of(int), ge(1)]
TIME: list[Any] = [instance_of((int, float)), ge(0)]
POSITIVE: list[Any] = [instance_of((int, float)), gt(0)]
NAME = matches_re(r"[A-Za-z0-9-]+")


class FindingError(TnatsError):
    """A scenario file that cannot be used, or a name that none has."""


@frozen
class Profile:
    """How a finding is run. `time_scale` multiplies every time in the faults."""

    worker_count: int = attrs.field(validator=COUNT)
    rate_per_s: float = attrs.field(validator=POSITIVE)
    quiet_s: float = attrs.field(validator=TIME)
    duration_s: float = attrs.field(validator=POSITIVE)
    time_scale: float = attrs.field(validator=POSITIVE)
    timeout_s: float = attrs.field(validator=POSITIVE)


@frozen
class Variant:
    """One configuration and its faults."""

    name: str = attrs.field(validator=NAME)
    text: str
    workload: Literal["queue", "register"] = attrs.field(validator=in_(("queue", "register")))
    store: Literal["directory", "faultfs"] = attrs.field(validator=in_(("directory", "faultfs")))
    expect: Expect = attrs.field(validator=in_(tuple(EXPECTATIONS)))
    faults: tuple[Fault, ...]
    sync_interval: str | None = attrs.field(default=None, validator=optional(instance_of(str)))
    """None leaves it to the server."""
    names: Literal["journal", "posix"] = attrs.field(default="journal", validator=in_(("journal", "posix")))
    """When the fault file system makes names durable (see `real.faultfs`)."""
    nodes: int = attrs.field(default=1, validator=COUNT)
    """How many servers; as many as the file says for all variants, unless the variant says otherwise."""
    write_back: bool = attrs.field(default=False, validator=instance_of(bool))
    """Whether data becomes durable by itself, as on a running machine: after 30 s, times the profile's scale."""


@frozen
class Finding:
    """One scenario file."""

    id: str = attrs.field(validator=NAME)
    title: str
    reference: str
    affected: str
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
        nodes = table.pop("nodes")
        variants = tuple(_variant({"nodes": nodes, **options}) for options in table.pop("variant"))
        words = tuple(table.pop("log_words", ()))
        return Finding(profiles=profiles, variants=variants, log_words=words, **table)
    except (AttributeError, KeyError, TypeError, ValueError, FaultError) as exc:
        raise FindingError(f"{type(exc).__name__}: {exc.args[0]}") from None


def _variant(options: dict[str, Any]) -> Variant:
    faults = tuple(parse_fault(str(text)) for text in options.pop("faults"))
    variant = Variant(faults=faults, **{"workload": "queue", "store": "directory", **options})
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
