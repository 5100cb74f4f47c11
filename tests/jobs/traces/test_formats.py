"""Each format's sample gives exactly the jobs it describes."""

from contextlib import suppress
from pathlib import Path

import pytest

from headway.errors import ExperimentError, TraceError
from headway.jobs.model.job import Job, Outcome
from headway.jobs.model.submission import Terms
from headway.jobs.traces import FORMATS, guess, load
from headway.units import HOUR, MINUTE, SECOND

SAMPLES = Path(__file__).parents[2] / "samples"


def _samples() -> dict[str, list[Path]]:
    """The samples of jobs by the format that they are taken for; that of any table has none without a mapping."""
    found: dict[str, list[Path]] = {}
    for path in sorted(path for path in SAMPLES.iterdir() if path.is_file() and "nodes" not in path.name):
        with suppress(TraceError):
            found.setdefault(guess(path), []).append(path)
    return found


def test_every_registered_format_has_a_sample_that_is_recognised_and_reads() -> None:
    found = _samples()
    assert set(found) == set(FORMATS) - {"table", "slurm-queue"}, (
        "tests/samples has a sample of each format, which no other reader takes; two are chosen by name"
    )
    for name, paths in found.items():
        for trace in (load(path) for path in paths):
            assert trace.format == name
            assert trace.jobs[0].submit == 0
            assert 0 < len(trace.jobs) <= trace.rows - len(trace.dropped)
            assert [job.id for job in trace.jobs] == list(range(len(trace.jobs)))


@pytest.mark.parametrize("name", ["headway", "helios-csv", "philly-csv", "synergy"])
def test_a_sample_reads_without_a_dropped_row(name: str) -> None:
    trace = load(SAMPLES / f"{name.removesuffix('-csv')}.csv", name, strict=True)
    assert len(trace.jobs) == trace.rows > 0
    assert trace.dropped == ()


def test_synergy_work_is_iterations_times_iteration_time_in_whole_seconds() -> None:
    jobs = load(SAMPLES / "synergy.csv", "synergy").jobs
    assert [job.work // SECOND for job in jobs] == [3002, 7200, 1341, 1100, 585]
    assert [job.submit // SECOND for job in jobs] == [0, 60, 60, 780, 1380]
    assert (jobs[1].name, jobs[1].model, jobs[1].gpus) == ("1", "gnmt", 2)


def test_philly_rows_are_sorted_named_by_line_and_duplicates_are_kept() -> None:
    trace = load(SAMPLES / "philly.csv", "philly-csv")
    assert [job.name for job in trace.jobs] == ["philly-6", "philly-3", "philly-2", "philly-4", "philly-5"]
    assert [job.submit // SECOND for job in trace.jobs] == [0, 30, 4500, 4500, 143_999]
    assert (trace.jobs[1].tenant, trace.jobs[1].work, trace.jobs[1].gpus) == ("cc22dd", 2 * HOUR, 4)
    assert trace.notes == (
        "1 blank line skipped",
        "the file is not sorted by submit time: sorted",
        "1 duplicate row kept",
    )


def test_a_gzip_file_reads_as_the_plain_one() -> None:
    assert load(SAMPLES / "philly.csv.gz", "philly-csv") == load(SAMPLES / "philly.csv", "philly-csv")


def test_helios_ids_become_names_and_seconds_nanoseconds() -> None:
    jobs = load(SAMPLES / "helios.csv", "helios-csv").jobs
    assert jobs[0] == Job(0, 0, 48 * HOUR, gpus=32, name="900001#0")
    assert jobs[2] == Job(2, 35 * SECOND, 72 * SECOND, gpus=8, name="900007#2")


def test_headway_columns_map_to_every_field_and_empty_cells_to_defaults() -> None:
    first, second, third = load(SAMPLES / "headway.csv", "headway").jobs
    assert first == Job(
        0, 0, HOUR, gpus=8, name="vision-1", tenant="vision", partition="a100", gpu_types=("a100", "h100"), nodes=1,
        cpu_milli=32_000, memory_bytes=64 * 10**9, estimate=2 * HOUR, priority=1, qos="normal", user="ada",
        checkpoint=12 * SECOND + SECOND // 2, restore=20 * SECOND, checkpoint_every=30 * MINUTE,
        communication_ppm=150_000, model="resnet50", reservation="course",
    )  # fmt: skip
    assert second == Job(
        1, 60_500_000_000, 15 * MINUTE, gpus=1, gpu_milli=500, name="speech-1", tenant="speech", cpu_milli=2500,
        user="bo", outcome=Outcome.FAILS, outcome_after=30_250_000_000, retries=2,
        terms=Terms("afterany:vision-1", 2 * MINUTE, "bo/tune", "tune", 4, (("matlab", 2),), 10),
    )  # fmt: skip
    assert (third.priority, third.preemptible, third.checkpoint_every, third.patience) == (-3, False, 0, 10 * MINUTE)
    assert third.outcome is Outcome.CANCELLED


def test_windows_line_ends_a_byte_order_mark_and_spaces_are_harmless(tmp_path: Path) -> None:
    plain = (SAMPLES / "helios.csv").read_text()
    path = tmp_path / "x.csv"
    path.write_bytes(b"\xef\xbb\xbf" + plain.replace(",", " , ").replace("\n", "\r\n").encode())
    assert load(path, "helios-csv").jobs == load(SAMPLES / "helios.csv", "helios-csv").jobs


def test_an_unknown_format_suggests_the_nearest() -> None:
    with pytest.raises(ExperimentError, match=r"unknown trace format 'philly'; did you mean 'philly-csv'\?"):
        load("whatever.csv", "philly")
