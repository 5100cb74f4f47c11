"""Traces of the programs of new pairs, each alone: what the simulation predicts these pairs from.

    scripts/gpu-share traces [--state FOLDER] [--out FOLDER] [--budget SECONDS]
    python -m bench.gpu_share_traces times|traced FILE SECONDS PROGRAM[,PROGRAM…]      (started by the first)

Each program runs twice: without headway, to time a request (back to back, and in a stream where it is one below), and
with the tracing shim. ``FOLDER/traces`` gets NAME.parquet, with these times and the kernels of a graph in its metadata.
What is there is not recorded again.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu_share_rows import rows
from headway.gpu.profiling.cupti import CUPTI_KERNEL, join
from headway.gpu.profiling.kernels import trace_of
from headway.gpu.profiling.recording import Recorded
from headway.gpu.profiling.run import run
from headway.gpu.programs import trace as kernel_trace
from headway.gpu.programs.trace import KernelTrace

ONCE = ("prefill-1024-10ms", "convnet-poisson")
"""Programs above that are another one with pauses: that one's trace is theirs."""
TIMED_S, WARM = 1.5, 12
KEPT = {"embedding-poisson": 16, "short-and-long": 6}
KEPT_REQUESTS = 4
"""Requests of a trace that are kept, the last ones."""
NODES = 4096
Row = dict[str, Any]


def names() -> list[str]:
    """Every program that has to be recorded."""
    from bench.gpu_share_aa_programs import ABOVE, BELOW

    return [name for name in (*ABOVE, *BELOW) if name not in ONCE]


# --- the processes --------------------------------------------------------------------------------------------------


def main() -> None:
    """Run programs one after another, and write a line for each."""
    what, file, seconds, wanted = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4].split(",")
    end = time.monotonic() + seconds
    os.sched_setaffinity(0, {2, 3})
    import torch

    from bench.gpu_share_aa_programs import ABOVE, BELOW

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    torch.backends.cudnn.benchmark = False

    def mark() -> Callable[[], None]:
        event = torch.cuda.Event()
        event.record()
        return event.synchronize

    for name in wanted:
        if time.monotonic() + 8 > end:
            print("the budget is spent; again to go on", flush=True)
            return
        request = {**ABOVE, **BELOW}[name][0]()
        for _ in range(WARM):
            request()
            torch.cuda.synchronize()
        time.sleep(0.05)
        row: Row = {"program": name, "above": name in ABOVE}
        row |= _timed(request, torch.cuda.synchronize, mark) if what == "times" else _marked(name, request, torch)
        with file.open("a") as out:
            out.write(json.dumps(row) + "\n")
        print({key: value for key, value in row.items() if key != "ends"}, flush=True)
        del request
        torch.cuda.empty_cache()


def _timed(request: Callable[[], int], wait: Callable[[], None], mark: Callable[[], Callable[[], None]]) -> Row:
    """Times of requests that are waited for, by kind, and the rate of a stream of them."""
    took: dict[int, list[int]] = {}
    end = time.monotonic() + TIMED_S
    while time.monotonic() < end:
        begin = time.monotonic_ns()
        kind = request()
        wait()
        took.setdefault(kind, []).append(time.monotonic_ns() - begin)
    begin, done = time.monotonic_ns(), 0
    before = mark()
    while time.monotonic_ns() - begin < TIMED_S * 1e9:
        request()
        after = mark()
        before()
        before, done = after, done + 1
    before()
    stream = (time.monotonic_ns() - begin) / done / 1e6
    every = [each for times in took.values() for each in times]
    by_kind = {str(kind): round(float(np.median(times)) / 1e6, 4) for kind, times in sorted(took.items())}
    return {"request_ms": float(np.median(every)) / 1e6, "by_kind_ms": by_kind, "stream_ms": stream}


def _marked(name: str, request: Callable[[], int], torch: Any) -> Row:
    """When the recorded requests began and ended."""
    ends, begin = [], time.monotonic_ns()
    for _ in range(KEPT.get(name, KEPT_REQUESTS) + 1):  # the first is cut off
        request()
        torch.cuda.synchronize()
        ends.append(time.monotonic_ns())
    time.sleep(0.03)
    return {"begin": begin, "ends": ends}


# --- what is kept of them -------------------------------------------------------------------------------------------


def traces(state: Path, library: Path, gpu: str, driver: str, budget_s: float) -> None:
    """Record what is missing, within the budget."""
    end, folder = time.monotonic() + budget_s, state / "traces"
    folder.mkdir(parents=True, exist_ok=True)
    environment = {"PYTHONPATH": f"src:{Path.cwd()}", "PYTHONUNBUFFERED": "1"}

    def words(what: str, file: Path, wanted: list[str]) -> list[str]:
        left = f"{end - time.monotonic():.0f}"
        return [sys.executable, "-m", "bench.gpu_share_traces", what, str(file), left, ",".join(wanted)]

    times, marks = state / "times.jsonl", state / "marks.jsonl"
    known = {row["program"] for row in rows(times)}
    if missing := [name for name in names() if name not in known]:
        subprocess.run(words("times", times, missing), check=True, env={**os.environ, **environment})
    missing = [name for name in names() if not (folder / f"{name}.parquet").is_file()]
    if not missing or time.monotonic() + 20 > end:
        print("all traces are there" if not missing else "the budget is spent; again to go on", flush=True)
        return
    marks.unlink(missing_ok=True)
    recorded = run(words("traced", marks, missing), library=library, program="traces", environment=environment)
    joined = join(recorded)
    whole = trace_of(recorded, whole=True, times=joined, gpu=gpu, driver=driver)
    for row in rows(marks):
        alone = next((each for each in rows(times) if each["program"] == row["program"]), {})
        cut = _cut(whole, row, recorded, alone)
        if cut is not None:
            path = folder / f"{row['program']}.parquet"
            kernel_trace.write(path, cut)
            print(row["program"], len(cut), "launches,", path.stat().st_size, "bytes", flush=True)


def _cut(whole: KernelTrace, row: Row, recorded: Recorded, alone: Row) -> KernelTrace | None:
    """The launches of the last requests of a program, from 0 on; where its requests end, and a graph's kernels."""
    zero = int(whole.metadata["began_ns"])
    first, *ends = (each - zero for each in row["ends"])
    kept = (whole.launch_ns >= first) & (whole.launch_ns < ends[-1])
    if not kept.any():
        print(row["program"], "no launch was recorded", flush=True)
        return None
    shift = int(whole.launch_ns[kept][0])
    last = [int(np.searchsorted(whole.launch_ns[kept], end)) - 1 for end in ends]
    about = {key: whole.metadata[key] for key in ("gpu", "driver", "sms", "version", "times")}
    wait = whole.wait_ns[kept]
    return replace(
        whole,
        launch_ns=whole.launch_ns[kept] - shift,
        start_ns=whole.start_ns[kept] - shift,
        end_ns=whole.end_ns[kept] - shift,
        kernel=whole.kernel[kept],
        blocks=whole.blocks[kept],
        per_sm=whole.per_sm[kept],
        kind=whole.kind[kept],
        wait_ns=np.where(wait > 0, wait - shift, 0),
        metadata={
            **about,
            "program": row["program"],
            "requests": last,
            "alone": {key: alone[key] for key in ("request_ms", "by_kind_ms", "stream_ms") if key in alone},
            "graph": _nodes(recorded, zero + shift, row["ends"][-1]) if (whole.kind[kept] == 2).any() else [],
        },
    )


def _nodes(recorded: Recorded, begin: int, end: int) -> list[list[int]]:
    """The kernels of the last launch of a graph: from when to when, blocks and threads of each."""
    found = recorded.activities[recorded.activities["kind"] == CUPTI_KERNEL]
    found = found[(found["start_ns"] >= begin) & (found["start_ns"] < end)]
    numbers, counts = np.unique(found["correlation"], return_counts=True)
    if not len(numbers):
        return []
    mine = np.sort(found[found["correlation"] == numbers[np.flatnonzero(counts == counts.max())[-1]]], order="start_ns")
    begin = int(mine["start_ns"][0])
    columns = (mine["start_ns"] - begin, mine["end_ns"] - begin, mine["grid"].prod(1), mine["block"].prod(1))
    return [[int(value) for value in each] for each in zip(*columns, strict=True)][:NODES]


if __name__ == "__main__":
    main()
