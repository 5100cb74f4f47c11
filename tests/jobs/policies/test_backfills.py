"""Backfills: exact schedules of small cases, references written the naive way, and the promise not to delay."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import assume, given, settings, strategies as st

from headway.core.scheduler import Scheduler
from headway.core.tape import Tape, TapeWriter
from headway.errors import ExperimentError
from headway.jobs.model.actions import Action, StartJob
from headway.jobs.model.cluster import Cluster, Node, Partition, Tenant, uniform
from headway.jobs.model.events import JobArrived, NodeDrained, NodeRecovered
from headway.jobs.model.job import Job, workload
from headway.jobs.model.rows import Kind
from headway.jobs.policies.backfills.conservative.availability import Profile
from headway.jobs.policies.backfills.conservative.policy import Conservative
from headway.jobs.policies.backfills.conservative.running import NEVER, Held
from headway.jobs.policies.backfills.easy import Easy
from headway.jobs.policies.backfills.reservation import copy_of, without
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.parts import Reservation
from headway.jobs.policies.registry import ORDERS, PLACEMENTS, build
from headway.jobs.sim.cluster import SimulatedCluster
from headway.jobs.state.jobstate import Account, JobState
from headway.jobs.state.state import TrainingState
from headway.units import SECOND
from tests.drive import World, drive

RESERVING = ("easy", "conservative")


class Watched:
    """A policy whose reservations are noted after each decision."""

    def __init__(self, policy: ComposedPolicy) -> None:
        self.policy = policy
        self.name = policy.name
        self.notes: list[tuple[int, dict[int, Reservation], int | None]] = []
        self.starts: list[tuple[int, int]] = []

    def decide(self, now: int, state: TrainingState) -> Iterator[Action]:
        for action in self.policy.decide(now, state):
            if isinstance(action, StartJob):
                self.starts.append((now, action.job))
            yield action
        backfill = self.policy.backfill
        assert isinstance(backfill, Easy | Conservative)
        blocked = None if self.policy.blocked is None else self.policy.blocked.id
        if state.queue.size:
            self.notes.append((now, dict(backfill.reservations), blocked))


def run(spec: str, jobs: Sequence[Job], cluster: Cluster) -> tuple[dict[int, int], Watched, Tape]:
    """Each job's last start in seconds, what was reserved when, and the tape."""
    policy = build(spec)
    state = TrainingState(cluster, to_come=len(jobs), arrangement=policy)
    policy.bind(state)
    watched = Watched(policy)
    tape = TapeWriter()
    Scheduler(state, watched, SimulatedCluster(jobs, state), tape).run()
    assert not state.jobs
    assert state.pool.free_gpus == cluster.gpus
    return {job: now // SECOND for now, job in watched.starts}, watched, tape.close()


def job(submit: int, gpus: int, length: int, estimate: int = 0, **fields: object) -> Job:
    return Job(0, submit * SECOND, length * SECOND, gpus, estimate=estimate * SECOND, **fields)  # type: ignore[arg-type]


# --- exact schedules --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backfill", RESERVING)
def test_a_short_job_overtakes_and_a_long_one_does_not(backfill: str) -> None:
    jobs = workload([job(0, 3, 10), job(1, 4, 5), job(2, 1, 8), job(3, 1, 9)])
    assert run(f"fifo+{backfill}", jobs, uniform(1, 4))[0] == {0: 0, 2: 2, 1: 10, 3: 15}
    jobs = workload([job(0, 3, 10), job(1, 4, 5), job(2, 1, 9)])
    assert run(f"fifo+{backfill}", jobs, uniform(1, 4))[0] == {0: 0, 1: 10, 2: 15}


@pytest.mark.parametrize("backfill", RESERVING)
def test_a_long_job_overtakes_where_the_first_one_will_not_be(backfill: str) -> None:
    jobs = workload([job(0, 4, 10), job(0, 2, 20), job(1, 4, 5), job(2, 2, 100)])
    starts, watched, _ = run(f"fifo+{backfill}", jobs, uniform(2, 4))
    assert starts == {0: 0, 1: 0, 3: 2, 2: 10}
    now, reserved, blocked = watched.notes[-1]
    assert (now, blocked) == (2 * SECOND, 2)
    assert reserved == {2: Reservation(2, 10 * SECOND, 4, (0,))}


@pytest.mark.parametrize("backfill", RESERVING)
def test_a_long_job_is_put_off_the_reserved_node_even_if_the_placement_prefers_it(backfill: str) -> None:
    jobs = workload([job(0, 3, 10), job(0, 2, 20), job(1, 4, 5), job(2, 1, 100)])
    starts, _, tape = run(f"fifo+{backfill}", jobs, uniform(2, 4))
    assert starts == {0: 0, 1: 0, 3: 2, 2: 10}
    (row,) = [row for row in tape if row.kind == Kind.START and row.subject == 3]
    assert row.place == 1


def test_easy_protects_the_first_blocked_job_only_and_conservative_all() -> None:
    jobs = workload([job(0, 3, 10), job(1, 2, 10), job(2, 4, 5), job(3, 1, 30)])
    assert run("fifo+easy", jobs, uniform(1, 4))[0] == {0: 0, 3: 3, 1: 10, 2: 33}
    starts, watched, _ = run("fifo+conservative", jobs, uniform(1, 4))
    assert starts == {0: 0, 1: 10, 2: 20, 3: 25}
    assert {r.job: r.start // SECOND for r in watched.notes[2][1].values()} == {1: 10, 2: 20, 3: 25}


def test_jobs_over_several_nodes_are_reserved_too() -> None:
    jobs = workload([job(0, 4, 10), job(0, 4, 30), job(1, 8, 5), job(2, 4, 9), job(2, 4, 7), job(3, 6, 5, nodes=2)])
    starts, watched, _ = run("fifo+conservative", jobs, uniform(3, 4))
    assert starts == {0: 0, 1: 0, 4: 2, 2: 10, 3: 15, 5: 24}
    assert watched.notes[0][1][2] == Reservation(2, 10 * SECOND, 8, (0, 2))


def test_a_job_that_runs_past_its_estimate_counts_as_ending_just_after_now() -> None:
    jobs = workload([job(0, 3, 20, 5), job(1, 4, 5), job(6, 1, 1), job(7, 1, 1)])
    starts, watched, _ = run("fifo+easy", jobs, uniform(1, 4))
    assert starts == {0: 0, 1: 20, 2: 25, 3: 25}
    assert watched.notes[0][1][1].start == 5 * SECOND


def test_an_early_end_is_used_at_once_by_easy() -> None:
    jobs = workload([job(0, 3, 10, 100), job(1, 4, 5), job(2, 1, 50)])
    assert run("fifo+easy", jobs, uniform(1, 4))[0] == {0: 0, 2: 2, 1: 52}
    jobs = workload([job(0, 3, 10, 100), job(0, 1, 40), job(1, 4, 5), job(2, 3, 20, 25)])
    assert run("fifo+easy", jobs, uniform(1, 4))[0] == {0: 0, 1: 0, 3: 10, 2: 40}


def test_conservative_makes_reservations_anew_at_most_once_an_interval() -> None:
    jobs = workload([job(0, 4, 10, 100), job(1, 3, 100), job(2, 3, 50), job(3, 1, 5)])
    assert run("fifo+conservative(interval=60s)", jobs, uniform(1, 4))[0] == {0: 0, 1: 10, 3: 60, 2: 110}
    assert run("fifo+conservative(interval=0s)", jobs, uniform(1, 4))[0] == {0: 0, 1: 10, 3: 10, 2: 110}


def test_as_slurm_a_planned_job_takes_its_nodes_whole() -> None:
    """As a Slurm 22.05 does: C would leave B enough, and waits; D is over before B begins, and starts."""
    a, b, c, d = job(0, 3, 600), job(3, 2, 240), job(6, 1, 1200), job(6, 1, 300)
    jobs = workload([a, b, c, d])
    assert run("fifo+conservative(slurm=true)", jobs, uniform(1, 4))[0] == {0: 0, 3: 6, 1: 600, 2: 600}
    assert run("fifo+conservative", jobs, uniform(1, 4))[0] == {0: 0, 2: 6, 1: 600, 3: 600}


def test_a_job_that_does_not_fit_closes_the_nodes_of_its_partition_and_no_others() -> None:
    """As Slurm's main scheduler does: C and D go to the node that nobody waits for, at once."""
    walls = (Partition("part", (0,)), Partition("batch", (0, 1)))
    jobs = workload(
        [
            job(0, 3, 600, partition="part"),
            job(3, 2, 240, partition="part"),
            job(5, 1, 120, partition="batch"),
            job(6, 1, 1200, partition="batch"),
        ]
    )
    starts, _, _ = run("fifo+conservative(slurm=true,interval=30s)+first-fit", jobs, uniform(2, 4, partitions=walls))
    assert starts == {0: 0, 1: 600, 2: 5, 3: 6}
    strict = drive("fifo+first-fit", World(uniform(2, 4, partitions=walls), jobs))
    assert strict.starts == {0: 0, 1: 600 * SECOND, 2: 5 * SECOND, 3: 6 * SECOND}


def test_conservative_looks_no_deeper_than_it_is_told() -> None:
    jobs = workload([job(0, 3, 10), job(1, 4, 5), job(2, 4, 5), job(3, 1, 2)])
    assert run("fifo+conservative(depth=2)", jobs, uniform(1, 4))[0] == {0: 0, 1: 10, 2: 15, 3: 20}
    assert run("fifo+conservative(depth=3)", jobs, uniform(1, 4))[0] == {0: 0, 3: 3, 1: 10, 2: 15}
    with pytest.raises(ExperimentError, match="depth=0"):
        build("fifo+conservative(depth=0)")


def test_conservative_plans_no_further_ahead_than_its_window() -> None:
    """B could start after 100 s: within the window C waits for it. Beyond it C starts, and B after C."""
    jobs = workload([job(0, 3, 100), job(1, 4, 10), job(2, 1, 150)])
    assert run("fifo+conservative(interval=0s,window=99s)", jobs, uniform(1, 4))[0] == {0: 0, 1: 100, 2: 110}
    assert run("fifo+conservative(interval=0s,window=90s)", jobs, uniform(1, 4))[0] == {0: 0, 2: 2, 1: 152}


def test_a_job_beyond_the_window_is_planned_once_it_is_near_enough() -> None:
    """At 2 s B is too far ahead for a window of 90 s, at 20 s it no longer is: D waits for it."""
    jobs = workload([job(0, 3, 100), job(1, 4, 10), job(20, 1, 150)])
    assert run("fifo+conservative(interval=0s,window=90s)", jobs, uniform(1, 4))[0] == {0: 0, 1: 100, 2: 110}


@pytest.mark.parametrize("slurm", ["false", "true"])
def test_a_job_beyond_the_window_starts_when_it_can_however_long_the_interval_is(slurm: str) -> None:
    spec = f"fifo+conservative(interval=60s,window=30s,slurm={slurm})"
    assert run(spec, workload([job(0, 4, 40), job(1, 4, 10)]), uniform(1, 4))[0] == {0: 0, 1: 40}
    jobs = workload([job(0, 3, 100), job(1, 4, 10), job(2, 2, 20)])
    assert run(spec, jobs, uniform(1, 4))[0] == {0: 0, 1: 100, 2: 110}


@pytest.mark.parametrize("backfill", RESERVING)
def test_each_partition_has_its_own_first_job(backfill: str) -> None:
    cluster = uniform(2, 4, partitions=(Partition("a", (0,)), Partition("b", (1,))))
    jobs = workload(
        job(submit, gpus, length, partition=partition)
        for partition in "ab"
        for submit, gpus, length in [(0, 3, 10), (1, 4, 5), (2, 1, 8), (2, 1, 9)]
    )
    starts, watched, _ = run(f"fifo+{backfill}", jobs, cluster)
    assert [starts[n] for n in range(8)] == [0, 0, 10, 10, 2, 15, 2, 15]
    assert {2, 3} <= set(watched.notes[0][1])


@pytest.mark.parametrize("backfill", RESERVING)
def test_a_job_that_its_quota_keeps_out_holds_nothing_back(backfill: str) -> None:
    cluster = uniform(1, 4, tenants=(Tenant("small", guaranteed_gpus=1), Tenant("large", guaranteed_gpus=3)))
    jobs = workload([job(0, 1, 50, tenant="small"), job(1, 1, 5, tenant="small"), job(2, 3, 100, tenant="large")])
    starts, watched, _ = run(f"fifo+{backfill}", jobs, cluster)
    assert starts == {0: 0, 2: 2, 1: 50}
    assert all(reserved == {} and blocked is None for _, reserved, blocked in watched.notes)


@pytest.mark.parametrize("backfill", RESERVING)
def test_a_guaranteed_job_takes_back_what_was_borrowed_within_one_decision(backfill: str) -> None:
    cluster = uniform(1, 4, tenants=(Tenant("a", guaranteed_gpus=2, borrow=True), Tenant("b", guaranteed_gpus=2)))
    jobs = workload([job(0, 2, 100, tenant="a"), job(0, 2, 100, tenant="a"), job(5, 2, 10, tenant="b")])
    starts, _, tape = run(f"fifo+{backfill}", jobs, cluster)
    assert starts[2] == 5
    assert (tape.column("kind") == Kind.PREEMPT).sum() == 1


def test_a_job_does_not_use_up_the_quota_that_its_tenants_first_job_needs() -> None:
    cluster = uniform(1, 8, tenants=(Tenant("a", guaranteed_gpus=4), Tenant("b", guaranteed_gpus=4)))
    jobs = workload(
        [job(0, 4, 10, tenant="b"), job(0, 2, 10, tenant="a"), job(1, 3, 5, tenant="b"), job(1, 1, 50, tenant="b")]
    )
    assert run("fifo+easy", jobs, cluster)[0] == {0: 0, 1: 0, 2: 10, 3: 10}


@pytest.mark.parametrize("backfill", RESERVING)
def test_only_the_first_job_preempts(backfill: str) -> None:
    jobs = workload([job(0, 3, 100), job(1, 4, 10), job(2, 1, 95)])
    starts, _, tape = run(f"srtf+{backfill}", jobs, uniform(1, 4))
    assert starts[1] == 1
    assert [row.subject for row in tape if row.kind == Kind.PREEMPT] == [0]


# --- references -------------------------------------------------------------------------------------------------------


def free_at(time: int, running: list[tuple[int, int]], gpus: int) -> int:
    return gpus - sum(width for end, width in running if end > time)


def naive_easy(jobs: Sequence[tuple[int, int, int]], gpus: int) -> list[int]:
    """EASY on one pool of GPUs, second by second: (submit, gpus, length) to starts."""
    starts = [-1] * len(jobs)
    now = 0
    while -1 in starts:
        running = [
            (starts[i] + jobs[i][2], jobs[i][1])
            for i in range(len(jobs))
            if starts[i] >= 0 and starts[i] + jobs[i][2] > now
        ]
        free = gpus - sum(width for _, width in running)
        waiting = [i for i in range(len(jobs)) if starts[i] < 0 and jobs[i][0] <= now]
        while waiting and jobs[waiting[0]][1] <= free:
            first = waiting.pop(0)
            starts[first] = now
            free -= jobs[first][1]
            running.append((now + jobs[first][2], jobs[first][1]))
        if waiting:
            need = jobs[waiting[0]][1]
            shadow = min(end for end, _ in running if free_at(end, running, gpus) >= need)
            extra = free_at(shadow, running, gpus) - need
            for i in waiting[1:]:
                _, width, length = jobs[i]
                if width <= free and (now + length <= shadow or width <= extra):
                    extra -= 0 if now + length <= shadow else width
                    free -= width
                    starts[i] = now
        now += 1
    return starts


def naive_conservative(jobs: Sequence[tuple[int, int, int]], gpus: int) -> list[int]:
    """In order of submission each job at the first time that is free for long enough."""
    used = [0] * (max(submit for submit, _, _ in jobs) + sum(length for _, _, length in jobs) + 1)
    starts = []
    for submit, width, length in jobs:
        start = next(t for t in range(submit, len(used)) if all(used[u] + width <= gpus for u in range(t, t + length)))
        for second in range(start, start + length):
            used[second] += width
        starts.append(start)
    return starts


small_jobs = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6), st.integers(1, 15)), min_size=1, max_size=14)


@given(small_jobs)
def test_easy_on_one_node_is_the_textbook_algorithm(listed: list[tuple[int, int, int]]) -> None:
    listed.sort(key=lambda item: item[0])
    starts, _, _ = run("fifo+easy", workload(job(*item) for item in listed), uniform(1, 6))
    assert [starts[i] for i in range(len(listed))] == naive_easy(listed, 6)


@given(small_jobs)
def test_conservative_on_one_node_is_the_textbook_algorithm(listed: list[tuple[int, int, int]]) -> None:
    listed.sort(key=lambda item: item[0])
    starts, _, _ = run("fifo+conservative", workload(job(*item) for item in listed), uniform(1, 6))
    assert [starts[i] for i in range(len(listed))] == naive_conservative(listed, 6)


# --- nobody with a reservation is delayed -----------------------------------------------------------------------------


@st.composite
def workloads(draw: st.DrawFn, *, exact: bool, shares: bool) -> tuple[Cluster, tuple[Job, ...]]:
    counted = draw(st.booleans())
    cluster = Cluster(
        tuple(
            Node(f"n{i}", draw(st.sampled_from([2, 4, 4])), cpu_milli=8000 if counted else None)
            for i in range(draw(st.integers(1, 4)))
        )
    )
    listed = []
    for _ in range(draw(st.integers(1, 14))):
        gpus = draw(st.sampled_from([1, 1, 2, 3, 4, 6, 8]))
        fields: dict[str, int] = {}
        if gpus == 1 and shares and draw(st.booleans()):
            fields["gpu_milli"] = draw(st.sampled_from([300, 500, 600]))
        if gpus in (2, 4, 6) and draw(st.booleans()):
            fields["nodes"] = draw(st.sampled_from([1, 2]))
        if counted:
            fields["cpu_milli"] = draw(st.integers(1, 3)) * 1000
        length = draw(st.integers(1, 30))
        estimate = 0 if exact else draw(st.integers(1, 40))
        listed.append(job(draw(st.integers(0, 40)), gpus, length, estimate, **fields))
    policy = build("fifo+first-fit")
    state = TrainingState(cluster, to_come=0, arrangement=policy)
    policy.bind(state)
    kept = [
        one
        for one in listed
        if policy.placement.place(state.pool, JobState(one, Account("t"), state.pool.everywhere, 0))
    ]
    assume(kept)
    return cluster, workload(kept)


@given(workloads(exact=True, shares=False), st.sampled_from(sorted(PLACEMENTS)), st.sampled_from(RESERVING))
def test_with_exact_estimates_nobody_starts_later_than_was_reserved(
    made: tuple[Cluster, tuple[Job, ...]], placement: str, backfill: str
) -> None:
    cluster, jobs = made
    _, watched, _ = run(f"fifo+{backfill}+{placement}", jobs, cluster)
    started = {number: now for now, number in watched.starts}
    for now, reserved, _ in watched.notes:
        for number, reservation in reserved.items():
            assert now < reservation.start
            assert started[number] <= reservation.start
            assert reservation.gpus == jobs[number].gpus


@given(workloads(exact=True, shares=True), st.sampled_from(sorted(PLACEMENTS)))
def test_with_shares_too_the_first_blocked_job_is_not_delayed_by_easy(
    made: tuple[Cluster, tuple[Job, ...]], placement: str
) -> None:
    cluster, jobs = made
    _, watched, _ = run(f"fifo+easy+{placement}", jobs, cluster)
    started = {number: now for now, number in watched.starts}
    for _, reserved, _ in watched.notes:
        for number, reservation in reserved.items():
            assert started[number] <= reservation.start


@settings(max_examples=60)
@given(
    workloads(exact=False, shares=True),
    st.sampled_from([name for name in ("fifo", "sjf", "srtf", "las", "drf") if name in ORDERS]),
    st.sampled_from(sorted(PLACEMENTS)),
    st.sampled_from(RESERVING),
)
def test_whatever_the_estimates_everything_runs_to_its_end(
    made: tuple[Cluster, tuple[Job, ...]], order: str, placement: str, backfill: str
) -> None:
    cluster, jobs = made
    starts, watched, tape = run(f"{order}+{backfill}+{placement}", jobs, cluster)
    assert set(starts) == {one.id for one in jobs}
    assert (tape.column("kind") == Kind.FINISHED).sum() == len(jobs)
    assert all(blocked is not None for _, _, blocked in watched.notes)


# --- the pieces -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backfill", RESERVING)
def test_a_job_waits_unreserved_while_the_only_node_that_could_hold_it_is_away(backfill: str) -> None:
    policy = build(f"fifo+{backfill}")
    state = TrainingState(Cluster((Node("a", 2), Node("b", 4))), to_come=2, arrangement=policy)
    policy.bind(state)
    state.apply(0, NodeDrained(1, evict=False))
    wide, narrow = workload([job(0, 4, 10), job(0, 1, 1000)])
    for one in (wide, narrow):
        state.apply(0, JobArrived(one))
    for action in policy.decide(0, state):
        state.commit(0, action)
    assert list(state.running) == [1]
    assert policy.blocked is not None
    assert policy.blocked.id == 0
    state.apply(90 * SECOND, NodeRecovered(1))
    for action in policy.decide(90 * SECOND, state):
        state.commit(90 * SECOND, action)
    assert sorted(state.running) == [0, 1]


def test_a_profile_knows_when_what_is_free() -> None:
    policy = build("fifo+conservative")
    jobs = workload([job(0, 3, 10), job(0, 2, 20), job(0, 4, 5)])
    state = TrainingState(uniform(2, 4), to_come=3, arrangement=policy)
    policy.bind(state)
    for one in jobs:
        state.apply(0, JobArrived(one))
    for action in policy.decide(0, state):
        state.commit(0, action)
    held = Held(state)
    held.follow(0, state)
    profile = Profile(held, state.pool.schedulable)
    wide = state.jobs[2]
    assert profile.on_one_node(wide, 0, 5 * SECOND)[:2] == (10 * SECOND, ((0, 4),))
    assert profile.reserve(wide, ((0, 4),), 10 * SECOND, 15 * SECOND)
    assert profile.on_one_node(wide, 0, 5 * SECOND)[:2] == (15 * SECOND, ((0, 4),))
    assert profile.on_one_node(wide, 0, NEVER // 2)[:2] == (15 * SECOND, ((0, 4),))
    assert profile.on_nodes(wide, 0, 5 * SECOND)[:2] == (15 * SECOND, ((0, 4),))
    assert profile.on_nodes(wide, 0, 12 * SECOND)[0] == 15 * SECOND
    assert not profile.reserve(wide, ((0, 4),), 12 * SECOND, 13 * SECOND)


def test_hiding_nodes_and_copying_leave_the_pool_as_it_was() -> None:
    policy = build("fifo")
    state = TrainingState(uniform(3, 4), to_come=0, arrangement=policy)
    pool = state.pool
    before = (list(pool.buckets), pool.free_gpus, pool.schedulable)
    with without(pool, 0b101):
        assert pool.free_gpus == 4
    assert before == (pool.buckets, pool.free_gpus, pool.schedulable)
    other = copy_of(pool)
    other.set_schedulable(0, False)
    assert before == (pool.buckets, pool.free_gpus, pool.schedulable)
