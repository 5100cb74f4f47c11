"""The training state under limits, against a naive model: what is refused, who is held back, what is counted.

The machine is that of ``test_state``. Limits that change with time are in ``test_limits`` and in audits of drawn runs.
"""

from dataclasses import replace

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import initialize, invariant

from headway.core.tape import Row
from headway.training.cluster import Cluster
from headway.training.job import Job
from headway.training.limits import LimitRule
from headway.training.policies.registry import build
from headway.training.resources import Placement
from headway.training.state import TrainingState
from tests.drive import fresh_state
from tests.strategies import limited
from tests.training.naive import NaiveCluster
from tests.training.test_state import ARRANGEMENTS, StateMachine

AT_ONCE = ("gpus", "cpus", "memory", "nodes", "jobs", "wall")


class NaiveLimits(NaiveCluster):
    """A cluster with limits: each is summed up anew whenever somebody asks."""

    def allows(self, job: Job, placement: Placement, *, moving: bool) -> bool:
        """Whether a job may hold this now."""
        within = moving or not self.exceeded(job)
        return within and super().allows(job, placement, moving=moving)

    def exceeded(self, job: Job) -> list[LimitRule]:
        """The limits beyond which a waiting job would be if it started now."""
        return [rule for rule in self.binding(job) if self.held_under(rule, job) + self.amount(rule, job) > rule.most]

    def binding(self, job: Job) -> list[LimitRule]:
        """The rules that choose a job, of those with one slot only those of the least level."""
        chosen = [rule for rule in self.cluster.limits if self.chooses(rule, job)]
        return [
            rule
            for rule in chosen
            if not rule.slot or rule.level == min(other.level for other in chosen if other.slot == rule.slot)
        ]

    def chooses(self, rule: LimitRule, job: Job) -> bool:
        """Whether a rule is about a job."""
        above = {each.name: each.parent for each in self.cluster.tenants}
        accounts = [job.tenant]
        while above.get(accounts[-1]):
            accounts.append(above[accounts[-1]])
        of_job = {"account": accounts, "tenant": [job.tenant], "user": [job.user], "qos": [job.qos]}
        of_job["partition"] = [job.partition]
        keys = {key for key, _ in rule.where}
        return all(any(value in of_job[key] for other, value in rule.where if other == key) for key in keys)

    def held_under(self, rule: LimitRule, job: Job) -> int:
        """What running jobs hold under a rule together with this one."""
        if "job" in rule.per or rule.kind == "wall":
            return 0
        others = [other for other, _ in self.held.values() if self.chooses(rule, other)]
        return sum(self.amount(rule, other) for other in others if self.who(rule, other) == self.who(rule, job))

    def who(self, rule: LimitRule, job: Job) -> list[str]:
        """Whose counter of a rule a job is counted in."""
        names = {"account": job.tenant, "user": job.user, "qos": job.qos, "partition": job.partition}
        return [names[key] for key in rule.per if key != "job"]

    def amount(self, rule: LimitRule, job: Job) -> int:
        """What a job holds of what a rule counts."""
        if rule.gpu_type and job.gpu_types != (rule.gpu_type,):
            return 0
        widest = max(node.gpus for node in self.cluster.nodes)
        return {
            "gpus": job.width_milli,
            "cpus": job.cpu_milli,
            "memory": job.memory_bytes,
            "nodes": job.nodes or max(1, -(-job.gpus // max(1, widest))),
            "jobs": 1,
            "wall": job.estimate,
        }[rule.kind]


class LimitedMachine(StateMachine):
    """Throws things at a state with limits."""

    naive: NaiveLimits

    @initialize(data=st.data(), spec=st.sampled_from(ARRANGEMENTS))
    def begin(self, data: st.DataObject, spec: str) -> None:  # type: ignore[override]
        world = data.draw(limited())
        limits = tuple(rule for rule in world.cluster.limits if rule.kind in AT_ONCE)
        self.cluster: Cluster = replace(world.cluster, limits=limits)
        world = replace(world, cluster=self.cluster)
        self.state: TrainingState = fresh_state(build(spec), world)
        self.rows: list[Row] = []
        self.state.journal = self.rows.append
        self.naive = NaiveLimits(self.cluster)
        self.coming = list(reversed(world.jobs))
        self.waiting, self.leases, self.old, self.now = {}, {}, [], 0

    def _eligible(self) -> list[int]:
        """Waiting jobs that no limit holds back; where there are none and nothing runs, the others wait for ever."""
        return sorted(job for job, made in self.waiting.items() if not self.naive.exceeded(made))

    @invariant()
    def names_the_limits_that_hold_a_job_back(self) -> None:
        if hasattr(self, "naive") and self.state.limits is not None:
            for job, made in self.waiting.items():
                refusing = [counter.rule for counter in self.state.limits.all_refusing(self.state.jobs[job])]
                assert refusing == self.naive.exceeded(made)

    @invariant()
    def counts_what_is_held(self) -> None:
        if hasattr(self, "naive") and self.state.limits is not None:
            for counter in self.state.limits.counters.values():
                if "job" in counter.rule.per or counter.rule.kind == "wall":
                    continue
                under = [job for job, _ in self.naive.held.values() if self.naive.chooses(counter.rule, job)]
                own = [job for job in under if tuple(self.naive.who(counter.rule, job)) == counter.of]
                assert counter.held == sum(self.naive.amount(counter.rule, job) for job in own), str(counter.rule)


TestLimitedState = LimitedMachine.TestCase
TestLimitedState.settings = settings(max_examples=60, stateful_step_count=40, suppress_health_check=list(HealthCheck))
