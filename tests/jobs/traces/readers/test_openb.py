"""The pod list of openb as jobs."""

from pathlib import Path

import pytest

from headway.errors import TraceError
from headway.jobs.model.job import Job, Outcome
from headway.jobs.traces import guess, load
from headway.units import SECOND

SAMPLES = Path(__file__).parents[3] / "samples"
HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)
SOUND = "p0,1000,10,1,1000,,LS,Running,100,200,100\n"


def written(path: Path, rows: str) -> Path:
    file = path / "pods.csv"
    file.write_text(HEADER + rows)
    return file


def test_each_row_of_the_sample_becomes_the_job_it_describes() -> None:
    assert guess(SAMPLES / "openb-pods.csv") == "openb"
    trace = load(SAMPLES / "openb-pods.csv", strict=True)
    assert trace.rows == 5
    assert trace.jobs == (
        Job(
            0, 0, 9000 * SECOND, name="sample-pod-0", cpu_milli=8000, memory_bytes=30 * 2**30, qos="LS",
        ),
        Job(
            1, 120 * SECOND, 595 * SECOND, gpu_milli=350, name="sample-pod-1", gpu_types=("V100M16", "V100M32"),
            cpu_milli=3000, memory_bytes=7 * 2**30, qos="BE",
        ),
        Job(
            2, 200 * SECOND, 3540 * SECOND, gpus=8, nodes=1, name="sample-pod-2", gpu_types=("T4",), cpu_milli=64_000,
            memory_bytes=240 * 2**30, qos="Burstable", outcome=Outcome.FAILS, outcome_after=3540 * SECOND,
        ),
        Job(3, 300 * SECOND, 1800 * SECOND, gpus=0, name="sample-pod-3", cpu_milli=2000, qos="LS"),
        Job(
            4, 400 * SECOND, 180 * SECOND, gpu_milli=620, name="sample-pod-4", cpu_milli=6000,
            memory_bytes=12 * 2**30, qos="BE", outcome=Outcome.CANCELLED, outcome_after=180 * SECOND,
            patience=180 * SECOND,
        ),
    )  # fmt: skip
    assert trace.dropped == ()
    assert trace.notes == (
        "pods that were deleted before they ran: 1; cancelled after the time they waited",
        "pods that still ran when the record ended: 1; their work is what was recorded",
    )


def test_a_pod_that_lived_for_no_time_is_left_out_even_where_bad_rows_are_refused(tmp_path: Path) -> None:
    dead = "p1,1000,10,1,230,,BE,Pending,150,150,\np2,1000,10,1,230,,BE,Failed,150,160,160\n"
    trace = load(written(tmp_path, SOUND + dead), strict=True)
    assert [job.name for job in trace.jobs] == ["p0"]
    assert trace.rows == 3
    assert [str(each) for each in trace.dropped] == [
        "line 3: deletion_time '150' is the moment it began: the pod lived for 0 s",
        "line 4: deletion_time '160' is the moment it began: the pod lived for 0 s",
    ]


def test_a_file_of_nothing_but_such_pods_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="none of its 1 pods lived for more than 0 s"):
        load(written(tmp_path, "p1,1000,10,1,230,,BE,Pending,150,150,\n"), "openb")


@pytest.mark.parametrize(
    ("row", "explained"),
    [
        ("p,1000,10,1,1000,,LS,Running,100,200,", "scheduled_time '' is empty, but the phase says that the pod ran"),
        (
            "p,1000,10,1,1000,,LS,Pending,100,200,150",
            "scheduled_time '150' must be empty: the phase says that the pod ",
        ),
        ("p,1000,10,1,1000,,LS,Running,100,200,99", "scheduled_time '99' is before creation_time"),
        ("p,1000,10,1,1000,,LS,Running,100,150,160", "deletion_time '150' is before the pod began"),
        ("p,1000,10,1,1000,,LS,Gone,100,200,100", "pod_phase 'Gone' must be one of running, succeeded, failed"),
        ("p,1000,10,1,1001,,LS,Running,100,200,100", "row '' gpu_milli 1001 must lie in 1..1000"),
        ("p,1000,10,2,500,,LS,Running,100,200,100", "row '' gpu_milli 500 needs gpus 1 (a share never spans devices)"),
        ("p,1000,10,0,500,,LS,Running,100,200,100", "gpu_milli '500' needs num_gpu 1, not 0"),
        ("p,0,0,0,0,,LS,Running,100,200,100", "row '' asks for no GPU, no CPU and no memory"),
        ("p,1000,10,one,1000,,LS,Running,100,200,100", "num_gpu 'one' is not a number"),
        ("p0,1000,10,1,1000,,LS,Running,100,200,100", "name 'p0' occurs twice: ids must be unique"),
    ],
)
def test_a_bad_row_is_dropped_with_its_column_value_and_rule(tmp_path: Path, row: str, explained: str) -> None:
    file = written(tmp_path, SOUND + row + "\n")
    trace = load(file, "openb", skip_bad_rows=True)
    assert [job.name for job in trace.jobs] == ["p0"]
    assert trace.rows == 2
    assert str(trace.dropped[0]).startswith(f"line 3: {explained}")
    with pytest.raises(TraceError, match="line 3"):
        load(file, "openb", strict=True)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text(HEADER.replace(",qos", "") + SOUND.replace(",LS", ""))
    with pytest.raises(TraceError, match="column 'qos' is missing"):
        load(file, "openb")
