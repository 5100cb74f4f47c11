"""Limits that take other values as time passes: which is in force, and when the next one is."""

from collections.abc import Iterator, Sequence

from headway.jobs.rules.limits.counters import NEVER
from headway.jobs.rules.limits.limit import LimitRule


class LimitTimes:
    """The changes that are still to come, of all rules of a cluster."""

    def __init__(self, rules: Sequence[LimitRule]) -> None:
        self._rules = rules
        self._coming = sorted(
            ((time, index, most) for index, rule in enumerate(rules) for time, most in rule.changes), reverse=True
        )

    def due(self, now: int) -> Iterator[tuple[int, int]]:
        """Yield each rule, by its position, that has come to another amount by now, and that; each once."""
        coming = self._coming
        while coming and coming[-1][0] <= now:
            _, index, most = coming.pop()
            yield index, most

    def next(self) -> int:
        """Return when the next one changes; ``NEVER`` where none does."""
        return self._coming[-1][0] if self._coming else NEVER
