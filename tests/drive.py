"""One way to run a policy in a test: over a workload, on a cluster, to the end; back come the tape and the state.

Also here: a digest of everything a policy could change, and a workload built from a few numbers.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from headway.core import replay as core
from headway.core.scheduler import Scheduler
from headway.core.tape import BATCH_ROWS, Tape, TapeRow, TapeWriter
from headway.jobs.audit.replay import Walk, about
from headway.jobs.model.actions import Action
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.events import Event
from headway.jobs.model.job import Job, workload
from headway.jobs.model.rows import Kind
from headway.jobs.model.speed import Costs, SpeedModel
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.registry import build
from headway.jobs.sim.cluster import SimulatedCluster
from headway.jobs.sim.faults import Faults
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.state import TrainingState
from headway.units import SECOND

Watch = Callable[[ComposedPolicy], "Watched"]
FIRST_ACTION = 20
MOST_STEPS = 3_000
MOST_ACTIONS = 500


@dataclass(frozen=True)
class World:
    """Everything about a run but its policy."""

    cluster: Cluster
    jobs: tuple[Job, ...]
    faults: Callable[[], Faults] | None = None
    """Made anew for each run: it holds random streams."""
    costs: Costs | None = None
    sharing_penalty_ppm: int = 0
    told: str = ""
    """About the faults, for people."""

    def speed(self) -> SpeedModel:
        """How fast jobs run."""
        return SpeedModel(self.cluster, sharing_penalty_ppm=self.sharing_penalty_ppm)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """As hypothesis shows it: what differs from the defaults, nothing else."""
        nodes = "\n  ".join(_short(node) for node in self.cluster.nodes)
        jobs = "\n  ".join(_short(job) for job in self.jobs)
        rest = [_short(item) for item in (*self.cluster.levels, *self.cluster.partitions, *self.cluster.tenants)]
        told = f"{self.costs} sharing {self.sharing_penalty_ppm} {self.told} {self.cluster.gpu_speed_ppm}"
        printer.text(f"World of {rest} {told}\n  {nodes}\n  {jobs}\n")


def _short(item: Any) -> str:
    shown = [f"{f.name}={v!r}" for f in fields(item) if (v := getattr(item, f.name)) != f.default]
    return f"{type(item).__name__}({', '.join(shown)})"


@dataclass(frozen=True)
class Run:
    """What a run left behind."""

    tape: Tape
    state: TrainingState
    policy: ComposedPolicy
    jobs: tuple[Job, ...]

    def rows(self, kind: Kind) -> list[TapeRow]:
        """The tape's rows of one kind."""
        return [TapeRow(*row) for row in self.tape.rows[self.tape.column("kind") == int(kind)].tolist()]

    @property
    def ends(self) -> dict[int, int]:
        """When each job finished."""
        return {row.subject: row.time for row in self.rows(Kind.FINISHED)}

    @property
    def starts(self) -> dict[int, int]:
        """When each job first started."""
        return {row.subject: row.time for row in reversed(self.rows(Kind.START))}

    @property
    def mean_jct_s(self) -> float:
        """Mean time from submission to completion."""
        ends = self.ends
        return sum(ends[job.id] - job.submit for job in self.jobs) / len(self.jobs) / SECOND


class Watched:
    """A policy that looks on while another one decides; gives up when that never ends."""

    def __init__(self, policy: ComposedPolicy) -> None:
        self.policy = policy
        self.name = policy.name

    def decide(self, now: int, state: TrainingState) -> Iterable[Action]:
        """What the policy decides."""
        return self.bounded(self.policy.decide(now, state))

    def bounded(self, actions: Iterable[Action]) -> Iterator[Action]:
        """As many actions as one instant of a small world can need."""
        for count, action in enumerate(actions):
            if count > MOST_ACTIONS:
                raise RunawayError(f"{MOST_ACTIONS} actions in one instant, and no end")
            yield action


class Bounded(SimulatedCluster):
    """Gives up on a run that goes on and on: a test's worlds end within some thousand steps."""

    left = MOST_STEPS

    def next(self) -> tuple[int, Sequence[Event]] | None:
        """The next instant, as long as there are not too many."""
        self.left -= 1
        if self.left < 0:
            raise RunawayError(f"{MOST_STEPS} steps, and no end")
        return super().next()


class RunawayError(AssertionError):
    """A run of a small world that did not end."""


def fresh_state(policy: ComposedPolicy, world: World) -> TrainingState:
    """The state that a run of this policy begins with."""
    state = TrainingState(
        world.cluster, to_come=len(world.jobs), arrangement=policy, speed=world.speed(), costs=world.costs
    )
    policy.bind(state)
    return state


def state_at(
    cluster: Cluster,
    jobs: Sequence[Job],
    tape: Tape,
    time: int,
    policy: ComposedPolicy,
    *,
    speed: SpeedModel | None = None,
    costs: Costs | None = None,
) -> TrainingState:
    """Return the state after everything up to and including a time; the policy arranges the queue and is not asked."""
    walk = Walk(cluster, jobs, tape.until(time), policy, speed=speed, costs=costs)
    for _ in walk:
        pass
    return walk.state


def drive(
    policy: str | ComposedPolicy,
    world: World,
    *,
    watch: Watch = Watched,
    folder: Path | None = None,
    batch_rows: int = BATCH_ROWS,
    bounded: bool = True,
) -> Run:
    """Run a policy, given by its name or freshly built, to the end."""
    chosen = build(policy) if isinstance(policy, str) else policy
    state = fresh_state(chosen, world)
    faults = world.faults() if world.faults is not None else None
    writer = TapeWriter(folder, batch_rows=batch_rows)
    executor = (Bounded if bounded else SimulatedCluster)(world.jobs, state, faults)
    Scheduler[Event, Action](state, watch(chosen), executor, writer).run()
    return Run(writer.close(), state, chosen, world.jobs)


def seconds_of(*jobs: tuple[float, float, int]) -> tuple[Job, ...]:
    """A workload of (submit, work, GPUs), times in seconds."""
    return workload(Job(0, round(submit * SECOND), round(work * SECOND), gpus) for submit, work, gpus in jobs)


# --- what a policy could change -------------------------------------------------------------------------------


def digest(state: TrainingState) -> str:
    """Of everything in a state that a policy is shown and must leave as it is."""
    pool = state.pool
    seen = (
        *(pool.free_mask, pool.free_count, pool.cpu_free, pool.memory_free, pool.storage_free, pool.buckets),
        [sorted(shares.items()) for shares in pool.shares],
        (pool.sharing, pool.schedulable, pool.free_gpus),
        {repr(name): list(lane) for name, lane in state.queue.lanes.items()},
        state.queue.size,
        list(state.running),
        [(a.name, a.guaranteed, a.limit, a.borrow, a.weight, a.held) for a in state.accounts.values()],
        [_job_digest(js) for js in state.jobs.values()],
        [list(state.ranked.ascending(0)), list(state.ends.ascending(0))] if state.running else [],
        (state.to_come, state.changes, state.releases, state.lease),
    )
    return hashlib.sha256(repr(seen).encode()).hexdigest()


def _job_digest(js: JobState) -> tuple[object, ...]:
    plain = [slot for slot in JobState.__slots__ if slot not in ("account", "job")]
    return (js.account.name, hash(js.job), *(getattr(js, slot) for slot in plain))


def joined(before: Tape, after: Tape) -> Tape:
    """Two tapes in a row."""
    notes = {**before.notes, **{row + len(before): text for row, text in after.notes.items()}}
    return Tape(np.concatenate((before.rows, after.rows)), notes)


def first_difference(a: Tape, b: Tape) -> str | None:
    """Return where two tapes of jobs part, in one line; None when they are equal."""
    return core.first_difference(a, b, Kind, about)
