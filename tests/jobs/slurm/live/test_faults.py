"""Nodes, programs, headway and the controller of a real Slurm are killed: every job ends exactly once."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bench.queue_faults_program import SAVE_EVERY
from bench.queue_slurm_faults import WHAT, lab_of, play
from tests.jobs.slurm.live.labs import needs_slurm

pytestmark = needs_slurm


def test_every_job_ends_once_whatever_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with TemporaryDirectory() as root, lab_of(Path(root)) as lab:
        for name, value in lab.environment.items():
            monkeypatch.setenv(name, value)
        report = play(tmp_path, lab, kills=5, jobs=6, seed=3)
    assert (report.problems, report.twice) == ([], [])
    assert sum(report.kills[what] for what in WHAT) == 5
    assert report.lost_steps <= SAVE_EVERY
    assert set(report.ended) <= {"finished", "cancelled"}
