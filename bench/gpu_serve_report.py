"""Make tables of what ``scripts/gpu-serve fleet`` and ``esg`` brought back, and play each live run in virtual time.

``python -m bench.gpu_serve_report OUT --to FOLDER --machine 1``: OUT holds the lines and ``runs.tar.gz``; run folders
that can be opened and replayed, and rows of CSV, come into FOLDER. Simulations are means of five seeds.
"""

import argparse
import csv
import json
import shutil
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from headway.core.scheduler import Scheduler
from headway.core.tape import Tape, TapeWriter
from headway.fleet.experiment.scene import FleetScene
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind, unpack
from headway.fleet.traces import stored as request_table
from headway.runs.domain import with_table
from headway.runs.folder.folder import open_run
from headway.units import SECOND

SEEDS = range(5)
PAUSE = 20 * SECOND
COUNTED = ("answered", "failed", "in_time", "mean_s", "p50_s", "p90_s", "p99_s", "tasks", "batches", "loads")
COUNTED += ("cache_hits", "evictions", "moved_bytes", "rejected_actions")
Row = dict[str, Any]


def unpacked(out: Path, to: Path) -> dict[str, Path]:
    """Return the run folders of an archive by policy, made whole."""
    found = {}
    with tarfile.open(out / "runs.tar.gz") as archive:
        archive.extractall(to, filter="data")
    for run in sorted(to.iterdir()):
        if not (path := run / "requests.json").exists():
            continue
        requests = [Request(*row) for row in json.loads(path.read_text())]
        if not requests:
            shutil.rmtree(run)
            continue
        request_table.write(requests, run / "requests.parquet")
        path.unlink()
        found[run.name] = run
    return found


def latencies(tape: Tape, ids: range) -> dict[int, float]:
    """Return seconds by request of those that were answered."""
    return {row[2]: row[6] / SECOND for row in tape if row[1] == Kind.DONE and row[2] in ids}


def cost_usd(scene: FleetScene, tape: Tape, ids: range) -> float:
    """Return what the CPUs and slices of all batches of some requests cost; a mixed batch counts by its tasks."""
    prices, begun, total = scene.built.fleet.prices, dict[int, list[Any]](), 0.0
    for row in tape:
        time, kind, subject, lease, _, _, value = row
        if kind == Kind.RUN:
            cpus, slices, _ = unpack(value)
            begun[lease] = [time, cpus * prices.cpu_hour + slices * prices.slice_hour, 0, 0]
        elif kind == Kind.TASK:
            begun[lease][2] += subject in ids
            begun[lease][3] += 1
        elif kind == Kind.FINISHED and lease in begun:
            began, hour_usd, ours, tasks = begun.pop(lease)
            total += hour_usd * (time - began) / SECOND / 3600 * ours / tasks
    return total


def simulated(scene: FleetScene, seed: int) -> Tape:
    """Return the tape of a live run's requests in virtual time."""
    virtual = scene.simulated()
    assert virtual is not None
    parts = replace(virtual, experiment=with_table(virtual.experiment, "run", seed=seed)).begin()
    tape = TapeWriter()
    Scheduler(parts.state, parts.policy, parts.executor, tape).run()
    return tape.close()


def apart(scene: FleetScene, rows: Sequence[Mapping[str, Any]]) -> FleetScene:
    """Return a scene whose loads begin later, each by a pause more: live, each begins when the one before is over."""
    firsts = sorted(row["first"] for row in rows)
    moved = []
    for request in scene.requests:
        by = PAUSE * sum(request.id >= first for first in firsts)
        due = request.deadline + by if request.deadline else 0
        moved.append(request._replace(arrival=request.arrival + by, deadline=due))
    return replace(scene, requests=tuple(moved))


def without_pairs(scene: FleetScene) -> FleetScene:
    """Return a scene whose workers do not slow each other down."""
    return replace(scene, built=replace(scene.built, interference={}, by_share={}))


def without_neighbours(scene: FleetScene) -> FleetScene:
    """Return a scene whose workers neither slow each other down nor share a link."""
    built = without_pairs(scene).built
    fleet = replace(built.fleet, links=replace(built.fleet.links, shared=False))
    return replace(scene, built=replace(built, fleet=fleet))


def quantile(values: Iterable[float], part: float) -> float:
    """Return a value of a sorted list, as the live rows have it."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def compared(scene: FleetScene, tape: Tape, plays: Mapping[str, Sequence[Tape]], row: Mapping[str, Any]) -> Row:
    """Return what the tapes say of the requests of one row: live, and in virtual time."""
    ids = range(row["first"], row["last"] + 1)
    found: Row = {}
    due = {request.id: (request.deadline - request.arrival) / SECOND for request in scene.requests if request.deadline}
    for name, tapes in {"live": [tape], **plays}.items():
        taken = [latencies(each, ids) for each in tapes]
        found[f"{name}_mean_s"] = round(fmean(fmean(each.values()) for each in taken), 4)
        found[f"{name}_p99_s"] = round(fmean(quantile(each.values(), 0.99) for each in taken), 4)
        if due:
            hits = [sum(took <= due[request] for request, took in each.items()) for each in taken]
            found[f"{name}_hits"] = round(fmean(hits) / len(ids), 4)
            paid = fmean(cost_usd(scene, each, ids) for each in tapes)
            found[f"{name}_usd_1000"] = round(1000 * paid / len(ids), 5)
    return found


def load_rows(scene: FleetScene, tape: Tape) -> list[tuple[float, float]]:
    """Return by load what it took and what was booked, in milliseconds; batches with several models are left out."""
    open_, found = dict[int, list[int]](), []
    for row in tape:
        if row[1] == Kind.LOAD:
            open_.setdefault(row[3], []).extend((row[0], row[6]))
        elif row[1] == Kind.LOADED and (begun := open_.pop(row[3], None)) and len(begun) == 2:
            found.append(((row[0] - begun[0]) / 1e6, begun[1] / 1e6))
    return found


def write_csv(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Append rows to a table."""
    known = list(csv.DictReader(path.open())) if path.exists() else []
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows([*known, *rows])


def main() -> None:
    """Write tables and run folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--machine", type=int, default=1)
    parser.add_argument("--lines", default="fleet.jsonl")
    parser.add_argument("--without-pairs", action="store_true", help="simulate without the table of pairs")
    given = parser.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in (given.out / given.lines).read_text().splitlines()]
    keys = ("policy", "setting", "load", "slo", "rate")
    cells, loads = [], []
    for policy, folder in unpacked(given.out, given.to).items():
        stored = open_run(folder)
        scene = stored.scene
        assert isinstance(scene, FleetScene)
        assert scene.replay(stored.tape, complete=False).digest == stored.tape.digest, f"{policy} does not replay"
        rows = [row for row in lines if row["part"] == "serve" and row["policy"] == policy]
        played = apart(without_pairs(scene) if given.without_pairs else scene, rows)
        plays = {
            "simulated": [simulated(played, seed) for seed in SEEDS] if rows else [],
            "plain": [simulated(without_neighbours(played), seed) for seed in SEEDS] if rows else [],
        }
        for row in rows:
            shown = {key: row[key] for key in (*keys, *COUNTED) if key in row}
            most = {"most_device_bytes": max(row["device_bytes"])} if "device_bytes" in row else {}
            cells.append({"machine": given.machine, **shown, **most, **compared(scene, stored.tape, plays, row)})
            print(cells[-1], flush=True)
        if took := load_rows(scene, stored.tape):
            ratio = median(each[0] / each[1] for each in took)
            shown = {"took_ms_p50": median(each[0] for each in took), "booked_ms_p50": median(each[1] for each in took)}
            loads.append({"machine": given.machine, "policy": policy, "loads": len(took), **shown, "ratio_p50": ratio})
    write_csv(cells, given.to / "policies.csv")
    if loads:
        write_csv(
            [{k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()} for row in loads],
            given.to / "loads.csv",
        )


if __name__ == "__main__":
    main()
