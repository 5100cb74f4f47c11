"""Put dates of the site into a story or an explanation: beside times in JSON, instead of them in lines."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from headway.formats.dates import Calendar
from headway.units import DAY, HOUR, MINUTE, SECOND, seconds

_CLOCK = re.compile(r"(?<![\w:.])(?:(\d+)d )?(\d\d):(\d\d):(\d\d)(?:\.\d+)?(?![\w:])")
"""A time since the run began as ``story.clock`` writes it: ``3d 04:05:06.5``."""
_INSTANTS = ("submit_s", "start_s", "end_s", "at_s", "time_s", "arrived_s")
"""Keys of JSON that hold times since the run began; others that end so are lengths."""


class Told(Protocol):
    """What happened to one job, or why it waits."""

    def lines(self) -> Sequence[str]:
        """Return it for a person."""

    def record(self) -> Any:
        """Return it for a program."""


class Dated:
    """The same with dates."""

    def __init__(self, told: Told, calendar: Calendar) -> None:
        self.told, self.calendar = told, calendar

    def lines(self) -> list[str]:
        """Return lines in which each time since the run began is a date."""
        return self.dated(self.told.lines())

    def all_lines(self) -> list[str]:
        """Return all of them, of what has more than it shows by itself."""
        return self.dated(getattr(self.told, "all_lines", self.told.lines)())

    def dated(self, lines: Sequence[str]) -> list[str]:
        """Return these lines with dates."""
        return [_CLOCK.sub(self._date, line) for line in lines]

    def record(self) -> Any:
        """Return JSON with a date beside each time: ``start`` beside ``start_s``."""
        return self._with_dates(self.told.record())

    def _date(self, found: re.Match[str]) -> str:
        days, hours, minutes, rest = (int(part or 0) for part in found.groups())
        return self.calendar.text(days * DAY + hours * HOUR + minutes * MINUTE + rest * SECOND)

    def _with_dates(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._with_dates(each) for each in value]
        if not isinstance(value, Mapping):
            return value
        found: dict[str, Any] = {}
        for key, each in value.items():
            found[key] = self._with_dates(each)
            if key in _INSTANTS and isinstance(each, int | float):
                found[key.removesuffix("_s")] = self.calendar.iso(seconds(float(each)))
        return found
