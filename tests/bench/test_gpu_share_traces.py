"""Traces for predictions: which requests of a recording are kept, and what is known of them."""

from pathlib import Path

import numpy as np

from bench import gpu_share_traces
from headway.gpu.profiling.cupti import CUPTI_KERNEL
from headway.gpu.profiling.recording import _DTYPES, ACTIVITIES, GATES, KERNELS, LAUNCHES, STEPS, WAITS, Recorded
from headway.gpu.programs import trace as kernel_trace
from headway.gpu.programs.trace import KernelTrace

BEGAN = 1_000_000


def recorded() -> Recorded:
    """A graph of two kernels, launched twice."""
    rows = np.zeros(4, _DTYPES[ACTIVITIES])
    rows["kind"], rows["correlation"] = CUPTI_KERNEL, [1, 1, 2, 2]
    rows["start_ns"] = BEGAN + np.array([110, 140, 310, 345])
    rows["end_ns"] = rows["start_ns"] + 20
    rows["grid"], rows["block"] = (3, 2, 1), (64, 1, 1)
    empty = [np.empty(0, _DTYPES[which]) for which in (LAUNCHES, WAITS, GATES, KERNELS)]
    return Recorded(1, {}, *empty, rows, np.empty(0, _DTYPES[STEPS]))


def test_last_requests_are_kept_and_begin_at_zero(tmp_path: Path) -> None:
    launch = np.array([0, 20, 100, 120, 300, 320], np.int64)
    whole = KernelTrace(
        launch,
        launch + 5,
        launch + 15,
        np.array(["a", "b"] * 3),
        np.full(6, 4, np.int32),
        np.ones(6, np.int32),
        np.array([1, 1, 1, 2, 1, 2], np.int8),
        np.array([0, 50, 0, 190, 0, 390], np.int64),
        {"began_ns": BEGAN, "gpu": "G", "driver": "1", "sms": 132, "version": "0", "times": "cupti", "command": ["x"]},
    )
    row = {"program": "one", "begin": BEGAN - 5, "ends": [BEGAN + 60, BEGAN + 200, BEGAN + 400]}
    cut = gpu_share_traces._cut(whole, row, recorded(), {"program": "one", "request_ms": 0.1, "stream_ms": 0.09})
    assert cut is not None
    kernel_trace.write(tmp_path / "one.parquet", cut)
    again = kernel_trace.read(tmp_path / "one.parquet")
    assert again.launch_ns.tolist() == [0, 20, 200, 220]
    assert again.wait_ns.tolist() == [0, 90, 0, 290]
    assert again.metadata["requests"] == [1, 3]
    assert again.metadata["alone"] == {"request_ms": 0.1, "stream_ms": 0.09}
    assert again.metadata["graph"] == [[0, 20, 6, 64], [35, 55, 6, 64]]
    assert "command" not in again.metadata


def test_a_program_that_launched_nothing_has_no_trace() -> None:
    empty = np.array([5], np.int64)
    whole = KernelTrace(*[empty] * 3, np.array(["a"]), *[np.ones(1, np.int32)] * 3, empty * 0, {"began_ns": BEGAN})
    row = {"program": "one", "begin": BEGAN, "ends": [BEGAN + 60, BEGAN + 200]}
    assert gpu_share_traces._cut(whole, row, recorded(), {}) is None
