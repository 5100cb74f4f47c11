"""The training state under limits, against a naive model: what is refused, who is held back, what is counted.

The machine is that of ``test_state``. Limits that change with time are in ``test_limits`` and in audits of drawn runs.
"""

from dataclasses import replace

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import initialize, invariant

from headway.core.tape import Row
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.model.resources import Placement
from headway.jobs.policies.registry import build
from headway.jobs.rules.limits.counters import NEVER, Ageing
from headway.jobs.rules.limits.limit import NOBODY, LimitRule
from headway.jobs.state.state import TrainingState
from tests.drive import fresh_state
from tests.jobs.naive import NaiveCluster
from tests.jobs.state.test_state import ARRANGEMENTS, StateMachine
from tests.strategies import limited

AT_ONCE = (
    *("gpus", "cpus", "memory", "nodes", "jobs", "wall", "ageing"),
    *("gpus_per_node", "cpus_per_node", "memory_per_node"),
)


class NaiveLimits(NaiveCluster):
    """A cluster with limits: each is summed up anew whenever somebody asks."""

    def allows(self, job: Job, placement: Placement, *, moving: bool) -> bool:
        """Whether a job may hold this now."""
        within = moving or not self.exceeded(job)
        return within and super().allows(job, placement, moving=moving)

    def exceeded(self, job: Job) -> list[LimitRule]:
        """The limits beyond which a waiting job would be if it started now."""
        return [rule for rule in self.binding(job) if self.is_exceeded(rule, job)]

    def is_exceeded(self, rule: LimitRule, job: Job) -> bool:
        """Whether a rule that binds a job would be broken if it started."""
        if rule.least:
            return self.amount(rule, job) < rule.most
        amount = self.amount(rule, job)
        return rule.kind != "ageing" and amount > 0 and self.held_under(rule, job) + amount > rule.most

    def binding(self, job: Job) -> list[LimitRule]:
        """The rules that choose a job, of those with one slot only those of the least level."""
        chosen = [rule for rule in self.cluster.limits if self.chooses(rule, job)]
        return [
            rule
            for rule in chosen
            if self.level(rule, job) < NOBODY
            and (
                not rule.slot
                or all(self.level(rule, job) <= self.level(other, job) for other in chosen if other.slot == rule.slot)
            )
        ]

    def level(self, rule: LimitRule, job: Job) -> int:
        """The level of a rule for a job."""
        names = {"user": job.user, "qos": job.qos}
        return min([level for key, value, level in rule.levels if names[key] == value] or [rule.level])

    def chooses(self, rule: LimitRule, job: Job) -> bool:
        """Whether a rule is about a job."""
        above = {each.name: each.parent for each in self.cluster.tenants}
        accounts = [job.tenant]
        while above.get(accounts[-1]):
            accounts.append(above[accounts[-1]])
        of_job = {"account": accounts, "tenant": [job.tenant], "user": [job.user], "qos": [job.qos]}
        of_job["partition"] = [job.partition]
        of_job["any"] = [f"{key}:{value}" for key, values in of_job.items() for value in values]
        keys = {key for key, _ in rule.where}
        return all(any(value in of_job[key] for other, value in rule.where if other == key) for key in keys)

    def held_under(self, rule: LimitRule, job: Job) -> int:
        """What running jobs hold under a rule together with this one."""
        if "job" in rule.per or rule.kind == "wall":
            return 0
        return self.held_by(rule, self.who(rule, job))

    def held_by(self, rule: LimitRule, whose: list[str]) -> int:
        """What running jobs of somebody hold under a rule: of nodes each once."""
        under = [held for held in self.held.values() if self.chooses(rule, held[0])]
        own = [(job, placement) for job, placement in under if self.who(rule, job) == whose]
        if rule.kind == "nodes":
            return len({node for _, placement in own for node, _ in placement})
        return sum(self.amount(rule, job) for job, _ in own)

    def who(self, rule: LimitRule, job: Job) -> list[str]:
        """Whose counter of a rule a job is counted in."""
        names = {"account": job.tenant, "user": job.user, "qos": job.qos, "partition": job.partition}
        return [names[key] for key in rule.per if key != "job"]

    def amount(self, rule: LimitRule, job: Job) -> int:
        """What a job holds of what a rule counts."""
        if rule.gpu_type and job.gpu_types != (rule.gpu_type,):
            return 0
        each = self.nodes(job) if not job.gpus else 1
        return {
            "gpus": job.width_milli,
            "cpus": job.cpu_milli * each,
            "memory": job.memory_bytes * each,
            "nodes": self.nodes(job),
            "jobs": 1,
            "ageing": 1,
            "wall": job.estimate,
            "gpus_per_node": job.gpus // self.nodes(job) * job.gpu_milli,
            "cpus_per_node": job.cpu_milli * each // self.nodes(job) // 1000 * 1000,
            "memory_per_node": job.memory_bytes * each // self.nodes(job),
        }[rule.kind]

    def nodes(self, job: Job) -> int:
        """How many nodes a job asks for, or needs at least."""
        return job.nodes or max(1, -(-job.gpus // max(1, *(node.gpus for node in self.cluster.nodes))))


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
                if "job" in counter.rule.per or counter.rule.kind in ("wall", "ageing"):
                    continue
                assert counter.held == self.naive.held_by(counter.rule, list(counter.of)), str(counter.rule)

    @invariant()
    def lets_ages_count_while_there_is_room_and_the_lowest_numbers_first(self) -> None:
        """Who waits and ages is counted; nobody stands outside while all his counters have room."""
        if not hasattr(self, "naive") or self.state.limits is None:
            return
        for counter in (each for each in self.state.limits.counters.values() if isinstance(each, Ageing)):
            chosen = [job for job in self.waiting.values() if self.naive.chooses(counter.rule, job)]
            own = [job for job in chosen if self.naive.who(counter.rule, job) == list(counter.of)]
            assert counter.held == sum(self.state.jobs[job.id].accrues < NEVER for job in own)
            bound = [job for job in own if counter.rule in self.naive.binding(job)]
            assert counter.held <= max(counter.most, len(own) - len(bound) + counter.most)
            assert set(counter.waiting) == {job.id for job in bound if self.state.jobs[job.id].accrues == NEVER}
        for job in self.waiting.values():
            ages = self.state.jobs[job.id].limits.ages if self.state.jobs[job.id].limits is not None else ()
            room = all(counter.held < counter.most for counter, binds in ages if binds)
            assert (self.state.jobs[job.id].accrues < NEVER) or not room


TestLimitedState = LimitedMachine.TestCase
TestLimitedState.settings = settings(max_examples=60, stateful_step_count=40, suppress_health_check=list(HealthCheck))
