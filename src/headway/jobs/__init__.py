"""Schedule training jobs on a cluster: model, rules, policies, traces, simulation, live queue, pages."""

from typing import TYPE_CHECKING

from headway.lazy import public

if TYPE_CHECKING:
    from headway.jobs.model.actions import (
        Action as Action,
        MigrateJob as MigrateJob,
        PreemptJob as PreemptJob,
        ReallocateJob as ReallocateJob,
        StartJob as StartJob,
        WakeAt as WakeAt,
    )
    from headway.jobs.policies.parts import (
        Allocation as Allocation,
        Backfill as Backfill,
        Migration as Migration,
        Order as Order,
        PlacementRule,
    )
    from headway.jobs.policies.placements.best_fit import BestFit as BestFit
    from headway.jobs.state.jobstate import JobState as JobState
    from headway.jobs.state.state import TrainingState

    Placement = PlacementRule
    State = TrainingState

_NAMES = {
    **dict.fromkeys(("Allocation", "Backfill", "Migration", "Order"), "jobs.policies.parts"),
    "Placement": "jobs.policies.parts:PlacementRule",
    "BestFit": "jobs.policies.placements.best_fit",
    **dict.fromkeys(
        ("Action", "MigrateJob", "PreemptJob", "ReallocateJob", "StartJob", "WakeAt"), "jobs.model.actions"
    ),
    "JobState": "jobs.state.jobstate",
    "State": "jobs.state.state:TrainingState",
}
"""Every public name, and the module it is in; loaded when it is asked for."""

__getattr__, __dir__, __all__ = public(__name__, _NAMES)
