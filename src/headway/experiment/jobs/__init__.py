"""The scale of training jobs on a cluster."""

from pathlib import Path
from typing import Any

from headway import traces
from headway.experiment.domain import Domain
from headway.experiment.jobs.division import kept_profiles
from headway.experiment.jobs.flags import FLAGS
from headway.experiment.jobs.parts import policy_of
from headway.experiment.jobs.scene import JOBS_NAME, JobsScene, draws, prepare
from headway.formats import cluster_table
from headway.formats.settings import Experiment


class JobsDomain(Domain):
    """Jobs of a trace, or drawn, on a cluster."""

    name = "jobs"
    subject = "job"
    tables = Experiment
    flags = FLAGS
    view_module = "headway.experiment.jobs.view"
    example_policies = "fifo,srtf+easy"
    file_keys = ("trace.path", "cluster.file", "cluster.interference", "speed.profiles")
    policy_keys = ("policy.name", "policy.backfill", "policy.placement", "policy.allocation")

    def prepare(self, experiment: Experiment) -> JobsScene:
        """Make the cluster and the jobs that fit it."""
        return prepare(experiment)

    def load(self, experiment: Experiment, folder: Path) -> JobsScene:
        """Read the jobs of a stored run back, and the profiles that lie beside them."""
        experiment = kept_profiles(experiment, folder)
        jobs = traces.load(folder / JOBS_NAME, "headway", strict=True).jobs
        return JobsScene(experiment, cluster_table.build(experiment.cluster), jobs)

    def policy_name(self, experiment: Experiment) -> str:
        """Return the policy in full, every part of it."""
        return policy_of(experiment).name

    def draws(self, experiment: Any) -> bool:
        """Return whether jobs, models, failures, estimates, profiles or placement are drawn from the seed."""
        return draws(experiment)


DOMAIN = JobsDomain()
