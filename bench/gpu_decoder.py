"""Time the iterations of a language model on a GPU, and serve requests with it as they arrive in a trace.

python -m bench.gpu_decoder table FOLDER [--models 7b,1.3b] [--budget 470]     on a machine with a GPU
python -m bench.gpu_decoder excerpt TRACE CSV [--requests 8000]                anywhere: the CSV that serve reads
python -m bench.gpu_decoder serve FOLDER --trace CSV [--loads 0.3,0.6,0.9]     on a machine with a GPU
python -m bench.gpu_decoder check FOLDER [--fit chunked-0.3]                   anywhere: how far the table is off

``table`` appends one row a cell to FOLDER/iterations.csv at once and skips the cells that are there: prefills, decode
batches and both in one iteration, over new tokens, batch and context. FOLDER/models.csv says what weights and cache
take and how long they take to copy. ``serve`` is in bench/gpu_decoder_runs.py; ``check`` predicts its iterations from
the table, in bench/gpu_decoder_check.py. ``--tiny`` needs no GPU.
"""

import argparse
import csv
import gc
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.gpu_decoder_check import check
from bench.gpu_decoder_rows import BEGAN, appended, rows_of, said

REPEATS, LEAST_REPEATS, CELL_S, WARM_S = 20, 5, 0.6, 0.05
LONGEST = 16384 + 8192


# --- the cells of the table ---------------------------------------------------------------------------------------


class Cell(NamedTuple):
    """What one iteration computes: decode rows at a context, prefill tokens after a context; captured or not."""

    kind: str
    mode: str
    decode: int
    context: int
    prefill: int
    prefill_context: int


class Grid(NamedTuple):
    """The sizes that are measured."""

    prompts: Sequence[int]
    chunks: Sequence[int]
    chunk_contexts: Sequence[int]
    batches: Sequence[int]
    contexts: Sequence[int]
    mixed_batches: Sequence[int]
    mixed_contexts: Sequence[int]
    mixed_chunks: Sequence[int]


WHOLE = Grid(
    (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
    (512, 2048),
    (0, 512, 1024, 2048, 4096, 8192, 16384),
    (1, 2, 4, 8, 16, 32, 64, 128, 256),
    (128, 256, 512, 1024, 2048, 4096, 8192, 16384),
    (8, 32, 128),
    (512, 2048, 8192),
    (128, 512, 2048),
)
TINY = Grid((4, 16), (8,), (0, 16), (1, 4), (8, 32), (2,), (16,), (8,))


def cells(grid: Grid) -> Iterator[Cell]:
    """Yield all cells, the most useful first; those that are not captured last."""
    for batch in grid.batches:
        for context in grid.contexts:
            yield Cell("decode", "graph", batch, context, 0, 0)
    for tokens in grid.prompts:
        yield Cell("prefill", "graph", 0, 0, tokens, 0)
    for tokens in grid.chunks:
        for context in grid.chunk_contexts:
            if context:
                yield Cell("prefill", "graph", 0, 0, tokens, context)
    for batch in grid.mixed_batches:
        for context in grid.mixed_contexts:
            for tokens in grid.mixed_chunks:
                yield Cell("mixed", "graph", batch, context, tokens, 0)
    for tokens in grid.prompts:
        yield Cell("prefill", "eager", 0, 0, tokens, 0)
    for batch in grid.batches:
        yield Cell("decode", "eager", batch, grid.contexts[len(grid.contexts) // 2], 0, 0)


def cache_rows(cell: Cell) -> int:
    """Return how many rows of the cache a cell needs, the row of nobody included."""
    return 1 + cell.decode * (cell.context + 1) + cell.prefill + cell.prefill_context


# --- measuring ----------------------------------------------------------------------------------------------------


def timed(run: Callable[[], object], cuda: bool) -> tuple[float, float]:
    """Return the seconds of one run by the GPU's clock and by the host's; the host waits for its end."""
    import torch

    if not cuda:
        start = time.perf_counter()
        run()
        took = time.perf_counter() - start
        return took, took
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start = time.perf_counter()
    first.record()
    run()
    last.record()
    torch.cuda.synchronize()
    took = time.perf_counter() - start
    return first.elapsed_time(last) / 1e3, took


def measured(decoder: Any, cell: Cell, captured: bool) -> dict[str, object]:
    """Return the row of a cell: the median and the tenths of several repeats, after some that do not count."""
    from bench.gpu_decoder_model import Iteration, Prefill

    draw = np.random.default_rng(0)
    words = draw.integers(0, decoder.shape.vocabulary, cell.decode + cell.prefill).astype(np.int32)
    longest = cell.context + 1 if not cell.prefill else max(cell.context + 1, cell.prefill_context + cell.prefill)
    iteration = Iteration(decoder, cell.decode, cell.prefill, longest, captured)
    starts = (1 + np.arange(cell.decode) * (cell.context + 1)).astype(np.int32)
    contexts = np.full(cell.decode, cell.context, np.int32)
    part = Prefill(words[cell.decode :], 1 + cell.decode * (cell.context + 1), cell.prefill_context)
    iteration.batch.fill(words[: cell.decode], starts, contexts, [part] if cell.prefill else [])
    warm = time.monotonic() + WARM_S
    while timed(iteration.run, decoder.cuda) and time.monotonic() < warm:
        pass
    found: list[tuple[float, float]] = []
    end = time.monotonic() + CELL_S
    while len(found) < LEAST_REPEATS or (len(found) < REPEATS and time.monotonic() < end):
        found.append(timed(iteration.run, decoder.cuda))
    gpu, wall = 1e3 * np.array(found).T
    row: dict[str, object] = {"repeats": len(found), "captured": int(iteration.graph is not None)}
    for name, values in (("gpu_ms", gpu), ("wall_ms", wall)):
        for quantile in (10, 50, 90):
            row[f"{name}_p{quantile}"] = round(float(np.percentile(values, quantile)), 4)
    return row


def table(folder: Path, models: Sequence[str], grid: Grid, device: str, deadline: float) -> None:
    """Measure the cells that have no row yet, model by model, until the deadline."""
    import torch

    from bench.gpu_decoder_model import SHAPES, Decoder, has_graphs

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "iterations.csv"
    for model in models:
        done = {tuple(row[key] for key in ("model", *Cell._fields)) for row in rows_of(path)}
        wanted = [cell for cell in cells(grid) if (model, *map(str, cell)) not in done]
        described = model in {row["model"] for row in rows_of(folder / "models.csv")}
        if not wanted and described:
            continue
        decoder = Decoder(SHAPES[model], device, LONGEST if device == "cuda" else 256)
        graphs = has_graphs(decoder)
        said(f"{model}: {decoder.cache_tokens} tokens of cache, attention {decoder.attention_name}, graphs {graphs}")
        if not described:
            describe(folder / "models.csv", model, decoder)
        for number, cell in enumerate(wanted):
            if time.monotonic() > deadline:
                said(f"{model}: out of time, {len(wanted) - number} cells are missing")
                return
            if cache_rows(cell) > decoder.cache_tokens:
                continue
            try:
                row = measured(decoder, cell, graphs and cell.mode == "graph")
            except RuntimeError as failed:  # out of memory, mostly: the other cells may still be measured
                said(f"! {model} {' '.join(map(str, cell))}: {failed}")
                continue
            finally:
                if decoder.cuda:
                    gc.collect()
                    torch.cuda.empty_cache()
            appended(path, {"model": model, **cell._asdict(), **row})
            said(f"{model} {number + 1}/{len(wanted)} {' '.join(map(str, cell))}: {row['gpu_ms_p50']} ms")
        del decoder
        gc.collect()


def describe(path: Path, model: str, decoder: Any) -> None:
    """Write what weights and cache take, and how long they take to copy."""
    import torch

    weights = decoder.weights()
    sizes = {
        "parameters": sum(each.numel() for each in weights),
        "weights_bytes": sum(each.nbytes for each in weights),
        "kv_bytes_per_token": sum(each[0].nbytes for each in decoder.cache),
    }
    host = [each.cpu() for each in weights]
    loads = {"load_pageable_s": loaded(weights, host, decoder.cuda)}
    if decoder.cuda:
        for number, each in enumerate(host):
            host[number] = each.pin_memory()
    loads["load_pinned_s"] = loaded(weights, host, decoder.cuda)
    del host
    rows = min(1024, decoder.cache_tokens)
    kept = [each[:rows] for each in decoder.cache]
    aside = [torch.empty(each.shape, dtype=each.dtype, pin_memory=decoder.cuda) for each in kept]
    loads["kv_out_s"], loads["kv_in_s"] = loaded(aside, kept, decoder.cuda), loaded(kept, aside, decoder.cuda)
    asked = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.mem", "--format=csv,noheader"]
    gpu = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() if decoder.cuda else ""
    row = {"model": model, **sizes, "cache_tokens": decoder.cache_tokens, "kv_tokens_copied": rows}
    row |= {name: round(seconds, 6) for name, seconds in loads.items()}
    row |= {"attention": decoder.attention_name, "gpu": gpu, "torch": torch.__version__}
    appended(path, row)
    said(f"{model}: {row}")


def loaded(to: Sequence[Any], source: Sequence[Any], cuda: bool) -> float:
    """Return the median seconds of three copies."""

    def copy() -> None:
        for here, there in zip(to, source, strict=True):
            here.copy_(there, non_blocking=True)

    return float(np.median([timed(copy, cuda)[1] for _ in range(3)]))


# --- excerpts of traces -------------------------------------------------------------------------------------------


def excerpt(trace: Path, path: Path, most: int, longest: int) -> tuple[int, int, int]:
    """Write the first requests of a trace; return how many, how many prompts were clipped, and how many tokens of them.

    A prompt is clipped so that it fits the longest context together with its output, an output so that one token of
    the prompt is left. Requests without a prompt or an output are given one token of it.
    """
    from headway.fleet.traces.registry import load_requests

    found = load_requests(trace)
    outputs = np.clip(found.output_tokens[:most], 1, longest - 1)
    asked = np.maximum(found.input_tokens[:most], 1)
    prompts = np.minimum(asked, longest - outputs)
    arrivals = (found.arrival[:most] - found.arrival[0]) / 1e9
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("arrival_s", "prompt", "output"))
        writer.writerows((f"{at:.6f}", p, o) for at, p, o in zip(arrivals, prompts, outputs, strict=True))
    return len(prompts), int((prompts < asked).sum()), int((asked - prompts).sum())


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("table", "excerpt", "serve", "check"))
    parser.add_argument("folder", type=Path, help="where the results go; for excerpt the trace")
    parser.add_argument("csv", type=Path, nargs="?", help="for excerpt: the file to write")
    parser.add_argument("--trace", type=Path, help="requests: arrival_s, prompt, output")
    parser.add_argument("--models", default="7b,1.3b", help="for table")
    parser.add_argument("--model", default="7b", help="for serve and check")
    parser.add_argument("--loads", default="0.3,0.6,0.9", help="shares of the saturated rate, in chunks")
    parser.add_argument("--also", default="prefill:0.6,static:0.3,tight:0.9", help="further runs, batching:load")
    parser.add_argument("--seconds", type=float, default=55.0, help="of arrivals a run")
    parser.add_argument("--saturate", type=float, default=25.0, help="seconds to measure the saturated rate")
    parser.add_argument("--chunk", type=int, default=512, help="tokens an iteration, decode rows included")
    parser.add_argument("--running", type=int, default=256, help="requests that run at once")
    parser.add_argument("--tight", type=int, default=65536, help="tokens of cache in the run called tight")
    parser.add_argument("--budget", type=float, default=470.0, help="seconds in all")
    parser.add_argument("--requests", type=int, default=8000, help="for excerpt")
    parser.add_argument("--longest", type=int, default=8192, help="tokens of prompt and output together")
    parser.add_argument("--fit", default="chunked-0.3", help="for check: the run that says what long contexts cost")
    parser.add_argument("--tiny", action="store_true", help="a tiny network on the CPU")
    given = parser.parse_args(arguments)
    if given.tiny:
        import torch

        torch.set_num_threads(1)
    if given.what == "excerpt":
        if given.csv is None:
            parser.error("excerpt needs the file to write")
        count, clipped, tokens = excerpt(given.folder, given.csv, given.requests, given.longest)
        said(f"{count} requests; {clipped} prompts clipped to fit {given.longest} tokens, by {tokens} tokens in all")
    elif given.what == "table":
        models = ["tiny"] if given.tiny else given.models.split(",")
        grid, device = (TINY, "cpu") if given.tiny else (WHOLE, "cuda")
        table(given.folder, models, grid, device, BEGAN + given.budget)
    elif given.what == "check":
        check(given.folder, "tiny" if given.tiny else given.model, given.fit)
    else:
        from bench.gpu_decoder_runs import serve

        if given.trace is None:
            parser.error("serve needs --trace")
        serve(given, BEGAN + given.budget)


if __name__ == "__main__":
    main()
