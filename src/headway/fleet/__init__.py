"""Schedule inference pipelines on a fleet of workers: model, policies, traces, simulation, live server, pages."""

from typing import TYPE_CHECKING

from headway.lazy import public

if TYPE_CHECKING:
    from headway.fleet.model.actions import (
        Action as Action,
        DecideUntil as DecideUntil,
        DrainWorker as DrainWorker,
        DropRequest as DropRequest,
        EvictModel as EvictModel,
        FetchModel as FetchModel,
        MoveTask as MoveTask,
        PlaceRequest as PlaceRequest,
        RunBatch as RunBatch,
        StartInstance as StartInstance,
        StartWorker as StartWorker,
        StopInstance as StopInstance,
        StopWorker as StopWorker,
        WakeAt as WakeAt,
    )
    from headway.fleet.policies.compass.worker import LocalQueue as LocalQueue
    from headway.fleet.policies.parts import ServingPolicy
    from headway.fleet.state.state import ServingState

    Policy = ServingPolicy
    State = ServingState

_NAMES = {
    "Policy": "fleet.policies.parts:ServingPolicy",
    "LocalQueue": "fleet.policies.compass.worker",
    "State": "fleet.state.state:ServingState",
    **dict.fromkeys(
        (
            *("Action", "DecideUntil", "DrainWorker", "DropRequest", "EvictModel", "FetchModel", "MoveTask"),
            *("PlaceRequest", "RunBatch", "StartInstance", "StartWorker", "StopInstance", "StopWorker", "WakeAt"),
        ),
        "fleet.model.actions",
    ),
}
"""Every public name, and the module it is in; loaded when it is asked for."""

__getattr__, __dir__, __all__ = public(__name__, _NAMES)
