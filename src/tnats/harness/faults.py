"""Faults as records, with a text form that scenario files hold and people read.

    at 20s D_POWER policy=strict down=1s
    every 5s from 2s D_BITFLIP files=block bits=2
    after 500 acks P_KILL down=1s

A record is an anchor (when), a kind (what) and parameters. Anchors of time count from the end of the quiet period;
an anchor on acknowledgements survives changes of timing. Kinds and their parameters are the rows of `KINDS`; who
carries a fault out (the real half or the simulated one) draws what the record leaves open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from tnats.errors import TnatsError
from tnats.limits import SECOND_NS

UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": SECOND_NS, "m": 60 * SECOND_NS}
DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|ms|s|m)\Z")


class FaultError(TnatsError):
    """A text that is no fault; says what was expected."""


@attrs.frozen
class Kind:
    """What a fault does, and the parameters it takes. Durations end in `_ns`, whole numbers in `_count`."""

    text: str
    parameters: tuple[str, ...]


KINDS: Mapping[str, Kind] = {
    "P_KILL": Kind("SIGKILL, then start again", ("targets", "down_ns")),
    "P_TERM": Kind("orderly stop, then start again", ("targets", "down_ns")),
    "P_PAUSE": Kind("SIGSTOP, then SIGCONT", ("targets", "for_ns")),
    "D_POWER": Kind("power loss: kill, lose what was not synced, start again", ("targets", "policy", "down_ns")),
    "D_BITFLIP": Kind("flip bits of one drawn file", ("targets", "files", "bits_count", "stop", "down_ns")),
    "D_TRUNC": Kind("cut the tail off one drawn file", ("targets", "files", "stop", "down_ns")),
    "D_WIPE": Kind("remove the data directory of a stopped node", ("targets", "down_ns")),
    "N_PART": Kind("blackhole between groups of nodes", ("kind", "targets", "for_ns")),
    "M_REMOVE": Kind("remove a node from the cluster", ("targets",)),
    "M_ADD": Kind("a removed node joins again", ("targets", "name")),
}


@attrs.frozen
class At:
    """Once, so long after the quiet period."""

    time_ns: int

    def __str__(self) -> str:
        return f"at {duration_text(self.time_ns)}"


@attrs.frozen
class Every:
    """Again and again from `first_ns` on."""

    period_ns: int
    first_ns: int

    def __str__(self) -> str:
        return f"every {duration_text(self.period_ns)} from {duration_text(self.first_ns)}"


@attrs.frozen
class AfterAcks:
    """Once, when clients have got so many acknowledgements."""

    count: int

    def __str__(self) -> str:
        return f"after {self.count} acks"


Anchor = At | Every | AfterAcks


@attrs.frozen
class Fault:
    """One record. Parameters have the types of their names: `_ns` and `_count` are ints, all else text."""

    anchor: Anchor
    kind: str
    parameters: Mapping[str, int | str] = attrs.field(factory=dict)

    def number(self, name: str, default: int) -> int:
        value = self.parameters.get(name, default)
        assert isinstance(value, int)
        return value

    def word(self, name: str, default: str) -> str:
        return str(self.parameters.get(name, default))

    def __str__(self) -> str:
        words = [str(self.anchor), self.kind]
        for name, value in self.parameters.items():
            short, _, unit = name.rpartition("_")
            if unit == "ns":
                words.append(f"{short}={duration_text(int(value))}")
            else:
                words.append(f"{short if unit == 'count' else name}={value}")
        return " ".join(words)

    def scaled(self, factor: float) -> Fault:
        """The same fault with all its times multiplied."""
        anchor = self.anchor
        if isinstance(anchor, At):
            anchor = At(round(anchor.time_ns * factor))
        elif isinstance(anchor, Every):
            anchor = Every(round(anchor.period_ns * factor), round(anchor.first_ns * factor))
        parameters = {
            name: round(value * factor) if name.endswith("_ns") and isinstance(value, int) else value
            for name, value in self.parameters.items()
        }
        return Fault(anchor, self.kind, parameters)


def parse_duration(text: str) -> int:
    """Nanoseconds of `5s`, `1.5m`, `100ms`. Raises FaultError."""
    match = DURATION.match(text)
    if match is None:
        raise FaultError(f"{text!r} is no duration: a number with ns, us, ms, s or m, such as 1.5s")
    return round(float(match[1]) * UNITS_NS[match[2]])


def duration_text(duration_ns: int) -> str:
    """The shortest form that `parse_duration` reads back: whole in the largest unit that divides it."""
    for unit in ("m", "s", "ms", "us"):
        if duration_ns and duration_ns % UNITS_NS[unit] == 0:
            return f"{duration_ns // UNITS_NS[unit]}{unit}"
    return f"{duration_ns}ns"


def parse_fault(text: str) -> Fault:
    """Read one record. Raises FaultError, naming the text."""
    try:
        return _fault(*_anchor(text.split()))
    except FaultError as exc:
        raise FaultError(f"fault {text!r}: {exc}") from None


def _fault(anchor: Anchor, words: list[str]) -> Fault:
    name = words[0] if words else "(nothing)"
    kind = KINDS.get(name)
    if kind is None:
        raise FaultError(f"unknown kind {name}; known: {', '.join(KINDS)}")
    return Fault(anchor, name, dict(_parameter(kind, word) for word in words[1:]))


def _anchor(words: list[str]) -> tuple[Anchor, list[str]]:
    match words:
        case ["at", time, *rest]:
            return At(parse_duration(time)), rest
        case ["every", period, "from", first, *rest] if parse_duration(period):
            return Every(parse_duration(period), parse_duration(first)), rest
        case ["after", count, "acks", *rest] if count.isascii() and count.isdigit():
            return AfterAcks(int(count)), rest
    raise FaultError("begin with `at TIME`, `every TIME from TIME` or `after N acks`")


def _parameter(kind: Kind, word: str) -> tuple[str, int | str]:
    name, _, value = word.partition("=")
    if f"{name}_ns" in kind.parameters:
        return f"{name}_ns", parse_duration(value)
    if f"{name}_count" in kind.parameters:
        if not (value.isascii() and value.isdigit()):
            raise FaultError(f"{name} takes a whole number, not {value!r}")
        return f"{name}_count", int(value)
    if name not in kind.parameters or not value:
        known = ", ".join(parameter.removesuffix("_ns").removesuffix("_count") for parameter in kind.parameters)
        raise FaultError(f"unknown parameter {word!r}; this kind takes: {known}")
    return name, value
