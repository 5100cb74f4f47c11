"""What allocations share: what a job would like, what it is due, how fast it would be, and carrying changes out.

A job with a profile would like the smallest cell of its matrix that gives all the speed there is. One without is not
known: it would like what it asked for, or its due if it asked for nothing, and it is taken to lose nothing by having
just its due. On GPUs faster than the reference a job would like as much more as they can use.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from headway.training.actions import Grant, Placement, ReallocateJob
from headway.training.feasible import grant_refusal
from headway.training.job import Job
from headway.training.jobstate import JobState
from headway.training.policies.allocations.shared.tightest import place_tightest
from headway.training.policies.parts import PlacementRule
from headway.training.pool import members
from headway.training.proportional_share import ProportionalShares, scaled
from headway.training.sensitivity import Profile
from headway.training.state import TrainingState
from headway.training.tentative_demand import TentativeDemand
from headway.units import REFERENCE_SPEED_PPM, WHOLE_GPU_MILLI


class Demands:
    """What is believed of jobs, on one cluster."""

    def __init__(self, state: TrainingState) -> None:
        self.profiles: Mapping[str, Profile] = state.speed.profiles
        self.shares = ProportionalShares(state.cluster)
        speeds = state.cluster.gpu_speed_ppm
        self._pace = [
            max(speeds.get(node.gpu_type, REFERENCE_SPEED_PPM), REFERENCE_SPEED_PPM) for node in state.cluster.nodes
        ]
        self.same_pace = len(set(self._pace)) == 1
        """Whether a job would like the same wherever it runs."""
        self._known: dict[tuple[str, int, int], Grant] = {}
        """Demands of jobs with a profile, by model, width and pace."""
        self.kinds = tuple(self._kinds(state))
        """(due of a GPU, pace, the nodes that have both), the largest first."""

    def _kinds(self, state: TrainingState) -> Iterator[tuple[Grant, int, int]]:
        for proportional, nodes in self.shares.kinds:
            paces: dict[int, int] = {}
            for node in members(nodes):
                paces[self._pace[node]] = paces.get(self._pace[node], 0) | state.pool.bits[node]
            yield from ((proportional, pace, paces[pace]) for pace in sorted(paces, reverse=True))

    def pace(self, placement: Placement) -> int:
        """Return how fast the slowest of these GPUs is; at least the reference, at which profiles are taken."""
        return self._pace[placement[0][0]] if len(placement) == 1 else min(self._pace[node] for node, _ in placement)

    def profile(self, job: Job) -> Profile | None:
        """Return what is known of a job; None: nothing."""
        return self.profiles.get(job.model) if job.gpus else None

    def proportional(self, js: JobState, placement: Placement) -> Grant:
        """Its GPUs' share of the nodes; a job without GPUs is due what it asked for."""
        if not js.gpus:
            return Grant(js.job.cpu_milli, js.job.memory_bytes)
        return self.shares.of(placement, js.width)

    def demand(self, job: Job, proportional_per_gpu: Grant, pace_ppm: int = REFERENCE_SPEED_PPM) -> Grant:
        """Return what would give it all the speed there is on GPUs of this pace, as far as it is counted."""
        width = job.gpus * job.gpu_milli
        key = (job.model, width, pace_ppm)
        if (known := self._known.get(key)) is not None:
            return known
        if (profile := self.profile(job)) is not None:
            found = self._known[key] = self._counted(scaled_up(_demand_at(profile, pace_ppm), width))
            return found
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
    """The smallest saturating cell; on faster GPUs with as much more of what feeds them."""
    cpu_milli, memory_bytes, storage = profile.demand
    if pace_ppm > REFERENCE_SPEED_PPM:
        cpu_milli = -(-cpu_milli * pace_ppm // REFERENCE_SPEED_PPM)
        storage = profile.storage_need(-(-profile.most_ppm * pace_ppm // REFERENCE_SPEED_PPM), memory_bytes)
    return Grant(cpu_milli, memory_bytes, storage)


def scaled_up(per_gpu: Grant, width_milli: int) -> Grant:
    """So much for each GPU, for a job of so many thousandths of one; rounded up, so that no speed is lost."""
    if width_milli == WHOLE_GPU_MILLI:
        return per_gpu
    return Grant(*(-(-amount * width_milli // WHOLE_GPU_MILLI) for amount in per_gpu))


def exceeds(grant: Grant, proportional: Grant) -> bool:
    """Return whether a grant is more than another in some respect."""
    return grant[0] > proportional[0] or grant[1] > proportional[1] or grant[2] > proportional[2]


def reallocations(state: TrainingState, wanted: Mapping[int, Grant]) -> Iterator[ReallocateJob]:
    """Changes to what running jobs hold, one at a time and each feasible when it is made: who gives goes first.

    Where some give one thing and take another, so that none can go first, one gives first and takes later.
    """
    left = {job: grant for job, grant in wanted.items() if state.running[job].grant != grant}
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
                raise AssertionError(f"what jobs {stuck} are to hold is more than there is")
            less = reduced(state.running[giver].grant, left[giver])
            assert less is not None
            yield ReallocateJob(giver, less)
        waiting = stuck


def _growth(now: Grant, then: Grant) -> float:
    return sum((b - a) / max(a, b, 1) for a, b in zip(now, then, strict=True))


def reduced(now: Grant, then: Grant) -> Grant | None:
    """The smaller of both in every respect, if that is less than now."""
    less = Grant(*(min(a, b) for a, b in zip(now, then, strict=True)))
    return less if less != now else None


def reductions(state: TrainingState, wanted: Mapping[int, Grant]) -> list[ReallocateJob]:
    """Return what running jobs give up of what they hold, where they are to hold less of something."""
    less = ((job, reduced(state.running[job].grant, target)) for job, target in wanted.items())
    return [ReallocateJob(job, grant) for job, grant in less if grant is not None]


def place_with_proportional(
    state: TrainingState, demands: Demands, js: JobState, rule: PlacementRule
) -> Placement | None:
    """Return where a job's due is free; else where its GPUs are and its due can be made free by bringing others down to
    theirs. Only what jobs without GPUs hold is out of reach."""
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
    """Return where a job finds what it asks for on nodes of one kind, the largest first; ``asks``: by due and pace."""
    wishes = (
        TentativeDemand(js, asks(proportional, pace), js.eligible & nodes)
        for proportional, pace, nodes in demands.kinds
    )
    places = (place_tightest(state.pool, tentative, rule) for tentative in wishes if tentative.eligible)
    return next((found for found in places if found is not None), None)


def place_by_gpus(
    state: TrainingState, js: JobState, rule: PlacementRule, suits: Callable[[Placement, int, int], bool]
) -> Placement | None:
    """Return where the rule puts a job by its GPUs alone; of a placement, each node suits it for so many of them."""
    pool, eligible = state.pool, js.eligible
    while (found := rule.place(pool, TentativeDemand(js, Grant(0, 0), eligible))) is not None:
        short = [node for node, mask in found if not suits(found, node, mask.bit_count())]
        if not short:
            return found
        for node in short:
            eligible &= ~pool.bits[node]
    return None


def fallback_grant(full: Grant, proportional: Grant) -> Grant:
    """Return what a job comes down to: its due of everything, or its demand where that is nowhere above."""
    return proportional if exceeds(full, proportional) else full


def can_have_proportional(state: TrainingState, shares: ProportionalShares, node: int, gpus: int) -> bool:
    """Whether jobs without GPUs leave a node enough for all its GPUs in use, and these, to have their due; and so on
    all nodes that jobs over several nodes join to it, where others would have to be brought down to theirs as well."""
    return _leaves_proportional(state, shares, node, gpus) and all(
        _leaves_proportional(state, shares, other, 0) for other in connected_nodes(state, [node]) if other != node
    )


def connected_nodes(state: TrainingState, nodes: Iterable[int]) -> list[int]:
    """Return these nodes, and all that jobs over several nodes join to them."""
    found = list(nodes)
    reached = set(found)
    for node in found:  # it grows on the way
        for js in state.on_node[node].values():
            beyond = [other for other, _ in js.placement if other not in reached]
            reached.update(beyond)
            found.extend(beyond)
    return found


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
