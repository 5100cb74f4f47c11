"""utilisation: as many workers as keep their mean utilisation at a target, in the manner of Kubernetes.

The rule is that of the HorizontalPodAutoscaler: wanted = ceil(workers × utilisation / target), nothing within a
tolerance of 0.1 about the target. Starting workers count as idle where the fleet would grow, and are left out where it
would shrink. The fleet shrinks to the highest number wanted within ``window``. Utilisation is the part of its most used
resource that a worker holds (see ``use``), averaged over workers and since the last decision. Kubernetes' limit on
growth, twice as many or four more in 15 s, is left out: it is never reached unless the target is below a half.
"""

from dataclasses import dataclass, field
from math import ceil

from headway.fleet.policies.scalers.kinds import Kinds
from headway.fleet.policies.scalers.parts import Scaler, Seen, Stabilised, Wanted
from headway.fleet.state.state import ServingState
from headway.units import SECOND, Duration

_NEAR = 1e-9


@dataclass(eq=False)
class Utilisation(Scaler):
    """Keeps the utilisation at a target."""

    name = "utilisation"

    target: float = 0.6
    tolerance: float = field(default=0.1, kw_only=True)
    window: Duration = field(default=Duration(300 * SECOND), kw_only=True)

    def __post_init__(self) -> None:
        """Raise for an option that makes no sense."""
        super().__post_init__()
        self.check("target", self.target, 0.01, 1)
        self.check("tolerance", self.tolerance, 0, 1)
        self.check("window", self.window, 0)

    def bind(self, state: ServingState, kinds: Kinds) -> None:
        """Begin with an empty window."""
        super().bind(state, kinds)
        self._stabilised = Stabilised(self.window)

    def scale(self, now: int, state: ServingState, seen: Seen) -> Wanted:
        """Return the number of the ratio rule, or a higher one that was wanted within the window."""
        rented = sum(seen.rented)
        wanted = self.kinds.spread(self._by_ratio(seen, rented))
        return self.kinds.spread(self._stabilised.highest(now, sum(wanted)))

    def _by_ratio(self, seen: Seen, rented: int) -> int:
        if not seen.usable_workers:
            return rented
        ratio = seen.busy_workers / seen.usable_workers / self.target
        if abs(ratio - 1) <= self.tolerance:
            return rented
        if ratio < 1:
            return min(rented, ceil(ratio * (rented - seen.starting) - _NEAR))
        usable = rented - seen.starting
        damped = ratio * usable / max(rented, 1)
        return rented if damped <= 1 + self.tolerance else ceil(damped * rented - _NEAR)
