"""Runs of the small server of a language model: the saturated rate, then loads that are shares of it.

The run ``saturated`` finds all requests waiting at its start. Other runs play the first requests of a trace with their
arrivals stretched to a load. Three files grow run by run: serve-requests.csv, serve-iterations.csv, serve-summary.csv.
"""

import argparse
import csv
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.gpu_decoder_model import SHAPES, Decoder
from bench.gpu_decoder_rows import appended, said
from bench.gpu_decoder_serve import Engine, Request, Server, played

SETTLED_S = 8.0
"""What a saturated run needs to fill its batch."""
SATURATED = 8000
"""Requests that wait at the start of a saturated run: more than it can serve."""
DRAIN_S = 10.0
"""How long a run goes on after its last arrival."""


class Run(NamedTuple):
    """A name, a way of batching, a load, and the requests."""

    name: str
    batching: str
    load: float
    requests: list[Request]


def requests_of(path: Path, longest: int) -> list[tuple[float, int, int]]:
    """Return arrival, prompt and output of each row; refuses what the context cannot hold."""
    with path.open(newline="") as file:
        rows = [(float(row["arrival_s"]), int(row["prompt"]), int(row["output"])) for row in csv.DictReader(file)]
    for number, (_, prompt, output) in enumerate(rows):
        if prompt < 1 or output < 1 or prompt + output > longest:
            raise SystemExit(f"{path} row {number + 2}: {prompt} + {output} tokens; 1 + 1 to {longest} in all can be")
    if not rows:
        raise SystemExit(f"{path}: holds no requests")
    return rows


def scaled(rows: Sequence[tuple[float, int, int]], rate: float, seconds: float) -> list[Request]:
    """Return the first requests of a trace, over again where it ends, stretched in time to arrive at this mean rate."""
    count = max(1, round(rate * seconds))
    span = rows[-1][0] * len(rows) / max(len(rows) - 1, 1)
    chosen = [(rows[at % len(rows)], at // len(rows) * span) for at in range(count)]
    last = chosen[-1][0][0] + chosen[-1][1]
    factor = seconds / last if last > 0 else 0.0
    return [Request(number, (row[0] + lap) * factor, row[1], row[2]) for number, (row, lap) in enumerate(chosen)]


def saturated_rate(iterations: Sequence[dict[str, Any]], rows: Sequence[tuple[float, int, int]], after: float) -> float:
    """Return the requests a second that a saturated run computed, once its batch was full.

    Prompt tokens over the mean prompt and output tokens over the mean output are two counts of the same; their mean is
    taken, as a short run ends amid requests.
    """
    settled = [each for each in iterations if each["start_s"] >= after]
    if not settled:
        raise SystemExit(f"the saturated run has no iteration after {after} s: give it more seconds")
    span = settled[-1]["start_s"] + settled[-1]["duration_s"] - settled[0]["start_s"]
    read = sum(each["prefill_tokens"] for each in settled) / np.mean([prompt for _, prompt, _ in rows])
    written = sum(each["decode_batch"] for each in settled) / np.mean([output for _, _, output in rows])
    return float((read + written) / 2 / span)


def serve(given: argparse.Namespace, deadline: float) -> None:
    """Measure the saturated rate, then play every run for which there is time."""
    folder: Path = given.folder
    folder.mkdir(parents=True, exist_ok=True)
    model, device = ("tiny", "cpu") if given.tiny else (given.model, "cuda")
    rows = requests_of(given.trace, given.longest)
    decoder = Decoder(SHAPES[model], device, given.longest)
    engine = Engine(decoder, given.chunk, given.running, given.longest)
    said(f"{model}: {decoder.cache_tokens} tokens of cache, attention {decoder.attention_name}")
    engine.capture()

    def play(run: Run, limit: float) -> list[dict[str, object]]:
        cache = min(given.tight, decoder.cache_tokens) if run.batching == "tight" else decoder.cache_tokens
        server = Server(engine, run.batching, given.chunk, given.running, cache)
        iterations = played(server, run.requests, limit)
        kept(folder, run, iterations, cache)
        return iterations

    settled = min(SETTLED_S, given.saturate / 3)
    waiting = [Request(number, 0.0, *rows[number % len(rows)][1:]) for number in range(SATURATED)]
    iterations = play(Run("saturated", "chunked", 1.0, waiting), given.saturate)
    rate = saturated_rate(iterations, rows, settled)
    said(f"saturated: {rate:.2f} requests a second")
    wanted = [("chunked", float(load)) for load in given.loads.split(",") if load]
    wanted += [(each.partition(":")[0], float(each.partition(":")[2])) for each in given.also.split(",") if each]
    for batching, load in wanted:
        left = deadline - time.monotonic()
        if left < given.seconds + 2:
            said(f"{batching} at {load}: no time left, not run")
            continue
        limit = min(left - 1, given.seconds + DRAIN_S)
        play(Run(f"{batching}-{load}", batching, load, scaled(rows, load * rate, given.seconds)), limit)


def kept(folder: Path, run: Run, iterations: Sequence[dict[str, object]], cache: int) -> None:
    """Write a run's requests, iterations and a row of its summary, and print that row."""
    head = {"run": run.name, "batching": run.batching, "load": run.load}
    with (folder / "serve-iterations.csv").open("a", newline="") as file:
        writer = csv.DictWriter(file, ["run", *(iterations[0] if iterations else ())])
        if not file.tell():
            writer.writeheader()
        writer.writerows({"run": run.name, **each} for each in iterations)
    columns = ("run", "request", "arrival_s", "start_s", "first_token_s", "end_s", "returned_s", "prompt", "output")
    with (folder / "serve-requests.csv").open("a", newline="") as file:
        rows = csv.writer(file)
        if not file.tell():
            rows.writerow(columns)
        for each in run.requests:
            times = [f"{at:.6f}" if at >= 0 else "" for at in (each.start, each.first, each.end, each.returned)]
            if each.start >= 0 or run.name != "saturated":
                rows.writerow((run.name, each.number, f"{each.arrival:.6f}", *times, each.prompt, each.output))
    done = [each for each in run.requests if each.returned >= 0]
    waits = {
        "first_token": [each.first - each.arrival for each in done],
        "per_token": [(each.end - each.first) / (each.output - 1) for each in done if each.output > 1],
        "latency": [each.returned - each.arrival for each in done],
    }
    row: dict[str, object] = {**head, "cache_tokens": cache, "requests": len(run.requests), "finished": len(done)}
    for name, values in waits.items():
        for quantile in (50, 99):
            row[f"{name}_s_p{quantile}"] = round(float(np.percentile(values, quantile)), 5) if values else ""
    span = max((float(str(each["start_s"])) for each in iterations), default=0.0) or 1.0
    row["busy_share"] = round(sum(float(str(each["duration_s"])) for each in iterations) / span, 4)
    row["gpu_share"] = round(sum(float(str(each["gpu_s"])) for each in iterations) / span, 4)
    appended(folder / "serve-summary.csv", row)
    said(f"{row}")
