"""Sizes for policies that know no workers, such as Orion and Aquatope: one size must run anywhere, equally fast.

Their papers have one kind of machine, on which any size runs. In a fleet with several types of GPU a plan is made of
sizes that every worker can hold, with the times of the slowest. On a faster worker a batch gets the cheapest
configuration that takes no longer.
"""

from collections.abc import Sequence

from headway.fleet.model.catalogue import Configuration
from headway.fleet.policies.central.fronts import Option, can_hold, cost_of, options_on
from headway.fleet.state.state import ServingState


def options_everywhere(state: ServingState, function: int) -> tuple[Option, ...]:
    """Return the options of a function that every worker can hold, fastest first; where there are none, all."""
    kinds = {(worker.worker.gpu, worker.worker.cpus): worker for worker in state.workers}.values()
    options = options_on(state, function)
    everywhere = tuple(
        option
        for option in options
        if all(
            option.configuration in state.latency.cells(worker.id, function)
            and can_hold(worker.worker, state.catalogue, function, option.configuration)
            for worker in kinds
        )
    )
    return everywhere or options


def hosts_of(state: ServingState, function: int, size: Configuration) -> tuple[int, ...]:
    """Return the workers that can run a batch of exactly this size when they are empty."""
    return tuple(
        worker.id
        for worker in state.workers
        if state.latency.run_time(worker.id, function, *size) is not None
        and can_hold(worker.worker, state.catalogue, function, size)
    )


class SameSpeed:
    """Translates a size to each worker: the cheapest configuration there that is as fast as on the slowest."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, Configuration], Configuration] = {}

    def on(self, state: ServingState, worker: int, function: int, size: Configuration) -> Configuration:
        """Return what a batch of a size gets on a worker; where that is not faster than others, the size itself."""
        key = (worker, function, size)
        if (known := self._known.get(key)) is None:
            known = self._known[key] = self._cheapest(state, worker, function, size)
        return known

    def _cheapest(self, state: ServingState, worker: int, function: int, size: Configuration) -> Configuration:
        times = [state.latency.run_time(other.id, function, *size) for other in state.workers]
        slowest = max((time for time in times if time is not None), default=0)
        if times[worker] is None or times[worker] == slowest:
            return size
        possible = self._as_fast(state, worker, function, size.batch, slowest)
        return min(possible, key=lambda cell: (cost_of(cell[0], cell[1], state.fleet.prices), cell[0]))[0]

    def _as_fast(
        self, state: ServingState, worker: int, function: int, batch: int, slowest: int
    ) -> Sequence[tuple[Configuration, int]]:
        """Return the configurations of a worker for so many tasks that take at most ``slowest``, with their times."""
        sizes = {(cell.cpus, cell.slices) for cell in state.latency.cells(worker, function)}
        cells = [
            (configuration, time)
            for configuration in (Configuration(batch, *each) for each in sizes)
            if (time := state.latency.run_time(worker, function, *configuration)) is not None and time <= slowest
        ]
        place = state.workers[worker].worker
        return [cell for cell in cells if can_hold(place, state.catalogue, function, cell[0])]
