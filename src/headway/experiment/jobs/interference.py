"""Wiring of what jobs on parts of one GPU cost each other: the table that an experiment names, read and kept."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from headway.errors import ExperimentError, TapeError
from headway.files import stamp, write_whole
from headway.formats import pairs as pair_file
from headway.formats.training.settings import Experiment
from headway.kernels.interference import PairTable
from headway.training.job import Job
from headway.units import REFERENCE_SPEED_PPM

PAIRS_NAME = pair_file.NAME
"""In the folder of a run: the table that it was given."""


def pairs_of(experiment: Experiment) -> PairTable | None:
    """The table that an experiment names; None where it names none."""
    table = experiment.cluster
    if not table.interference:
        if table.programs:
            raise ExperimentError("cluster.programs needs a table of pairs: give cluster.interference")
        return None
    if table.sharing_penalty:
        raise ExperimentError("the cluster has both interference and sharing_penalty: give one")
    path = str(pair_file.path_of(table.interference))
    return _read(path, stamp(path), tuple(table.programs.items()))


@lru_cache(maxsize=8)
def _read(path: str, _stamp: tuple[int, ...], names: tuple[tuple[str, str], ...]) -> PairTable:
    return pair_file.read(Path(path), dict(names))


def unknown_programs(experiment: Experiment, jobs: Sequence[Job]) -> list[str]:
    """A note on jobs on parts of a GPU of which the table knows nothing."""
    table = pairs_of(experiment)
    shared = [job for job in jobs if job.shared] if table is not None else []
    unknown = [job for job in shared if table is not None and not table.knows(job.model)]
    if table is None or not unknown:
        return []
    names = sorted({job.model for job in unknown if job.model})
    what = "do not say what they train (a column model)"
    if names:
        what = f"train what no pair is of ({', '.join(names[:5])}{', …' if len(names) > 5 else ''})"
    factor = table.default_ppm / REFERENCE_SPEED_PPM
    return [f"{len(unknown):,} of {len(shared):,} jobs on parts of a GPU {what}: beside each, {factor:.3g}× as long"]


def keep_pairs(experiment: Experiment, folder: Path) -> None:
    """Copy the table into the folder of a run: stores grow and shipped tables change."""
    if experiment.cluster.interference:
        write_whole(folder / PAIRS_NAME, pair_file.path_of(experiment.cluster.interference).read_bytes())


def kept_pairs(experiment: Experiment, folder: Path) -> Experiment:
    """An experiment that was stored, with the table that lies in its folder."""
    kept = folder / PAIRS_NAME
    if not experiment.cluster.interference:
        return experiment
    if not kept.is_file():
        raise TapeError(f"run folder {folder}: {PAIRS_NAME} is missing beside the tape")
    cluster = msgspec.structs.replace(experiment.cluster, interference=str(kept))
    return msgspec.structs.replace(experiment, cluster=cluster)
