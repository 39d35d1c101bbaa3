"""Values of options as people write them, and as they are shown: durations, sizes, times, pairs."""

from __future__ import annotations

import re
from typing import Any

import click

from tnats.limits import SECOND_NS
from tnats.notation import format_duration, format_time, parse_duration, parse_time

DAY_NS = 24 * 3600 * SECOND_NS

_DAYS = re.compile(r"(?:([0-9]+)y)?(?:([0-9]+)M)?(?:([0-9]+)w)?(?:([0-9]+)d)?(.*)")
_DAYS_OF = (365, 30, 7, 1)
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)


class Duration(click.ParamType[int]):
    """`90s`, `1h30m`, `2d`, `1w`: nanoseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value)
        found = _DAYS.fullmatch(text)
        days = sum(int(found[i + 1] or 0) * days for i, days in enumerate(_DAYS_OF)) if found else 0
        rest_ns = parse_duration(found[5] or "0") if found else None
        if rest_ns is None or not text:
            self.fail(f"{value!r} is no duration: write 90s, 1h30m or 2d", param, ctx)
        return days * DAY_NS + rest_ns


class Size(click.ParamType[int]):
    """`1000`, `64KB`, `1GiB`, all in powers of 1024; -1: no limit. Bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if value == "-1":
            return -1
        found = _SIZE.fullmatch(str(value).strip())
        if found is None:
            self.fail(f"{value!r} is no size: write 1000, 64KB or 1GB", param, ctx)
        power = " kmgt".index(found[2].lower() or " ")
        return int(float(found[1]) * 1024.0**power)


class Moment(click.ParamType[tuple[str, int]]):
    """A time, `2026-11-29T12:00:00Z` or `2026-11-29 12:00:00` in UTC, or a duration from now: see `until_ns`."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        text = value.replace(" ", "T")
        moment_ns = parse_time(text if text[-1:] in "Zz" or "+" in text else text + "Z")
        if moment_ns is not None:
            return "at", moment_ns
        return "in", Duration().convert(value, param, ctx)


class Pair(click.ParamType[tuple[str, str]]):
    """`NAME:VALUE` or `NAME=VALUE`."""

    name = "pair"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"\s*([^:=]+?)\s*[:=]\s*(.*)", value, re.DOTALL)
        if found is None:
            self.fail(f"{value!r} is no pair: write NAME:VALUE", param, ctx)
        return found[1], found[2]


DURATION = Duration()
SIZE = Size()
MOMENT = Moment()
PAIR = Pair()


def until_ns(moment: tuple[str, int], now_ns: int) -> int:
    """The instant that a `Moment` names."""
    kind, ns = moment
    return ns if kind == "at" else now_ns + ns


# ---------------------------------------------------------------- showing


def show_size(count: int) -> str:
    """`12 B`, `1.5 KiB`; "unlimited" below 0."""
    if count < 0:
        return "unlimited"
    if count < 1024:
        return f"{count} B"
    size = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1024 or unit == "TiB":
            break
    return f"{size:.1f} {unit}"


def show_count(count: int) -> str:
    """With commas; "unlimited" below 0."""
    return "unlimited" if count < 0 else f"{count:,}"


def show_counted(count: int, noun: str) -> str:
    """`1 message`, `1,000 messages`."""
    return f"{show_count(count)} {noun}{'' if count == 1 else 's'}"


def show_duration(ns: int, none: str = "unlimited") -> str:
    """`1d2h0m0s`; `none` for 0 and below."""
    if ns <= 0:
        return none
    days, rest_ns = divmod(ns, DAY_NS)
    text = format_duration(rest_ns) if rest_ns or not days else ""
    return f"{days}d{text}" if days else text


def show_time(ns: int | None) -> str:
    """`2026-11-29 12:00:00.120` in UTC; "never" for none."""
    if ns is None:
        return "never"
    seconds, rest_ns = divmod(ns, SECOND_NS)
    return f"{format_time(seconds * SECOND_NS).replace('T', ' ').rstrip('Z')}.{rest_ns // 1_000_000:03}"


def show_flag(value: bool) -> str:
    """Yes or no."""
    return "yes" if value else "no"
