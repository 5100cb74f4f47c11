"""Schedule kernels of programs on one GPU: model, policies, simulation, sharing for real, pages."""

from typing import TYPE_CHECKING

from headway.lazy import public

if TYPE_CHECKING:
    from headway.gpu.model.actions import Action as Action, LetGo as LetGo, WakeAt as WakeAt
    from headway.gpu.model.reflex import Reason as Reason
    from headway.gpu.model.state import KernelsState
    from headway.gpu.policies.parts import KernelsPolicy, idle_above as idle_above, in_turn as in_turn

    Policy = KernelsPolicy
    State = KernelsState

_NAMES = {
    "Policy": "gpu.policies.parts:KernelsPolicy",
    **dict.fromkeys(("idle_above", "in_turn"), "gpu.policies.parts"),
    **dict.fromkeys(("Action", "LetGo", "WakeAt"), "gpu.model.actions"),
    "Reason": "gpu.model.reflex",
    "State": "gpu.model.state:KernelsState",
}
"""Every public name, and the module it is in; loaded when it is asked for."""

__getattr__, __dir__, __all__ = public(__name__, _NAMES)
