"""Predictions of new pairs: times without a profiler, drawn arrivals, and the table beside what was measured."""

from pathlib import Path

import numpy as np
import pytest

from bench import gpu_share_new as new
from headway.formats.kernels import trace as kernel_trace

TRACES = Path(__file__).resolve().parents[2] / "docs/background/results/h200-dial/traces"


@pytest.mark.parametrize(("name", "below"), [("convnet", False), ("prefill-512", False), ("mixed", True)])
def test_a_request_alone_takes_what_it_took_without_a_profiler(name: str, below: bool) -> None:
    trace = kernel_trace.read(TRACES / f"{name}.parquet")
    program = new.without_profiler(trace, below)
    told = trace.metadata["alone"]
    wanted = told["stream_ms"] if below else told["request_ms"]
    assert new.took(program) / 3 / new.MILLISECOND == pytest.approx(wanted, rel=0.01)
    waits = sum(launch.waits for launch in program.launches)
    assert waits == (6 if below else 3)  # a solve waits twice by itself; that at the end of a request below is none


def test_drawn_arrivals_leave_the_load_that_is_asked_for() -> None:
    program = new.without_profiler(kernel_trace.read(TRACES / "convnet.parquet"), below=False)
    drawn = new.with_arrivals(program, 0.5)
    mean = new.took(program) / len(program.request_starts)
    pauses = np.array([launch.think for launch in drawn.launches if launch.waits])
    assert len(pauses) == new.DRAWN
    assert 0.35 < mean / (mean + pauses.mean()) < 0.65
    assert (pauses == 0).any()
    assert pauses.max() > mean


def test_what_was_predicted_is_beside_what_was_measured() -> None:
    said = [
        {
            "high": "a",
            "low": "b,c",
            "modes": {"gate": {"shares": [0.1, 0.3]}, "mps": {"slowdown": 2.0, "shares": [0.5, 0.5]}},
        },
        {"high": "never", "low": "b", "modes": {}},
    ]
    real = {"above": "a", "below": "b,c", "aim": "1.05", "build": "3", "mps_p50": "1.6", "mps_below_rate": "0.4+0.6"}
    header, row = new.table(said, [{**real, "below_rate": "0.2+0.3"}])
    assert row == ["a", "b,c", "3", "0.200", "0.250", "-20", "2.00", "1.60", "+25", "0.500", "0.500", "+0"]
    assert len(header) == len(row)
