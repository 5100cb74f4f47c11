"""Soak of live serving: does memory or do open files grow while it serves?

    python -m bench.serve_soak                       15 minutes at 100 requests a second, 2 of them to warm up
    python -m bench.serve_soak --seconds 120 --warm 20 --rate 40

No fault is done. Every ten seconds the memory that is a process's own and its open files are counted, for the server
and for each worker. After the warm-up the median of the first quarter of the samples is compared with that of the last
quarter. Met is: memory of all together within 2 %, no process grown by more, files equal, no request failed. Samples go
to FOLDER/soak-samples.jsonl at once, the verdict to FOLDER/soak.jsonl; a soak cannot be resumed, it starts again.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.serve_faults import APP
from bench.serve_load import Seen, load
from bench.serve_process import Served, open_files, own_bytes
from bench.serve_rows import FOLDER, Row, Rows

EVERY_S = 10.0
WITHIN = 0.02


async def soaked(server: Served, rate: float, seconds: float, samples: Rows) -> Seen:
    """Serve, and sample memory and files; return what became of the requests."""
    await server.ready()
    seen, began = Seen(), time.monotonic()
    running = asyncio.ensure_future(load(server.folder, rate, seconds, seen))
    while not running.done():
        await asyncio.wait({running}, timeout=EVERY_S)
        pids = server.processes()
        row: Row = {"s": round(time.monotonic() - began, 1), "sent": seen.sent, "pids": pids}
        if not running.done():
            samples.add(row | {"own_bytes": [*map(own_bytes, pids)], "files": [*map(open_files, pids)]})
    await running
    return seen


def change(samples: Sequence[Row], of: str, place: int | None = None) -> float:
    """Return by what share a number grew from the first to the last quarter; ``place``: of one process alone."""
    values = [sum(row[of]) if place is None else row[of][place] for row in samples]
    quarter = max(1, len(values) // 4)
    return median(values[-quarter:]) / median(values[:quarter]) - 1


def verdict(samples: Sequence[Row], warm_s: float) -> dict[str, Any]:
    """Return how memory and files changed after the warm-up, and whether they did not."""
    warm = [row for row in samples if row["s"] > warm_s]
    if not warm or len({tuple(row["pids"]) for row in warm}) != 1:
        return {"processes": "a worker was started again" if warm else "no sample after the warm-up", "met": False}
    places = range(len(warm[0]["pids"]))
    memory = [change(warm, "own_bytes"), *(change(warm, "own_bytes", place) for place in places)]
    files = [change(warm, "files", place) for place in places]
    return {
        "own_bytes": [sum(warm[0]["own_bytes"]), sum(warm[-1]["own_bytes"])],
        "memory_change": [f"{each:+.2%}" for each in memory],
        "files": [warm[0]["files"], warm[-1]["files"]],
        "files_change": [f"{each:+.2%}" for each in files],
        "processes": len(places),
        "met": abs(memory[0]) <= WITHIN and max(memory) <= WITHIN and not any(files),
    }


def main() -> None:
    """Soak as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--warm", type=float, default=120.0, help="seconds that do not count")
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the rows")
    given = parser.parse_args()
    samples = Rows(given.out, "soak-samples")
    samples.clear()
    with tempfile.TemporaryDirectory(prefix="headway-soak-") as temporary:
        server = Served(
            APP, Path(temporary) / "server", "--no-http", "--policy", "headway", "--workers", "2", keep=True
        )
        try:
            seen = asyncio.run(soaked(server, given.rate, given.seconds, samples))
        finally:
            processes = server.processes()
            server.stop()
        left = server.left(processes)
    found = verdict(samples.rows, given.warm)
    row = {"seconds": given.seconds, "rate": given.rate, "sent": seen.sent, "failed": dict(seen.reasons), **found}
    row |= {"left": left, "met": found["met"] and not seen.reasons and not left}
    Rows(given.out, "soak").add(row)
    sys.exit(0 if row["met"] else 1)


if __name__ == "__main__":
    main()
