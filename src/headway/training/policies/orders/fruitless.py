"""Searches for victims that found none, remembered so that they are not repeated before something can have changed.

An order whose running jobs fall behind as time passes has to look again whenever it is asked, because no count of
changes tells it that it need not. On a full cluster most of these searches would end as the last one did.
"""

from headway.training.jobstate import JobState
from headway.training.state import TrainingState


class Fruitless:
    """For each waiting job, until when looking for victims again is pointless while nothing is given back."""

    __slots__ = ("_again", "_version")

    def __init__(self) -> None:
        self._version = -1
        self._again: dict[int, int] = {}

    def still(self, now: int, state: TrainingState, js: JobState) -> bool:
        """Return whether the last search for this job failed and would fail now."""
        version = state.changes if state.quotas else state.releases
        if version != self._version:
            self._version = version
            self._again.clear()
            return False
        return now < self._again.get(js.id, now)

    def note(self, js: JobState, again: int) -> None:
        """All victims together were not enough, and before ``again`` no other will be one."""
        self._again[js.id] = again
