"""The instances of all stages: where they are, what they reserve, how they are started and stopped."""

from collections.abc import Iterator, Sequence
from math import inf

from headway.fleet.model.actions import Action, StartInstance, StopInstance
from headway.fleet.model.catalogue import Configuration
from headway.fleet.policies.central.fronts import can_hold
from headway.fleet.policies.central.processes import start
from headway.fleet.policies.infless.planner import Cell, Fits, Planned, Slot, choose, fastest
from headway.fleet.policies.infless.reserved import Ledger
from headway.fleet.policies.infless.stage import Instance, Stage
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import WorkerState

LEAST_CPUS = 2
"""The published grid has up to as many CPUs as the batch has requests, and this many for a batch of 1."""


class Instances:
    """Starts and stops instances, and knows those of each worker."""

    def __init__(
        self, state: ServingState, *, most_batch: int, safety: float, metric: str, whole: bool, grid: bool
    ) -> None:
        """Begin without instances; see the options of the policy."""
        self.metric = metric
        self.whole = whole
        self.on: list[list[Instance]] = [[] for _ in state.workers]
        """By worker."""
        self.states = 0
        """Configurations that were looked at for new instances."""
        self._ledger = Ledger(state)
        functions = range(len(state.catalogue.functions))
        self._cells = [
            [_cells_on(state, worker, function, most_batch, 1.0 + safety, grid=grid) for function in functions]
            for worker in state.workers
        ]

    def deploy(self, state: ServingState, stage: Stage) -> Iterator[Action]:
        """Start the instance of batch 1 that a stage keeps; where nothing is free, one that reserves nothing."""
        planned = self._plan_first(stage, self._slots(state, stage.function), self._fits(stage.function))
        if planned is not None:
            yield from self._open(state, stage, planned, first=True, reserved=True)
            return
        fewest = sorted(state.workers, key=lambda worker: (len(self.on[worker.id]), worker.id))
        empty = [
            Slot(w.id, w.worker.cpus, w.worker.gpu.slices, w.worker.cpus, w.worker.gpu.slices, cells)
            for w in fewest
            if w.up and (cells := self._cells[w.id][stage.function])
        ]
        planned = self._plan_first(stage, empty, lambda worker, configuration: True)
        if planned is not None:
            yield from self._open(state, stage, planned, first=True, reserved=False)

    def scale_up(self, state: ServingState, stage: Stage, residual: float, replicas: int) -> Iterator[Action]:
        """Start instances for a rate that none takes, while some fit and there are fewer than ``replicas``."""
        while residual > 0 and len(stage.instances) < replicas:
            slots, fits = self._slots(state, stage.function), self._fits(stage.function)
            planned = choose(slots, fits, stage.slo, residual, metric=self.metric, whole=self.whole)
            if planned is None:
                return
            residual -= planned.rates.up
            yield from self._open(state, stage, planned, first=False, reserved=True)

    def close(self, state: ServingState, instance: Instance) -> Iterator[Action]:
        """Stop an idle instance for good."""
        worker, stage = state.workers[instance.plan.worker], instance.stage
        stage.instances.remove(instance)
        self.on[worker.id].remove(instance)
        self._release(instance)
        if worker.idle.get(stage.function):
            yield StopInstance(worker.id, stage.function)

    def lose(self, worker: WorkerState) -> None:
        """Remove all instances of a worker that failed."""
        for instance in self.on[worker.id]:
            instance.stage.lose(instance)
            self._release(instance)
        self.on[worker.id] = []

    def park(self, state: ServingState, instance: Instance) -> Iterator[Action]:
        """Stop the process of an idle instance until it is needed again."""
        instance.parked = True
        worker, function = state.workers[instance.plan.worker], instance.stage.function
        if worker.idle.get(function):
            yield StopInstance(worker.id, function)

    def restart(self, state: ServingState, instance: Instance) -> Iterator[Action]:
        """Start a process in place of one that was stopped or has expired, unless one is on its way."""
        instance.parked = False
        worker, function = state.workers[instance.plan.worker], instance.stage.function
        wanted = sum(other.stage.function == function and not other.parked for other in self.on[worker.id])
        if worker.processes(function) < wanted:
            yield from start(state, worker, function)

    def _plan_first(self, stage: Stage, slots: Sequence[Slot], fits: Fits) -> Planned | None:
        planned = choose(slots, fits, stage.slo, inf, most_batch=1, metric=self.metric, whole=self.whole)
        return planned or fastest(slots, fits)

    def _slots(self, state: ServingState, function: int) -> list[Slot]:
        """Return the workers that are up, with what no instance reserves."""
        cpus, slices = self._ledger.cpus_free, self._ledger.slices_free
        slots = [
            Slot(w.id, w.worker.cpus, w.worker.gpu.slices, cpus[w.id], slices[w.id], self._cells[w.id][function])
            for w in state.workers
            if w.up
        ]
        self.states += sum(len(slot.cells) for slot in slots)
        return slots

    def _fits(self, function: int) -> Fits:
        return lambda worker, configuration: self._ledger.fits(worker, function, configuration)

    def _open(
        self, state: ServingState, stage: Stage, planned: Planned, *, first: bool, reserved: bool
    ) -> Iterator[Action]:
        """Start an instance; one whose function needs no process is ready at once."""
        configuration = planned.cell.configuration
        mask = self._ledger.reserve(planned.worker, stage.function, configuration) if reserved else None
        instance = Instance(stage, planned, first, mask, not stage.kind.cold_start)
        stage.instances.append(instance)
        self.on[planned.worker].append(instance)
        if not instance.ready:
            for action in start(state, state.workers[planned.worker], stage.function):
                yield action
                if isinstance(action, StartInstance):
                    instance.start = state.leases

    def _release(self, instance: Instance) -> None:
        if instance.mask is not None:
            planned = instance.plan
            self._ledger.release(planned.worker, instance.stage.function, planned.cell.configuration, instance.mask)


def _cells_on(
    state: ServingState, worker: WorkerState, function: int, most_batch: int, slower: float, *, grid: bool
) -> list[Cell]:
    """Return what an empty worker can hold of a function: largest first, and always something of batch 1.

    ``most_batch`` 0: no limit. A batch of 1 that was not measured takes as long as the smallest that was.
    """
    cells = state.latency.cells(worker.id, function).items()
    held = {each: time for each, time in cells if can_hold(worker.worker, state.catalogue, function, each)}
    if held and (least := min(held).batch) > 1:
        held |= {Configuration(1, *each[1:]): time for each, time in held.items() if each.batch == least}
    if grid:
        half = worker.worker.gpu.slices // 2
        within = {c: time for c, time in held.items() if c.slices <= half and c.cpus <= max(LEAST_CPUS, c.batch)}
        held = within if any(c.batch == 1 for c in within) else held
    chosen = [Cell(c, round(time * slower)) for c, time in held.items() if c.batch <= (most_batch or c.batch)]
    return sorted(chosen, key=lambda cell: tuple(-size for size in cell.configuration))
