"""headway: exact divisions against brute force, starts, jobs over several nodes, exchanges, churn, wrong profiles."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from random import Random

from hypothesis import given, settings, strategies as st

from headway.jobs.audit.proportional_share import slower_than_proportional
from headway.jobs.model.actions import MigrateJob, PreemptJob, ReallocateJob, StartJob, WakeAt
from headway.jobs.model.cluster import Cluster, Level, Node, Tenant, uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.model.resources import Grant
from headway.jobs.model.rows import Kind
from headway.jobs.model.sensitivity import Matrix, Profile, Scalar
from headway.jobs.model.speed import Costs, SpeedModel
from headway.jobs.policies.allocations.headway.knapsack import Choices, NodeKnapsack
from headway.jobs.tables import profiles as profile_file
from headway.units import HOUR, MINUTE, SECOND
from tests.conformance.divided import Divided
from tests.drive import Run, World, drive
from tests.jobs.policies.allocations.stage import GIGABYTE, Stage, gang, nodes, wants

LITTLE = wants(1, 10)
"""As fast with 1 CPU and 10 GB as with anything."""


def ramp(most: int, step: int = 500_000) -> Profile:
    """As fast as the reference with 3 CPUs and 30 GB a GPU, a step faster with each CPU more."""
    rows = range(1, most + 1)
    matrix = tuple((max(300_000, 1_000_000 + step * (cpus - 3)),) for cpus in rows)
    return Profile("any", tuple(1000 * cpus for cpus in rows), (30 * GIGABYTE,), matrix)


def cliff(cpus: int, speed: int) -> Profile:
    """No faster than the reference below so many CPUs a GPU (but for what lies between the last two)."""
    return Profile(
        *("any", (3000, 1000 * cpus - 1, 1000 * cpus), (30 * GIGABYTE,)), ((1_000_000,), (1_000_000,), (speed,))
    )


# --- the division of one node -----------------------------------------------------------------------------------------


@st.composite
def choices(draw: st.DrawFn) -> Choices:
    """A few grants in whole units, the first of which is due; more is faster."""
    count = draw(st.integers(1, 4))
    cpus = sorted(draw(st.lists(st.integers(1, 6), min_size=count, max_size=count, unique=True)))
    sizes = draw(st.lists(st.integers(1, 6), min_size=count, max_size=count))
    speeds = sorted(draw(st.lists(st.integers(100_000, 3_000_000), min_size=count, max_size=count)))
    grants = [Grant(1000 * c, m * GIGABYTE, 0) for c, m in zip(cpus, sizes, strict=True)]
    return Choices(grants, speeds, grants[0])


@given(chosen=st.lists(choices(), min_size=1, max_size=4), cpus=st.integers(1, 16))
@settings(max_examples=80, deadline=None)
def test_a_node_is_divided_as_well_as_brute_force_can(chosen: list[Choices], cpus: int) -> None:
    knapsack = NodeKnapsack(Node("n", 4, cpu_milli=1000 * cpus, memory_bytes=16 * GIGABYTE))
    items = [knapsack.item(job, 1000, 1) for job in chosen]
    jobs = sum(item.code for item in items)
    spare = [knapsack.capacity[i] - sum(item.minimum[i] for item in items) for i in range(3)]
    best = _brute_force(chosen, knapsack.capacity)
    picks = knapsack.picks(jobs, spare)
    if best is None:
        assert picks is None
        return
    assert picks is not None
    assert sum(item.base for item in items) + knapsack.gain(jobs, spare) == best
    left = {item: list(indexes) for item, indexes in picks.items()}
    held = [item.grants[left[item].pop() if item in left else 0] for item in items]
    assert all(sum(grant[i] for grant in held) <= knapsack.capacity[i] for i in range(3))


def _brute_force(chosen: Sequence[Choices], capacity: Grant) -> int | None:
    best = None
    for picked in product(*(range(len(job.grants)) for job in chosen)):
        held = [job.grants[index] for job, index in zip(chosen, picked, strict=True)]
        if all(sum(grant[i] for grant in held) <= capacity[i] for i in range(2)):
            value = sum(job.speeds[index] for job, index in zip(chosen, picked, strict=True))
            best = value if best is None else max(best, value)
    return best


def test_what_one_leaves_goes_to_the_one_who_gains_most_by_it() -> None:
    stage = Stage("fifo+fit+headway", {"little": LITTLE, "slow": ramp(9, 200_000), "fast": ramp(9)})
    stage.come("little", "little", "slow", "fast")
    assert stage.cpus == {0: 1, 1: 1, 2: 3, 3: 7}


def test_the_last_step_may_be_the_steepest() -> None:
    stage = Stage("fifo+fit+headway", {"little": LITTLE, "cliff": cliff(7, 3_400_000), "ramp": ramp(9)})
    stage.come("little", "little", "cliff", "ramp")
    assert stage.cpus == {0: 1, 1: 1, 2: 7, 3: 3}


def test_on_gpus_that_are_slow_cpus_are_not_wasted() -> None:
    slow = Cluster((Node("n", 4, "slow", 12_000, 120 * GIGABYTE),), gpu_speed_ppm={"slow": 500_000})
    stage = Stage("fifo+fit+headway", {"two": ramp(4, 1_000_000)}, slow)
    stage.come("two")
    assert stage.cpus == {0: 3}  # half of twice the reference: more CPUs would only wait for the GPU


def test_storage_bandwidth_is_a_dimension() -> None:
    counted = uniform(
        1, 4, cpus_per_node=12, memory_per_node_bytes=120 * GIGABYTE, storage_bytes_per_second=400_000_000
    )
    stage = Stage("fifo+fit+headway", {"reads": wants(4, 30, reads=100_000_000), "little": LITTLE}, counted)
    stage.come("reads", "little", "little", "little")
    assert stage.state.running[0].storage >= 199_000_000  # twice the speed reads twice as much
    assert stage.state.running[0].speed >= 1_990_000


def test_a_job_that_nobody_knows_has_its_due_or_less_if_it_asked_for_less() -> None:
    stage = Stage("fifo+fit+headway", {"ramp": ramp(9)})
    stage.come(Job(0, 0, 100 * SECOND, model="new", cpu_milli=8000))
    assert stage.cpus == {0: 3}
    stage.come("ramp", "ramp", "ramp")
    assert stage.cpus == {0: 3, 1: 3, 2: 3, 3: 3}
    other = Stage("fifo+fit+headway", {"ramp": ramp(9)})
    other.come(Job(0, 0, 100 * SECOND, model="new", cpu_milli=2000))
    assert other.cpus == {0: 2}


def test_hundreds_of_different_requests_of_unknown_jobs_are_no_burden() -> None:
    """Each would be a kind of its own, and what is remembered of sets of jobs would grow without end."""
    stage = Stage("fifo+fit+headway", {"ramp": ramp(9)})
    stage.come(*(Job(0, 0, 100 * SECOND, model="new", cpu_milli=100 * n, memory_bytes=n) for n in range(1, 5)))
    assert len({item.code for model in stage.policy.allocation.models.nodes for _, item in model.jobs}) == 1


def test_a_job_without_gpus_gets_what_others_have_beyond_their_due() -> None:
    stage = Stage("fifo+fit+headway", {"ramp": ramp(12)})
    stage.come("ramp")
    assert stage.cpus == {0: 12}
    stage.come(Job(0, 0, 100 * SECOND, gpus=0, cpu_milli=9000))
    assert stage.cpus == {0: 3, 1: 9}
    stage.come(Job(0, 0, 100 * SECOND, gpus=0, cpu_milli=1000))
    assert 2 not in stage.cpus


def test_what_is_beyond_dues_is_given_by_the_tenants_weight() -> None:
    shared = replace(nodes(), tenants=(Tenant("a", 3), Tenant("b", 1)))
    stage = Stage("fifo+fit+headway", {"little": LITTLE, "slow": ramp(9, 200_000), "fast": ramp(9)}, shared)
    mine = [Job(0, 0, 100 * SECOND, model="slow", tenant="a"), Job(0, 0, 100 * SECOND, model="fast", tenant="b")]
    stage.come("little", "little", *mine)
    assert stage.cpus == {0: 1, 1: 1, 2: 7, 3: 3}


# --- where jobs go ----------------------------------------------------------------------------------------------------


def test_a_job_starts_where_the_cluster_gains_most_by_it() -> None:
    stage = Stage("fifo+fit+headway(moves=0)", {"fast": ramp(12), "little": LITTLE}, nodes(2))
    stage.come("fast", "fast")
    assert (stage.where, stage.cpus) == ({0: (0,), 1: (1,)}, {0: 12, 1: 12})
    stage.come("little", "little")
    assert stage.where == {0: (0,), 1: (1,), 2: (0,), 3: (0,)}  # then as best fit has it


def test_with_another_placement_it_goes_where_that_puts_it() -> None:
    stage = Stage("fifo+fit+first-fit+headway(moves=0)", {"fast": ramp(12)}, nodes(2))
    stage.come("fast", "fast")
    assert stage.where == {0: (0,), 1: (0,)}


def test_gpus_of_several_nodes_are_used_when_nobody_narrower_waits_for_them() -> None:
    stage = Stage("fifo+fit+headway", {"little": LITTLE}, nodes(2))
    stage.come(gang("little", 3), gang("little", 3))
    stage.come(gang("little", 2))
    assert stage.where == {0: (0,), 1: (1,), 2: (0, 1)}


def test_but_not_where_that_would_slow_the_job_down() -> None:
    far = replace(nodes(2), levels=(Level("node", 100 * GIGABYTE),))
    far = Cluster(
        tuple(replace(node, path=("r",)) for node in far.nodes),
        (Level("rack", GIGABYTE), Level("node", 100 * GIGABYTE)),
    )
    chatty = gang("little", 2, communication_ppm=300_000)
    for option, starts in (("", False), ("(slowdown=1)", True)):
        stage = Stage(f"fifo+fit+headway{option}", {"little": LITTLE}, far)
        stage.come(gang("little", 3), gang("little", 3))
        stage.come(chatty)
        assert (2 in stage.where) is starts


def test_a_job_that_wants_more_cpus_than_a_node_has_is_spread_thinly_over_empty_ones() -> None:
    stage = Stage("fifo+fit+headway", {"six": wants(6)}, nodes(3))
    stage.come(gang("six", 4))
    assert (len(stage.where[0]), stage.cpus) == (2, {0: 24})
    stage = Stage("fifo+fit+headway", {"twelve": wants(12)}, nodes(4))
    stage.come(gang("twelve", 4))
    assert (len(stage.where[0]), stage.cpus) == (4, {0: 48})
    stage = Stage("fifo+fit+headway", {"little": LITTLE}, nodes(4))
    stage.come(gang("little", 4))
    assert stage.where == {0: (0,)}  # nothing to be had by it


def test_a_job_over_several_nodes_weighs_what_it_takes_on_each() -> None:
    stage = Stage("fifo+fit+headway(moves=0)", {"ramp": ramp(9, 200_000), "fast": ramp(9)}, nodes(2))
    stage.come(gang("ramp", 8))
    assert stage.cpus == {0: 24}
    stage.end(0)
    stage.come("fast", "fast", gang("ramp", 2, over=2))
    assert stage.cpus == {1: 9, 2: 9, 3: 6}


# --- exchanges --------------------------------------------------------------------------------------------------------


def _crowded(spec: str) -> Stage:
    """Two nodes, one with four jobs that gain by CPUs, one with four that need few, and one more waits; all of them run
    for a day."""
    stage = Stage(spec, {"little": LITTLE, "fast": ramp(9)}, nodes(2))
    stage.state.costs = Costs(migration=MINUTE)
    stage.come(*(Job(0, 0, 24 * HOUR, model=model) for model in ("fast",) * 4 + ("little",) * 5))
    return stage


def test_jobs_swap_where_that_pays() -> None:
    stage = _crowded("fifo+fit+first-fit+headway")
    assert stage.where == {job: (int(job > 3),) for job in range(8)}
    stage.now += 2 * HOUR
    actions = stage.end(7)
    swaps = [action for action in actions if isinstance(action, MigrateJob)]
    assert swaps
    assert any(isinstance(action, PreemptJob) for action in actions)
    assert {stage.where[job] for job in range(4)} == {(0,), (1,)}
    assert sum(stage.cpus[job] for job in range(4)) == 24 - 4


def test_no_more_at_a_time_than_one_puts_up_with_and_none_that_does_not_pay() -> None:
    for option, most in (("moves=0", 0), ("moves=1", 1), ("margin=100000", 0), ("rest=3h", 0)):
        stage = _crowded(f"fifo+fit+first-fit+headway({option})")
        stage.now += 2 * HOUR
        actions = stage.end(7)
        assert sum(isinstance(action, MigrateJob) for action in actions) == most


def test_jobs_move_to_faster_gpus_that_become_free() -> None:
    mixed = Cluster(
        (Node("fast", 1, "A", 3000, 30 * GIGABYTE), Node("slow", 1, "B", 3000, 30 * GIGABYTE)),
        gpu_speed_ppm={"A": 1_000_000, "B": 400_000},
    )
    stage = Stage("fifo+fit+headway(rest=0s)", {"little": LITTLE}, mixed)
    stage.come(*(Job(0, 0, 24 * HOUR, model="little") for _ in range(2)))
    assert stage.where == {0: (0,), 1: (1,)}
    stage.end(0)
    assert stage.where == {1: (0,)}


def test_who_is_not_preemptible_stays() -> None:
    stage = Stage("fifo+fit+first-fit+headway(rest=0s)", {"little": LITTLE, "fast": ramp(9)}, nodes(2))
    stage.come(*(Job(0, 0, 24 * HOUR, model=m, preemptible=False) for m in ("fast",) * 4 + ("little",) * 4))
    assert not any(isinstance(action, MigrateJob | PreemptJob) for action in stage.end(7))


# --- what changes cost ------------------------------------------------------------------------------------------------


def _costly(stage: Stage, cost: int) -> None:
    stage.state.costs = Costs(reallocation=cost)


def test_where_a_change_stops_a_job_it_has_to_pay() -> None:
    for cost, actions in ((MINUTE, 1), (24 * HOUR, 0)):
        stage = Stage("fifo+fit+headway(moves=0)", {"little": LITTLE, "fast": ramp(12)})
        _costly(stage, cost)
        stage.come(*(Job(0, 0, 10 * HOUR, model=model) for model in ("little", "little", "little", "fast")))
        done = stage.end(0)
        assert sum(isinstance(action, ReallocateJob) for action in done) == actions


def test_a_job_that_comes_gets_its_due_whatever_that_costs_others() -> None:
    stage = Stage("fifo+fit+headway(moves=0)", {"fast": ramp(12)})
    _costly(stage, 24 * HOUR)
    stage.come("fast")
    assert stage.cpus == {0: 12}
    stage.come("fast", "fast", "fast")
    assert stage.cpus == {0: 3, 1: 3, 2: 3, 3: 3}


# --- whole runs -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mistaken(World):
    """A world whose jobs do not do what their profiles say, by up to a share."""

    error: float = 0.0
    kind: type[Matrix] = Matrix
    seed: int = field(default=0)

    @property
    def true(self) -> dict[str, Profile]:
        """How jobs really are."""
        believed = profile_file.shipped()
        return profile_file.off_by(believed, self.error, self.seed) if self.error else believed

    def speed(self) -> SpeedModel:
        """The truth of it, and what is believed."""
        return SpeedModel(self.cluster, sensitivity=self.kind(self.true), profiles=profile_file.shipped())


def paper(jobs: int, gap: float, *, error: float = 0.0, kind: type[Matrix] = Matrix, seed: int = 1) -> Mistaken:
    """Four nodes of the paper, and jobs of its kinds that come so many hours apart."""
    dice = Random(seed)
    models = sorted(profile_file.shipped())
    made, now = [], 0.0
    for _ in range(jobs):
        now += dice.expovariate(1 / gap)
        hours = 10 ** dice.uniform(-0.3, 1.2)
        gpus = dice.choice([1, 1, 1, 1, 2, 4])
        made.append(Job(0, round(now * HOUR), round(hours * HOUR), gpus, model=dice.choice(models)))
    cluster = uniform(4, 8, cpus_per_node=24, memory_per_node_bytes=500 * GIGABYTE)
    return Mistaken(cluster, workload(made), costs=Costs(migration=MINUTE), error=error, kind=kind, seed=seed)


def played(world: World, allocation: str) -> Run:
    return drive(f"fifo+fit+{allocation}+round(300s)", world, bounded=False)


def test_jobs_end_sooner_than_with_tune_and_nobody_is_below_their_due() -> None:
    world = paper(150, 0.25)
    run, tune = played(world, "headway"), played(world, "tune")
    assert run.mean_jct_s < 0.97 * tune.mean_jct_s
    assert not slower_than_proportional(world.cluster, world.jobs, run.tape, world.speed())
    assert played(world, "headway").tape.digest == run.tape.digest


def test_all_or_nothing_is_no_worse_than_with_tune() -> None:
    world = paper(150, 0.3, kind=Scalar)
    assert played(world, "headway").mean_jct_s < 1.005 * played(world, "tune").mean_jct_s


def test_wrong_profiles_are_found_out_and_nobody_stays_below_their_due() -> None:
    for seed in (1, 2):
        world = paper(120, 0.3, error=0.3, seed=seed)
        run = played(world, "headway")
        assert run.mean_jct_s < 1.002 * played(world, "proportional").mean_jct_s
        assert _time_below_due(world, run) < 0.005 < 0.05 < _time_below_due(world, played(world, "tune"))


def _time_below_due(world: Mistaken, run: Run) -> float:
    """The share of all running time in which jobs are truly slower than with their due."""
    owed = {model: profile.speed(3000, 62_500_000_000) for model, profile in world.true.items()}
    since: dict[int, tuple[int, int]] = {}
    below = total = 0
    sped = (Kind.START, Kind.MIGRATE, Kind.REALLOCATE)
    for row in run.tape:
        if row.kind in (*sped, Kind.PREEMPT, Kind.FINISHED):
            if row.subject in since:
                time, speed = since.pop(row.subject)
                total += row.time - time
                below += (row.time - time) * (speed < 0.999 * owed[world.jobs[row.subject].model])
            if row.kind in sped:
                since[row.subject] = row.time, row.value
    return below / total


def test_a_profile_seen_to_be_wrong_is_looked_at_again_soon() -> None:
    cluster = nodes()
    believed, true = {"a": LITTLE, "b": ramp(9)}, {"a": wants(3, 10), "b": ramp(9)}
    stage = Stage("fifo+fit+headway", believed, cluster)
    stage.state.speed = SpeedModel(cluster, sensitivity=Matrix(true), profiles=believed)
    stage.come(*(Job(0, 0, 24 * HOUR, model=model) for model in ("a", "a", "b")))
    assert stage.cpus[0] == 1
    stage.now += 5 * MINUTE
    actions = stage.come("b")
    assert stage.cpus == {0: 3, 1: 3, 2: 3, 3: 3}  # what it is due, to see what that is good for
    assert any(isinstance(action, WakeAt) for action in actions)
    stage.now += 5 * MINUTE
    assert not any(isinstance(action, StartJob) for action in stage.decide())
    assert stage.cpus == {0: 3, 1: 3, 2: 3, 3: 3}


def test_a_world_of_one_kind_of_job_is_no_worse_than_by_gpus() -> None:
    world = Divided(
        nodes(),
        workload(Job(0, i * MINUTE, HOUR, model="fast") for i in range(12)),
        profiles={"fast": ramp(9)},
    )
    assert played(world, "headway").mean_jct_s <= played(world, "proportional").mean_jct_s
