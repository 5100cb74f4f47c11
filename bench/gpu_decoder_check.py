"""Predict the iterations of the small server of a language model from the table of single iterations.

A folder holds iterations.csv of ``table``, serve-iterations.csv and serve-requests.csv of ``serve``. Three predictions:

``table``    decode rows, mean context, prefill tokens and their context, as they were;
``padded``   the same sizes padded to those that the server had captured;
``longest``  as padded, and the longest context costs more: some milliseconds for each 1,000 tokens above the mean.

The table has rows of one context only, so it cannot tell what ``longest`` adds: that is fitted to one run. An error is
predicted over measured time of the GPU, less 1.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.gpu_decoder_rows import rows_of, written

Floats = npt.NDArray[np.float64]
Row = dict[str, str]
Words = npt.NDArray[np.str_]
CELL = ("decode", "context", "prefill", "prefill_context")
UNDIVIDED = 27
"""Rows from which on FlashAttention does not divide the context of a row among SMs: it does so while rows × heads of
keys are below 0.8 × 2 × SMs; the model that is served has 8 such heads, an H200 132 SMs."""
SHORT = 128
"""Prefill tokens beside decode rows up to which an iteration is of the kind mixed-short: the table has none shorter."""
ROUNDED_S = 2e-6
"""How far two times of the server's files may be off by rounding."""


# --- the table ----------------------------------------------------------------------------------------------------


def interpolated(at: Floats, known: Sequence[float], values: Sequence[Floats]) -> Floats:
    """Return values between those at the known points, each an array like ``at``; beyond them the line goes on."""
    if len(known) == 1:
        return values[0]
    points, columns = np.array(known, float), np.arange(len(at))
    left = np.clip(np.searchsorted(points, at, "right") - 1, 0, len(points) - 2)
    share = (at - points[left]) / (points[left + 1] - points[left])
    every = np.stack(list(values))
    return every[left, columns] * (1 - share) + every[left + 1, columns] * share


class Sizes(NamedTuple):
    """What iterations compute, one array each: rows, their mean context, prefill tokens, tokens before these."""

    decode: Floats
    context: Floats
    prefill: Floats
    prefill_context: Floats


class Table:
    """The milliseconds of iterations, between the measured ones.

    Decode rows are interpolated over batch and context, prefill tokens over their number and the tokens before them.
    Both in one iteration take the sum of the two and what the measured mixtures differ from it.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.decode: dict[int, dict[int, float]] = {}
        self.prompts: dict[int, float] = {}
        self.after: dict[int, dict[int, float]] = {}
        self.shared: dict[tuple[int, int, int], float] = {}
        for row in sorted(rows, key=lambda row: (row["kind"] == "mixed", row["prefill_context"] != "0")):
            cell = Sizes(*(np.array([float(row[name])]) for name in CELL))
            batch, context, tokens, before = (int(row[name]) for name in CELL)
            ms = float(row["gpu_ms_p50"])
            if row["kind"] == "decode":
                self.decode.setdefault(batch, {})[context] = ms
            elif row["kind"] == "mixed":
                alone = self.decode_ms(cell.decode, cell.context) + self.prefill_ms(cell.prefill, cell.prefill_context)
                self.shared[batch, context, tokens] = ms - float(alone[0])
            elif before:
                self.after.setdefault(tokens, {0: 0.0})[before] = ms - float(_along(cell.prefill, self.prompts)[0])
            else:
                self.prompts[tokens] = ms

    def decode_ms(self, batch: Floats, context: Floats) -> Floats:
        """Return the milliseconds of decode rows alone."""
        batches = sorted(self.decode)
        return interpolated(batch, batches, [_along(context, self.decode[known]) for known in batches])

    def prefill_ms(self, tokens: Floats, before: Floats) -> Floats:
        """Return the milliseconds of prefill tokens alone.

        Fewer tokens than measured after a context cost as much for it as the fewest that were.
        """
        chunks = sorted(self.after)
        lines = [_along(before, self.after[known]) for known in chunks]
        return _along(tokens, self.prompts) + interpolated(np.maximum(tokens, chunks[0]), chunks, lines)

    def shared_ms(self, batch: Floats, context: Floats, tokens: Floats) -> Floats:
        """Return what both in one iteration take more (below 0: less) than one after the other.

        Beyond the measured mixtures the nearest holds; where the cache was too small for one, that of less context.
        """
        batches, chunks = (sorted({cell[axis] for cell in self.shared}) for axis in (0, 2))
        planes = []
        for rows in batches:
            lines = []
            for chunk in chunks:
                line = {known: ms for (b, known, p), ms in self.shared.items() if (b, p) == (rows, chunk)}
                lines.append(_along(np.clip(context, min(line), max(line)), line))
            planes.append(interpolated(np.clip(tokens, chunks[0], chunks[-1]), chunks, lines))
        return interpolated(np.clip(batch, batches[0], batches[-1]), batches, planes)

    def ms(self, sizes: Sizes) -> Floats:
        """Return the milliseconds of each iteration."""
        decode, context, prefill, before = sizes
        rows = np.where(decode > 0, self.decode_ms(np.maximum(decode, 1), context), 0)
        tokens = np.where(prefill > 0, self.prefill_ms(prefill, before), 0)
        both = (decode > 0) & (prefill > 0)
        return rows + tokens + np.where(both, self.shared_ms(decode, context, prefill), 0)


def _along(at: Floats, cells: dict[int, float]) -> Floats:
    return interpolated(at, sorted(cells), [np.full(len(at), cells[known]) for known in sorted(cells)])


# --- the server's iterations --------------------------------------------------------------------------------------


def numbers(rows: Sequence[Row], column: str) -> Floats:
    """Return a column."""
    return np.array([float(row[column]) for row in rows])


def longest_contexts(run: str, iterations: Sequence[Row], requests: Sequence[Row]) -> Floats:
    """Return the longest context among the decode rows of each iteration of a run, from when its requests ran.

    A request has a row in each iteration with rows after its first token; in a static batch until all return, at its
    last context. Refuses requests that are not those of these iterations.
    """
    start, batch = numbers(iterations, "start_s"), numbers(iterations, "decode_batch")
    static = run.startswith("static")
    count, longest = np.zeros(len(start)), np.zeros(len(start))
    for row in requests:
        if not row["first_token_s"]:
            continue
        end = row["returned_s" if static else "end_s"]
        first = np.searchsorted(start, float(row["first_token_s"]) - ROUNDED_S)
        last = np.searchsorted(start, float(end) - ROUNDED_S) if end else len(start)
        at = np.arange(first, last)[batch[first:last] > 0]
        context = int(row["prompt"]) + np.arange(len(at))
        if static:
            context = np.minimum(context, int(row["prompt"]) + int(row["output"]) - 1)
        count[at] += 1
        longest[at] = np.maximum(longest[at], context)
    if (count != batch).any():
        which = int(np.flatnonzero(count != batch)[0])
        raise SystemExit(
            f"{run}, iteration {which}: {batch[which]:.0f} decode rows, but requests give {count[which]:.0f}: "
            "serve-requests.csv and serve-iterations.csv have to be of the same runs"
        )
    return longest


def sizes_of(rows: Sequence[Row], padded: bool) -> Sizes:
    """Return the sizes of iterations; a row that pads has no context."""
    decode, context = numbers(rows, "decode_batch"), numbers(rows, "mean_context")
    before = numbers(rows, "prefill_context")
    if not padded:
        return Sizes(decode, context, numbers(rows, "prefill_tokens"), before)
    wider = numbers(rows, "padded_decode")
    return Sizes(wider, context * decode / np.maximum(wider, 1), numbers(rows, "padded_prefill"), before)


class Served(NamedTuple):
    """The iterations of all runs: the run and the kind of each, its sizes, times, and how long its rows are."""

    runs: Words
    kinds: Words
    real: Sizes
    padded: Sizes
    above: Floats
    """Thousands of tokens that the longest context is above the mean."""
    gpu_ms: Floats
    wall_ms: Floats

    def of(self, run: str, kind: str) -> npt.NDArray[np.bool_]:
        """Return which iterations are of a run and of a kind; all: of every one."""
        return ((self.runs == run) | (run == "all")) & ((self.kinds == kind) | (kind == "all"))


def served(rows: Sequence[Row], requests: Sequence[Row]) -> Served:
    """Return the iterations of the server."""
    runs = np.array([row["run"] for row in rows])
    longest = np.zeros(len(rows))
    for name in dict.fromkeys(runs.tolist()):
        mine, asked = ([row for row in each if row["run"] == name] for each in (rows, requests))
        longest[runs == name] = longest_contexts(name, mine, asked)
    real = sizes_of(rows, padded=False)
    mixed = np.where(real.prefill > SHORT, "mixed", "mixed-short")
    kinds = np.where(real.prefill == 0, "decode", np.where(real.decode == 0, "prefill", mixed))
    above = np.maximum(longest - real.context, 0) / 1e3
    gpu, wall = (1e3 * numbers(rows, name) for name in ("gpu_s", "duration_s"))
    return Served(runs, kinds, real, sizes_of(rows, padded=True), above, gpu, wall)


# --- predictions --------------------------------------------------------------------------------------------------


def slopes(served: Served, missing: Floats) -> Iterator[dict[str, object]]:
    """Yield by run and size of batch how many milliseconds are missing for each 1,000 tokens above the mean."""
    for run in dict.fromkeys(served.runs.tolist()):
        for name, group in groups(served).items():
            among = served.of(run, "all") & group
            above = served.above[among]
            if above.any():
                slope = float((missing[among] * above).sum() / (above**2).sum())
                yield {"run": run, "rows": name, "iterations": int(among.sum()), "ms_per_1000_tokens": round(slope, 3)}


def groups(served: Served) -> dict[str, npt.NDArray[np.bool_]]:
    """Return which iterations have contexts that are divided, and which have some that are not."""
    rows = served.padded.decode
    return {f"1 to {UNDIVIDED - 1}": (rows > 0) & (rows < UNDIVIDED), f"{UNDIVIDED} and more": rows >= UNDIVIDED}


def errors(served: Served, found: dict[str, Floats]) -> Iterator[dict[str, object]]:
    """Yield how far the predictions are off, by run and kind of iteration."""
    for run in ("all", *dict.fromkeys(served.runs.tolist())):
        for kind in ("all", "decode", "prefill", "mixed", "mixed-short"):
            among = served.of(run, kind)
            if not among.any():
                continue
            measured = served.gpu_ms[among]
            row = {"run": run, "kind": kind, "iterations": int(among.sum())}
            row |= {"wall_s": round(served.wall_ms[among].sum() / 1e3, 3), "gpu_s": round(measured.sum() / 1e3, 3)}
            for name, predicted in found.items():
                off = predicted[among] / measured - 1
                row[f"{name}_sum"] = round(predicted[among].sum() / measured.sum() - 1, 4)
                row[f"{name}_median"] = round(float(np.median(off)), 4)
                for quantile in (50, 90):
                    row[f"{name}_absolute_p{quantile}"] = round(float(np.percentile(np.abs(off), quantile)), 4)
            yield row


def check(folder: Path, model: str, fit: str) -> None:
    """Write errors.csv, slopes.csv and requests.csv, anew, and print the errors of whole runs."""
    rows, requests = (rows_of(folder / f"serve-{name}.csv") for name in ("iterations", "requests"))
    cells = [row for row in rows_of(folder / "iterations.csv") if row["model"] == model and row["mode"] == "graph"]
    for name, there in (("iterations.csv", cells), ("serve-iterations.csv", rows), ("serve-requests.csv", requests)):
        if not there:
            raise SystemExit(f"{folder / name}: holds no rows for the model {model}; table and serve write them")
    these = served(rows, requests)
    if fit not in these.runs:
        raise SystemExit(f"--fit {fit}: no such run; there are {', '.join(dict.fromkeys(these.runs.tolist()))}")
    table = Table(cells)
    found = {"table": table.ms(these.real), "padded": table.ms(these.padded)}
    fitted = list(slopes(these, these.gpu_ms - found["padded"]))
    slope = {row["rows"]: float(str(row["ms_per_1000_tokens"])) for row in fitted if row["run"] == fit}
    more = sum((slope.get(name, 0.0) * group for name, group in groups(these).items()), np.zeros(len(rows)))
    found["longest"] = found["padded"] + more * these.above
    written(folder / "slopes.csv", fitted)
    written(folder / "errors.csv", list(errors(these, found)))
    written(folder / "requests.csv", [{name: _shorter(name, row[name]) for name in row} for row in requests])
    for row in rows_of(folder / "errors.csv"):
        if row["kind"] == "all":
            sums = (f"{name} {float(row[f'{name}_sum']):+.1%}" for name in found)
            print(f"{row['run']}: {row['gpu_s']} s of the GPU in {row['iterations']} iterations; {', '.join(sums)}")


def _shorter(name: str, value: str) -> str:
    return f"{float(value):.4f}" if name.endswith("_s") and value else value
