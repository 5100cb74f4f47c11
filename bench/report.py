"""A report of a large run: how long the page takes and how big it is.

``.venv/bin/python bench/report.py`` draws 100,000 jobs like Philly's, plays them on 1,000 GPUs under some policies,
and makes a page of each run and one of all of them from their folders, as ``headway report`` does. It prints a line a
page in Markdown and fails if a page has not all jobs, has no map, or is 15 MB or more. On demand: it takes minutes.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from headway import experiment
from headway.cli.pages import folders, opened
from headway.experiment.measured import measured
from headway.report import page
from headway.report.measured import Comparison

MOST_BYTES = 15_000_000
POLICIES = ("fifo+easy", "srtf+none", "las+none")


def play(place: Path, policy: str, jobs: int, nodes: int) -> Path:
    """The folder of a run."""
    folder = place / policy
    document = {
        "trace": {"synthetic": {"jobs": jobs, "load": 1.0}},
        "cluster": {"nodes": nodes, "gpus_per_node": 8, "levels": [{"name": "rack", "nodes_per_domain": 16}]},
        "costs": {"preemption": "60s"},
        "policy": {"name": policy},
        "run": {"out": str(folder)},
    }
    ((_, each),) = experiment.variants(document, "bench")
    measured(each)
    return folder


def made(places: list[Path], jobs: int) -> tuple[str, bool]:
    """One page: a line of the table, and whether all was well."""
    began, worked = time.perf_counter(), time.process_time()
    both = Comparison(opened(folders([str(place) for place in places]), page.silent))
    text = page.build(both)
    target = places[0].parent / "report.html"
    target.write_text(text, encoding="utf-8")
    took_s, worked_s = time.perf_counter() - began, time.process_time() - worked
    size = target.stat().st_size
    maps = sum(f'"{index}":{{"cluster"' in text for index in range(len(places)))
    whole = all(run.summary.jobs == jobs and not run.summary.unfinished for run in both.runs)
    cells = [
        ", ".join(run.label for run in both.runs),
        f"{len(places) * jobs:,}",
        f"{sum(len(run.stored.tape) for run in both.runs):,}",
        f"{took_s:.1f}",
        f"{worked_s:.1f}",
        f"{size / 1e6:.1f}",
        f"{maps} of {len(places)}",
    ]
    return f"| {' | '.join(cells)} |", whole and maps > 0 and size < MOST_BYTES


def main() -> int:
    """Make the pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("policies", nargs="*", default=list(POLICIES))
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=125, help="of 8 GPUs")
    given = parser.parse_args()
    well = True
    with tempfile.TemporaryDirectory() as place:
        runs = [play(Path(place), policy, given.jobs, given.nodes) for policy in given.policies]
        print("| page of | jobs | rows of tape | s | CPU s | MB | maps |")
        print("|---|---|---|---|---|---|---|")
        for places in [*([run] for run in runs), *([runs] if len(runs) > 1 else [])]:
            line, good = made(places, given.jobs)
            print(line, flush=True)
            well = well and good
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
