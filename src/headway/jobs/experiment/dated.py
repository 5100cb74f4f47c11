"""Place what changes over time on the clock of a run: outages, reservations, amounts of limits; and jobs in these."""

from collections import Counter
from collections.abc import Mapping

import msgspec

from headway.errors import ExperimentError
from headway.jobs.experiment.arrivals import Arrivals
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.tables import cluster as cluster_table, dated as dated_table
from headway.jobs.tables.settings import Experiment
from headway.jobs.traces.build import altered
from headway.units import counted


def with_times(
    experiment: Experiment, cluster: Cluster, made: Arrivals, notes: list[str]
) -> tuple[Experiment, Cluster]:
    """Return the experiment and its cluster with all dates as times of the run."""
    if not dated_table.is_open(experiment.cluster):
        return experiment, cluster
    last = made.jobs[-1].submit if made.jobs else 0
    table = dated_table.resolved(experiment.cluster, made.calendar, last, notes)
    return msgspec.structs.replace(experiment, cluster=table), cluster_table.build(table)


def in_reservations(cluster: Cluster, jobs: tuple[Job, ...], notes: list[str]) -> tuple[Job, ...]:
    """Return jobs without reservations that the cluster does not have; refuse a job that may not be in its own."""
    named = Counter(job.reservation for job in jobs if job.reservation)
    if not named:
        return jobs
    known = {each.name: each for each in cluster.reservations}
    parents = {tenant.name: tenant.parent for tenant in cluster.tenants}
    for job in jobs:
        found = known.get(job.reservation)
        if found is not None and not found.admits(job, _upward(job.tenant, parents)):
            raise ExperimentError(
                f"job {job.name or job.id}: reservation {found.name} is for "
                f"{', '.join((*found.users, *found.tenants))}, not for {job.user or 'nobody'} of {job.tenant}"
            )
    unknown = {name: count for name, count in named.items() if name not in known}
    if not unknown:
        return jobs
    first = ", ".join(list(unknown)[:3]) + (", …" if len(unknown) > 3 else "")
    notes.append(
        f"reservations that are not described, or over before the first of them ({first}), are named by "
        f"{counted(sum(unknown.values()), 'job')}: as if none were named"
    )
    return altered(jobs, {"reservation": ["" if job.reservation in unknown else job.reservation for job in jobs]})


def _upward(account: str, parents: Mapping[str, str]) -> list[str]:
    found = []
    while account and account not in found:
        found.append(account)
        account = parents.get(account, "")
    return found
