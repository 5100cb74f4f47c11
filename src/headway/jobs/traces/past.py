"""Hold what a log says of a site's past besides its jobs: dates, real waits and their reasons, and caveats.

It is stored beside the jobs of a run, so that pages, stories and comparisons know it without the log.
"""

from msgspec import Struct, field

from headway.formats.dates import Calendar

NEVER = -1
"""Stands for the wait of a job that did not start, or of which nothing is known."""


class Past(Struct, kw_only=True):
    """The past of the jobs of a run; lists have an entry a job, or none where nothing is known."""

    source: str = ""
    """The format of the log."""
    begins: str = ""
    """The date of time 0; empty where the log has no dates."""
    zone: str = ""
    carried: int = 0
    """So many jobs, the first, ran or waited already when the run begins: they are not measured."""
    waits: list[int] = field(default_factory=list)
    """Nanoseconds from when a job was eligible to its first start."""
    reasons: list[str] = field(default_factory=list)
    """Why a job waited, as the log says."""
    requeued: list[tuple[int, int]] = field(default_factory=list)
    """How long after its first start a job's last attempt began, in nanoseconds, and for how much of that it had run:
    both 0 where it ran once."""
    ran: list[int] = field(default_factory=list)
    """Of a job that has not ended in reality, how long it had run in this run's time, in nanoseconds: its work is its
    time limit as long as nobody knows better. ``NEVER`` for a job that ended."""
    eligible: list[int] = field(default_factory=list)
    """Nanoseconds from the arrival of a job to when it was eligible in reality."""
    site: bool = False
    """Whether it is played under the site's own policy: its waits can then be held against the recorded ones."""
    changed: bool = False
    """Whether rules of the site were changed for this run: its recorded waits were under others."""
    caveats: list[str] = field(default_factory=list)
    """What a reader of any result should know about the log and how it was read."""

    @property
    def calendar(self) -> Calendar | None:
        """Return which date time 0 is."""
        return Calendar.parsed(self.begins, self.zone) if self.begins else None

    @property
    def has_starts(self) -> bool:
        """Return whether it is known of some job when it really started."""
        return any(wait >= 0 for wait in self.waits)

    def __bool__(self) -> bool:
        return bool(self.begins or self.waits or self.caveats)
