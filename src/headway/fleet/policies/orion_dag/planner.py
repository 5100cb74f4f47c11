"""Plans of one graph by target: Orion's latency model and its search put together, with a count of states evaluated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp

from headway.fleet.model.graph import Graph
from headway.fleet.policies.central.fronts import Option
from headway.fleet.policies.orion_dag.distributions import (
    TAILS,
    Distribution,
    Network,
    in_parallel,
    in_series,
    lognormal,
    point,
)
from headway.fleet.policies.orion_dag.planning import (
    Bundle,
    Plan,
    State,
    best_first,
    choose_bundles,
    stages_of,
)

MOST_POINTS = 4096
"""The grid is made coarser where the slowest state would need more points."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the planner is told by the options of the policy."""

    percentile: float
    cutoff: int
    key: str
    grid: int
    bundle: bool


@dataclass(eq=False)
class Planner:
    """Finds the plan of a graph for a target; a plan is searched once."""

    graph: Graph
    options: Sequence[Sequence[Option]]
    """By function: all its configurations."""
    spreads: Sequence[float]
    """By function: the standard deviation of the logarithm of its run times."""
    rules: Rules
    plans: dict[int, Plan] = field(default_factory=dict)
    """By target."""

    def __post_init__(self) -> None:
        self._stages = stages_of(self.graph)
        self._menus = [single_calls(self.options[stage.function]) for stage in self._stages]
        longest = [0.0] * len(self.graph.tasks)
        for stage, menu in zip(self._stages, self._menus, strict=True):
            for task in stage.tasks:
                longest[task] = menu[0].time * exp(TAILS * self.spreads[stage.function])
        self._step = max(self.rules.grid, int(max(self.graph.lengths_to(longest))) // MOST_POINTS)
        self._networks: dict[tuple[tuple[int, ...], ...], Network] = {}
        self._known: dict[tuple[int, Option], Distribution] = {}

    def plan(self, target: int) -> tuple[Plan, int]:
        """Return the plan for a target, and how many states were evaluated now; 0 where it was known."""
        target = max(0, target) // self.rules.grid * self.rules.grid
        if (known := self.plans.get(target)) is not None:
            return known, 0
        counts = [len(stage.tasks) for stage in self._stages]
        found = best_first(self._menus, counts, self._latency_of_state, target, self.rules.cutoff, self.rules.key)
        sizes = [menu[at] for menu, at in zip(self._menus, found.state, strict=True)]
        bundles, latency, evaluated = self._alone(found.state), found.latency, found.evaluated
        if self.rules.bundle:
            limit = max(target, latency)
            chosen, more = choose_bundles(self._stages, self.options, sizes, self.latency_of, limit)
            bundles = [bundle for stage in chosen for bundle in stage]
            latency, evaluated = self.latency_of(bundles), evaluated + more
        by_task = {task: size for stage, size in zip(self._stages, sizes, strict=True) for task in stage.tasks}
        alone = tuple(by_task[task] for task in range(len(self.graph.tasks)))
        plan = self.plans[target] = Plan(alone, tuple(bundles), latency, evaluated)
        return plan, evaluated

    def latency_of(self, bundles: Sequence[Bundle]) -> int:
        """Return the percentile of the end-to-end latency when these bundles run."""
        parts = tuple(bundle.tasks for bundle in bundles)
        if (network := self._networks.get(parts)) is None:
            network = self._networks[parts] = Network(_merged(self.graph, parts))
        times = [self._distribution(bundle) for bundle in bundles]
        whole = network.combine(times, point(0, self._step), in_series, in_parallel)
        return whole.percentile(self.rules.percentile)

    def _latency_of_state(self, state: State) -> int:
        return self.latency_of(self._alone(state))

    def _alone(self, state: State) -> list[Bundle]:
        """Return every task by itself, in the sizes of a state."""
        sizes = zip(self._stages, self._menus, state, strict=True)
        return [Bundle((task,), menu[at]) for stage, menu, at in sizes for task in stage.tasks]

    def _distribution(self, bundle: Bundle) -> Distribution:
        key = (self.graph.functions[bundle.tasks[0]], bundle.option)
        if (known := self._known.get(key)) is None:
            known = self._known[key] = lognormal(bundle.option.time, self.spreads[key[0]], self._step)
        return known


def single_calls(options: Sequence[Option]) -> tuple[Option, ...]:
    """Return the configurations for one call, those of the least batch that was measured; the smallest first."""
    least = min(option.configuration.batch for option in options)
    return tuple(
        sorted((option for option in options if option.configuration.batch == least), key=lambda o: o.configuration)
    )


def _merged(graph: Graph, parts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the predecessors of each bundle as positions of bundles."""
    where: Mapping[int, int] = {task: at for at, tasks in enumerate(parts) for task in tasks}
    return [sorted({where[before] for before in graph.predecessors[tasks[0]]}) for tasks in parts]
