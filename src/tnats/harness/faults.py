"""Faults as records, with a text form that scenario files hold and people read.

    at 20s D_POWER policy=strict down=1s
    every 5s from 2s D_BITFLIP files=block bits=2
    after 500 acks P_KILL down=1s

A record is an anchor (when), a kind (what) and parameters. Anchors of time count from the end of the quiet period;
an anchor on an event (an acknowledgement, a disk call, a place in the code) survives changes of timing. Kinds and
their parameters are the rows of `KINDS`; who carries a fault out (the real half or the simulated one) draws what the
record leaves open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import attrs

from tnats.errors import TnatsError
from tnats.limits import MILLISECOND_NS, SECOND_NS
from tnats.records import frozen

UNITS_NS = {"ns": 1, "us": 1_000, "ms": MILLISECOND_NS, "s": SECOND_NS, "m": 60 * SECOND_NS}
DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|ms|s|m)\Z")


class FaultError(TnatsError):
    """A text that is no fault; says what was expected."""


@frozen
class Kind:
    """What a fault does, and the parameters it takes. Durations end in `_ns`, whole numbers in `_count`."""

    text: str
    parameters: tuple[str, ...]


KINDS: Mapping[str, Kind] = {
    "P_KILL": Kind("SIGKILL, then start again", ("targets", "down_ns")),
    "P_TERM": Kind("orderly stop, then start again", ("targets", "down_ns")),
    "P_CRASHLOOP": Kind(
        "SIGKILL again and again, soon after each start", ("targets", "times_count", "up_ns", "down_ns")
    ),
    "P_PAUSE": Kind("SIGSTOP, then SIGCONT", ("targets", "for_ns")),
    "D_POWER": Kind("power loss: kill, lose what was not synced, start again", ("targets", "policy", "down_ns")),
    "D_BITFLIP": Kind("flip bits of one drawn file", ("targets", "files", "bits_count", "stop", "down_ns")),
    "D_TRUNC": Kind("cut the tail off one drawn file", ("targets", "files", "stop", "down_ns")),
    "D_WIPE": Kind("remove the data directory of a stopped node", ("targets", "down_ns")),
    "N_PART": Kind("blackhole between groups of nodes", ("kind", "targets", "for_ns")),
    "N_ASYM": Kind("one direction between groups of nodes is lost", ("targets", "way", "for_ns")),
    "N_DELAY": Kind("everything takes longer", ("targets", "added_ns", "jitter_ns", "for_ns")),
    "N_SLOW": Kind("few bytes a second", ("targets", "rate_count", "for_ns")),
    "M_REMOVE": Kind("kill and empty a node, and remove it from the cluster", ("targets", "stream", "down_ns")),
    "M_ADD": Kind("a removed node joins again", ("targets", "name")),
    "O_DECOYS": Kind("other streams are made and removed", ("times_count",)),
    # carried out by the simulated half alone so far; `tnats.harness.sim` says how
    "N_REJECT": Kind("resets and refusals between groups of nodes", ("targets", "for_ns")),
    "N_RESET": Kind("segments are cut short and reset", ("targets", "permille_count", "for_ns")),
    "N_DROPCONN": Kind("present connections end: one side reset, the other at end of stream", ("targets",)),
    "N_HALFOPEN": Kind("present connections fall silent for ever, new ones until it ends", ("targets", "for_ns")),
    "N_CLOG": Kind("everything is held, then comes in order", ("targets", "for_ns")),
    "N_FLOOD": Kind("other traffic fills the line: little room, long queues", ("targets", "rate_count", "for_ns")),
    "N_ADDR": Kind("a node dies and comes back under another address, with its old name", ("targets", "down_ns")),
    "N_CHUNK": Kind("segments are cut at drawn places", ("targets", "permille_count", "for_ns")),
    "P_MEM": Kind("no memory is left: reads, new files and accepting fail", ("targets", "for_ns")),
    "P_SLOWCPU": Kind("each step of a node costs time", ("targets", "step_ns", "for_ns")),
    "T_JUMP": Kind("the wall clock is set", ("targets", "by_ns", "way")),
    "T_DRIFT": Kind("both clocks run fast or slow", ("targets", "ppm_count", "way", "for_ns")),
    "T_STROBE": Kind("the wall clock is set to and fro", ("targets", "by_ns", "period_ns", "for_ns")),
    "D_FSYNC_EIO": Kind("syncs fail", ("targets", "files", "variant", "times_count", "for_ns")),
    "D_LYING": Kind("syncs answer well and do nothing", ("targets", "files", "for_ns")),
    "D_WRITE_EIO": Kind("writes fail", ("targets", "files", "times_count", "for_ns")),
    "D_READ_EIO": Kind("reads fail", ("targets", "files", "times_count", "for_ns")),
    "D_ENOSPC": Kind("the disk is full", ("targets", "free_count", "for_ns")),
    "D_EROFS": Kind("the file system is read-only", ("targets", "for_ns")),
    "D_EMFILE": Kind("no descriptor is free, for files and for accepting", ("targets", "for_ns")),
    "D_EACCES": Kind("opening files is denied", ("targets", "for_ns")),
    "D_MISDIRECT": Kind("writes land elsewhere", ("targets", "files", "for_ns", "times_count")),
    "D_SLOW": Kind("the disk is slow", ("targets", "factor_count", "for_ns")),
    "D_ZERO": Kind("a block of one drawn file is zero", ("targets", "files", "down_ns")),
    "D_STALE": Kind("blocks of one drawn file go back to what they were", ("targets", "files", "for_ns", "down_ns")),
    "D_SWAPFILE": Kind("two drawn files change places", ("targets", "files", "down_ns")),
    "D_DUPFILE": Kind(
        "a drawn file stands there twice: as a leftover, or under another number",
        ("targets", "files", "variant", "down_ns"),
    ),
    "D_ROLLBACK": Kind("the whole disk goes back to what it was", ("targets", "for_ns", "down_ns")),
    "O_RELOAD": Kind("the configuration is read anew", ("targets",)),
    "O_LAMEDUCK": Kind("clients are sent away, then an orderly end and a start", ("targets", "down_ns")),
}


@frozen
class At:
    """Once, so long after the quiet period."""

    time_ns: int

    def __str__(self) -> str:
        return f"at {duration_text(self.time_ns)}"


@frozen
class Every:
    """Again and again from `first_ns` on."""

    period_ns: int
    first_ns: int

    def __str__(self) -> str:
        return f"every {duration_text(self.period_ns)} from {duration_text(self.first_ns)}"


@frozen
class AfterAcks:
    """Once, when clients have got so many acknowledgements."""

    count: int

    def __str__(self) -> str:
        return f"after {self.count} acks"


@frozen
class BeforeCall:
    """Once, before the n-th disk call of a kind (write, sync, rename, ...) of the target on a path that fits."""

    call: str
    count: int
    glob: str

    def __str__(self) -> str:
        return f"before {self.call} {self.count} of {self.glob}"


@frozen
class AtBarrier:
    """Once, when a named place in the code (a `buggify` site) is reached for the n-th time by anyone."""

    name: str
    count: int

    def __str__(self) -> str:
        return f"at barrier {self.name} {self.count}"


Anchor = At | Every | AfterAcks | BeforeCall | AtBarrier


class Choosing:
    """What has `parameters` of which some are words of a small vocabulary."""

    __slots__ = ()
    parameters: Mapping[str, int | str]

    def choice(self, name: str, known: Sequence[str], default: str) -> str:
        """A parameter that is one of `known`. Raises FaultError for any other word."""
        word = str(self.parameters.get(name, default))
        if word not in known:
            words = ", ".join(each or "nothing" for each in known)
            raise FaultError(f"{self}: {name} is to be one of {words}, not {word!r}")
        return word


@frozen
class Fault(Choosing):
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
        case ["at", "barrier", name, count, *rest] if count.isascii() and count.isdigit():
            return AtBarrier(name, int(count)), rest
        case ["before", call, count, "of", glob, *rest] if count.isascii() and count.isdigit():
            return BeforeCall(call, int(count), glob), rest
        case ["at", time, *rest]:
            return At(parse_duration(time)), rest
        case ["every", period, "from", first, *rest] if parse_duration(period):
            return Every(parse_duration(period), parse_duration(first)), rest
        case ["after", count, "acks", *rest] if count.isascii() and count.isdigit():
            return AfterAcks(int(count)), rest
    raise FaultError(
        "begin with `at TIME`, `every TIME from TIME`, `after N acks`, `before CALL N of GLOB` or `at barrier NAME N`"
    )


def _parameter(kind: Kind, word: str) -> tuple[str, int | str]:
    name, _, value = word.partition("=")
    if f"{name}_ns" in kind.parameters:
        return f"{name}_ns", parse_duration(value)
    if f"{name}_count" in kind.parameters:
        if not (value.isascii() and value.isdigit()):
            raise FaultError(f"{name} takes a whole number, not {value!r}")
        return f"{name}_count", int(value)
    if name not in kind.parameters or name.endswith(("_ns", "_count")) or not value:
        known = ", ".join(parameter.removesuffix("_ns").removesuffix("_count") for parameter in kind.parameters)
        raise FaultError(f"unknown parameter {word!r}; this kind takes: {known}")
    return name, value
