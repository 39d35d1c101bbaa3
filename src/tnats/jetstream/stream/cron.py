"""Six-field cron expressions: second, minute, hour, day of month, month, day of week (ADR-51).

A field is `*` or `?`, a number, a name (JAN, MON), a range `a-b`, each with an optional step `/n`, or several of
these joined by commas. `a/n` means from a to the end. Days of week run from 0, Sunday, to 6. If both day fields
are restricted, either may match (as in Vixie cron). Times are of a zone; a local time that a clock change skips
does not fire, one that occurs twice fires once.
"""

from __future__ import annotations

import datetime
import functools
import re

from tnats.limits import SECOND_NS
from tnats.records import frozen

NAMED: dict[str, str] = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
YEARS_AHEAD_MAX = 5
"""An expression that does not fire within so many years never does (31 February)."""

DIGITS_MAX = 9
"""Of any number in an expression."""

_ZONE_NAME = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_DAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}


@frozen
class _Field:
    values: tuple[int, ...]
    is_free: bool


def _parse_field(text: str, low: int, high: int, names: dict[str, int]) -> _Field | None:
    values: set[int] = set()
    is_free = False
    for part in text.split(","):
        if not part:
            continue
        span, slash, step_text = part.partition("/")
        first_text, dash, last_text = span.partition("-")
        if span in ("*", "?"):
            first, last = low, high
            is_free = is_free or not slash
        else:
            first_value = _number(first_text, names)
            last_value = _number(last_text, names) if dash else (high if slash else first_value)
            if first_value is None or last_value is None:
                return None
            first, last = first_value, last_value
        step = 1
        if slash:
            step_value = _number(step_text, {})
            if not step_value:
                return None
            step = step_value
        if not low <= first <= last <= high:
            return None
        values.update(range(first, last + 1, step))
    return _Field(tuple(sorted(values)), is_free) if values else None


def _number(text: str, names: dict[str, int]) -> int | None:
    if text.isascii() and text.isdigit():
        return int(text) if len(text) <= DIGITS_MAX else None
    return names.get(text.lower())


@frozen
class Cron:
    """A parsed expression."""

    second: _Field
    minute: _Field
    hour: _Field
    day: _Field
    month: _Field
    weekday: _Field

    @classmethod
    def parse(cls, text: str) -> Cron | None:
        """The expression of six fields or of a name (`@daily`); None if it is neither."""
        parts = NAMED.get(text, text).split()
        if len(parts) != 6:
            return None
        bounds: tuple[tuple[int, int, dict[str, int]], ...] = (
            (0, 59, {}),
            (0, 59, {}),
            (0, 23, {}),
            (1, 31, {}),
            (1, 12, _MONTHS),
            (0, 6, _DAYS),
        )
        fields = [_parse_field(part, *bound) for part, bound in zip(parts, bounds, strict=True)]
        whole = [field for field in fields if field is not None]
        return cls(*whole) if len(whole) == 6 else None

    def next_after(self, ns: int, zone: datetime.tzinfo) -> int | None:
        """The first firing after the instant `ns`, in ns; None if there is none within `YEARS_AHEAD_MAX`."""
        start_s = ns // SECOND_NS + 1
        local = datetime.datetime.fromtimestamp(start_s, zone)
        day = local.date()
        end = day.replace(year=min(day.year + YEARS_AHEAD_MAX, datetime.MAXYEAR), day=1)
        while day <= end:
            if day.month not in self.month.values:
                day = _first_of_next_month(day)
                continue
            if self._has_day(day):
                found_s = self._first_on(day, start_s, zone)
                if found_s is not None:
                    return found_s * SECOND_NS
            day += datetime.timedelta(days=1)
        return None

    def _has_day(self, day: datetime.date) -> bool:
        of_month = day.day in self.day.values
        of_week = day.isoweekday() % 7 in self.weekday.values
        if self.day.is_free or self.weekday.is_free:
            return of_month and of_week
        return of_month or of_week

    def _first_on(self, day: datetime.date, start_s: int, zone: datetime.tzinfo) -> int | None:
        """The first firing on a local day, not before the instant `start_s`."""
        for hour in self.hour.values:
            for minute in self.minute.values:
                # A minute is a span of 60 s in every zone of today; whole ones before the start are passed over.
                base_s = _instant(day, hour, minute, zone)
                if base_s is None or base_s + 59 < start_s:
                    continue
                for second in self.second.values:
                    if base_s + second >= start_s:
                        return base_s + second
        return None


def _first_of_next_month(day: datetime.date) -> datetime.date:
    return (day.replace(day=28) + datetime.timedelta(days=4)).replace(day=1)


def _instant(day: datetime.date, hour: int, minute: int, zone: datetime.tzinfo) -> int | None:
    """The instant of a local minute in seconds, the earlier of two; None if a clock change skips it."""
    local = datetime.datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
    instant_s = int(local.timestamp())
    back = datetime.datetime.fromtimestamp(instant_s, zone)
    return instant_s if (back.hour, back.minute) == (hour, minute) else None


@functools.lru_cache(maxsize=1024)
def find_zone(name: str) -> datetime.tzinfo | None:
    """A time zone by its IANA name, None if there is none. `Local` is UTC: a server's own zone is no one's business.

    Zones come from the tzdata package alone, so that every server of a cluster reads an expression alike.
    """
    if name in ("UTC", "Local"):
        return datetime.UTC
    if not _ZONE_NAME.fullmatch(name):
        return None
    import io  # few servers have schedules in a zone
    import pkgutil
    import zoneinfo

    try:
        data = pkgutil.get_data("tzdata.zoneinfo", name)
    except OSError:
        return None
    if data is None or not data.startswith(b"TZif"):
        return None
    return zoneinfo.ZoneInfo.from_file(io.BytesIO(data), key=name)
