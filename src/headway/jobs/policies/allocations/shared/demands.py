"""Demands of jobs for CPUs, memory and storage bandwidth, where they fit, and the actions that change grants.

A job with a profile demands the smallest cell of its matrix at which it reaches its full speed. A job without one
demands what it asked for, or its proportional share if it asked for nothing. It is assumed to lose no speed with just
its proportional share. On GPUs faster than the reference the demand grows with their speed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from headway.jobs.model.actions import ReallocateJob
from headway.jobs.model.job import Job
from headway.jobs.model.proportional_share import ProportionalShares, scaled
from headway.jobs.model.resources import Grant, Placement
from headway.jobs.model.sensitivity import Profile
from headway.jobs.policies.allocations.shared.tightest import place_tightest
from headway.jobs.policies.parts import PlacementRule
from headway.jobs.state.feasible import grant_refusal
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import members
from headway.jobs.state.state import TrainingState
from headway.jobs.state.tentative_demand import TentativeDemand
from headway.units import REFERENCE_SPEED_PPM, WHOLE_GPU_MILLI


class Demands:
    """Demands and proportional shares of jobs on one cluster."""

    def __init__(self, state: TrainingState) -> None:
        self.profiles: Mapping[str, Profile] = state.speed.profiles
        self.shares = ProportionalShares(state.cluster)
        speeds = state.cluster.gpu_speed_ppm
        self._pace = [
            max(speeds.get(node.gpu_type, REFERENCE_SPEED_PPM), REFERENCE_SPEED_PPM) for node in state.cluster.nodes
        ]
        self.same_pace = len(set(self._pace)) == 1
        """Whether the demand of a job is the same on all nodes."""
        self._known: dict[tuple[str, int, int], Grant] = {}
        """Demands of jobs with a profile, by model, width and pace of the GPUs."""
        self.kinds = tuple(self._kinds(state))
        """(proportional share of a GPU, pace, bit set of the nodes that have both), the largest first."""

    def _kinds(self, state: TrainingState) -> Iterator[tuple[Grant, int, int]]:
        for proportional, nodes in self.shares.kinds:
            paces: dict[int, int] = {}
            for node in members(nodes):
                paces[self._pace[node]] = paces.get(self._pace[node], 0) | state.pool.bits[node]
            yield from ((proportional, pace, paces[pace]) for pace in sorted(paces, reverse=True))

    def pace(self, placement: Placement) -> int:
        """Return the speed of the slowest of these GPUs; at least the reference, at which profiles are measured."""
        return self._pace[placement[0][0]] if len(placement) == 1 else min(self._pace[node] for node, _ in placement)

    def profile(self, job: Job) -> Profile | None:
        """Return the profile of a job; None if it has none."""
        return self.profiles.get(job.model) if job.gpus else None

    def proportional(self, js: JobState, placement: Placement) -> Grant:
        """Return a job's proportional share of its nodes; for a job without GPUs, what it asked for."""
        if not js.gpus:
            return Grant(js.job.cpu_milli, js.job.memory_bytes)
        return self.shares.of(placement, js.width)

    def demand(self, job: Job, proportional_per_gpu: Grant, pace_ppm: int = REFERENCE_SPEED_PPM) -> Grant:
        """Return the least grant with which a job reaches full speed on GPUs of this pace; 0 of what is not counted."""
        width = job.gpus * job.gpu_milli
        key = (job.model, width, pace_ppm)
        if (known := self._known.get(key)) is not None:
            return known
        if (profile := self.profile(job)) is not None:
            known = self._known[key] = self._counted(scaled_up(_demand_at(profile, pace_ppm), width))
            return known
        if not job.gpus:
            return Grant(job.cpu_milli, job.memory_bytes)
        proportional = scaled(proportional_per_gpu, width)
        return self._counted(
            Grant(
                job.cpu_milli or proportional.cpu_milli,
                job.memory_bytes or proportional.memory_bytes,
                0 if job.cpu_milli else proportional[2],
            )
        )

    def _counted(self, grant: Grant) -> Grant:
        return Grant(*(value if counts else 0 for value, counts in zip(grant, self.shares.counted, strict=True)))


def _demand_at(profile: Profile, pace_ppm: int) -> Grant:
    """Return the smallest saturating cell; on faster GPUs CPUs and storage bandwidth grow with their speed."""
    cpu_milli, memory_bytes, storage = profile.demand
    if pace_ppm > REFERENCE_SPEED_PPM:
        cpu_milli = -(-cpu_milli * pace_ppm // REFERENCE_SPEED_PPM)
        storage = profile.storage_need(-(-profile.most_ppm * pace_ppm // REFERENCE_SPEED_PPM), memory_bytes)
    return Grant(cpu_milli, memory_bytes, storage)


def scaled_up(per_gpu: Grant, width_milli: int) -> Grant:
    """Return a grant per GPU scaled to a job's width in thousandths of a GPU; rounded up, so that no speed is lost."""
    if width_milli == WHOLE_GPU_MILLI:
        return per_gpu
    return Grant(*(-(-amount * width_milli // WHOLE_GPU_MILLI) for amount in per_gpu))


def exceeds(grant: Grant, other: Grant) -> bool:
    """Return whether a grant is larger than another in at least one resource."""
    return grant[0] > other[0] or grant[1] > other[1] or grant[2] > other[2]


def reallocations(state: TrainingState, targets: Mapping[int, Grant]) -> Iterator[ReallocateJob]:
    """Yield the actions that give running jobs their target grants. Each is feasible when it is yielded.

    Jobs that shrink come first. Where every job shrinks in one resource and grows in another, so that none can go
    first, one shrinks now and grows later.
    """
    left = {job: grant for job, grant in targets.items() if state.running[job].grant != grant}
    waiting = sorted(left, key=lambda job: (_growth(state.running[job].grant, left[job]), job))
    while waiting:
        stuck = []
        for job in waiting:
            if grant_refusal(state, job, left[job]) is None:
                yield ReallocateJob(job, left[job])
            else:
                stuck.append(job)
        if len(stuck) == len(waiting):
            giver = next((job for job in stuck if reduced(state.running[job].grant, left[job])), None)
            if giver is None:
                raise AssertionError(f"the target grants of jobs {stuck} exceed what their nodes have")
            less = reduced(state.running[giver].grant, left[giver])
            assert less is not None
            yield ReallocateJob(giver, less)
        waiting = stuck


def _growth(now: Grant, then: Grant) -> float:
    return sum((b - a) / max(a, b, 1) for a, b in zip(now, then, strict=True))


def reduced(now: Grant, then: Grant) -> Grant | None:
    """Return the smaller of two grants in each resource; None where that is no less than now."""
    less = Grant(*(min(a, b) for a, b in zip(now, then, strict=True)))
    return less if less != now else None


def reductions(state: TrainingState, targets: Mapping[int, Grant]) -> list[ReallocateJob]:
    """Return actions that lower the grants of running jobs to their targets, in the resources that shrink."""
    less = ((job, reduced(state.running[job].grant, target)) for job, target in targets.items())
    return [ReallocateJob(job, grant) for job, grant in less if grant is not None]


def place_with_proportional(
    state: TrainingState, demands: Demands, js: JobState, rule: PlacementRule
) -> Placement | None:
    """Return where a job's proportional share is free; else where its GPUs are free and lowering others to their
    proportional shares frees enough. Jobs without GPUs are never lowered."""
    found = place_by_kind(
        state,
        demands,
        js,
        rule,
        lambda proportional, pace: fallback_grant(
            demands.demand(js.job, proportional, pace), scaled(proportional, js.width)
        ),
    )
    return found or place_by_gpus(
        state, js, rule, lambda _, node, count: can_have_proportional(state, demands.shares, node, count)
    )


def place_by_kind(
    state: TrainingState, demands: Demands, js: JobState, rule: PlacementRule, asks: Callable[[Grant, int], Grant]
) -> Placement | None:
    """Return where a grant fits on nodes of one kind, kinds with the largest proportional share first.

    ``asks``: the grant, by proportional share per GPU and pace.
    """
    candidates = (
        TentativeDemand(js, asks(proportional, pace), js.eligible & nodes)
        for proportional, pace, nodes in demands.kinds
    )
    places = (place_tightest(state.pool, tentative, rule) for tentative in candidates if tentative.eligible)
    return next((place for place in places if place is not None), None)


def place_by_gpus(
    state: TrainingState, js: JobState, rule: PlacementRule, suits: Callable[[Placement, int, int], bool]
) -> Placement | None:
    """Return where the rule puts a job by its GPUs alone, on nodes that suit it.

    ``suits``: whether a node of a placement is usable for that many GPUs.
    """
    pool, eligible = state.pool, js.eligible
    while (placement := rule.place(pool, TentativeDemand(js, Grant(0, 0), eligible))) is not None:
        short = [node for node, mask in placement if not suits(placement, node, mask.bit_count())]
        if not short:
            return placement
        for node in short:
            eligible &= ~pool.bits[node]
    return None


def fallback_grant(full: Grant, proportional: Grant) -> Grant:
    """Return what a job is lowered to: its full demand if that is within its proportional share, else the share."""
    return proportional if exceeds(full, proportional) else full


def can_have_proportional(state: TrainingState, shares: ProportionalShares, node: int, gpus: int) -> bool:
    """Return whether jobs without GPUs leave a node enough for the proportional shares of its GPUs in use and of
    ``gpus`` more. The same must hold on all nodes connected to it by jobs that span nodes: these would be lowered too.
    """
    return _leaves_proportional(state, shares, node, gpus) and all(
        _leaves_proportional(state, shares, other, 0) for other in connected_nodes(state, [node]) if other != node
    )


def connected_nodes(state: TrainingState, nodes: Iterable[int]) -> list[int]:
    """Return these nodes and all nodes connected to them by jobs that span nodes."""
    connected = list(nodes)
    reached = set(connected)
    for node in connected:  # it grows on the way
        for js in state.on_node[node].values():
            beyond = [other for other, _ in js.placement if other not in reached]
            reached.update(beyond)
            connected.extend(beyond)
    return connected


def _leaves_proportional(state: TrainingState, shares: ProportionalShares, node: int, gpus: int) -> bool:
    alone = [js.grant for js in state.on_node[node].values() if not js.gpus]
    if not alone:
        return True
    machine, proportional = state.cluster.nodes[node], shares.of_node[node]
    used = machine.gpus - state.pool.free_count[node] + gpus
    capacity = (machine.cpu_milli, machine.memory_bytes)
    return all(
        has is None or sum(grant[index] for grant in alone) + used * proportional[index] <= has
        for index, has in enumerate(capacity)
    )
