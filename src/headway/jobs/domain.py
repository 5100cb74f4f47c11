"""Define the scale of training jobs on a cluster."""

from pathlib import Path
from typing import Any

from headway.jobs.experiment.flags import AXES, CHANGES, EXAMPLES, FLAGS, WORK
from headway.jobs.experiment.policy import policy_of
from headway.jobs.experiment.scene import JobsScene, checked, draws, load, prepare, same_jobs
from headway.jobs.tables import profiles as profile_file
from headway.jobs.tables.settings import Experiment
from headway.profiling import pairs as pair_file
from headway.runs.domain import Domain


class JobsDomain(Domain):
    """Jobs of a trace, or drawn, on a cluster."""

    name = "jobs"
    subject = "job"
    about = "Training jobs on a cluster: which policy, quota or hardware would shorten the queues?"
    extras = ("by", "picture")
    tables = Experiment
    work = WORK
    flags = FLAGS
    changes = CHANGES
    axes = AXES
    examples = EXAMPLES
    view_module = "headway.jobs.view"
    example_policies = "fifo,srtf+easy"
    example_axis = "cluster.nodes=40,80"
    file_keys = {  # noqa: RUF012
        "trace.path": lambda value: [Path(value).expanduser()],
        "cluster.file": lambda value: [Path(value).expanduser()],
        "cluster.interference": lambda value: [pair_file.path_of(value)],
        "speed.profiles": lambda value: list(profile_file.listed([value])),
    }
    policy_keys = ("policy.name", "policy.backfill", "policy.placement", "policy.allocation")

    def prepare(self, experiment: Experiment) -> JobsScene:
        """Make the cluster and the jobs that fit it."""
        return prepare(experiment)

    def load(self, experiment: Experiment, folder: Path, *, trust: bool) -> JobsScene:
        """Read the jobs of a stored run back."""
        return load(experiment, folder, trust=trust)

    def policy_name(self, experiment: Experiment) -> str:
        """Return the policy in full, every part of it."""
        return policy_of(experiment).name

    def check(self, experiment: Experiment) -> None:
        """Refuse a cluster, a policy, costs or failures that cannot be."""
        checked(experiment)

    def draws(self, experiment: Any) -> bool:
        """Return whether jobs, models, failures, estimates, profiles or placement are drawn from the seed."""
        return draws(experiment)

    def comparable_variants(self, experiments: Any) -> Any:
        """Leave out of all variants what one of them could never run, where that is asked for."""
        return same_jobs(experiments)


DOMAIN = JobsDomain()
