"""One Slurm for all tests of a process."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bench.slurm_lab import SlurmLab
from tests.jobs.slurm.live.labs import SlurmBench


@pytest.fixture(scope="session")
def lab() -> Iterator[SlurmLab]:
    """Two nodes with four pretended GPUs each, where every user can look."""
    with (
        TemporaryDirectory() as folder,
        SlurmLab(
            Path(folder), nodes=2, accounted=False, requeue_s=1, settings={"KillWait": "2", "MessageTimeout": "3"}
        ) as made,
    ):
        yield made


@pytest.fixture
def bench(tmp_path: Path, lab: SlurmLab) -> Iterator[SlurmBench]:
    """A queue on the Slurm, first come first served."""
    made = SlurmBench(tmp_path, lab)
    yield made
    made.close()


@pytest.fixture
def srtf(tmp_path: Path, lab: SlurmLab) -> Iterator[SlurmBench]:
    """A queue on the Slurm that preempts for shorter jobs."""
    made = SlurmBench(tmp_path, lab, "srtf+easy")
    yield made
    made.close()
