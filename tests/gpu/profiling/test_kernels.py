"""From what the shim recorded to a kernel trace and to the rows of the store."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from headway.errors import ProfileError
from headway.gpu.profiling.coverage import coverage_of
from headway.gpu.profiling.kernels import kernel_rows, steady, trace_of
from headway.gpu.profiling.recording import Recorded
from headway.gpu.programs import trace as kernel_trace
from tests.gpu.profiling.recordings import KERNEL, recorded, text_of

KERNELS = {1: (KERNEL, text_of("alpha")), 2: (KERNEL, text_of("beta"))}


def alternating(rounds: int, lost: int = 0) -> Recorded:
    """Alpha and beta in turn, every microsecond; each takes 300 and 500 ns; after each beta a wait."""
    launches, activities, waits = [], [], []
    for at in range(2 * rounds):
        launch = 1_000_000 + 1_000 * at
        launches.append((1 + at % 2, launch, 1))
        took = 500 if at % 2 else 300
        activities.append((launch + 100, launch + 100 + took, at + 1, "beta" if at % 2 else "alpha"))
        if at % 2:
            waits.append((launch + 50, launch + 700))
    return recorded(launches, activities[: len(activities) - lost], KERNELS, waits, hook_ns=900, hooked=3)


def test_a_trace_begins_where_all_kernels_are_loaded_and_can_be_written(tmp_path: Path) -> None:
    trace = trace_of(alternating(5), ["python", "serve.py"], program="api", gpu="stub", driver="1")
    assert trace.launch_ns.tolist() == [1_000 * at for at in range(8)]
    assert (trace.end_ns - trace.start_ns).tolist() == [300, 500] * 4
    assert trace.wait_ns.tolist() == [0, 1_700, 0, 3_700, 0, 5_700, 0, 7_700]
    assert trace.metadata["began_ns"] == 1_002_000
    assert (trace.metadata["times"], trace.metadata["sms"], trace.program) == ("cupti", 132, "api")
    kernel_trace.write(tmp_path / "api.parquet", trace)
    back = kernel_trace.read(tmp_path / "api.parquet")
    assert back.kernel.tolist() == trace.kernel.tolist()
    assert back.metadata == trace.metadata


def test_launches_that_had_not_ended_are_left_out_of_it() -> None:
    assert len(trace_of(alternating(5, lost=3), whole=True)) == 7


def test_the_store_gets_durations_without_the_launch_that_loaded_the_kernel() -> None:
    made = alternating(5)
    made.activities["end_ns"][0] += 5_000_000
    rows = {row["name"]: row for row in kernel_rows(made)}
    assert rows[text_of("alpha")]["longest_ns"] == 300
    assert rows[text_of("alpha")]["samples"] == 4
    assert rows[text_of("beta")]["work_ns"] == 500
    assert rows[text_of("beta")]["id"] == f"{2:016x}"


def test_without_cupti_times_come_from_sampled_durations() -> None:
    made = recorded([(1 + at % 2, 100_000 * at, 1) for at in range(8)], [], KERNELS, why="no CUPTI")
    with pytest.raises(ProfileError, match="no times of the GPU: no CUPTI"):
        trace_of(made)
    made.kernels["work_ns"], made.kernels["samples"] = (40_000, 90_000), (5, 5)
    trace = trace_of(made)
    assert (trace.end_ns - trace.start_ns).tolist() == [40_000, 90_000] * 3
    assert (trace.start_ns - trace.launch_ns).tolist() == [6_000] * 6
    assert trace.metadata["times"] == "sampled"
    assert [row["work_ns"] for row in kernel_rows(made)] == [40_000, 90_000]


def test_nothing_is_left_of_kernels_that_were_launched_once() -> None:
    with pytest.raises(ProfileError, match="every kernel was launched once"):
        trace_of(recorded([(1, 0, 1), (2, 9, 1)], [(5, 6, 1, "alpha"), (10, 11, 2, "beta")], KERNELS))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60))
def test_no_first_launch_is_kept_and_what_is_kept_follows_the_loading(kernels: list[int]) -> None:
    kept = steady(np.array(kernels, np.uint64)).tolist()
    first = {kernels.index(kernel) for kernel in kernels}
    assert not any(kept[at] for at in first)
    early = [at for at in first if at < len(kernels) // 2]
    assert kept == [at > max(early, default=-1) and at not in first for at in range(len(kernels))]


def test_coverage_is_the_shims_count_against_cuptis() -> None:
    found = coverage_of(alternating(5))
    assert (found.seen, found.counted, found.equal, found.ns_a_launch) == (10, 10, True, 300)
    missed = coverage_of(recorded([(1, 0, 1)], [(5, 6, 1, "alpha"), (7, 8, 2, "beta")], KERNELS))
    assert (missed.seen, missed.counted, missed.equal, missed.ns_a_launch) == (1, 2, False, 0)
    with pytest.raises(ProfileError, match="coverage is not known: HEADWAY_CUPTI=off"):
        coverage_of(recorded([(1, 0, 1)], [], KERNELS, why="HEADWAY_CUPTI=off"))
