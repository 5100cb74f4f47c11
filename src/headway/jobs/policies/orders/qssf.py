"""Quasi-shortest-service-first (Helios, Hu et al., SC 2021): by predicted run time times GPUs, without preemption.

The prediction comes from jobs that have ended, never from the job itself: an exponentially weighted mean over jobs of
the same user, size and kind (its model, or its name without trailing digits); where there is none, the mean over the
user's jobs of this size, over all the user's jobs, over everybody's jobs of this size, over all jobs. Failed and
cancelled jobs count with what they ran. A tenant stands for a user where a trace names none. With ``estimates`` the
time that a user announced counts ahead of what others' jobs took.

Departures: only the rolling part of the paper's predictor (its gradient-boosted trees, trained on months of history,
are left out); names are compared by prefix, not by edit distance; a job is predicted when it begins to wait.
"""

import re
from collections.abc import Hashable

from headway.errors import ExperimentError
from headway.jobs.policies.parts import Order
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.queue import Key

_NUMBERING = re.compile(r"[\W\d_]+$")


class Qssf(Order):
    """Orders jobs by GPU time predicted from history."""

    name = "qssf"
    starves = True
    watches_ends = True

    def __init__(self, recent: float = 0.5, estimates: bool = False) -> None:
        if not 0 < recent <= 1:
            raise ExperimentError(f"qssf(recent=...): {recent} must lie above 0 and up to 1")
        self.recent = recent
        self.estimates = estimates
        self._rolling: dict[Hashable, float] = {}
        self._sums: dict[Hashable, tuple[int, int]] = {}

    def key(self, now: int, js: JobState) -> Key:
        """Return the predicted GPU time; for a job without GPUs the predicted run time."""
        return self.predicted(js) * (js.width or 1)

    def predicted(self, js: JobState) -> int:
        """Return the predicted run time of a job; 1 ns when nothing is known."""
        job = js.job
        user = job.user or job.tenant
        kind = _kind(js)
        if kind and (rolling := self._rolling.get((user, js.width, kind))) is not None:
            return max(1, round(rolling))
        by_user = self._mean((user, js.width)) or self._mean((user,))
        if by_user or not (self.estimates and job.estimate):
            return by_user or self._mean((js.width,)) or self._mean(()) or 1
        return job.estimate

    def ended(self, now: int, js: JobState) -> None:
        """Add the run time of a job that has ended, which is the work delivered to it, to the history."""
        job = js.job
        user = job.user or job.tenant
        if kind := _kind(js):
            group = (user, js.width, kind)
            before = self._rolling.get(group, js.done)
            self._rolling[group] = before + self.recent * (js.done - before)
        for known in ((user, js.width), (user,), (js.width,), ()):
            count, total = self._sums.get(known, (0, 0))
            self._sums[known] = count + 1, total + js.done

    def _mean(self, group: Hashable) -> int:
        """Return the mean run time of a group, rounded up; 0 if no job of it has ended."""
        count, total = self._sums.get(group, (1, 0))
        return -(-total // count)


def _kind(js: JobState) -> str:
    return js.job.model or _NUMBERING.sub("", js.job.name)
