"""Convert between dates of a site and times since a run began.

A log writes either the clock on a site's wall, which names no zone, or instants (seconds since 1970, stamps with a
zone). Both are kept as they are: a wall clock is counted and shown as it stands in the file, an instant is shown in
the zone that was named, else in UTC.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from headway.errors import ExperimentError, InputError
from headway.units import SECOND

_DATE = re.compile(r"\d{4}-\d\d?-\d\d?(?:[T ].*)?")
_WALL_CLOCK = datetime(1970, 1, 1)  # noqa: DTZ001  a clock on a wall names no zone
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SATURDAY, _WEEK_END_DAYS = 5, 2
_MINUTE = timedelta(minutes=1)
EXAMPLE = "2026-03-05 or 2026-03-05T09:00"


def is_date(text: str) -> bool:
    """Return whether a text is written like a date, not like a time since the run began."""
    return _DATE.fullmatch(text.strip()) is not None


def zone_named(name: str, what: str = "trace.zone") -> tzinfo:
    """Return a time zone by its name in the IANA database."""
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ExperimentError(f"{what} {name!r} is no time zone: write a name like Europe/Berlin") from None


def local_zone() -> str:
    """Return the name of this machine's time zone; UTC where it cannot be told."""
    named = os.environ.get("TZ", "").lstrip(":")
    if not named:
        named = os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2]
    try:
        zone_named(named)
    except ExperimentError:
        return "UTC"
    return named


@dataclass(frozen=True, slots=True)
class Calendar:
    """Which date the beginning of a run is."""

    begins: int
    """Nanoseconds from 1970 to time 0: on the wall clock of the site, or in UTC where these are instants."""
    instants: bool = False
    zone: str = ""
    """Of the site, where it is known."""

    @classmethod
    def parsed(cls, text: str, zone: str = "", what: str = "trace.begins") -> "Calendar":
        """Return the calendar of a run whose time 0 is a date like 2026-03-01T00:00:12, or …Z for an instant."""
        when = _parsed(text, what)
        if zone:
            zone_named(zone)
        if when.tzinfo is None:
            return cls(_nanoseconds(when - _WALL_CLOCK), False, zone)
        return cls(_nanoseconds(when - _EPOCH), True, zone)

    def written(self) -> str:
        """Return what ``parsed`` reads back."""
        when = _WALL_CLOCK + timedelta(microseconds=self.begins // 1000)
        return f"{when.isoformat()}{'Z' if self.instants else ''}"

    def shifted(self, time: int) -> "Calendar":
        """Return the calendar of a run that begins so much later."""
        return replace(self, begins=self.begins + time)

    def date(self, time: int) -> datetime:
        """Return the date of a time since the run began, as the site's clock shows it."""
        since = timedelta(microseconds=(self.begins + time) // 1000)
        if not self.instants:
            return _WALL_CLOCK + since
        return (_EPOCH + since).astimezone(zone_named(self.zone) if self.zone else UTC)

    def text(self, time: int) -> str:
        """Return a date for people, to the second: ``Thu 2026-03-05 09:00:00``; instants name their zone."""
        when = self.date(time)
        return f"{when:%a %Y-%m-%d %H:%M:%S}{f' {when:%Z}' if when.tzinfo else ''}"

    def short(self, time: int) -> str:
        """Return the same to the minute and without a zone: ``Thu 2026-03-05 09:00``."""
        return f"{self.date(time):%a %Y-%m-%d %H:%M}"

    def iso(self, time: int) -> str:
        """Return a date for programs: ``2026-03-05T09:00:00``, instants with their offset from UTC."""
        return self.date(time).isoformat(timespec="seconds")

    def shown(self, time: int) -> str:
        """Return a date for an axis, which knows no zones: ``2026-03-05 09:00:00``."""
        return f"{self.date(time):%Y-%m-%d %H:%M:%S}"

    def about(self) -> str:
        """Return in words which clock the dates are of."""
        if self.instants:
            return self.zone or "UTC"
        return self.zone or "the site’s own clock"

    def time_of(self, text: str, what: str) -> int:
        """Return the time since the run began of a date that somebody wrote; it may lie before the beginning."""
        when = _parsed(text, what)
        zone = zone_named(self.zone) if self.zone else UTC if self.instants else None
        if when.tzinfo is None and zone is not None:
            when = _existing(when.replace(tzinfo=zone), text, what, self.zone or "UTC")
        if self.instants:
            return _nanoseconds(when - _EPOCH) - self.begins
        if when.tzinfo is not None:
            if zone is None:
                raise ExperimentError(
                    f"{what} {text!r} names a time zone, the dates of the trace do not: write it without, as the "
                    "site's clock showed it, or say where the site is: --set trace.zone=Europe/Berlin"
                )
            when = when.astimezone(zone).replace(tzinfo=None)
        return _nanoseconds(when - _WALL_CLOCK) - self.begins

    def week_ends(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the Saturdays and Sundays between two times, from midnight to midnight, as times of the run."""
        day = self.date(start).replace(hour=0, minute=0, second=0, microsecond=0)
        day -= timedelta(days=(day.weekday() - _SATURDAY) % 7)
        while (begins := self._time(day)) < end:
            ends = self._time(day + timedelta(days=_WEEK_END_DAYS))
            if ends > start:
                yield max(begins, start), min(ends, end)
            day += timedelta(days=7)

    def _time(self, when: datetime) -> int:
        return _nanoseconds(when - (_WALL_CLOCK if when.tzinfo is None else _EPOCH)) - self.begins


def _nanoseconds(length: timedelta) -> int:
    return (length.days * 86_400 + length.seconds) * SECOND + length.microseconds * 1000


def _parsed(text: str, what: str) -> datetime:
    written = text.strip().replace(" ", "T", 1)
    try:
        when = datetime.fromisoformat(written)
    except ValueError:
        raise InputError(f"{what} {text!r} is no date: write it like {EXAMPLE}") from None
    if not 1971 <= when.year <= 2260:
        raise InputError(f"{what} {text!r} must lie in the years 1971 to 2260")
    return when


def _existing(when: datetime, text: str, what: str, zone: str) -> datetime:
    """Return a date unless the clocks of its zone were put forward over it."""
    back = when.astimezone(UTC).astimezone(when.tzinfo)
    if not _exists(when):
        begins, length = when, back.replace(tzinfo=None) - when.replace(tzinfo=None)
        while not _exists(begins - _MINUTE):
            begins -= _MINUTE
        raise ExperimentError(
            f"{what} {text!r} does not exist in {zone}: clocks went from {begins:%H:%M} to {begins + length:%H:%M} "
            "there; write a time before or after that"
        )
    return when


def _exists(when: datetime) -> bool:
    return when.astimezone(UTC).astimezone(when.tzinfo).replace(tzinfo=None) == when.replace(tzinfo=None)
