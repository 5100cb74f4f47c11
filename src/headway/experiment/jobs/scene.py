"""Prepare a run of training jobs: from the tables of an experiment to a cluster, jobs and a policy."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headway import traces
from headway.core.audit import Finding
from headway.core.tape import Tape
from headway.errors import ExperimentError
from headway.experiment.domain import Scene
from headway.experiment.jobs.arrivals import anywhere, arrivals, check_span, feasible, source, without
from headway.experiment.jobs.division import check_division, completions_of, keep_profiles, speed_of, unknown_models
from headway.experiment.jobs.interference import unknown_programs
from headway.experiment.jobs.parts import costs_of, policy_of
from headway.formats import cluster_file, cluster_table
from headway.formats.plugins import anchored
from headway.formats.settings import Experiment, check_measure, span
from headway.live.tasks import Far
from headway.metrics.window import check_texts, window_of
from headway.sim.faults import FailureModel, Faults, Maintenance
from headway.sim.resume import Moment
from headway.sim.training import SimulatedCluster
from headway.training.audit import audit
from headway.training.cluster import Cluster
from headway.training.job import Job
from headway.training.policies.compose import ComposedPolicy
from headway.training.replay import replay
from headway.training.speed import Costs, SpeedModel
from headway.training.state import TrainingState
from headway.training.tenancy import divide

JOBS_NAME = "jobs.parquet"


@dataclass(frozen=True, slots=True)
class JobsScene(Scene):
    """A cluster and its jobs, before the run."""

    experiment: Experiment
    cluster: Cluster
    jobs: tuple[Job, ...]
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def times_decisions(self) -> bool:
        """Decisions are timed with an allocation only, where they take long enough for a clock."""
        return self.policy().allocation is not None

    def policy(self) -> ComposedPolicy:
        """Make the policy anew."""
        return policy_of(self.experiment)

    def speed(self) -> SpeedModel:
        """Return how fast jobs run where."""
        return speed_of(self.experiment, self.cluster)

    def completions(self) -> int:
        """Return the length of which ends are noticed at multiples; 0: at once."""
        return completions_of(self.experiment)

    def costs(self) -> Costs:
        """Return what stopping and moving cost."""
        return costs_of(self.experiment, self.policy())

    def faults(self) -> Faults | None:
        """Draw the failures of nodes anew from the seed, so the same each time."""
        return faults_of(self.experiment, len(self.cluster.nodes))

    def begin(self) -> Moment:
        """Make the cluster before anything has happened."""
        policy = self.policy()
        state = TrainingState(
            self.cluster, to_come=len(self.jobs), arrangement=policy, speed=self.speed(), costs=self.costs()
        )
        policy.bind(state)
        executor = SimulatedCluster(self.jobs, state, self.faults(), completions=self.completions())
        return Moment(-1, state, policy, executor)

    def store(self, folder: Path) -> Experiment:
        """Write the jobs, the profiles and the table of pairs."""
        keep_profiles(self.experiment, folder)
        traces.write(self.jobs, folder / JOBS_NAME)
        return self.experiment

    def far(self, state: TrainingState, now: int) -> Far:
        """Count the jobs that have ended, wait and run."""
        waiting, running, total = state.queue.size, len(state.running), len(self.jobs)
        return Far(now, self.jobs[-1].submit, total, total - state.to_come - waiting - running, waiting, running)

    def replay(self, tape: Tape) -> Tape:
        """Show a fresh policy the recorded events."""
        return replay(self.cluster, self.jobs, tape, self.policy(), speed=self.speed(), costs=self.costs())

    def audit(self, tape: Tape, *, complete: bool) -> Sequence[Finding]:
        """Check that nothing is overbooked, all work is delivered and quotas are kept."""
        return audit(
            self.cluster,
            self.jobs,
            tape,
            policy=self.policy(),
            speed=self.speed(),
            costs=self.costs(),
            completions=self.completions(),
            complete=complete,
        )


def faults_of(experiment: Experiment, nodes: int) -> Faults | None:
    """Return failures and maintenance, or None where nothing was asked for."""
    table = experiment.failures
    model = None
    if table.mtbf != "":
        model = FailureModel(span(table.mtbf, "failures mtbf", least=1), span(table.repair, "failures repair", least=1))
    works = []
    for work in table.maintenance:
        listed = cluster_table.positions(work.nodes, "maintenance nodes") if isinstance(work.nodes, str) else work.nodes
        for node in listed:
            cluster_table.within("maintenance nodes", node, 0, nodes - 1)
        start, length = span(work.start, "maintenance start"), span(work.length, "maintenance length", least=1)
        works.append(Maintenance(tuple(listed), start, length, span(work.lead, "maintenance lead")))
    return Faults(nodes, experiment.run.seed, model, works) if model is not None or works else None


def prepare(experiment: Experiment) -> JobsScene:
    """Make the cluster and the jobs that fit it, with notes on what was left out."""
    measure = check_measure(experiment.measure)
    check_texts(measure.jobs, measure.warmup)
    experiment, about = _from_files(experiment)
    cluster = cluster_table.build(experiment.cluster)
    cluster_table.within("seed", experiment.run.seed, 0, 2**63 - 1)
    policy = policy_of(experiment)
    costs_of(experiment, policy)
    check_division(experiment, cluster, policy)
    faults_of(experiment, len(cluster.nodes))
    table = experiment.trace
    made = arrivals(*source(table, cluster.gpus), table.load, table.estimates, table.models, experiment.run.seed)
    jobs, notes = made[0], [*about, *made[1]]
    if table.leave_out:
        jobs = without(jobs, set(table.leave_out))
        notes.append(f"{len(made[0]) - len(jobs):,} jobs left out by name")
    cluster, jobs = divide(cluster, jobs, experiment.cluster.tenancy, experiment.cluster.sizing)
    jobs = anywhere(cluster, jobs, notes)
    jobs, skipped = feasible(cluster, jobs, policy, table.skip_infeasible)
    if skipped:
        notes.append(f"{len(skipped):,} job{'s' if len(skipped) > 1 else ''} skipped that could never run")
    check_span(jobs, cluster)
    window_of(jobs, measure.jobs, measure.warmup)
    notes += [*unknown_models(experiment, jobs), *unknown_programs(experiment, jobs)]
    return JobsScene(_resolved(experiment, cluster), cluster, jobs, tuple(notes), skipped)


def _resolved(experiment: Experiment, cluster: Cluster) -> Experiment:
    """Return the experiment with its cluster written out and its policy's files found from anywhere."""
    named = {key: anchored(getattr(experiment.policy, key)) for key in ("name", "backfill", "placement", "allocation")}
    return msgspec.structs.replace(
        experiment,
        cluster=cluster_table.described(experiment.cluster, cluster),
        policy=msgspec.structs.replace(experiment.policy, **named),
        variants=[],
    )


def _from_files(experiment: Experiment) -> tuple[Experiment, tuple[str, ...]]:
    """Return the experiment with its cluster written out where files describe it, and notes on them."""
    table = experiment.cluster
    if not table.file:
        return experiment, ()
    given = "nodes" if table.nodes is not None else "node_groups" if table.node_groups else ""
    if given:
        raise ExperimentError(f"the cluster has both files and {given}: give one")
    found, notes = cluster_file.read([table.file] if isinstance(table.file, str) else table.file)
    own = {key: value for key in table.__struct_fields__ if (value := getattr(table, key)) != _PLAIN[key]}
    written = msgspec.structs.replace(found, **{**own, "file": ""})
    return msgspec.structs.replace(experiment, cluster=written), notes


_PLAIN = {key: getattr(cluster_table.ClusterTable(), key) for key in cluster_table.ClusterTable.__struct_fields__}


def same_jobs(experiments: Sequence[tuple[str, Experiment]]) -> list[tuple[str, Experiment]]:
    """Return variants that are to serve the same jobs: what one of them could never run is left out of all."""
    if not all(each.trace.same_jobs for _, each in experiments):
        return list(experiments)
    hopeless = {name for _, each in experiments for name in prepare(each).skipped}
    changed = []
    for name, each in experiments:
        trace = msgspec.structs.replace(each.trace, leave_out=sorted({*each.trace.leave_out, *hopeless}))
        changed.append((name, msgspec.structs.replace(each, trace=trace)))
    return changed


def draws(experiment: Experiment) -> bool:
    """Return whether the seed matters: drawn jobs or models, failures, estimates, wrong profiles, random placement."""
    run = msgspec.structs.replace(experiment.run, seed=experiment.run.seed + 1)
    other = msgspec.structs.replace(experiment, run=run)
    return bool(
        experiment.trace.synthetic is not None
        or experiment.trace.synergy is not None
        or experiment.trace.models
        or experiment.speed.error
        or experiment.failures.mtbf != ""
        or experiment.trace.estimates == "user"
        or policy_of(experiment).name != policy_of(other).name
    )
