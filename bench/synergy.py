"""The figures of Synergy (Mohan et al., OSDI 2022) as experiments: runs them, keeps their numbers, writes the tables.

    python -m bench.synergy --out /tmp/synergy --data FOLDER

runs every ``experiments/synergy-*.toml`` as FIGURES says, a run at a time, and writes the tables of
docs/background/results/synergy.md into the folder, as ``figures.csv`` and ``headway-against-tune.csv``. Each run that
ends is a line of ``runs.jsonl`` there, so a command that was stopped goes on where it was; a run whose settings changed
is another run. ``--again tune,headway`` forgets what these allocations gave, for when their code has changed,
``--current`` all that other code gave; a note says where tables mix the two. ``--data`` is searched for the files that
are not in the repository (two workloads of the paper's simulator, Philly, Helios Venus); what is not there is left out,
and said.
"""

import argparse
import csv
import hashlib
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import headway
from headway.formats import toml
from headway.jobs.tables.settings import Experiment
from headway.runs.measured import measured
from headway.runs.settings.files import variants

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"
SOURCE = Path(headway.__file__).parent
SRTF = ("policy.name=srtf",)
MULTI = ("trace.synergy.gpus=multi", "trace.synergy.rate=4/h")
SCALAR = ("speed.model=synergy-scalar", "run.completions=round")
FIGURES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "crosscheck single": ("crosscheck", (), "synergy_single.csv"),
    "crosscheck multi": ("crosscheck", (), "synergy_multi.csv"),
    "single": ("single", (), ""),
    "single, paper's model": ("single", SCALAR, ""),
    "multi": ("multi", (), ""),
    "multi, paper's model": ("multi", SCALAR, ""),
    "rounds fifo": ("rounds", (), ""),
    "rounds srtf": ("rounds", SRTF, ""),
    "rounds fifo, multi": ("rounds", MULTI, ""),
    "rounds srtf, multi": ("rounds", (*SRTF, *MULTI), ""),
    "splits fifo": ("splits", (), ""),
    "splits srtf": ("splits", SRTF, ""),
    "splits fifo, multi": ("splits", MULTI, ""),
    "ratio fifo": ("ratio", (), ""),
    "ratio srtf": ("ratio", SRTF, ""),
    "load fifo": ("load", (), ""),
    "load srtf": ("load", SRTF, ""),
    "load fifo, multi": ("load-multi", (), ""),
    "load srtf, multi": ("load-multi", SRTF, ""),
    "philly": ("philly", (), "philly.csv.gz"),
    "helios": ("helios", (), "helios_venus_gpu_jobs.csv.gz"),
    "bigdata": ("bigdata", (), ""),
    "bigdata 50/0/50": ("bigdata", ("trace.synergy.split=50,0,50",), ""),
    "bigdata, multi": ("bigdata", MULTI, ""),
    "opt fifo": ("opt", (), ""),
    "opt srtf": ("opt", SRTF, ""),
    "opt fifo, multi": ("opt", MULTI, ""),
    "storage fifo": ("storage", (), ""),
    "storage srtf": ("storage", SRTF, ""),
    "storage fifo, 50/0/50": ("storage", ("trace.synergy.split=50,0,50",), ""),
}
"""Name of a table: the experiment's file, what is set, and the file of data that it needs."""
KEPT = (
    *("policy", "jobs", "finished", "measured_jobs", "jct_mean_s", "jct_p50_s", "jct_p99_s", "wait_mean_s"),
    *("makespan_s", "gpu_utilisation", "effective_gpu_utilisation", "cpu_utilisation", "memory_utilisation"),
    *("fragmentation_mean", "preemptions", "decide_p99_ms", "wall_s", "jobs_per_s", "digest", "overload", "growing"),
)
MEAN_BAR, GAIN_BAR, TAIL_BAR, WAITING = 1.005, 0.97, 1.02, 0.10
"""Headway against tune: mean JCT at most, mean JCT at most where jobs wait over this share of it, p99 at most."""


@dataclass(frozen=True)
class Cell:
    """One run of a figure."""

    figure: str
    label: str
    each: Experiment
    command: str

    @property
    def allocation(self) -> str:
        """Who divides."""
        return self.each.policy.allocation

    @property
    def order(self) -> str:
        """Return the order of the queue."""
        return re.split(r"\W", self.each.policy.name, maxsplit=1)[0]

    @property
    def setting(self) -> str:
        """Return what the label says besides order and allocation."""
        return re.sub(rf"\b({self.allocation}|{self.order})\b", "", self.label).strip(" ,:")

    @property
    def key(self) -> str:
        """Everything the run depends on but the code; a file by its name alone."""
        return _digest(self.each)

    @property
    def group(self) -> str:
        """The same for runs that differ in the allocation alone."""
        policy = msgspec.structs.replace(self.each.policy, allocation="")
        return _digest(msgspec.structs.replace(self.each, policy=policy))


def _digest(each: Experiment) -> str:
    trace = msgspec.structs.replace(each.trace, path=Path(each.trace.path).name)
    plain = msgspec.json.encode(msgspec.structs.replace(each, trace=trace), order="sorted")
    return hashlib.sha256(plain).hexdigest()[:16]


# --- what to run ----------------------------------------------------------------------------------------------


def cells(figure: str, data: Mapping[str, Path], seeds: Sequence[int], sets: Sequence[str] = ()) -> Iterator[Cell]:
    """The runs of a figure, seed by seed; none where its data is not there."""
    name, fixed, wants = FIGURES[figure]
    if wants and wants not in data:
        print(f"{figure}: left out, {wants} is not in --data", file=sys.stderr)
        return
    path = EXPERIMENTS / f"synergy-{name}.toml"
    for seed in seeds:
        given = [*fixed, *([f"trace.path={data[wants]}"] if wants else []), *sets, f"run.seed={seed}"]
        document = toml.read(path)
        for assignment in [*given, "measure.confidence=0"]:
            toml.override(document, assignment)
        told = " ".join(f"--set {assignment}" for assignment in given)
        for label, each in variants(document, str(path)):
            yield Cell(figure, label, each, f"headway run experiments/{path.name} {told} # {label}")


def found(folders: Iterable[Path]) -> dict[str, Path]:
    """The files of data, by name."""
    wanted = {wants for _, _, wants in FIGURES.values() if wants}
    return {path.name: path for folder in folders for path in sorted(folder.rglob("*")) if path.name in wanted}


# --- running, once --------------------------------------------------------------------------------------------


class Results:
    """The lines of ``runs.jsonl``: the last of a key counts."""

    def __init__(self, folder: Path, again: Sequence[str] = (), *, current: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "runs.jsonl"
        text = self.path.read_text() if self.path.exists() else ""
        if not text.endswith("\n"):  # a line that a kill cut short
            text = text[: text.rfind("\n") + 1]
            self.path.write_text(text)
        rows = [json.loads(line) for line in text.splitlines()]
        self.code = code()
        self.rows: dict[str, dict[str, Any]] = {
            row["key"]: row
            for row in rows
            if row["allocation"] not in again and (not current or row.get("code") == self.code)
        }

    def of(self, cell: Cell) -> dict[str, Any]:
        """The numbers of a run, from the file or from the run itself."""
        if cell.key not in self.rows:
            outcome = measured(cell.each, cell.label)
            if outcome.stopped:
                raise KeyboardInterrupt
            row = {name: outcome.row.get(name) for name in KEPT}
            row |= {"key": cell.key, "figure": cell.figure, "variant": cell.label, "allocation": cell.allocation}
            row["code"] = self.code
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")
            self.rows[cell.key] = row
            print(f"{cell.figure}: {cell.label}: {told(row)}", file=sys.stderr, flush=True)
        return self.rows[cell.key]


def code() -> str:
    """Changes when anything does that a run may depend on; a fleet is something else."""
    found = (path for path in SOURCE.rglob("*") if path.suffix in (".py", ".toml"))
    files = sorted(path for path in found if "fleet" not in path.relative_to(SOURCE).parts)
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


def told(row: Mapping[str, Any]) -> str:
    """A run in a line."""
    hours = [row[name] / 3600 for name in ("jct_mean_s", "jct_p99_s", "wait_mean_s")]
    return f"JCT {hours[0]:.3f} h, p99 {hours[1]:.1f} h, wait {hours[2]:.3f} h, {row['wall_s']:.1f} s"


# --- tables ---------------------------------------------------------------------------------------------------

Pairs = Sequence[tuple[Cell, Mapping[str, Any]]]
Line = dict[str, str]
"""A line of a CSV file: its cells by column."""


def table(pairs: Pairs) -> Iterator[Line]:
    """Yield the lines of figures: means over seeds, and how many times better than proportional."""
    reference = {cell.group: row for cell, row in pairs if cell.allocation == "proportional"}
    lines: dict[tuple[str, str], list[tuple[Cell, Mapping[str, Any]]]] = defaultdict(list)
    for cell, row in pairs:
        lines[cell.figure, cell.label].append((cell, row))
    for runs in lines.values():
        rows = [row for _, row in runs]
        others = [reference.get(cell.group) for cell, _ in runs]
        seeds = sorted(cell.each.run.seed for cell, _ in runs)
        yield {
            "figure": runs[0][0].figure,
            "seeds": str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}",
            "order": runs[0][0].order,
            "setting": runs[0][0].setting,
            "allocation": runs[0][0].allocation,
            "jct_mean_h": f"{_mean(rows, 'jct_mean_s') / 3600:.2f}",
            "jct_p99_h": f"{_mean(rows, 'jct_p99_s') / 3600:.1f}",
            "wait_mean_h": f"{_mean(rows, 'wait_mean_s') / 3600:.2f}",
            "gpus_held_pct": f"{100 * _mean(rows, 'gpu_utilisation'):.0f}",
            "cpus_held_pct": f"{100 * _mean(rows, 'cpu_utilisation'):.0f}",
            "memory_held_pct": f"{100 * _mean(rows, 'memory_utilisation'):.0f}",
            "times_better_mean": _times(rows, others, "jct_mean_s"),
            "times_better_p99": _times(rows, others, "jct_p99_s"),
        }


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(sum(row[name] for row in rows)) / len(rows)


def _times(rows: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any] | None], name: str) -> str:
    found = [other for other in others if other is not None]
    return f"{_mean(found, name) / _mean(rows, name):.2f}" if len(found) == len(rows) else ""


def duels(pairs: Pairs) -> list[tuple[Cell, float, float, float]]:
    """Headway against tune where both ran: mean JCT and p99 as parts of tune's, and the share of wait under tune."""
    tune = {cell.group: row for cell, row in pairs if cell.allocation == "tune"}
    ours = [(cell, row, tune[cell.group]) for cell, row in pairs if cell.allocation == "headway" and cell.group in tune]
    return [
        (
            cell,
            row["jct_mean_s"] / other["jct_mean_s"],
            row["jct_p99_s"] / other["jct_p99_s"],
            other["wait_mean_s"] / other["jct_mean_s"],
        )
        for cell, row, other in ours
    ]


def verdict(mean: float, tail: float, wait: float) -> str:
    """Which bars a duel misses; empty: none."""
    missed = ["mean worse by over 0.5 %"] if mean > MEAN_BAR else []
    missed += ["gain under 3 % though jobs wait"] if wait > WAITING and mean > GAIN_BAR else []
    missed += ["p99 worse by over 2 %"] if tail > TAIL_BAR else []
    return ", ".join(missed)


def against(pairs: Pairs) -> Iterator[Line]:
    """Yield headway against tune, a line a duel."""
    for cell, mean, tail, wait in duels(pairs):
        yield {
            "figure": cell.figure,
            "order": cell.order,
            "setting": cell.setting,
            "seed": str(cell.each.run.seed),
            "wait_share_under_tune_pct": f"{100 * wait:.1f}",
            "jct_mean_headway_to_tune": f"{mean:.4f}",
            "jct_p99_headway_to_tune": f"{tail:.4f}",
            "missed": verdict(mean, tail, wait),
        }


def write(path: Path, lines: Sequence[Line]) -> None:
    """Write lines as CSV; no file where there are none."""
    if lines:
        with path.open("w", encoding="utf-8", newline="") as file:
            out = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
            out.writeheader()
            out.writerows(lines)
        print(f"{path}: {len(lines)} rows")


def main() -> int:
    """Run what is missing, write the tables of what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", help=f"of: {', '.join(FIGURES)}; or the first word of some; all")
    parser.add_argument("--out", type=Path, required=True, help="the folder of runs.jsonl")
    parser.add_argument("--data", type=Path, action="append", default=[], help="searched for traces; several times")
    parser.add_argument("--again", default="", help="allocations whose runs are made anew, with commas")
    parser.add_argument("--current", action="store_true", help="make anew what was run by other code")
    parser.add_argument("--only", default="", help="allocations to run, with commas; all")
    parser.add_argument("--seeds", type=int, default=1, help="so many, from 1 on, of drawn workloads")
    parser.add_argument("--set", dest="sets", action="append", default=[], help="key=value for every run")
    given = parser.parse_args()
    results = Results(given.out, [name for name in given.again.split(",") if name], current=given.current)
    data = found(given.data)
    only = [name for name in given.only.split(",") if name]
    every: list[tuple[Cell, Mapping[str, Any]]] = []
    for figure in FIGURES:
        if given.figures and not any(figure == name or figure.split()[0].strip(",") == name for name in given.figures):
            continue
        seeds = [1] if FIGURES[figure][2] else range(1, given.seeds + 1)
        chosen = [cell for cell in cells(figure, data, seeds, given.sets) if not only or cell.allocation in only]
        every += [(cell, results.of(cell)) for cell in chosen]
    if any(row.get("code") != results.code for _, row in every):
        print("some of these runs were made by other code: --current makes them anew", file=sys.stderr)
    write(given.out / "figures.csv", list(table(every)))
    write(given.out / "headway-against-tune.csv", list(against(every)))
    missed = [cell for cell, *numbers in duels(every) if verdict(*numbers)]
    print(*(cell.command for cell in missed), sep="\n", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
