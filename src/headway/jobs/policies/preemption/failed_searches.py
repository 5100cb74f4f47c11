"""A cache of failed searches for preemption victims, so that they are not repeated before something can have changed.

In an order where running jobs lose rank as time passes, a search may succeed later although the state did not change.
On a full cluster most of these searches would still fail as the last one did.
"""

from headway.jobs.state.jobstate import JobState
from headway.jobs.state.state import TrainingState


class FailedSearches:
    """For each waiting job, the time until which a new search would fail unless GPUs are released."""

    __slots__ = ("_again", "_version")

    def __init__(self) -> None:
        self._version = -1
        self._again: dict[int, int] = {}

    def would_fail(self, now: int, state: TrainingState, js: JobState) -> bool:
        """Return whether the last search for this job failed and would fail now."""
        version = state.changes if state.quotas else state.releases
        if version != self._version:
            self._version = version
            self._again.clear()
            return False
        return now < self._again.get(js.id, now)

    def record(self, js: JobState, again: int) -> None:
        """Record that all victims together were not enough, and that there is no other before ``again``."""
        self._again[js.id] = again
