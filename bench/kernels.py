"""Recorded kernel traces as shipped programs, and what the simulation says of pairs that were measured.

    python -m bench.kernels trim TRACE OUT --request-ms 4.3 [--stream] [--requests 3] [--cpu 0.68]
    python -m bench.kernels ship FOLDER          # FOLDER/NAME.parquet of all names below, into the shipped programs
    python -m bench.kernels predict --data FOLDER [--seconds 1] [--policies mps,mps-priority] [--set both]

``trim`` keeps the last requests of a recording and takes out what recording cost: launches are slower under tracing,
durations on the GPU are not. FOLDER of ``predict`` holds pairs*.jsonl, plain*.jsonl and slicing*.jsonl of
bench/gpu_share.py, as they are or in numbered folders.
"""

import argparse
import hashlib
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from headway.errors import InputError
from headway.gpu.experiment.in_memory import Setting, clients_of, compare
from headway.gpu.model import alone
from headway.gpu.model.device import Device
from headway.gpu.model.kernel import GRAPH
from headway.gpu.model.program import Client, Program
from headway.gpu.programs import trace as kernel_trace
from headway.gpu.programs.load import FOLDER, from_trace
from headway.gpu.programs.trace import KernelTrace, Longs
from headway.units import MILLISECOND

MEDIANS_MS = {
    "alexnet": 0.57,
    "vgg16": 1.15,
    "resnet50": 4.3,
    "googlenet": 5.5,
    "densenet201": 21.0,
    "vit": 4.0,
    "bert": 5.5,
    "gpt2": 50.0,
    "compiled": 1.15,
    "graph": 0.95,
}
"""A request alone without tracing, median, H200, driver 580, the day of the traces."""
STREAMS_MS = {"resnet101-b64": 11.75, "bert-b32": 6.0, "training": 28.6, "matmul": 1.6, "graph-b64": 6.7}
"""The same of programs that launch the next request while one runs: a second over their rate alone."""
CPU = 0.68
"""CPU time without tracing over that with it: the median of the launch-bound programs of MEDIANS_MS."""
NAME = 40
"""Characters of a kernel's name that are kept."""

FIT = {
    ("resnet50", "resnet101-b64"),
    ("vgg16", "resnet101-b64"),
    ("bert", "matmul"),
    ("graph", "resnet101-b64"),
    ("googlenet", "bert-b32"),
}
"""The pairs that the device's constants were fitted to; all others are held out."""
KEYS = {"mps": "mps-priority", "gate": "headway"}


# --- trimming -------------------------------------------------------------------------------------------------------


def trim(trace: KernelTrace, request_ms: float, *, requests: int, stream: bool, cpu: float) -> KernelTrace:
    """The last requests, so that one of them takes ``request_ms`` alone.

    A program that the GPU keeps waiting gets shorter CPU times, one that keeps the GPU busy all the time other
    durations (a GPU under steady load runs at other clocks than one that rests after each request).
    """
    waits = np.flatnonzero(trace.wait_ns)
    if len(waits) <= requests:
        raise InputError(f"--requests {requests}: the trace has {len(waits)} waits, and the first request is not used")
    kept = slice(int(waits[-requests - 1]) + 1, int(waits[-1]) + 1)
    program = _without_pauses(_graphs_take_cpu(from_trace(_cut(trace, kept)), trace))
    wanted = request_ms * MILLISECOND
    if stream:
        launches = tuple(each._replace(waits=False) for each in program.launches)
        program = _scaled(replace(program, launches=launches), cpu, 1.0)
        busy = (program.duration + len(launches) * Device().follow) / requests
        if busy > 0.75 * wanted:  # the GPU is what it waits for
            program = _scaled(program, 1.0, 1 + (wanted - busy) * requests / program.duration)
        else:
            program = _scaled(program, wanted * requests / sum(each.gap for each in launches) / cpu, 1.0)
    elif _median(_scaled(program, cpu, 1.0)) > wanted and program.duration > 0.75 * wanted * requests:
        program = _scaled(program, cpu, _search(lambda by: _median(_scaled(program, cpu, by)), wanted))
    else:
        program = _scaled(program, _search(lambda by: _median(_scaled(program, by, 1.0)), wanted), 1.0)
    return _played(program, trace, request_ms)


def _cut(trace: KernelTrace, kept: slice) -> KernelTrace:
    names = (*kernel_trace.TIMES, "kernel", "blocks", "per_sm", "kind")
    return replace(trace, **{name: getattr(trace, name)[kept] for name in names})


def _without_pauses(program: Program) -> Program:
    return replace(program, launches=tuple(each._replace(think=0) for each in program.launches))


def _graphs_take_cpu(program: Program, trace: KernelTrace) -> Program:
    """The launch of a graph returns when the GPU has it: what lies between launch and start is CPU time."""
    took = (trace.start_ns - trace.launch_ns)[trace.kind == GRAPH]
    more = max(0, int(took.min()) - Device().latency) if len(took) else 0
    launches = tuple(
        each._replace(gap=each.gap + more) if program.kernels[each.kernel].kind == GRAPH else each
        for each in program.launches
    )
    return replace(program, launches=launches)


def _scaled(program: Program, cpu: float, gpu: float) -> Program:
    launches = tuple(
        each._replace(gap=max(1, round(each.gap * cpu)), duration=max(1, round(each.duration * gpu)))
        for each in program.launches
    )
    return replace(program, launches=launches)


def _median(program: Program) -> float:
    client = Client("one", program, requests=len(program.request_starts))
    return statistics.median(each.ended - each.began for each in alone.requests(client, Device()))


def _search(value: Any, wanted: float) -> float:
    low, high = 0.0, 4.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if value(middle) < wanted else (low, middle)
    return (low + high) / 2


def _played(program: Program, trace: KernelTrace, request_ms: float) -> KernelTrace:
    """The program as a trace: what it does alone."""
    moments = list(alone.moments(Client("one", program, requests=len(program.request_starts)), Device(queue=1 << 30)))
    first = moments[0].launched
    kernels = [program.kernels[each.kernel] for each in program.launches]

    def column(values: Iterable[int]) -> Longs:
        return np.array([value - first for value in values], dtype=np.int64)

    waits = [each.waits for each in program.launches]
    kept: dict[str, Any] = {
        key: trace.metadata[key] for key in ("program", "gpu", "driver", "sms", "version") if key in trace.metadata
    }
    note = f"trimmed by bench/kernels.py; times scaled so that a request alone takes {request_ms:g} ms"
    return KernelTrace(
        column(each.launched for each in moments),
        column(each.started for each in moments),
        column(each.ended for each in moments),
        np.array([_short(each.name) for each in kernels]),
        np.array([each.blocks for each in kernels], dtype=np.int32),
        np.array([each.per_sm for each in kernels], dtype=np.int32),
        np.array([each.kind for each in kernels], dtype=np.int8),
        np.array([each.free - first if wait else 0 for each, wait in zip(moments, waits, strict=True)], dtype=np.int64),
        {**kept, "note": note},
    )


def _short(name: str) -> str:
    """A long name cut, with a digest so that two that differ stay two."""
    return name if len(name) <= NAME else f"{name[:NAME]}~{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def ship(folder: Path) -> None:
    """Every recorded program, trimmed, among the shipped ones."""
    for name, request_ms in {**MEDIANS_MS, **STREAMS_MS}.items():
        trace = kernel_trace.read(folder / f"{name}.parquet")
        requests = 8 if len(trace) < 100 else 3
        short = trim(trace, request_ms, requests=requests, stream=name in STREAMS_MS, cpu=CPU)
        kernel_trace.write(FOLDER / f"{name}.parquet", short)
        size = (FOLDER / f"{name}.parquet").stat().st_size
        sys.stdout.write(f"{name}: {len(short)} launches, {size} bytes\n")


# --- measured pairs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """One pair under one policy: medians over the runs in which it was measured."""

    high: str
    low: str
    think_ms: int
    policy: str
    slowdown: float
    share: float | None

    @property
    def fitted(self) -> bool:
        """Whether the constants were fitted to it."""
        return (self.high, self.low) in FIT


def measured(folder: Path, spoilt: tuple[str, ...]) -> list[Measured]:
    """All pairs of a folder. ``spoilt``: programs below whose gated rows do not count."""
    rows = [(path.stem, json.loads(line)) for path in sorted(folder.rglob("*.jsonl")) for line in path.open()]
    rates = defaultdict(list)
    for kind, row in rows:
        if kind == "pairs" and "," not in row["low"]:
            rates[row["low"]].append(row["low_alone_per_s"][0])
    usual = {low: statistics.median(found) for low, found in rates.items()}
    found: dict[tuple[str, str, int, str], list[tuple[float, float | None]]] = defaultdict(list)
    for kind, row in rows:
        for key, policy in _policies(kind):
            if policy == "headway" and row["low"] in spoilt:
                continue
            cell = row[key]
            slow = cell.get("slowdown") or cell["p50_ms"] / row["alone"]["p50_ms"]
            share = cell["low_per_s"][0] / usual[row["low"]] if row["low"] in usual else None
            found[row["high"], row["low"], row["think_ms"], policy].append((slow, share))
    return [_measured(key, cells) for key, cells in found.items()]


def _policies(kind: str) -> tuple[tuple[str, str], ...]:
    if kind == "pairs":
        return ("mps", "mps-priority"), ("gate", "headway")
    return {"plain": (("mps", "mps"),), "slicing": (("slicing", "time-slicing"),)}.get(kind, ())


def _measured(key: tuple[str, str, int, str], cells: list[tuple[float, float | None]]) -> Measured:
    shares = [share for _, share in cells if share is not None]
    return Measured(*key, statistics.median(slow for slow, _ in cells), statistics.median(shares) if shares else None)


def predict(folder: Path, seconds: float, policies: list[str], which: str, device: Device) -> None:
    """Predicted against measured, pair by pair, and how many are within 15 %."""
    rows = [row for row in measured(folder, ("matmul",)) if row.policy in policies]
    rows = [row for row in rows if which == "both" or row.fitted == (which == "fit")]
    errors: dict[tuple[str, str, bool], list[float]] = defaultdict(list)
    said: dict[tuple[str, str, int, str], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: (not row.fitted, row.high, row.low, row.think_ms)):
        key = (row.high, row.low, row.think_ms, row.policy)
        if key not in said:
            low = tuple(row.low.split(","))
            each = Setting((row.high,), low, think=row.think_ms * MILLISECOND, seconds=seconds, device=device)
            said[key] = compare(each, [row.policy], clients_of(each))[0]
        slow, share = said[key]["slowdown_p50"] or float("nan"), said[key]["low_share"]
        text = f"| {row.high} | {row.low} | {row.think_ms} | {row.policy} | {row.slowdown:.2f} | {slow:.2f} |"
        errors[row.policy, "slow-down", row.fitted].append(slow / row.slowdown - 1)
        if row.share is not None:
            text += f" {row.share:.2f} | {share:.2f} |"
            errors[row.policy, "share below", row.fitted].append(share - min(1.0, row.share))
        sys.stdout.write(f"{'fit ' if row.fitted else 'held'} {text}\n")
        sys.stdout.flush()
    for (policy, what, fitted), found in sorted(errors.items()):
        size = [abs(error) for error in found]
        within = sum(error <= 0.15 for error in size)
        sys.stdout.write(
            f"{'fitted' if fitted else 'held out'}, {policy}, {what}: median error {statistics.median(size):.1%}, "
            f"largest {max(size):.1%}, within 15 % {within} of {len(size)}, bias {statistics.mean(found):+.1%}\n"
        )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("trim")
    one.add_argument("trace", type=Path)
    one.add_argument("out", type=Path)
    one.add_argument("--request-ms", type=float, required=True)
    one.add_argument("--requests", type=int, default=3)
    one.add_argument("--stream", action="store_true", help="it launches the next request while one runs")
    one.add_argument("--cpu", type=float, default=CPU)
    every = commands.add_parser("ship")
    every.add_argument("folder", type=Path)
    pairs = commands.add_parser("predict")
    pairs.add_argument("--data", type=Path, required=True)
    pairs.add_argument("--seconds", type=float, default=1.0)
    pairs.add_argument("--policies", default="mps-priority,mps,time-slicing,headway")
    pairs.add_argument("--set", choices=("both", "fit", "held"), default="both")
    pairs.add_argument("--device", default="", help="constants to try: overlap_ppm=200000,slice=2000000")
    given = parser.parse_args()
    if given.command == "trim":
        trace = kernel_trace.read(given.trace)
        short = trim(trace, given.request_ms, requests=given.requests, stream=given.stream, cpu=given.cpu)
        kernel_trace.write(given.out, short)
    elif given.command == "ship":
        ship(given.folder)
    else:
        tried = {key: int(value) for key, _, value in (pair.partition("=") for pair in given.device.split(",") if pair)}
        predict(given.data, given.seconds, given.policies.split(","), given.set, Device(**tried))


if __name__ == "__main__":
    main()
