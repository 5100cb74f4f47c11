"""Run a simulation one decision at a time, for learned policies: the signatures of Gymnasium, without importing it.

``reset`` leads to the first instant at which something may be decided; ``step`` takes actions, commits those that can
be done, and leads to the next one. What is seen is the state itself, which must not be changed. The reward is minus
the time that unfinished work spent in the system since the last step, in seconds: its sum is minus the total of all
completion times. The queue is ranked by an order; ``policy`` names it.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from headway.core.scheduler import Scheduler
from headway.core.tape import Tape, TapeWriter
from headway.errors import ExperimentError
from headway.runs.blame import own_code
from headway.runs.measured import with_run
from headway.runs.registry import domain_of
from headway.units import SECOND

Step = tuple[Any, float, bool, bool, dict[str, Any]]
"""What is seen, the reward, whether all work is done, whether the run ended without that, and more about it."""


class Environment:
    """One run that waits for actions at every instant."""

    def __init__(self, experiment: Any) -> None:
        with own_code():
            domain_of(experiment).check(experiment)
        self.experiment = experiment
        self.now = 0
        """The instant, in nanoseconds since the run began."""
        self.over = True
        """Whether nothing will ever happen again."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin anew; return what is seen at the first instant, and more about it. There are no ``options``."""
        chosen = self.experiment if seed is None else with_run(self.experiment, seed=seed)
        self.scene = domain_of(chosen).prepare(with_run(chosen, out=""))
        begun = self.scene.begin()
        self.state = begun.state
        self.policy = begun.policy
        """Ranks the queue, and may be asked where something would go; it decides nothing here."""
        self._tape = TapeWriter()
        self._scheduler = Scheduler(begun.state, begun.policy, begun.executor, self._tape, exact=False)
        self._instants: Iterator[int] = self._scheduler.instants()
        self.now, self.over = 0, False
        self._advance()
        return self.state, {"now": self.now}

    def step(self, actions: Iterable[Any] = ()) -> Step:
        """Apply those of the actions that are feasible, and go on; refusals and their reasons are in ``info``."""
        if self.over:
            raise ExperimentError("the environment is not at an instant: call reset() first")
        refused = []
        for action in _actions(actions):
            try:
                reason = self._scheduler.act(self.now, action)
            except AssertionError as problem:  # a state says so of what it does not know
                raise ExperimentError(f"step takes actions of its scale, not {action!r}") from problem
            if reason is not None:
                refused.append((action, reason))
        before, alive = self.now, self.scene.alive(self.state, self.now)
        self._advance()
        reward = -alive * (self.now - before) / SECOND
        done = self.over and self.state.over()
        return self.state, reward, done, self.over and not done, {"now": self.now, "refused": refused}

    @property
    def tape(self) -> Tape:
        """Return what has happened so far."""
        return self._tape.close()

    def _advance(self) -> None:
        following = next(self._instants, None)
        self.over = following is None
        self.now = self.now if following is None else following


def _actions(given: Any) -> Iterable[Any]:
    """Return actions one by one: a generator sees what became of those before."""
    if not isinstance(given, Iterable) or hasattr(given, "_fields"):
        return (given,)  # one action alone; those of a GPU are named tuples
    return given
