"""Decision time: how long a controller is busy with one decision (docs/reference/scenarios.md, "Controller")."""

from typing import NamedTuple

from headway.units import exact_duration


class DecisionTime(NamedTuple):
    """A fixed time, and a time for each state that the policy's search evaluated."""

    fixed: int
    state: int = 0

    def __str__(self) -> str:
        return f"fixed={exact_duration(self.fixed)},state={exact_duration(self.state)}"
