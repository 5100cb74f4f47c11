"""What the simulation predicts of the known and new pairs of the dial, from traces of each program alone.

    python -m bench.gpu_share_new predict OUT.jsonl TRACES [--only HIGH+LOW;HIGH+LOW] [--seconds 1] [--first 29]
        [--alone CSV]
    python -m bench.gpu_share_new table OUT.jsonl PAIRS.csv      beside what was measured, as CSV

TRACES is a folder of what ``scripts/gpu-share traces`` recorded. Times are those without a profiler: CPU times are
scaled, or durations where the GPU is the bound, until a request alone takes what it took without one. ``--alone``: the
table of a session, of which only what a request of the program above took alone there is used (``alone_p50_ms``, and
``alone_p95_ms`` where it has that).

Rates below are parts of those alone. Several programs below are measured against their rates alone together, and
predicted so: ``together`` is what each does then of its rate by itself.
"""

import argparse
import csv
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from bench.gpu_share_keep import short
from bench.gpu_share_rows import rows
from bench.kernels import CPU, _cut, _played, _scaled, _search, _without_pauses
from headway.gpu.experiment.in_memory import (
    COLD_PPM,
    COLD_UNTIL,
    SLEEP,
    Setting,
    clients_of,
    compare,
    on_real_cpus,
)
from headway.gpu.model import alone
from headway.gpu.model.device import Device
from headway.gpu.model.program import Client, Program, on_idle_cpu
from headway.gpu.predict import predict
from headway.gpu.programs import trace as kernel_trace
from headway.gpu.programs.load import from_trace
from headway.gpu.programs.trace import KernelTrace
from headway.units import MILLISECOND, SECOND

BASES = {"prefill-1024-10ms": ("prefill-1024", 10.0), "convnet-poisson": ("convnet", 0.0)}
"""Programs that are another one, with a pause in ms."""
POISSON = {"convnet-poisson": 0.5, "embedding-poisson": 0.5}
"""Programs whose arrivals are drawn, at this part of what they can do."""
DRAWN = 96
"""Requests with drawn arrivals before they start over."""
BOUND = 0.75
ALIKE = 1.5
MPS_COLUMNS = (("mps100_p50", "mps_p50"), ("mps100_below", "mps_below_rate"))
"""Of MPS without a limit on SMs, as tables have them; ``one-build.csv`` has none."""
AIM = 1.05
Row = dict[str, Any]
Alone = tuple[float, float]
"""Milliseconds that a request takes alone: p50, and p95 where it is known, else 0."""


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


def kinds_of(trace: KernelTrace) -> list[str]:
    """The kind of each request of a trace, the first included: of more GPU time the one that takes longer alone.

    Where kinds take the same time it does not matter.
    """
    ends = trace.metadata["requests"]
    busy = np.add.reduceat(trace.end_ns - trace.start_ns, [0, *(end + 1 for end in ends[:-1])])
    kinds = sorted(trace.metadata["alone"]["by_kind_ms"].items(), key=lambda kind: kind[1])
    edges = np.sort(np.argsort(np.diff(np.sort(busy)))[::-1][: len(kinds) - 1])
    most = [*np.sort(busy)[edges], busy.max()]
    return [kinds[int(np.searchsorted(most, each))][0] for each in busy]


def without_profiler(trace: KernelTrace, below: bool) -> Program:
    """The program of a trace, at the times that it takes without a profiler; requests of all kinds alike often."""
    told, every = trace.metadata["alone"], trace.metadata["requests"]
    count = (len(every) - 1) // len(told["by_kind_ms"]) * len(told["by_kind_ms"])
    ends = every[-count - 1 :]
    kept = slice(ends[0] + 1, ends[-1] + 1)
    program = _without_pauses(from_trace(_cut(trace, kept), trace.program))
    if below:  # the next request is launched while this one runs
        last = {end - kept.start for end in ends[1:]}
        launches = tuple(each._replace(waits=each.waits and at not in last) for at, each in enumerate(program.launches))
        program = replace(program, launches=launches)
    each_ms = [told["by_kind_ms"][kind] for kind in kinds_of(trace)[-count:]]
    wanted = (told["stream_ms"] * count if below else sum(each_ms)) * MILLISECOND
    if program.duration > BOUND * wanted:
        return _scaled(program, CPU, _search(lambda by: took(_scaled(program, CPU, by)), wanted))
    return _scaled(program, _search(lambda by: took(_scaled(program, by, 1.0)), wanted), 1.0)


def with_arrivals(program: Program, load: float) -> Program:
    """Requests at drawn times, at this part of what the program can do: each waits for the one before it.

    After a pause a processor is slower, as in a run with pauses between all requests.
    """
    draw, launches = np.random.default_rng(0), list[Any]()
    cold = on_idle_cpu(program, COLD_PPM, COLD_UNTIL)
    mean, slow = (took(each) / len(program.request_starts) for each in (program, cold))
    edges = [*program.request_starts, len(program.launches)]
    due = ended = 0.0
    for number in range(DRAWN):
        at = number % (len(edges) - 1)
        due += float(draw.exponential(mean / load))
        begins = max(due, ended)
        rests = begins - ended >= SLEEP
        if launches:
            launches[-1] = launches[-1]._replace(think=round(begins - ended))
        ended = begins + (slow if rests else mean)
        launches += (cold if rests else program).launches[edges[at] : edges[at + 1]]
    return replace(program, launches=tuple(launches))


def alike(traces: Path, name: str) -> bool:
    """Whether requests of all kinds take about as long: only then does their median say what one takes."""
    recorded = kernel_trace.read(traces / f"{BASES.get(name, (name, 0.0))[0]}.parquet")
    each_ms: list[float] = [*recorded.metadata["alone"]["by_kind_ms"].values()]
    return max(each_ms) < ALIKE * min(each_ms)


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


def together(below: list[str], seconds: float) -> list[float]:
    """What each of several programs does of its rate by itself while all of them run, and nothing is above them."""
    setting = Setting(tuple(below), seconds=seconds)
    row = compare(setting, ["mps"], on_real_cpus(clients_of(setting), 0))[0]
    return [client["throughput_share"] for client in row["clients"]]


def predictions(
    traces: Path, seconds: float, first: float, only: set[str], done: set[str], took_alone: dict[str, Alone]
) -> Iterator[Row]:
    """A row for each pair that is not there yet. ``took_alone``: of a request, by pair, where that is known."""
    from bench.gpu_share_aa_programs import NEW_PAIRS, PAIRS

    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        for high, low in (*NEW_PAIRS, *PAIRS):
            if f"{high}+{low}" in done or (only and f"{high}+{low}" not in only):
                continue
            above = prepared(traces, high, False, folder)
            below = [str(prepared(traces, each, True, folder)) for each in low.split(",")]
            pause = round(BASES.get(high, ("", 0.0))[1] * MILLISECOND)
            alone_ms, p95_ms = took_alone.get(f"{high}+{low}", (0.0, 0.0)) if alike(traces, high) else (0.0, 0.0)
            found = predict(
                *(str(above), below),
                think=pause,
                alone=round(alone_ms * MILLISECOND),
                alone_p95=round(p95_ms * MILLISECOND),
                first=round(first * SECOND),
                seconds=seconds,
                modes=("gate",) if first else ("mps",),
                write=lambda _: None,
            )
            modes = {
                mode: short({"slowdown": each["slowdown_p50"], "shares": [*each["throughput_shares"].values()][1:]})
                for mode, each in found["modes"].items()
            }
            more = {"together": short(together(below, seconds))} if len(below) > 1 else {}
            yield {"high": high, "low": low, "alone_ms": alone_ms, "alone_p95_ms": p95_ms, "modes": modes, **more}


def took_alone_in(file: Path) -> dict[str, Alone]:
    """What a request alone takes, by pair in ``one-build.csv``, or by program above in ``alone.jsonl``.

    Of a table that has several rows of a pair the one that predictions are compared with counts: its processors were
    not those of another aim, a minute later.
    """
    from bench.gpu_share_aa_programs import NEW_PAIRS, PAIRS

    if file.suffix == ".jsonl":
        told = {row["program"]: (row["p50_ms"], row.get("p95_ms", 0.0)) for row in rows(file)}
        return {f"{high}+{low}": told[high] for high, low in (*NEW_PAIRS, *PAIRS) if high in told}
    return {
        f"{row['above']}+{row['below']}": (float(row["alone_p50_ms"]), float(row.get("alone_p95_ms") or 0))
        for row in csv.DictReader(file.read_text().splitlines())
        if compared(row)
    }


def compared(row: Row) -> bool:
    """Whether a measured row is one that predictions are made of: at an aim of 1.05, with all SMs."""
    return float(row["aim"]) == AIM and int(row.get("sms") or 100) == 100


def main() -> None:
    """Predict, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("predict", "table"))
    parser.add_argument("file", type=Path)
    parser.add_argument("other", type=Path, help="predict: the folder of traces; table: pairs.csv")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--first", type=float, default=0.0, help="from the floor, for so many seconds; 0: settled")
    parser.add_argument("--alone", type=Path, help="a CSV with above, below and alone_p50_ms")
    given = parser.parse_args()
    if given.what == "predict":
        done = {f"{row['high']}+{row['low']}" for row in rows(given.file)}
        took_alone = took_alone_in(given.alone) if given.alone else {}
        only = {*filter(None, given.only.split(";"))}
        for row in predictions(given.other, given.seconds, given.first, only, done, took_alone):
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
    came = {(row["above"], row["below"]): row for row in measured if compared(row)}
    for row in said:
        real = came.get((row["high"], row["low"]))
        if real is None:
            continue
        whole = row.get("together", [1.0] * len(row["modes"]["gate"]["shares"]))
        told = {mode: fmean(np.divide(each["shares"], whole)) for mode, each in row["modes"].items()}
        slow, rate = (next((real[name] for name in names if name in real), "") for names in MPS_COLUMNS)
        saw = fmean(map(float, real["below_rate"].split("+")))
        cells = [row["high"], row["low"], real["build"], f"{told['gate']:.3f}", f"{saw:.3f}", _off(told["gate"], saw)]
        if slow and "mps" in told:
            said_slow, beside = row["modes"]["mps"]["slowdown"], fmean(map(float, rate.split("+")))
            cells += [f"{said_slow:.2f}", f"{float(slow):.2f}", _off(said_slow, float(slow))]
            cells += [f"{told['mps']:.3f}", f"{beside:.3f}", _off(told["mps"], beside)]
        yield cells + [""] * (12 - len(cells))


def _off(told: float, saw: float) -> str:
    return f"{100 * (told / saw - 1):+.0f}" if saw else ""


if __name__ == "__main__":
    main()
