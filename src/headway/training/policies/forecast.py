"""Forecasts when a job that does not fit now will fit, from the expected ends of running jobs."""

from headway.training.jobstate import JobState
from headway.training.policies.parts import PlacementRule
from headway.training.state import TrainingState


def earliest_fit(now: int, state: TrainingState, js: JobState, rule: PlacementRule) -> int | None:
    """Return the first expected end after which the job fits if no other starts; None when it never does.

    Needs ``state.ends``. An end that should have come already counts as just after now.
    """
    pool, need = state.pool, js.gpus
    single = rule.needs_one_node(pool, js)
    with state.draft() as draft:
        for end, job in state.ends.ascending(now):
            leaver = state.running[job]
            draft.release(leaver)
            if single:
                enough = any(pool.free_count[n] >= need and js.eligible >> n & 1 for n, _ in leaver.placement)
            else:
                enough = js.gpu_milli < 1000 or pool.free_among(js.eligible) >= need
            if enough and rule.place(pool, js) is not None:
                return max(int(end), now + 1)
    return None
