"""Find ways to make room for a job that waits, and say what each costs: standstill, and work that is done again.

Each was tried on the state (``jobs.explain.room``), and the policy was then asked whether it would start the job.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from headway.jobs.explain.room import Opening, by_moves, by_preemption
from headway.jobs.model.actions import MigrateJob
from headway.jobs.rules.preemption.preemption import Mode
from headway.jobs.rules.preemption.tiers import Precedence
from headway.jobs.sim.copies import Copies
from headway.jobs.sim.resume import Moment
from headway.jobs.state.feasible import limit_refusal, quota_refusal
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.state import TrainingState
from headway.units import HOUR, WHOLE_GPU_MILLI, counted

PREEMPTION, MOVES = "preemption", "moves"


@dataclass(frozen=True, slots=True)
class Way:
    """One way to make room for the job."""

    kind: str
    jobs: tuple[str, ...]
    """Who is stopped or moved, by name."""
    where: tuple[tuple[tuple[str, int], ...], ...]
    """For each of them: nodes and GPUs that it leaves (preemption) or goes to (moves)."""
    cost: int
    """Standstill, in thousandths of a GPU times nanoseconds."""
    starts: bool
    """Whether the policy, asked right after, starts the job; else it has other plans for the room."""
    lost: int = 0
    """What they have done and do not keep, in the same unit."""
    modes: tuple[str, ...] = ()
    """How a site preempts each of them, where it has rules for that: requeue or cancel."""

    def line(self) -> str:
        """Return it as a line for a terminal."""
        verb, where = ("preempt", "{} ({})") if self.kind == PREEMPTION else ("move", "{} to {}")
        listed = [where.format(job, nodes_told(nodes)) for job, nodes in zip(self.jobs, self.where, strict=True)]
        what = f"{verb} job{'s' if len(self.jobs) > 1 else ''} {_some(listed)}"
        cost, lost = (each / (WHOLE_GPU_MILLI * HOUR) for each in (self.cost, self.lost))
        told = [f"{cost:.3g} GPU-hours of standstill"] if self.cost or not self.modes else []
        if self.modes:
            told.insert(0, f"{lost:.3g} GPU-hours of work done are {_fate(self.modes)}")
        then = "starts it" if self.starts else "gives the room to others, or waits for its turn"
        return f"{what}: {', '.join(told)}; the policy then {then}"

    def record(self) -> dict[str, Any]:
        """Return it as JSON, for a program."""
        return {
            "kind": self.kind,
            "jobs": list(self.jobs),
            "nodes": [dict(nodes) for nodes in self.where],
            "cost_gpu_s": self.cost / WHOLE_GPU_MILLI / 10**9,
            "policy_starts_it": self.starts,
            **({"lost_gpu_s": self.lost / WHOLE_GPU_MILLI / 10**9, "modes": list(self.modes)} if self.modes else {}),
        }


def ways_of(moment: Moment, js: JobState) -> tuple[tuple[Way, ...], dict[str, str]]:
    """Return ways to make room, fewest jobs first, and for each kind without one the reason."""
    state, rule = moment.state, copy(moment.policy.placement)
    copies = Copies(moment)
    ways: list[Way] = []
    none: dict[str, str] = {}
    for kind, search in ((PREEMPTION, by_preemption), (MOVES, by_moves)):
        way = search(state, js, rule)
        ways.extend(_way(kind, moment, copies, js, opening) for opening in way)
        if not way:
            none[kind] = _why_none(kind, state, js)
    return tuple(ways), none


def _way(kind: str, moment: Moment, copies: Copies, js: JobState, opening: Opening) -> Way:
    state = moment.state
    placements = [
        action.placement if isinstance(action, MigrateJob) else state.running[job].placement
        for action, job in zip(opening.steps, opening.jobs, strict=True)
    ]
    where = [
        tuple((state.cluster.nodes[node].name, mask.bit_count()) for node, mask in placement)
        for placement in placements
    ]
    names = tuple(state.jobs[job].job.name or str(job) for job in opening.jobs)
    stopped = [state.running[job] for job in opening.jobs] if kind == PREEMPTION else []
    starts = _started(copies.make(), js.id, opening)
    return Way(kind, names, tuple(where), opening.cost, starts, *_lost(moment, stopped))


def _started(moment: Moment, job: int, opening: Opening) -> bool:
    """Return whether the policy starts the job once room has been made for it."""
    now, state = moment.time, moment.state
    for action in opening.steps:
        if (refusal := state.check(action)) is not None:
            raise AssertionError(f"what would make room cannot be done: {refusal}")
        state.commit(now, action)
    if (refusal := state.check(opening.actions[-1])) is not None:
        raise AssertionError(f"what makes room leaves none: {refusal}")
    for action in moment.policy.decide(now, state):
        if state.check(action) is None:
            state.commit(now, action)
    return job in state.running


def _why_none(kind: str, state: TrainingState, js: JobState) -> str:
    if kind == MOVES:
        if state.quotas and (refusal := quota_refusal(js)) is not None:
            return f"none: {refusal}"
        if (refusal := limit_refusal(state, js)) is not None:
            return f"none: {refusal}"
        free = state.pool.free_among(js.eligible)
        if free < js.gpus:
            return f"none: fewer GPUs are free where it may run ({free}) than it wants ({js.gpus})"
        return "none was found that leaves everybody a place"
    held = [each for each in state.running.values() if any(js.eligible >> node & 1 for node, _ in each.placement)]
    fixed = sum(not each.job.preemptible for each in held)
    if not fixed:
        return "none: it would not fit even then"
    return f"none: {fixed:,} of {len(held):,} running jobs there are not preemptible"


def _fate(modes: Sequence[str]) -> str:
    """Return what becomes of the work that victims have done, in words."""
    killed = sum(mode == Mode.CANCEL for mode in modes)
    if not killed:
        return "run again (REQUEUE keeps no progress)"
    return "lost (CANCEL ends them)" if killed == len(modes) else f"lost or run again (CANCEL ends {killed} of them)"


def _lost(moment: Moment, victims: Sequence[JobState]) -> tuple[int, tuple[str, ...]]:
    """Return the work that a site's preemption throws away, and how it preempts each; nothing without such rules."""
    if not victims or (rules := moment.state.cluster.preemption) is None:
        return 0, ()
    terms = Precedence(moment.state.cluster, rules).terms
    return sum(js.done_at(moment.time) * js.width for js in victims), tuple(terms(js.job).mode for js in victims)


def nodes_told(nodes: Sequence[tuple[str, int]]) -> str:
    """Return nodes with how many GPUs of each, the first few of them."""
    return listed_nodes([f"{gpus} on {name}" for name, gpus in nodes])


def listed_nodes(nodes: Sequence[str]) -> str:
    """Return what is told of each node, of the first few of them."""
    shown = ", ".join(nodes[:4])
    return f"{shown} and {counted(len(nodes) - 4, 'more node')}" if len(nodes) > 4 else shown


def _some(listed: Sequence[str], most: int = 8) -> str:
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")
