"""What the simulation predicts of the known and new pairs of the dial, from traces of each program alone.

    python -m bench.gpu_share_new predict OUT.jsonl TRACES [--only HIGH+LOW;HIGH+LOW] [--seconds 1]
    python -m bench.gpu_share_new table OUT.jsonl PAIRS.csv      beside what was measured, as CSV

TRACES is a folder of what ``scripts/gpu-share traces`` recorded. Times are those without a profiler: CPU times are
scaled, or durations where the GPU is the bound, until a request alone takes what it took without one.
"""

import argparse
import csv
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu_share_keep import short
from bench.gpu_share_rows import rows
from bench.kernels import CPU, _cut, _graphs_take_cpu, _played, _scaled, _search, _without_pauses
from headway.experiment.gpu.predict import predict
from headway.formats.kernels import trace as kernel_trace
from headway.formats.kernels.programs import from_trace
from headway.formats.kernels.trace import KernelTrace
from headway.kernels import alone
from headway.kernels.device import Device
from headway.kernels.program import Client, Program
from headway.units import MILLISECOND

BASES = {"prefill-1024-10ms": ("prefill-1024", 10.0), "convnet-poisson": ("convnet", 0.0)}
"""Programs that are another one, with a pause in ms."""
POISSON = {"convnet-poisson": 0.5, "embedding-poisson": 0.5}
"""Programs whose arrivals are drawn, at this part of what they can do."""
DRAWN = 96
"""Requests with drawn arrivals before they start over."""
BOUND = 0.75
Row = dict[str, Any]


def took(program: Program) -> float:
    """The mean time of a pass through the program alone, without the first one."""
    count = len(program.launches)
    ends = []
    for moment in alone.moments(Client("one", program), Device()):
        if (moment.number + 1) % count == 0:
            ends.append(max(moment.ended, moment.free))
        if len(ends) == 3:
            break
    return (ends[2] - ends[0]) / 2


def without_profiler(trace: KernelTrace, below: bool) -> Program:
    """The program of a trace, at the times that it takes without a profiler."""
    ends = trace.metadata["requests"]
    kept = slice(ends[0] + 1, ends[-1] + 1)
    program = _without_pauses(_graphs_take_cpu(from_trace(_cut(trace, kept), trace.program), trace))
    if below:  # the next request is launched while this one runs
        last = {end - kept.start for end in ends[1:]}
        launches = tuple(each._replace(waits=each.waits and at not in last) for at, each in enumerate(program.launches))
        program = replace(program, launches=launches)
    told = trace.metadata["alone"]
    each_ms = told["stream_ms"] if below else float(np.mean([*told["by_kind_ms"].values()]))
    wanted = each_ms * MILLISECOND * (len(ends) - 1)
    if program.duration > BOUND * wanted:
        return _scaled(program, CPU, _search(lambda by: took(_scaled(program, CPU, by)), wanted))
    return _scaled(program, _search(lambda by: took(_scaled(program, by, 1.0)), wanted), 1.0)


def with_arrivals(program: Program, load: float) -> Program:
    """Requests at drawn times, at this part of what the program can do: each waits for the one before it."""
    draw, launches = np.random.default_rng(0), list[Any]()
    mean = took(program) / len(program.request_starts)
    edges = [*program.request_starts, len(program.launches)]
    due = ended = 0.0
    for number in range(DRAWN):
        at = number % (len(edges) - 1)
        part = list(program.launches[edges[at] : edges[at + 1]])
        due += float(draw.exponential(mean / load))
        begins = max(due, ended)
        if launches:
            launches[-1] = launches[-1]._replace(think=round(begins - ended))
        ended = begins + mean
        launches += part
    return replace(program, launches=tuple(launches))


def prepared(traces: Path, name: str, below: bool, folder: Path) -> Path:
    """The trace of a program as it runs without a profiler, in a folder."""
    base, _ = BASES.get(name, (name, 0.0))
    recorded = kernel_trace.read(traces / f"{base}.parquet")
    program = without_profiler(recorded, below)
    if name in POISSON:
        program = with_arrivals(program, POISSON[name])
    path = folder / f"{name}.parquet"
    if not path.is_file():
        kernel_trace.write(path, _played(program, recorded, took(program) / MILLISECOND))
    return path


def predictions(traces: Path, seconds: float, only: set[str], done: set[str]) -> Iterator[Row]:
    """A row for each pair that is not there yet."""
    from bench.gpu_share_aa_programs import NEW_PAIRS, PAIRS

    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        for high, low in (*NEW_PAIRS, *PAIRS):
            if f"{high}+{low}" in done or (only and f"{high}+{low}" not in only):
                continue
            above = prepared(traces, high, False, folder)
            below = [str(prepared(traces, each, True, folder)) for each in low.split(",")]
            pause = round(BASES.get(high, ("", 0.0))[1] * MILLISECOND)
            found = predict(str(above), below, think=pause, seconds=seconds, write=lambda _: None)
            modes = {
                mode: short({"slowdown": each["slowdown_p50"], "shares": [*each["throughput_shares"].values()][1:]})
                for mode, each in found["modes"].items()
            }
            yield {"high": high, "low": low, "modes": modes}


def main() -> None:
    """Predict, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("predict", "table"))
    parser.add_argument("file", type=Path)
    parser.add_argument("other", type=Path, help="predict: the folder of traces; table: pairs.csv")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=1.0)
    given = parser.parse_args()
    if given.what == "predict":
        done = {f"{row['high']}+{row['low']}" for row in rows(given.file)}
        for row in predictions(given.other, given.seconds, {*filter(None, given.only.split(";"))}, done):
            with given.file.open("a") as out:
                out.write(json.dumps(row) + "\n")
            print(row, flush=True)
        return
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerows(table(list(rows(given.file)), list(csv.DictReader(given.other.open()))))


def table(said: list[Row], measured: list[Row]) -> Iterator[list[str]]:
    """Predicted and measured, of each pair its last measurement at an aim of 1.05."""
    yield [
        *("above", "below", "build", "below_predicted", "below_measured", "below_off_pct"),
        *("mps_predicted", "mps_measured", "mps_off_pct", "mps_below_predicted", "mps_below_measured"),
        "mps_below_off_pct",
    ]
    came = {(row["above"], row["below"]): row for row in measured if row["aim"] == "1.05"}
    for row in said:
        real = came.get((row["high"], row["low"]))
        if real is None:
            continue
        gate, mps = row["modes"]["gate"], row["modes"]["mps"]
        told = sum(gate["shares"]) / len(gate["shares"]), sum(mps["shares"]) / len(mps["shares"])
        saw = _mean(real["below_rate"]), _mean(real["mps_below_rate"])
        slow = float(real["mps_p50"])
        yield [
            *(row["high"], row["low"], real["build"], f"{told[0]:.3f}", f"{saw[0]:.3f}", _off(told[0], saw[0])),
            *(f"{mps['slowdown']:.2f}", f"{slow:.2f}", _off(mps["slowdown"], slow)),
            *(f"{told[1]:.3f}", f"{saw[1]:.3f}", _off(told[1], saw[1])),
        ]


def _mean(text: str) -> float:
    parts = [float(part) for part in text.split("+")]
    return sum(parts) / len(parts)


def _off(told: float, saw: float) -> str:
    return f"{100 * (told / saw - 1):+.0f}" if saw else ""


if __name__ == "__main__":
    main()
