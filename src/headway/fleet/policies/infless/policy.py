"""infless: instances of unequal batch and size for the rate of each stage (INFless, ASPLOS 2022).

Each stage of a graph is a function with an SLO, its share of the deadline by mean service time; the pipeline is not
seen. The measured rate decides which instances there are: see ``planner``. An instance holds its CPUs and slices all
the time. It has its own queue and runs when its batch is full, or when the first request has waited for ``SLO - t``.
Requests go to instances by lottery: see ``dispatch``. Every 10 s instances are added for the rate that none takes, and
those without work are stopped.

The paper was not available. This follows the authors' code (TankLabTJU/INFless) and notes on the paper; the page of the
policy says what is our reading.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from headway.errors import ExperimentError
from headway.fleet.model.actions import Action, RunBatch, WakeAt
from headway.fleet.policies.central.forming import Key, Wakes
from headway.fleet.policies.central.fronts import options_on
from headway.fleet.policies.central.pool import fits
from headway.fleet.policies.central.ready import new_tasks
from headway.fleet.policies.esg.stagewise import shares_by_mean
from headway.fleet.policies.infless.instances import Instances
from headway.fleet.policies.infless.planner import CODE, PAPER
from headway.fleet.policies.infless.stage import NO_BATCH, Instance, Stage
from headway.fleet.policies.options import check_choice, check_durations, check_least
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.state.requeststate import RequestState
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import WorkerState
from headway.units import SECOND, Duration

EXCESS = 0.03
"""The part of the rate without an instance above which some are started."""
IDLE_ROUNDS = 3
"""Scalings without work after which an instance is stopped."""


@dataclass(eq=False)
class Infless(ServingPolicy):
    """Starts, feeds and stops instances of each stage by its rate."""

    name = "infless"
    central = True

    metric: str = PAPER
    batch: int = 0
    replicas: int = 20
    gamma: float = 0.5
    safety: float = 0.0
    dispatch: Duration = field(default=Duration(SECOND), kw_only=True)
    scale: Duration = field(default=Duration(10 * SECOND), kw_only=True)
    window: Duration = field(default=Duration(10 * SECOND), kw_only=True)
    grid: bool = field(default=True, kw_only=True)
    wait: bool = field(default=True, kw_only=True)
    whole: bool = field(default=True, kw_only=True)
    prewarm: bool = field(default=True, kw_only=True)
    histogram: bool = field(default=True, kw_only=True)
    seed: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        """Raise for an option that makes no sense."""
        check_least(self, {"batch": 0, "replicas": 1, "safety": 0})
        if not 0 <= self.gamma <= 1:
            raise ExperimentError(f"policy {self.name}: option gamma={self.gamma} is not a number from 0 to 1")
        check_durations(self, "dispatch", "scale", "window")
        check_choice(self, "metric", PAPER, CODE)

    def bind(self, state: ServingState) -> None:
        """Compute the shares of all stages; there are no instances yet."""
        options = [options_on(state, function) for function in range(len(state.catalogue.functions))]
        self._slowest = [each[-1].time for each in options]
        self._shares = shares_by_mean(state, options)
        self._instances = Instances(
            state,
            most_batch=self.batch,
            safety=self.safety,
            metric=self.metric,
            whole=self.whole,
            grid=self.grid,
        )
        self._stages: dict[Key, Stage] = {}
        self._up = [worker.up for worker in state.workers]
        self._wakes: Wakes[Instance] = Wakes()
        self._ticks_at = self._scales_at = -1

    @property
    def states_evaluated(self) -> int:
        """Return how many configurations were looked at for new instances."""
        return self._instances.states

    # --- what happens -----------------------------------------------------------------------------------------

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """Note what happened, queue new tasks, keep the clocks, and run the batches that are due."""
        to_check = dict.fromkeys(self._wakes.due(now))
        if (up := [worker.up for worker in state.workers]) != self._up:
            yield from self._on_workers_changed(now, state, up)
        for index in list(state.touched):
            self._on_touched(now, state.workers[index])
        for rs, task in new_tasks(state):
            yield from self._on_ready(now, state, rs, task, to_check)
        if 0 <= self._ticks_at <= now:
            yield from self._tick(now, state)
        for stage in self._stages.values():
            if stage.backlog:
                to_check.update(dict.fromkeys(stage.instances))
        for index in state.touched:
            to_check.update(dict.fromkeys(self._instances.on[index]))
        for instance in sorted(to_check, key=lambda instance: next(iter(instance.queue.values()), now)):
            yield from self._serve(now, state, instance)
        yield from self._keep_clock(now)

    def _on_workers_changed(self, now: int, state: ServingState, up: list[bool]) -> Iterator[Action]:
        """Remove the instances of workers that failed; deploy the stages anew that have lost the one they keep."""
        for worker in state.workers:
            if self._up[worker.id] and not worker.up:
                self._instances.lose(worker)
        self._up = up
        for stage in self._stages.values():
            if not any(instance.first for instance in stage.instances):
                yield from self._instances.deploy(state, stage)
            stage.update_weights(now, self.window)

    def _on_touched(self, now: int, worker: WorkerState) -> None:
        """Note the batches that ended and the processes that came up on a worker."""
        for instance in self._instances.on[worker.id]:
            if instance.lease != NO_BATCH and instance.lease not in worker.running:
                instance.lease = NO_BATCH
                instance.stage.note_end(now)
            if not instance.ready and instance.start not in worker.starting:
                instance.ready = True
                instance.stage.update_weights(now, self.window)

    def _on_ready(
        self, now: int, state: ServingState, rs: RequestState, task: int, to_check: dict[Instance, None]
    ) -> Iterator[Action]:
        """Queue a task at an instance of its stage; deploy the stage, or the whole graph, before its first request."""
        graph, request = rs.request.graph, rs.request.id
        for other in range(len(rs.stage)) if self.prewarm else (task,):
            if (graph, other) not in self._stages:
                stage = self._stages[graph, other] = self._stage_of(state, rs, other)
                yield from self._instances.deploy(state, stage)
                stage.update_weights(now, self.window)
        stage = self._stages[graph, task]
        if request not in stage.waiting and (instance := stage.join(now, request)) is not None:
            to_check[instance] = None

    def _stage_of(self, state: ServingState, rs: RequestState, task: int) -> Stage:
        """Return a new stage. Its SLO: its share of the request's deadline; without one, twice its slowest time."""
        request, function = rs.request, rs.graph.functions[task]
        slo = 2 * self._slowest[function]
        if request.deadline:
            slo = int(self._shares[request.graph][task] * (request.deadline - request.arrival))
        return Stage((request.graph, task), function, state.catalogue.functions[function], slo, self.seed)

    # --- batches ----------------------------------------------------------------------------------------------

    def _serve(self, now: int, state: ServingState, instance: Instance) -> Iterator[Action]:
        """Run a batch of an instance if it is full, or has waited long enough, and finds room."""
        stage, worker = instance.stage, state.workers[instance.plan.worker]
        if instance.lease != NO_BATCH or not instance.ready or instance not in stage.instances:
            return
        stage.fill(now, instance, state.ready.get(stage.key, {}))
        batch, cpus, slices = instance.plan.cell.configuration
        if not instance.queue:
            stage.note_end(now)
            return
        if self.wait and len(instance.queue) < batch and now < instance.due:
            yield from self._wakes.hold(instance, instance.due)
            return
        if stage.kind.cold_start and not worker.warm >> stage.function & 1:
            yield from self._instances.restart(state, instance)
            return
        requests = list(islice(instance.queue, batch))
        if cpus > worker.cpus_free or slices > worker.slices_free:
            return
        if (evict := fits(state, worker, stage.function, len(requests), cpus, slices)) is None:
            return
        action = RunBatch(worker.id, tuple((request, stage.key[1]) for request in requests), cpus, slices, evict)
        yield action
        if (begun := worker.running.get(state.leases)) is not None and begun.tasks == action.tasks:  # not refused
            instance.lease = state.leases
            for request in requests:
                del instance.queue[request]
                stage.waiting.discard(request)

    # --- clocks -----------------------------------------------------------------------------------------------

    def _tick(self, now: int, state: ServingState) -> Iterator[Action]:
        """Divide the rates anew; scale when that is due; keep or stop the processes of idle stages."""
        for stage in self._stages.values():
            stage.update_weights(now, self.window)
        if now >= self._scales_at:
            self._scales_at = now + self.scale
            for stage in self._stages.values():
                yield from self._scale(now, state, stage)
                stage.update_weights(now, self.window)
        for stage in self._stages.values():
            yield from self._keep_alive(now, state, stage)

    def _scale(self, now: int, state: ServingState, stage: Stage) -> Iterator[Action]:
        """Start instances for what no instance takes; else stop those that had no work three times."""
        rate = stage.rate(now, self.window)
        residual = rate - sum(instance.plan.rates.up for instance in stage.instances)
        if residual > EXCESS * rate:
            yield from self._instances.scale_up(state, stage, residual, self.replicas)
            return
        for instance in list(stage.instances):
            unused = instance.ready and not instance.first and instance.is_idle() and not stage.has_weight(instance)
            instance.idle_rounds = instance.idle_rounds + 1 if unused else 0
            if instance.idle_rounds >= IDLE_ROUNDS:
                yield from self._instances.close(state, instance)

    def _keep_alive(self, now: int, state: ServingState, stage: Stage) -> Iterator[Action]:
        """Stop the process of an idle stage outside its windows; start it again before the next request is due."""
        if not self.histogram or (windows := stage.windows(now, self.gamma)) is None:
            return
        ahead = stage.kind.cold_start if self.prewarm else windows.head
        keep = windows.keeps(stage.idle_time(now), ahead)
        for instance in stage.instances:
            if instance.first and instance.ready and keep == instance.parked:
                change = self._instances.restart if keep else self._instances.park
                yield from change(state, instance)

    def _keep_clock(self, now: int) -> Iterator[Action]:
        """Wake for the next tick, if there is one."""
        if self._scales_at < 0:
            self._scales_at = now + self.scale
        if self._ticks_at <= now:
            self._ticks_at = self._next_tick(now)
            if self._ticks_at > now:
                yield WakeAt(self._ticks_at)

    def _next_tick(self, now: int) -> int:
        """Return when rates are measured next or, where there are none, a process is stopped or started; -1: never."""
        stages = self._stages.values()
        if any(stage.rate(now, self.window) or len(stage.instances) > 1 for stage in stages):
            return (now // self.dispatch + 1) * self.dispatch
        changes = [self._next_change(now, stage) for stage in stages]
        return min((change for change in changes if change > now), default=-1)

    def _next_change(self, now: int, stage: Stage) -> int:
        """Return when the keep-alive stops or starts the process of an idle stage; in the past: it does not."""
        if not self.histogram or stage.idle_since is None or (windows := stage.windows(now, self.gamma)) is None:
            return -1
        times = (stage.idle_since + windows.head - stage.kind.cold_start, stage.idle_since + windows.tail)
        return next((time for time in times if time > now), -1)
