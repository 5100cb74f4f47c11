"""Play a run one decision at a time, for policies that are learned: the signatures of Gymnasium, without it.

``reset`` leads to the first instant at which something may be decided; ``step`` takes actions, commits those that can
be done, and leads to the next one. What is seen is the state itself, which must not be changed. The reward is minus the
time that unfinished work spent in the system since the last step, in seconds: its sum is minus the total of all
completion times. Policies that place something need an order to rank the queue by; ``policy`` names it.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from headway.core.scheduler import Scheduler
from headway.core.tape import Tape, TapeWriter
from headway.errors import ExperimentError
from headway.experiment.measured import with_run
from headway.experiment.registry import domain_of
from headway.units import SECOND

Step = tuple[Any, float, bool, bool, dict[str, Any]]
"""What is seen, the reward, whether the run is over, whether it was cut short, and more about it."""


class Environment:
    """One run that waits for actions at every instant."""

    def __init__(self, experiment: Any) -> None:
        self.experiment = experiment
        self._instants: Iterator[int] | None = None

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin anew; return what is seen at the first instant, and more about it."""
        chosen = self.experiment if seed is None else with_run(self.experiment, seed=seed)
        self.scene = domain_of(chosen).prepare(with_run(chosen, out=""))
        begun = self.scene.begin()
        self.state = begun.state
        self._tape = TapeWriter()
        self._scheduler = Scheduler(begun.state, begun.policy, begun.executor, self._tape, exact=False)
        self._instants = self._scheduler.instants()
        self.now = 0
        self._alive = 0
        self.over = False
        self._advance()
        return self.state, {"now": self.now}

    def step(self, actions: Iterable[Any] = ()) -> Step:
        """Do what can be done of some actions, and go on; refusals and their reasons are in ``info``."""
        if self._instants is None or self.over:
            raise ExperimentError("the environment is not at an instant: call reset() first")
        refused = []
        for action in actions:
            if (reason := self._scheduler.act(self.now, action)) is not None:
                refused.append((action, reason))
        before, alive = self.now, self._count()
        self._advance()
        reward = -alive * (self.now - before) / SECOND
        return self.state, reward, self.over, False, {"now": self.now, "refused": refused}

    @property
    def tape(self) -> Tape:
        """What has happened so far."""
        return self._tape.close()

    def _count(self) -> int:
        far = self.scene.far(self.state, self.now)
        return far.waiting + far.running

    def _advance(self) -> None:
        assert self._instants is not None
        following = next(self._instants, None)
        self.over = following is None
        self.now = self.now if following is None else following
