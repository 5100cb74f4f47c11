"""Read how often nodes fail and when they are taken down for maintenance, and refuse what no job would survive."""

from collections.abc import Sequence

from headway.errors import ExperimentError
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.sim.faults import FailureModel, Faults, Maintenance
from headway.jobs.tables import cluster as cluster_table
from headway.jobs.tables.settings import LEAST_MTBF, MOST_FAILURES, Experiment, FailuresTable, span
from headway.units import exact_duration

MOST_REPAIR = 100
"""Times the mean time between failures: nodes are up 1 % of the time at least, so that runs come to an end."""


def failure_model(table: FailuresTable) -> FailureModel | None:
    """Return how often nodes fail and for how long; None where they do not."""
    if table.mtbf == "":
        return None
    mtbf = span(table.mtbf, "failures mtbf", least=LEAST_MTBF)
    repair = span(table.repair, "failures repair", least=1)
    if repair > MOST_REPAIR * mtbf:
        raise ExperimentError(
            f"failures mtbf {exact_duration(mtbf)}: nodes that take {exact_duration(repair)} to repair would hardly "
            f"ever be up: mtbf must be at least repair / {MOST_REPAIR}"
        )
    return FailureModel(mtbf, repair)


def check_failures(model: FailureModel | None, cluster: Cluster, jobs: Sequence[Job]) -> None:
    """Refuse failures so frequent that a job would hardly ever come as far as its next checkpoint, or its end."""
    if model is None or not jobs:
        return
    widest = max([node.gpus for node in cluster.nodes], default=0) or 1

    def expected(job: Job) -> float:
        """Return the expected failures of its nodes between two checkpoints."""
        return min(job.ends_after, job.checkpoint_every) * max(job.nodes, -(-job.gpus // widest), 1) / model.mtbf

    job = max(jobs, key=expected)
    if expected(job) > MOST_FAILURES:
        raise ExperimentError(
            f"failures mtbf is {exact_duration(model.mtbf)}: job {job.name or job.id} wants "
            f"{exact_duration(min(job.ends_after, job.checkpoint_every))} without a failure and would never get them; "
            "make mtbf longer, or checkpoint_every_s of the job shorter"
        )


def faults_of(experiment: Experiment, cluster: Cluster) -> Faults | None:
    """Return failures, maintenance and outages, or None where nothing was asked for."""
    table, nodes = experiment.failures, len(cluster.nodes)
    model = failure_model(table)
    works = []
    for work in table.maintenance:
        listed = cluster_table.positions(work.nodes, "maintenance nodes") if isinstance(work.nodes, str) else work.nodes
        for node in listed:
            cluster_table.within("maintenance nodes", node, 0, nodes - 1)
        start, length = span(work.start, "maintenance start"), span(work.length, "maintenance length", least=1)
        works.append(Maintenance(tuple(listed), start, length, span(work.lead, "maintenance lead")))
    if model is None and not works and not cluster.outages:
        return None
    return Faults(nodes, experiment.run.seed, model, works, cluster.outages)
