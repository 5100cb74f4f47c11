"""The reservation of a Slurm job, from its column, from SubmitLine, or from JSON."""

import json
from pathlib import Path

from headway.jobs.traces import load

_TIMES = "2026-03-01T12:00:00|2026-03-01T12:00:00|2026-03-01T12:10:00|00:10:00"
_ROW = f"1|eve|bio|batch|COMPLETED|{_TIMES}|cpu=1,gres/gpu=1,node=1"
_HEADER = "JobID|User|Account|Partition|State|Submit|Start|End|Elapsed|AllocTRES"


def test_a_column_or_the_command_names_the_reservation(tmp_path: Path) -> None:
    for column, cell, named in (
        ("Reservation", "course", "course"),
        ("Reservation", "", ""),
        ("SubmitLine", "sbatch --reservation=course -N1 run.sh", "course"),
        ("SubmitLine", "sbatch --reservation course", "course"),
        ("SubmitLine", 'sbatch -N1 --wrap="x --reservation=no"', ""),
    ):
        (tmp_path / "sacct.txt").write_text(f"{_HEADER}|{column}\n{_ROW}|{cell}\n")
        assert load(tmp_path / "sacct.txt", "slurm").jobs[0].reservation == named


def test_json_of_either_command_names_it(tmp_path: Path) -> None:
    base = {
        "job_id": 1, "partition": "batch", "user": "eve", "account": "bio", "state": {"current": ["COMPLETED"]},
        "time": {"submission": 1_772_366_400, "start": 1_772_366_400, "end": 1_772_367_000, "elapsed": 600},
        "tres_alloc_str": "cpu=1,gres/gpu=1,node=1",
    }  # fmt: skip
    for told in ({"reservation": {"id": 3, "name": "course"}}, {"resv_name": "course"}):
        (tmp_path / "sacct.json").write_text(json.dumps({"jobs": [{**base, **told}]}))
        assert load(tmp_path / "sacct.json", "slurm").jobs[0].reservation == "course"
