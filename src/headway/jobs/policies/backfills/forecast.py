"""Forecasts when a job that does not fit now will fit, from the expected ends of running jobs."""

from headway.jobs.policies.parts import PlacementRule
from headway.jobs.policies.preemption.releasing import Releasing
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.state import TrainingState


def earliest_fit(now: int, state: TrainingState, js: JobState, rule: PlacementRule) -> int | None:
    """Return the first expected end after which the job fits if no other starts; None when it never does.

    Needs ``state.ends``. An end that should have come already counts as just after now.
    """
    with state.draft() as draft:
        releasing = Releasing(state, draft, js, rule, lambda: rule.place(state.pool, js))
        for end, job in state.ends.ascending(now):
            if releasing.add(state.running[job]) is not None:
                return max(int(end), now + 1)
    return None
