"""Compare simulated engines: with the server that was measured on an H200, and ways of batching with each other.

python -m bench.tokens server docs/background/results/h200-decoder OUT.csv
python -m bench.tokens batching TRACE OUT.csv

``server`` plays the requests of requests.csv, as they arrived, to one simulated worker, and compares the means over the
requests that both finished. ``batching`` plays the beginning of Azure's trace of conversations to one worker under each
way of batching, at shares of the rate that a full continuous batch serves.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import headway as hw
from bench.gpu_decoder_rows import rows_of, written
from headway.fleet.metrics.ledger import Ledger
from headway.fleet.model.rows import Kind
from headway.runs.result import Run

RUNS = {
    "chunked-0.3": {},
    "chunked-0.6": {},
    "chunked-0.9": {},
    "prefill-0.6": {"batching": "prefill-first"},
    "static-0.3": {"batching": "request"},
    "tight-0.9": {"cache": "8GiB"},
}
"""Runs of the server, and what differs from the scenario; 65,536 tokens of 131,072 bytes are 8 GiB."""
LOADS = (0.3, 0.6, 0.9, 2.0)
SATURATED = 14.9
"""Requests a second that the measured server computed with a full batch."""
REQUESTS = 2000


def scenario(folder: Path, **generate: object) -> Path:
    """Write the scenario chat for one worker whose engine takes any number of requests; return its path."""
    options = "".join(f"{key} = {json.dumps(value)}\n" for key, value in generate.items())
    path = folder / "one.toml"
    text = 'base = "chat"\n[functions.answer.generate]\ncpus = 0\nslices = 0\n' + options
    path.write_text(text + '[fleet]\nworkers = [{ memory = "141GB", gpu = "h200" }]\n')
    return path


def played(folder: Path, **settings: object) -> Run:
    """Return a run on a warm worker; every request is measured."""
    work = hw.Fleet(folder / "one.toml", start="warm", warmup="0%", **settings)
    return hw.simulate(work, "hash")


def server(source: Path) -> Iterator[dict[str, object]]:
    """Yield by run how far simulated means are from measured ones."""
    everything = rows_of(source / "requests.csv")
    for run, differs in RUNS.items():
        rows = [row for row in everything if row["run"] == run]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            lines = [
                {
                    "timestamp": 1e3 * float(row["arrival_s"]),
                    "input_length": int(row["prompt"]),
                    "output_length": int(row["output"]),
                }
                for row in rows
            ]
            (folder / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            scenario(folder, **differs)
            result = played(
                folder, arrivals=str(folder / "trace.jsonl"), requests=len(rows), set="workload.overload=true"
            )
            first, each = simulated(result)
        done = [at for at, row in enumerate(rows) if row["returned_s"]]
        yield compared(run, rows, done, first, each)


def simulated(result: Run) -> tuple[list[float], list[float]]:
    """Return by request the time to its first token and the time of each further one."""
    scene, tape = result.stored.scene, result.stored.tape
    ledger = Ledger(scene.built.catalogue, scene.built.fleet, scene.requests, tape)
    rows = ledger.rows(Kind.FIRST_TOKEN)
    at, end = ledger.time[rows], ledger.batch_end[ledger.batch_at(rows)]
    requests = ledger.positions(rows)
    first, each = [0.0] * len(scene.requests), [0.0] * len(scene.requests)
    for number, begin, stop in zip(requests.tolist(), at.tolist(), end.tolist(), strict=True):
        request = scene.requests[number]
        first[number] = (begin - request.arrival) / 1e9
        each[number] = (stop - begin) / 1e9 / max(request.output_tokens - 1, 1)
    return first, each


def compared(
    run: str, rows: list[dict[str, str]], done: list[int], first: list[float], each: list[float]
) -> dict[str, object]:
    """Return the measured and the simulated means of a run, and how far they are apart."""
    end = "returned_s" if run.startswith("static") else "end_s"
    real_first = fmean(float(rows[at]["first_token_s"]) - float(rows[at]["arrival_s"]) for at in done)
    several = [at for at in done if int(rows[at]["output"]) > 1]
    real_each = fmean(
        (float(rows[at][end]) - float(rows[at]["first_token_s"])) / (int(rows[at]["output"]) - 1) for at in several
    )
    made_first, made_each = fmean(first[at] for at in done), fmean(each[at] for at in several)
    return {
        "run": run,
        "requests": len(rows),
        "compared": len(done),
        "ttft_measured_ms": round(1e3 * real_first, 2),
        "ttft_simulated_ms": round(1e3 * made_first, 2),
        "ttft_off": round(made_first / real_first - 1, 4),
        "tpot_measured_ms": round(1e3 * real_each, 3),
        "tpot_simulated_ms": round(1e3 * made_each, 3),
        "tpot_off": round(made_each / real_each - 1, 4),
    }


def batching(trace: str) -> Iterator[dict[str, object]]:
    """Yield by way of batching and load what requests of a trace saw."""
    for load in LOADS:
        for way in ("continuous", "prefill-first", "request"):
            with tempfile.TemporaryDirectory() as name:
                scenario(Path(name), batching=way)
                settings = {"arrivals": trace, "requests": REQUESTS, "rate": load * SATURATED}
                numbers = played(Path(name), **settings, set="workload.overload=true").row
            keys = (
                "ttft_mean_s",
                "ttft_p50_s",
                "ttft_p99_s",
                "tpot_mean_s",
                "tpot_p99_s",
                "latency_p50_s",
                "latency_p99_s",
            )
            row: dict[str, object] = {"batching": way, "load": load, "requests_per_s": round(load * SATURATED, 2)}
            row |= {key: round(numbers[key], 5) for key in keys}
            row |= {"output_tokens_per_s": round(numbers["output_tokens_per_s"], 1)}
            yield row | {"kv_cache_peak_gb": round(numbers["kv_cache_peak_bytes"] / 1e9, 2)}


if __name__ == "__main__":
    what, source, target = sys.argv[1:4]
    found = list(server(Path(source)) if what == "server" else batching(source))
    written(Path(target), found)
    for row in found:
        print(row)
