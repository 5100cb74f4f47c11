"""Predictions of new pairs: times without a profiler, drawn arrivals, and the table beside what was measured."""

import csv
from pathlib import Path

import numpy as np
import pytest

from bench import gpu_share_new as new
from headway.gpu.programs import trace as kernel_trace

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


def test_requests_of_several_kinds_take_what_each_kind_takes() -> None:
    trace = kernel_trace.read(TRACES / "short-and-long.parquet")
    assert new.kinds_of(trace) == ["2048", "256"] * 3
    program = new.without_profiler(trace, below=False)
    told = trace.metadata["alone"]["by_kind_ms"]
    assert len(program.request_starts) == 4  # as many short as long ones
    assert new.took(program) / new.MILLISECOND == pytest.approx(2 * sum(told.values()), rel=0.01)
    assert not new.alike(TRACES, "short-and-long")
    assert new.alike(TRACES, "embedding-poisson")


def test_what_a_profiler_does_at_the_launch_of_a_graph_is_no_time_of_the_processor() -> None:
    trace = kernel_trace.read(TRACES / "decoder-graph.parquet")
    program = new.without_profiler(trace, below=False)
    kernels = sum(end - start for start, end, *_ in trace.metadata["graph"])
    assert all(launch.duration > kernels for launch in program.launches), "its kernels run one after another"


def test_several_below_are_compared_with_their_rates_together() -> None:
    gate, mps = {"shares": [0.1, 0.2]}, {"slowdown": 2.0, "shares": [0.2, 0.2]}
    said = [{"high": "a", "low": "b,c", "modes": {"gate": gate, "mps": mps}, "together": [0.5, 0.4]}]
    real = {"above": "a", "below": "b,c", "aim": "1.0500", "build": "f", "mps100_p50": "2.0", "mps100_below": "0.4+0.5"}
    _, row = new.table(said, [{**real, "below_rate": "0.35+0.35"}])
    assert row == ["a", "b,c", "f", "0.350", "0.350", "+0", "2.00", "2.00", "+0", "0.450", "0.450", "+0"]
    _, row = new.table(said, [{**real, "below_rate": "0.35+0.35", "mps100_p50": "", "mps100_below": ""}])
    assert row == ["a", "b,c", "f", "0.350", "0.350", "+0", *[""] * 6]


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


def test_other_aims_and_limits_are_no_rows_that_predictions_are_compared_with(tmp_path: Path) -> None:
    """A processor may be another one a minute later: the time alone is that of the row that is compared."""
    text = (
        "build,above,below,aim,sms,alone_p50_ms,alone_p95_ms,below_rate,mps100_p50,mps100_below\n"
        "f,a,b,1.0500,100,5.0,6.0,0.2,,\nf,a,b,1.0200,100,7.0,8.0,0.1,,\nf,a,b,1.0500,30,9.0,9.9,0.4,,\n"
    )
    (file := tmp_path / "one-build.csv").write_text(text)
    assert new.took_alone_in(file) == {"a+b": (5.0, 6.0)}
    file.write_text(text.replace(",alone_p95_ms", ",other"))
    assert new.took_alone_in(file) == {"a+b": (5.0, 0.0)}, "tables of before have no p95"
    said = [{"high": "a", "low": "b", "modes": {"gate": {"shares": [0.2]}}}]
    _, row = new.table(said, list(csv.DictReader(file.read_text().splitlines())))
    assert row[4:6] == ["0.200", "+0"]


def test_programs_alone_for_long_tell_of_all_their_pairs(tmp_path: Path) -> None:
    (file := tmp_path / "alone.jsonl").write_text('{"program": "vit-l", "p50_ms": 6.8, "p95_ms": 7.0}\n')
    assert new.took_alone_in(file) == {"vit-l+unet-b16": (6.8, 7.0), "vit-l+mixed": (6.8, 7.0)}
