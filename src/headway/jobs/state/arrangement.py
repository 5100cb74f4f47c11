"""How a policy wants the state to keep its jobs: which comes first, who waits in one lane, what is ranked.

The state keeps these indexes up to date as things change; a policy reads them. The functions here are pure but for what
``ended`` remembers of jobs that are gone.
"""

from collections.abc import Hashable, Sequence
from typing import Protocol

from headway.jobs.model.resources import Grant, Placement
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.queue import Key


class Arrangement(Protocol):
    """What the state asks."""

    rekeys: bool
    """Keys may be computed anew while jobs wait, when ``key_due`` says so."""
    ranks_running: bool
    """Keep running preemptible jobs in order, by ``rank``."""
    ranks_ends: bool
    """Keep running jobs in order of their expected end."""
    divides: bool
    """Says with each start what a job holds besides GPUs, instead of what it asked for."""
    watches_ends: bool
    """Wants ``ended`` to be called."""

    def lane(self, js: JobState) -> Hashable:
        """The lane that a job waits in: always the same while it waits."""

    def key(self, now: int, js: JobState) -> Key:
        """Smaller comes first; it holds until the job starts or ``key_due``."""

    def keys(self, now: int, waiting: Sequence[JobState]) -> Sequence[Key]:
        """The keys of these waiting jobs, each as ``key`` has it."""

    def moved(self, now: int, waiting: Sequence[JobState]) -> Sequence[JobState]:
        """When ``key_due``: those of all waiting jobs whose keys are others than they have."""

    def key_due(self, now: int, since: int) -> bool:
        """With ``rekeys``: whether the keys of waiting jobs are to be computed anew; they last were at ``since``."""

    def rank(self, now: int, js: JobState) -> tuple[int, Key]:
        """(rate, offset) of a running job: at any time t its key would be offset + rate * t."""

    def asks(self, js: JobState) -> Grant:
        """With ``divides``: what a job with GPUs waits for besides them."""

    def expects(self, js: JobState, placement: Placement) -> Grant:
        """Return what a waiting job is taken to hold if it starts here, for how long it will then run."""

    def ended(self, now: int, js: JobState) -> None:
        """A job left for good."""
