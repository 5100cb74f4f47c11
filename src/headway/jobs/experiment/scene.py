"""Prepare a run of training jobs: from the tables of an experiment to a cluster, jobs and a policy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

import msgspec

from headway.core.audit import Finding
from headway.core.tape import Tape
from headway.core.tasks import Far
from headway.errors import ExperimentError
from headway.files import write_whole
from headway.formats.dates import Calendar
from headway.jobs import traces
from headway.jobs.audit.audit import audit
from headway.jobs.audit.replay import about, replay
from headway.jobs.experiment.arrivals import (
    Arrivals,
    anywhere,
    arrivals,
    check_span,
    feasible,
    label,
    past_of,
    source,
    unknown_licences,
    without,
)
from headway.jobs.experiment.dated import in_reservations, with_times
from headway.jobs.experiment.failures import check_failures, failure_model, faults_of
from headway.jobs.experiment.observed import played_again
from headway.jobs.experiment.policy import PARTS, PolicyFacts, costs_of, facts_of, policy_of
from headway.jobs.experiment.raised_limits import with_leave
from headway.jobs.experiment.site_changes import about_no_gpus, about_nobody
from headway.jobs.experiment.speed import (
    check_division,
    completions_of,
    keep_profiles,
    kept_profiles,
    speed_of,
    unknown_models,
    unknown_programs,
)
from headway.jobs.metrics.cost import rates
from headway.jobs.metrics.window import Window, check_texts, window_of
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.model.rows import JOB_KINDS, PLACED_KINDS, Kind
from headway.jobs.model.speed import Costs, SpeedModel
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.rules.eligibility.check import check_dependencies, within_workload
from headway.jobs.rules.quotas import divide
from headway.jobs.sim.cluster import SimulatedCluster
from headway.jobs.sim.faults import Faults
from headway.jobs.sim.resume import Moment
from headway.jobs.slurm.output.records import SiteRules
from headway.jobs.slurm.site.followed import concerns
from headway.jobs.slurm.site.policy import told
from headway.jobs.state.state import TrainingState
from headway.jobs.tables import cluster as cluster_table
from headway.jobs.tables.dated import shifted
from headway.jobs.tables.settings import Experiment, PolicyTable
from headway.jobs.traces.clusters import file as cluster_file
from headway.jobs.traces.past import Past
from headway.plugins import GIVEN, SITE, TRUST, anchored, is_from_outside, is_untrusted, of_run, site_notes, site_unread
from headway.runs.domain import Scene, with_table
from headway.runs.folder.folder import Limits, kept_file, kept_record
from headway.runs.settings.tables import check_measure

JOBS_NAME = "jobs.parquet"
PAST_NAME = "past.json"
"""Beside the jobs of a log: its dates, real waits and caveats."""
SITE_NAME = "site.json"
"""Beside the jobs of a site whose rules were read: those rules, so that a what-if can change them."""
POLICY_NAME = "policy.json"
"""In the folder of a run whose policy comes from a file: what can be known of it without the file."""


@dataclass(frozen=True, slots=True)
class JobsScene(Scene):
    """A cluster and its jobs, before the run."""

    experiment: Experiment
    cluster: Cluster
    jobs: tuple[Job, ...]
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    kept_facts: PolicyFacts | None = None
    """Of a policy whose file is not trusted."""
    past: Past = field(default_factory=Past)
    """What the log says of the jobs besides: dates, real waits."""
    site: SiteRules = field(default_factory=SiteRules)
    """The rules of a Slurm site as its files print them, with the changes of this run; empty where none were read."""

    def endless(self) -> str:
        """Return why a run that goes on has no end yet; empty for one that was cut short."""
        return "the queue has jobs that have not ended" if self.experiment.run.engine else ""

    @property
    def calendar(self) -> Calendar | None:
        """Return which date the beginning of the run is; None where nobody knows."""
        return self.past.calendar

    def window(self) -> Window | None:
        """Return the jobs that are measured; None for all."""
        measure = self.experiment.measure
        return window_of(self.jobs, measure.jobs, measure.warmup, self.past.carried)

    def facts(self) -> PolicyFacts:
        """Return what books need to know of the policy; without its file where that is not trusted."""
        return self.kept_facts or facts_of(self.experiment)

    def policy(self) -> ComposedPolicy:
        """Make the policy anew."""
        return policy_of(self.experiment)

    def simulated(self, tape: Tape | None = None) -> "JobsScene | None":
        """Return the jobs of a live run that ran and ended, in virtual time."""
        if not self.experiment.run.engine or tape is None:
            return None
        return replace(
            self, experiment=with_table(self.experiment, "run", engine=""), jobs=played_again(self.jobs, tape)
        )

    def policy_name(self) -> str:
        """Return the policy in full, every part of it."""
        return self.facts().name

    def policy_if_trusted(self) -> ComposedPolicy | None:
        """Make the policy; None where it is a file that is not trusted, and what is known of it is enough to go on."""
        return None if self.kept_facts is not None else self.policy()

    def policy_parts(self, policy: ComposedPolicy) -> Sequence[object]:
        """Return its order, backfill, placement, migration and allocation."""
        return policy.named_order, policy.backfill, policy.rule, policy.migration, policy.allocation

    def times_decisions(self, policy: ComposedPolicy) -> bool:
        """Return whether decisions are timed: with an allocation only, where they take long enough for a clock."""
        return policy.allocation is not None

    def inputs(self) -> Mapping[str, Sequence[Any]]:
        """Return jobs and nodes."""
        return {"job": self.jobs, "node": self.cluster.nodes}

    def speed(self) -> SpeedModel:
        """Return how fast jobs run where."""
        return speed_of(self.experiment, self.cluster, self.facts())

    def completions(self) -> int:
        """Return the length of which ends are noticed at multiples; 0: at once."""
        return completions_of(self.experiment, self.facts())

    def costs(self) -> Costs:
        """Return what stopping and moving cost."""
        return costs_of(self.experiment, self.facts())

    def faults(self) -> Faults | None:
        """Draw the failures of nodes anew from the seed, so the same each time."""
        return faults_of(self.experiment, self.cluster)

    def begin(self, cluster: type[SimulatedCluster] = SimulatedCluster) -> Moment:
        """Make the cluster before anything has happened, with an executor of some kind."""
        policy = self.policy()
        state = TrainingState(
            self.cluster, to_come=len(self.jobs), arrangement=policy, speed=self.speed(), costs=self.costs()
        )
        policy.bind(state)
        executor = cluster(self.jobs, state, self.faults(), completions=self.completions())
        return Moment(-1, state, policy, executor)

    def store(self, folder: Path) -> Experiment:
        """Write the jobs, the profiles and the table of pairs."""
        keep_profiles(self.experiment, folder)
        if any(is_from_outside(getattr(self.experiment.policy, key)) for key in PARTS):
            write_whole(folder / POLICY_NAME, msgspec.json.encode(self.facts()))
        from headway.jobs.traces.readers.native import write_workload  # polars, which a queue of programs does not need

        write_workload(self.jobs, folder / JOBS_NAME)
        if self.past:
            write_whole(folder / PAST_NAME, msgspec.json.encode(self.past))
        if self.site:
            write_whole(folder / SITE_NAME, msgspec.json.encode(self.site))
        return self.experiment

    def progress(self, state: TrainingState, now: int) -> Far:
        """Count the jobs that have ended, wait and run."""
        running, total = len(state.running), len(self.jobs)
        waiting = len(state.jobs) - running
        return Far(now, self.jobs[-1].submit, total, total - state.to_come - waiting - running, waiting, running)

    def row_kinds(self) -> tuple[type[IntEnum], Limits]:
        """Return the kinds of rows about jobs and nodes, and how many there are of both."""
        return Kind, {"subject": (len(self.jobs), JOB_KINDS), "place": (len(self.cluster.nodes), PLACED_KINDS)}

    def row_subject(self, row: Sequence[int]) -> str:
        """Return the job or node of a row."""
        return about(row)

    def unfinished(self, state: TrainingState) -> list[str]:
        """Return the jobs that have not ended."""
        return [f"job {number}" for number in state.jobs]

    def omissions(self, verb: str) -> list[str]:
        """Say what only the policy itself could tell."""
        if self.kept_facts is None:
            return []
        what = {
            "story": "why it waited is left out",
            "audit": "what only it could prove, guarantees of tenants and shares, was not checked",
        }[verb]
        if any(GIVEN in getattr(self.experiment.policy, key) for key in PARTS):
            return [f"note: the policy was given as a Python object and is not known in this program: {what}"]
        why = "the policy is a Python file that the run folder names and was not run"
        return [f"note: {why}: {what} ({TRUST} runs it)"]

    def replay(self, tape: Tape, *, complete: bool) -> Tape:
        """Show a fresh policy the recorded events."""
        return replay(
            self.cluster,
            self.jobs,
            tape,
            self.policy(),
            speed=self.speed(),
            costs=self.costs(),
            complete=complete,
        )

    def audit(self, tape: Tape, *, complete: bool) -> Sequence[Finding]:
        """Check that nothing is overbooked, all work is delivered and quotas are kept."""
        return audit(
            self.cluster,
            self.jobs,
            tape,
            policy=self.policy_if_trusted(),
            speed=self.speed(),
            costs=self.costs(),
            completions=self.completions(),
            complete=complete,
            punctual=not self.experiment.run.engine,
        )


def checked(experiment: Experiment) -> tuple[Experiment, cluster_file.Read, Cluster, ComposedPolicy]:
    """Refuse what is wrong whatever the jobs are; return it with what its cluster was read from, and its policy."""
    measure = check_measure(experiment.measure)
    check_texts(measure.jobs, measure.warmup)
    table = experiment.cluster
    if not (table.file or table.nodes or table.gpus_per_node or table.node_groups):
        source(experiment.trace, 0)  # what lacks jobs too is told of both
    experiment, read = _from_files(experiment)
    cluster = cluster_table.build(experiment.cluster)
    changed = (f"changed for this run: {line}" for line in read.changed)
    notes = (*told(site_notes(experiment.policy.name), cluster, read.site), *read.notes, *changed)
    unread = (*site_unread(experiment.policy.name), *read.unread)
    cluster_table.within("seed", experiment.run.seed, 0, 2**63 - 1)
    policy = policy_of(experiment)
    costs_of(experiment, facts_of(experiment))
    check_division(experiment, cluster, policy)
    faults_of(experiment, cluster)
    for key in ("price", "watts"):
        rates(getattr(measure, key), f"--{key}", cluster)
    return experiment, read._replace(notes=notes, unread=unread), cluster, policy


def prepare(experiment: Experiment) -> JobsScene:
    """Make the cluster and the jobs that fit it, with notes on what was left out."""
    experiment, read, cluster, policy = checked(experiment)
    table, measure = experiment.trace, experiment.measure
    made = arrivals(*source(table, cluster.gpus), table.load, table.estimates, table.models, experiment.run.seed)
    jobs, notes = made.jobs, [*read.notes, *made.notes]
    experiment, cluster = with_times(experiment, cluster, made, notes)
    if table.leave_out:
        jobs = without(jobs, set(table.leave_out))
        notes.append(f"{len(made.jobs) - len(jobs):,} of {len(made.jobs):,} jobs left out by name")
    cluster, jobs = divide(cluster, jobs, experiment.cluster.tenancy, experiment.cluster.sizing)
    jobs = anywhere(cluster, jobs, notes)
    notes += [*about_nobody(read.site, read.rules, jobs), *about_no_gpus(read.rules, cluster)] if read.changed else ()
    known = read.site.told("changes")
    leave = (made.waits, notes, read.set_limits, made.requeued)
    cluster = with_leave(cluster, experiment.cluster, jobs, *leave, knows_changes=known)
    jobs = in_reservations(cluster, jobs, notes)
    jobs, skipped = feasible(cluster, jobs, policy, table.skip_infeasible, notes)
    cluster = shifted(cluster, _first_left(made, {*table.leave_out, *skipped}))
    jobs = within_workload(jobs, notes)
    check_dependencies(jobs)
    check_span(jobs, cluster)
    check_failures(failure_model(experiment.failures), cluster, jobs)
    notes += [*unknown_models(experiment, jobs), *unknown_programs(experiment, jobs)]
    begins = _begins(made, {*table.leave_out, *skipped})
    since = None if begins is None else begins.begins
    notes += map(str, concerns(read.unread, jobs, made.waits, cluster.tenants, since))
    notes += unknown_licences(cluster, jobs, made.waits)
    own = experiment.policy.name.startswith(SITE)
    past = past_of(made, jobs, begins, notes, site=own, changed=bool(read.changed))
    window_of(jobs, measure.jobs, measure.warmup, past.carried)
    return JobsScene(_resolved(experiment, cluster), cluster, jobs, tuple(notes), skipped, past=past, site=read.site)


def _begins(made: Arrivals, gone: set[str]) -> Calendar | None:
    """Return the date of time 0 of the jobs that are left."""
    return None if made.calendar is None else made.calendar.shifted(_first_left(made, gone))


def _first_left(made: Arrivals, gone: set[str]) -> int:
    """Return when the first of the jobs that are left was submitted."""
    return next((job.submit for job in made.jobs if label(job) not in gone), 0)


def _resolved(experiment: Experiment, cluster: Cluster) -> Experiment:
    """Return the experiment with its cluster written out and its policy's files found from anywhere."""
    path = experiment.trace.path
    return msgspec.structs.replace(
        experiment,
        trace=msgspec.structs.replace(experiment.trace, path=str(Path(path).expanduser().resolve()) if path else ""),
        cluster=cluster_table.described(experiment.cluster, cluster),
        policy=with_paths(experiment.policy, anchored),
        variants=[],
    )


def with_paths(table: PolicyTable, way: Callable[[str], str]) -> PolicyTable:
    """Return a policy's table with each part that may name a file put another way."""
    return msgspec.structs.replace(table, **{key: way(getattr(table, key)) for key in PARTS})


def load(experiment: Experiment, folder: Path, *, trust: bool) -> JobsScene:
    """Read the jobs of a stored run back, and the profiles that lie beside them."""
    file = kept_file(folder, JOBS_NAME)
    experiment = kept_profiles(experiment, folder)
    policy = with_paths(experiment.policy, lambda spec: of_run(spec, folder, trust=trust))
    experiment = msgspec.structs.replace(experiment, policy=policy)
    jobs = traces.load(file, "headway", strict=True).jobs
    marked_untrusted = any(is_untrusted(getattr(policy, key)) for key in PARTS)
    facts = kept_record(folder / POLICY_NAME, PolicyFacts) if marked_untrusted else None
    past = kept_record(folder / PAST_NAME, Past) or Past()
    site = kept_record(folder / SITE_NAME, SiteRules) or SiteRules()
    cluster = cluster_table.build(experiment.cluster)
    return JobsScene(experiment, cluster, jobs, kept_facts=facts, past=past, site=site)


def _from_files(experiment: Experiment) -> tuple[Experiment, cluster_file.Read]:
    """Return the experiment with its cluster written out where files describe it, and what they say."""
    table = experiment.cluster
    if not table.file:
        if table.rules:
            raise ExperimentError(_NO_SITE)
        return experiment, cluster_file.Read(table)
    given = "nodes" if table.nodes is not None else "node_groups" if table.node_groups else ""
    if given:
        raise ExperimentError(f"the cluster has both files and {given}: give one")
    files = [table.file] if isinstance(table.file, str) else table.file
    for key in cluster_table.EQUAL_NODES:
        if (value := getattr(table, key)) != _PLAIN[key]:
            raise ExperimentError(
                f"cluster: {key} = {value!r} stands beside {', '.join(files)}, which says what each node has: "
                "leave it out"
            )
    read = cluster_file.read(files, table.rules)
    own = {key: value for key in table.__struct_fields__ if (value := getattr(table, key)) != _PLAIN[key]}
    written = msgspec.structs.replace(read.table, **{**own, "file": "", "rules": {}})
    return msgspec.structs.replace(experiment, cluster=written), read


_NO_SITE = (
    "rules of a site are changed (cluster.rules, --qos, --partition, --preempt, --shares), and no file describes any: "
    "give --cluster with what sacctmgr show qos -P, sacctmgr show assoc -P or scontrol show partition prints"
)
_PLAIN = {key: getattr(cluster_table.ClusterTable(), key) for key in cluster_table.ClusterTable.__struct_fields__}


def same_jobs(experiments: Sequence[tuple[str, Experiment]]) -> list[tuple[str, Experiment]]:
    """Return variants that are to serve the same jobs: what one of them could never run is left out of all."""
    if not all(each.trace.same_jobs for _, each in experiments):
        return list(experiments)
    never_feasible = {name for _, each in experiments for name in prepare(each).skipped}
    return [
        (name, with_table(each, "trace", leave_out=sorted({*each.trace.leave_out, *never_feasible})))
        for name, each in experiments
    ]


def draws(experiment: Experiment) -> bool:
    """Return whether the seed matters: drawn jobs or models, failures, estimates, wrong profiles, random placement."""
    other = with_table(experiment, "run", seed=experiment.run.seed + 1)
    return bool(
        experiment.trace.synthetic is not None
        or experiment.trace.synergy is not None
        or experiment.trace.models
        or experiment.speed.error
        or experiment.failures.mtbf != ""
        or experiment.trace.estimates == "user"
        or policy_of(experiment).name != policy_of(other).name
    )
