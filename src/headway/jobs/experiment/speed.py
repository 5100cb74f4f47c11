"""Build the speed model of a run: profiles of CPUs, memory and storage, and interference on shared GPUs.

Profiles and the table of pairs are read from where an experiment names them, and kept in the folder of its run.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from headway.errors import ExperimentError, TapeError, unknown_name
from headway.files import stamp, write_whole
from headway.jobs.experiment.policy import PolicyFacts, divides, facts_of
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.model.sensitivity import Matrix, Profile, Scalar, all_or_nothing
from headway.jobs.model.speed import SpeedModel
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.tables import profiles as profile_file
from headway.jobs.tables.settings import Experiment
from headway.profiling import pairs as pair_file
from headway.profiling.interference import PairTable
from headway.runs.domain import with_table
from headway.runs.folder.folder import kept_file
from headway.units import REFERENCE_SPEED_PPM

MODELS = {model.name: model for model in (Matrix, Scalar)}
COMPLETIONS = ("exact", "round")
SMALLEST_MEMORY = 10**6
"""Of a node, in bytes: less is a unit forgotten."""
_SAID = {"cpu_milli": "CPUs", "memory_bytes": "memory", "storage_bytes_per_second": "storage bandwidth"}
PROFILES_NAME = "profiles"
"""In the folder of a run: the profiles that it was given."""


def completions_of(experiment: Experiment, facts: PolicyFacts) -> int:
    """Return the interval at which ends are noticed; 0: at once."""
    if experiment.run.completions not in COMPLETIONS:
        raise ExperimentError(unknown_name("completions", experiment.run.completions, COMPLETIONS))
    if experiment.run.completions == "exact":
        return 0
    if not (length := facts.round_length):
        raise ExperimentError("completions at the end of a round need rounds: give --round 300s (policy.round)")
    return length


def check_division(experiment: Experiment, cluster: Cluster, policy: ComposedPolicy) -> None:
    """Refuse a division of what is not there to be divided."""
    facts = facts_of(experiment)
    completions_of(experiment, facts)
    if policy.allocation is None:
        return
    if not any(node.cpu_milli or node.memory_bytes or node.storage_bytes_per_second for node in cluster.nodes):
        raise ExperimentError(
            f"allocation {policy.allocation.name}: the cluster counts neither CPUs nor memory; "
            "give --cpus-per-node 24 --memory-per-node 500GB, or a cluster file that says them"
        )
    for what in ("cpu_milli", "memory_bytes", "storage_bytes_per_second"):
        bare = [node.name for node in cluster.nodes if getattr(node, what) is None]
        if 0 < len(bare) < len(cluster.nodes):
            raise ExperimentError(
                f"allocation {policy.allocation.name}: node {bare[0]} does not say its {_SAID[what]} and others do; "
                "what is divided has to be counted on all nodes or on none"
            )
    for node in cluster.nodes:
        if node.memory_bytes is not None and 0 < node.memory_bytes < SMALLEST_MEMORY:
            raise ExperimentError(
                f"allocation {policy.allocation.name}: node {node.name} has {node.memory_bytes} bytes of memory; "
                "write the unit, like 500GB"
            )
    speed_of(experiment, cluster, facts)


def unknown_models(experiment: Experiment, jobs: Sequence[Job]) -> list[str]:
    """Return a note on jobs whose model has no profile: no allocation can be computed for them."""
    known = profiles_of(_files(experiment)) if divides(experiment) else {}
    unknown = [job for job in jobs if job.gpus and job.model not in known]
    if not known or not unknown:
        return []
    what = models_of_jobs(unknown, "profile", "a column model, or --models")
    return [f"{len(unknown):,} of {len(jobs):,} jobs {what}: they run at one speed, whatever they are granted"]


def speed_of(experiment: Experiment, cluster: Cluster, facts: PolicyFacts) -> SpeedModel:
    """Return how fast jobs run where, and with what."""
    penalty = round(experiment.cluster.sharing_penalty * REFERENCE_SPEED_PPM)
    pairs = pairs_of(experiment)
    table = experiment.speed
    if not table.model and not facts.divides:
        return SpeedModel(cluster, sharing_penalty_ppm=penalty, interference=pairs)
    name = table.model or Matrix.name
    if name not in MODELS:
        raise ExperimentError(unknown_name("speed model", name, MODELS))
    if not 0 <= table.error < 1:
        raise ExperimentError(f"speed error {table.error} must lie between 0 and 1")
    believed = profiles_of(_files(experiment))
    true = profile_file.off_by(believed, table.error, experiment.run.seed) if table.error else believed
    if MODELS[name] is Scalar:
        believed = {model: all_or_nothing(profile) for model, profile in believed.items()}
    return SpeedModel(
        cluster,
        sharing_penalty_ppm=penalty,
        sensitivity=MODELS[name](true),
        profiles=believed,
        interference=pairs,
    )


def _files(experiment: Experiment) -> list[str]:
    given = experiment.speed.profiles
    return [file for file in ([given] if isinstance(given, str) else given) if file]


def profiles_of(files: Sequence[str]) -> dict[str, Profile]:
    """Return the shipped profiles, overridden by those of these files."""
    return _profiles(tuple((str(path), stamp(str(path))) for path in profile_file.listed(files)))


@lru_cache(maxsize=8)
def _profiles(files: tuple[tuple[str, tuple[int, ...]], ...]) -> dict[str, Profile]:
    return profile_file.shipped() | profile_file.load(path for path, _ in files)


def keep_profiles(experiment: Experiment, folder: Path) -> None:
    """Copy the profiles and the interference table that an experiment names into the folder of its run, in order."""
    keep_pairs(experiment, folder)
    for number, path in enumerate(profile_file.listed(_files(experiment))):
        target = folder / PROFILES_NAME / f"{number:03d}-{path.name}"
        target.parent.mkdir(exist_ok=True)
        write_whole(target, path.read_bytes())


def kept_profiles(experiment: Experiment, folder: Path) -> Experiment:
    """Return a stored experiment with the profiles and the interference table from its folder."""
    experiment = kept_pairs(experiment, folder)
    kept = folder / PROFILES_NAME
    if not _files(experiment):
        return experiment
    if not kept.is_dir():
        raise TapeError(f"run folder {folder}: {PROFILES_NAME} is missing beside the tape")
    return with_table(experiment, "speed", profiles=[str(kept)])


# --- jobs on parts of one GPU -------------------------------------------------------------------------------------


def pairs_of(experiment: Experiment) -> PairTable | None:
    """Return the interference table that an experiment names; None where it names none."""
    table = experiment.cluster
    if not table.interference:
        if table.programs:
            raise ExperimentError("cluster.programs needs a table of pairs: give cluster.interference")
        return None
    if table.sharing_penalty:
        raise ExperimentError("the cluster has both interference and sharing_penalty: give one")
    path = str(pair_file.path_of(table.interference))
    return _read_pairs(path, stamp(path), tuple(table.programs.items()))


@lru_cache(maxsize=8)
def _read_pairs(path: str, _stamp: tuple[int, ...], names: tuple[tuple[str, str], ...]) -> PairTable:
    return pair_file.read(Path(path), dict(names))


def unknown_programs(experiment: Experiment, jobs: Sequence[Job]) -> list[str]:
    """Return a note on jobs with a share of a GPU that the interference table does not know."""
    table = pairs_of(experiment)
    shared = [job for job in jobs if job.shared] if table is not None else []
    unknown = [job for job in shared if table is not None and not table.knows(job.model)]
    if table is None or not unknown:
        return []
    what = models_of_jobs(unknown, "pair", "a column model")
    factor = table.default_ppm / REFERENCE_SPEED_PPM
    return [f"{len(unknown):,} of {len(shared):,} jobs on parts of a GPU {what}: beside each, {factor:.3g}× as long"]


def models_of_jobs(jobs: Sequence[Job], table: str, remedy: str) -> str:
    """Say of jobs that a table knows nothing of which models they name, or how to name them."""
    names = sorted({job.model for job in jobs if job.model})
    if not names:
        return f"do not say what they train ({remedy})"
    return f"train what no {table} is of ({', '.join(names[:5])}{', …' if len(names) > 5 else ''})"


def keep_pairs(experiment: Experiment, folder: Path) -> None:
    """Copy the interference table into the folder of a run: stores grow and shipped tables change."""
    if experiment.cluster.interference:
        write_whole(folder / pair_file.NAME, pair_file.path_of(experiment.cluster.interference).read_bytes())


def kept_pairs(experiment: Experiment, folder: Path) -> Experiment:
    """Return a stored experiment with the interference table from its folder."""
    if not experiment.cluster.interference:
        return experiment
    return with_table(experiment, "cluster", interference=str(kept_file(folder, pair_file.NAME)))
