"""The state under everything that can happen, in any order, held against a naive model after each step.

Arrivals, starts, preemptions, moves, ends (on time, late and twice), cancellations, nodes that fail, recover and are
drained: ``check`` must agree with the model on every placement, and every index of the pool with what the model counts.
"""

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headway.core.tape import Row
from headway.jobs.model.actions import MigrateJob, PreemptJob, StartJob, WakeAt
from headway.jobs.model.cluster import Cluster, uniform
from headway.jobs.model.events import (
    JobArrived,
    JobCancelled,
    JobFailed,
    JobFinished,
    NodeDrained,
    NodeFailed,
    NodeRecovered,
)
from headway.jobs.model.job import Job
from headway.jobs.model.resources import Placement
from headway.jobs.model.rows import Kind
from headway.jobs.policies.registry import build
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.state import TrainingState
from headway.units import SECOND
from tests.drive import World, digest, fresh_state, seconds_of
from tests.jobs.naive import NaiveCluster
from tests.strategies import clusters, workloads

ARRANGEMENTS = ("fifo", "srtf+fit", "srtf+easy", "las")


class StateMachine(RuleBasedStateMachine):
    """Throws things at a state."""

    @initialize(
        data=st.data(), cluster=clusters(), spec=st.sampled_from(ARRANGEMENTS), penalty=st.sampled_from([0, 200_000])
    )
    def begin(self, data: st.DataObject, cluster: Cluster, spec: str, penalty: int) -> None:
        self.cluster = cluster
        jobs = data.draw(workloads(cluster, max_jobs=10))
        self.state: TrainingState = fresh_state(build(spec), World(cluster, jobs, sharing_penalty_ppm=penalty))
        self.rows: list[Row] = []
        self.state.journal = self.rows.append
        self.naive = NaiveCluster(cluster)
        self.coming = list(reversed(jobs))
        self.waiting: dict[int, Job] = {}
        self.leases: dict[int, int] = {}
        """Of jobs that run."""
        self.old: list[tuple[int, int]] = []
        """(job, lease) that are no more."""
        self.now = 0

    def _eligible(self) -> list[int]:
        """Waiting jobs that a policy is shown."""
        return sorted(self.waiting)

    def _pass(self, seconds: int) -> None:
        self.now += seconds * SECOND + 1

    def _placement(self, data: st.DataObject, job: Job) -> Placement:
        """Mostly somewhere sensible, sometimes nonsense."""
        count = len(self.cluster.nodes)
        parts = job.nodes or data.draw(st.integers(1, min(2, count)))
        nodes = data.draw(
            st.lists(st.integers(0, count - 1), min_size=parts, max_size=parts, unique=data.draw(st.booleans()))
        )
        placement, left = [], job.gpus
        for index, node in enumerate(nodes):
            size = self.cluster.nodes[node].gpus
            take = min(left if index == len(nodes) - 1 else -(-job.gpus // len(nodes)), size)
            lowest = data.draw(st.integers(0, max(0, size - take)))
            placement.append((node, ((1 << take) - 1) << lowest))
            left -= take
        return tuple(placement)

    @rule(seconds=st.integers(0, 5))
    def arrive(self, seconds: int) -> None:
        if self.coming:
            self._pass(seconds)
            job = self.coming.pop()
            self.state.apply(self.now, JobArrived(job))
            self.waiting[job.id] = job

    @rule(data=st.data(), seconds=st.integers(0, 3))
    def start(self, data: st.DataObject, seconds: int) -> None:
        if not self.waiting:
            return
        self._pass(seconds)
        job = self.waiting[data.draw(st.sampled_from(sorted(self.waiting)))]
        placement = self._placement(data, job)
        action = StartJob(job.id, placement)
        refusal = self.state.check(action)
        allowed = self.naive.allows(job, placement, moving=False)
        assert (refusal is None) == allowed, f"{job} on {placement}: {refusal}"
        if refusal is None:
            self.state.commit(self.now, action)
            self._runs(job, placement)
        else:
            assert refusal.startswith(f"StartJob(job={job.id}): ")

    def _runs(self, job: Job, placement: Placement) -> None:
        self.waiting.pop(job.id, None)
        self.naive.held[job.id] = (job, placement)
        lease = self.state.running[job.id].lease
        assert lease not in self.leases.values()
        assert (job.id, lease) not in self.old
        self.leases[job.id] = lease

    def _stops(self, job: int, *, waits: bool) -> None:
        description, _ = self.naive.held.pop(job)
        self.old.append((job, self.leases.pop(job)))
        if waits:
            self.waiting[job] = description

    @rule(data=st.data(), seconds=st.integers(0, 20))
    def preempt(self, data: st.DataObject, seconds: int) -> None:
        if self.leases:
            self._pass(seconds)
            job = data.draw(st.sampled_from(sorted(self.leases)))
            refusal = self.state.check(PreemptJob(job))
            assert (refusal is None) == self.naive.held[job][0].preemptible
            if refusal is None:
                self.state.commit(self.now, PreemptJob(job))
                self._stops(job, waits=True)

    @rule(data=st.data(), seconds=st.integers(0, 20))
    def migrate(self, data: st.DataObject, seconds: int) -> None:
        if self.leases:
            self._pass(seconds)
            number = data.draw(st.sampled_from(sorted(self.leases)))
            job, at = self.naive.held[number]
            placement = self._placement(data, job)
            before = digest(self.state)
            refusal = self.state.check(MigrateJob(number, placement))
            assert digest(self.state) == before, "check changed the state"
            allowed = self.naive.allows(job, placement, moving=True) and job.preemptible and placement != at
            assert (refusal is None) == allowed, refusal
            if refusal is None:
                self.state.commit(self.now, MigrateJob(number, placement))
                self._stops(number, waits=False)
                self._runs(job, placement)

    @rule(data=st.data(), kind=st.sampled_from([JobFinished, JobFailed, JobCancelled]), seconds=st.integers(0, 20))
    def end(self, data: st.DataObject, kind: type[JobFinished | JobFailed | JobCancelled], seconds: int) -> None:
        if self.leases:
            self._pass(seconds)
            job = data.draw(st.sampled_from(sorted(self.leases)))
            retried = kind is JobFailed and self.state.jobs[job].attempt < self.naive.held[job][0].retries
            self.state.apply(self.now, kind(job, self.leases[job]))
            self._stops(job, waits=retried)
            assert (job in self.state.jobs) == retried

    @rule(data=st.data(), kind=st.sampled_from([JobFinished, JobFailed, JobCancelled]))
    def end_too_late_or_twice(self, data: st.DataObject, kind: type[JobFinished | JobFailed | JobCancelled]) -> None:
        if self.old:
            before = digest(self.state)
            self.state.apply(self.now, kind(*data.draw(st.sampled_from(self.old))))
            assert digest(self.state) == before, "a stale event changed something"
            assert self.rows[-1][1] == Kind.STALE

    @rule(data=st.data())
    def cancel_while_waiting(self, data: st.DataObject) -> None:
        if self.waiting:
            job = data.draw(st.sampled_from(sorted(self.waiting)))
            self.state.apply(self.now, JobCancelled(job, 0))
            del self.waiting[job]
            assert job not in self.state.jobs

    @rule(data=st.data(), evicts=st.sampled_from(["fails", "drained", "emptied"]), seconds=st.integers(0, 20))
    def close_node(self, data: st.DataObject, evicts: str, seconds: int) -> None:
        self._pass(seconds)
        node = data.draw(st.integers(0, len(self.cluster.nodes) - 1))
        event = NodeFailed(node) if evicts == "fails" else NodeDrained(node, evict=evicts == "emptied")
        self.state.apply(self.now, event)
        self.naive.closed.add(node)
        if evicts != "drained":
            for job, (_, placement) in list(self.naive.held.items()):
                if any(where == node for where, _ in placement):
                    self._stops(job, waits=True)

    @rule(data=st.data())
    def open_node(self, data: st.DataObject) -> None:
        node = data.draw(st.integers(0, len(self.cluster.nodes) - 1))
        self.state.apply(self.now, NodeRecovered(node))
        self.naive.closed.discard(node)

    @rule(data=st.data())
    def draft(self, data: st.DataObject) -> None:
        before = digest(self.state)
        with self.state.draft() as draft:
            for job in data.draw(st.lists(st.sampled_from(sorted(self.leases)), unique=True)) if self.leases else ():
                draft.release(self.state.running[job])
            for job in self.waiting:
                js = self.state.jobs[job]
                placement = self._placement(data, js.job)
                if self.state.check(StartJob(job, placement)) is None:
                    draft.start(js, placement)
        assert digest(self.state) == before

    @invariant()
    def agrees_with_the_model(self) -> None:
        if not hasattr(self, "naive"):
            return
        state, pool = self.state, self.state.pool
        assert set(state.running) == set(self.leases)
        assert {job: js.lease for job, js in state.running.items()} == self.leases
        eligible = self._eligible()
        assert sorted(job for _, job in state.queue.in_order()) == eligible
        assert state.queue.size == len(eligible)
        assert state.over() == (not self.coming and not eligible and not self.leases)
        free = self.naive.left()
        buckets = [0] * len(pool.buckets)
        for node, made in enumerate(self.cluster.nodes):
            whole = [gpu for gpu in range(made.gpus) if free[node, gpu] == 1000]
            assert pool.free_mask[node] == sum(1 << gpu for gpu in whole)
            assert pool.free_count[node] == len(whole)
            shared = {gpu: free[node, gpu] for gpu in pool.shares[node]}
            assert pool.shares[node] == shared
            assert bool(pool.sharing >> node & 1) == any(shared.values())
            cpus, memory = self.naive.host_left(node)
            assert made.cpu_milli is None or pool.cpu_free[node] == cpus
            assert made.memory_bytes is None or pool.memory_free[node] == memory
            if node not in self.naive.closed:
                buckets[len(whole)] |= 1 << node
        assert pool.buckets == buckets
        assert pool.schedulable == pool.everywhere - sum(1 << node for node in self.naive.closed)
        assert pool.free_gpus == sum(count * nodes.bit_count() for count, nodes in enumerate(buckets))
        for account in state.accounts.values():
            assert account.held == self.naive.tenant_holds(account.name)

    @invariant()
    def ranks_what_runs(self) -> None:
        if hasattr(self, "naive") and self.leases:
            ranked = {job for job, (made, _) in self.naive.held.items() if made.preemptible}
            if self.state.arrangement.ranks_running:
                assert {job for _, job in self.state.ranked.descending(self.now)} == ranked
            if self.state.arrangement.ranks_ends:
                ends = [(js.expected_end(), js.id) for js in self.state.running.values()]
                assert list(self.state.ends.ascending(self.now)) == sorted(ends)


TestState = StateMachine.TestCase
TestState.settings = settings(max_examples=60, stateful_step_count=40, suppress_health_check=list(HealthCheck))


# --- by hand --------------------------------------------------------------------------------------------------


def test_a_wake_is_never_refused_and_is_written_down() -> None:
    state = _running()[0]
    rows: list[Row] = []
    state.journal = rows.append
    assert state.check(WakeAt(7)) is None
    state.commit(3, WakeAt(7))
    assert rows == [(3, int(Kind.WAKE_AT), -1, 0, -1, 0, 7)]


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (StartJob(9, ((0, 1),)), "StartJob(job=9): no such job is alive"),
        (StartJob(0, ((1, 1),)), "StartJob(job=0): runs already"),
        (StartJob(1, ((0, 3),)), "StartJob(job=1): wants 2 GPUs (mask 0x3), node n0 has 2 free (mask 0xc)"),
        (StartJob(1, ((0, 4),)), "StartJob(job=1): wants 2 GPUs, the placement has 1"),
        (StartJob(1, ((1, 1), (1, 2))), "StartJob(job=1): names node n1 twice"),
        (StartJob(1, ((7, 3),)), "StartJob(job=1): node 7 does not exist"),
        (PreemptJob(1), "PreemptJob(job=1): does not run"),
        (MigrateJob(1, ((0, 12),)), "MigrateJob(job=1): does not run"),
        (MigrateJob(0, ((0, 3),)), "MigrateJob(job=0): is there already"),
    ],
)
def test_a_refusal_names_the_thing_the_value_and_the_rule(
    action: StartJob | PreemptJob | MigrateJob, text: str
) -> None:
    assert _running()[0].check(action) == text


def _running() -> tuple[TrainingState, JobState]:
    """Job 0 on two GPUs of the first of two nodes, job 1 waits."""
    jobs = seconds_of((0, 100, 2), (0, 50, 2))
    state = fresh_state(build("fifo"), World(uniform(2, 4), jobs))
    for job in jobs:
        state.apply(0, JobArrived(job))
    state.commit(0, StartJob(0, ((0, 3),)))
    return state, state.jobs[0]
