"""What would let a waiting job start now: which running jobs to preempt, or to move elsewhere, so that it fits.

Who comes first does not matter here, nor what the policy would do: this is about what could be done. Every answer was
tried out on the state, action by action, and leaves room for the job. For a job that goes onto one node, every node is
looked at, with the fewest jobs that would have to leave it and with the narrowest; for wider jobs, and where CPUs or
memory decide, nodes are cleared one after the other until it fits, and everybody who need not have left stays.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

from headway.jobs.model.actions import Action, MigrateJob, PreemptJob, StartJob
from headway.jobs.model.resources import Placement
from headway.jobs.policies.migrations.costed import covers
from headway.jobs.policies.parts import PlacementRule
from headway.jobs.policies.preemption.victims import fits
from headway.jobs.state.draft import Draft
from headway.jobs.state.feasible import limit_refusal, placement_refusal, quota_refusal
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import members
from headway.jobs.state.state import TrainingState
from headway.units import WHOLE_GPU_MILLI

MOST_CLEARED = 16
"""Nodes that are cleared one after the other for a wide job before moving is given up."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Actions that make room for a job, and last its start."""

    actions: tuple[Action, ...]
    cost: int
    """Standstill of those that were stopped or moved, in thousandths of a GPU times nanoseconds."""
    width: int
    """Thousandths of a GPU that they hold."""

    @property
    def steps(self) -> tuple[Action, ...]:
        """Without the start."""
        return self.actions[:-1]

    @property
    def jobs(self) -> tuple[int, ...]:
        """Return who is stopped or moved."""
        return tuple(action.job for action in self.steps if isinstance(action, PreemptJob | MigrateJob))


# --- preemption -----------------------------------------------------------------------------------------------


def by_preemption(state: TrainingState, js: JobState, rule: PlacementRule) -> list[Opening]:
    """The fewest jobs to preempt and, if that costs less, others; none when even all together would not do."""
    found: dict[tuple[int, ...], Opening] = {}
    for victims in _victims(state, js, rule):
        stopped, placement = _enough(state, js, rule, victims) or ([], None)
        if stopped and placement is not None:
            cost = sum(state.costs.of_preemption(each.job) * each.width for each in stopped)
            actions: tuple[Action, ...] = (*(PreemptJob(each.id) for each in stopped), StartJob(js.id, placement))
            found[tuple(each.id for each in stopped)] = Opening(actions, cost, sum(each.width for each in stopped))
    return _best(found.values())


def _victims(state: TrainingState, js: JobState, rule: PlacementRule) -> Iterator[Sequence[JobState]]:
    """Lists of running jobs, each to be stopped in order until the job fits."""
    everybody = [each for each in state.running.values() if each.job.preemptible]
    own: list[JobState] = []
    if state.quotas and quota_refusal(js) is not None:
        own = sorted((each for each in everybody if each.account is js.account), key=_widest)
        yield own
        yield sorted(own, key=_narrowest)
    if state.limits is not None and (counter := state.limits.refusing(js)) is not None:
        own = [each for each in state.limits.holders(counter, everybody) if each not in own] + own
        yield own
        yield own[::-1]
    for node in _nodes(state, js):
        here = [each for each in state.on_node[node].values() if each.job.preemptible]
        for chosen in _covered(state, js, node, here):
            yield [*own, *chosen]
        yield [*own, *sorted(here, key=_widest)]
        yield [*own, *sorted(here, key=_narrowest)]
    inside = [each for each in everybody if any(js.eligible >> node & 1 for node, _ in each.placement)]
    for order in (_widest, _narrowest, _latest):
        yield [*own, *sorted(inside, key=order)]
    if not rule.needs_one_node(state.pool, js):
        yield [*own, *chain.from_iterable(_clearances(state, js, movable=False))]


def _enough(
    state: TrainingState, js: JobState, rule: PlacementRule, victims: Iterable[JobState]
) -> tuple[list[JobState], Placement] | None:
    """As many of these, in order, as make room for the job, less those that it turns out not to need."""
    chosen: list[JobState] = []
    with state.draft() as draft:
        placement = None
        for victim in victims:
            if victim in chosen:
                continue
            draft.release(victim)
            chosen.append(victim)
            if state.pool.free_among(js.eligible) < js.gpus and js.gpu_milli == WHOLE_GPU_MILLI:
                continue
            if (placement := fits(state, js, rule)) is not None:
                break
        if placement is None:
            return None
        needed = []
        for victim in reversed(chosen):
            draft.start(victim, victim.placement)
            if (other := fits(state, js, rule)) is None:
                draft.release(victim)
                needed.append(victim)
            else:
                placement = other
        last = fits(state, js, rule)
        return (needed[::-1], last) if last is not None else (chosen, placement)


# --- moves ----------------------------------------------------------------------------------------------------


def by_moves(state: TrainingState, js: JobState, rule: PlacementRule) -> list[Opening]:
    """The fewest jobs to move and, if that costs less, others; none when nothing was found."""
    if (state.quotas and quota_refusal(js) is not None) or limit_refusal(state, js) is not None:
        return []
    openings = (_moved(state, js, rule, movers) for movers in _movers(state, js, rule))
    return _best({opening.jobs: opening for opening in openings if opening is not None}.values())


def _movers(state: TrainingState, js: JobState, rule: PlacementRule) -> Iterator[list[JobState]]:
    """Sets of running jobs that could go elsewhere all at once."""
    yield from ([each] for each in state.running.values() if each.job.preemptible)
    if js.gpu_milli == WHOLE_GPU_MILLI and rule.needs_one_node(state.pool, js):
        for node in _nodes(state, js):
            yield from _covered(state, js, node, _movable(state, node))
        return
    yield from accumulate(_clearances(state, js, movable=True)[:MOST_CLEARED])


def _moved(state: TrainingState, js: JobState, rule: PlacementRule, movers: list[JobState]) -> Opening | None:
    """Everybody's new place if these make room for the job; None when it does not fit then, or one of them does not."""
    pool = state.pool
    with state.draft() as draft:
        for mover in movers:
            draft.release(mover)
        if (placement := fits(state, js, rule)) is None:
            return None
        draft.start(js, placement)
        leaving = []
        for mover in movers:
            if placement_refusal(state, mover, mover.placement) is None:
                draft.start(mover, mover.placement)  # the job does not need that place
            else:
                leaving.append(mover)
        moves: list[tuple[JobState, Placement]] = []
        for mover in sorted(leaving, key=_widest):
            target = rule.place(pool, mover)
            if target is None:
                return None
            draft.start(mover, target)
            moves.append((mover, target))
    ordered = _in_turn(state, js, moves, placement)
    if not moves or ordered is None:
        return None
    cost = sum(state.costs.of_migration(mover.job) * mover.width for mover, _ in moves)
    actions: tuple[Action, ...] = (*(MigrateJob(each.id, to) for each, to in ordered), StartJob(js.id, placement))
    return Opening(actions, cost, sum(mover.width for mover, _ in moves))


def _in_turn(
    state: TrainingState, js: JobState, moves: Sequence[tuple[JobState, Placement]], placement: Placement
) -> list[tuple[JobState, Placement]] | None:
    """The moves in an order in which each finds its place free, and then the job its own; None when there is none."""
    left, done = list(moves), []
    with state.draft() as draft:
        while left:
            turn = next((move for move in left if _free_for(state, draft, *move)), None)
            if turn is None:
                return None
            left.remove(turn)
            done.append(turn)
        return done if placement_refusal(state, js, placement) is None else None


def _free_for(state: TrainingState, draft: Draft, mover: JobState, target: Placement) -> bool:
    """Move a job in a draft, if it can be."""
    draft.release(mover)
    free = placement_refusal(state, mover, target) is None
    draft.start(mover, target if free else mover.placement)
    return free


# --- nodes ----------------------------------------------------------------------------------------------------


def _nodes(state: TrainingState, js: JobState) -> Iterator[int]:
    """Nodes that are in service and large enough for the job, or for its part of each node."""
    each = _each(state, js)
    return (node for node in members(js.eligible & state.pool.schedulable) if state.pool.capacity[node] >= each)


def _each(state: TrainingState, js: JobState) -> int:
    """GPUs that the job wants on one node."""
    if js.nodes > 1:
        return js.gpus // js.nodes
    return min(js.gpus, state.pool.largest_among(js.eligible))


def _movable(state: TrainingState, node: int) -> list[JobState]:
    here = state.on_node[node].values()
    return [each for each in here if each.job.preemptible and len(each.placement) == 1 and each.nodes <= 1]


def _covered(state: TrainingState, js: JobState, node: int, here: list[JobState]) -> list[list[JobState]]:
    """Return who of these could leave a node so that the job's GPUs are free there: the fewest, and the narrowest."""
    deficit = _each(state, js) - state.pool.free_count[node]
    whole = [each for each in here if each.gpus and each.gpu_milli == WHOLE_GPU_MILLI and len(each.placement) == 1]
    return covers(whole, deficit) if deficit > 0 else []


def _clearances(state: TrainingState, js: JobState, *, movable: bool) -> list[list[JobState]]:
    """Return who would have to leave each node, those first of which fewest and narrowest would."""
    found = []
    for node in _nodes(state, js):
        if state.pool.free_count[node] < _each(state, js):
            here = _movable(state, node) if movable else [e for e in state.on_node[node].values() if e.job.preemptible]
            choices = _covered(state, js, node, here)
            if choices:
                found.append(min(choices, key=lambda movers: (len(movers), sum(each.gpus for each in movers))))
    found.sort(key=lambda movers: (len(movers), sum(each.gpus for each in movers), movers[0].id))
    return found


def _best(openings: Iterable[Opening]) -> list[Opening]:
    """With the fewest jobs; then one that costs less, if there is one."""
    ranked = sorted(openings, key=lambda each: (len(each.jobs), each.cost, each.width, each.jobs))
    if not ranked:
        return []
    cheapest = min(ranked, key=lambda each: (each.cost, len(each.jobs), each.width, each.jobs))
    return [ranked[0]] if cheapest.cost >= ranked[0].cost else [ranked[0], cheapest]


def _widest(js: JobState) -> tuple[int, int]:
    return -js.width, js.id


def _narrowest(js: JobState) -> tuple[int, int]:
    return js.width, js.id


def _latest(js: JobState) -> tuple[int, int]:
    return -js.since, js.id
