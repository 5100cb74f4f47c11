"""Turn sweeps of ESG's nine cells into CSV files and the tables of docs/background/results/esg.md.

    headway fleet sweep --grid experiments/esg-nine.toml -o sweeps/esg-nine
    headway fleet sweep --grid experiments/esg-assumptions.toml -o sweeps/esg-assumptions
    python -m bench.esg sweeps/esg-nine --changed sweeps/esg-assumptions --out docs/background/results/esg

Several folders may be given for the cells, of one grid that was run in parts. Cells that were not run are left out, so
tables can be made of a sweep that is still going on; of a cell, only seeds that all its policies have are counted.
Intervals are Student's t over seeds.
"""

import argparse
import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.metrics.compare import replicated_interval
from headway.metrics.serving.ranking import best

SLO = {"0.8L": "strict", "1.0L": "moderate", "1.2L": "relaxed"}
ARRIVALS = {"uniform:40ms,67.2ms": "light", "uniform:20ms,33.6ms": "normal", "uniform:10ms,16.8ms": "heavy"}
KEYS = ("slo_hit_rate", "cost_per_request_usd", "dropped")
Row = dict[str, Any]


def read(folders: Iterable[Path]) -> list[Row]:
    """Return a row for each start, deadline, arrival process and policy, with means and intervals over seeds."""
    groups: dict[tuple[str, ...], dict[int, Mapping[str, Any]]] = {}
    for folder in folders:
        for path in sorted((folder / "cells").glob("*.json")):
            record = json.loads(path.read_bytes())
            if record["row"] is None:
                continue
            values = {key.rpartition(".")[2]: str(value) for key, value in record["values"].items()}
            start, slo, arrivals = (values.pop(key, "") for key in ("start", "slo", "arrivals"))
            policy = values.pop("name", record["row"]["policy"])  # a single one is no key of the grid
            more = ", ".join(f"{key}={value}" for key, value in values.items())
            key = (more, start, SLO.get(slo, slo), ARRIVALS.get(arrivals, arrivals), policy)
            groups.setdefault(key, {})[record["seed"]] = record["row"]
    seeds: dict[tuple[str, ...], set[int]] = {}
    for key, group in groups.items():
        seeds[key[:-1]] = seeds.get(key[:-1], set(group)) & set(group)
    return [_row(key, [group[seed] for seed in sorted(seeds[key[:-1]] or group)]) for key, group in groups.items()]


def _row(key: tuple[str, ...], runs: Sequence[Mapping[str, Any]]) -> Row:
    row: Row = dict(zip(("more", "start", "slo", "arrivals", "policy"), key, strict=True))
    row |= {"seeds": len(runs), "requests": runs[0]["requests"]}
    for name in KEYS:
        values = [float(run[name]) for run in runs]
        row[name] = sum(values) / len(values)
        if name in KEYS[:2]:
            low, high = (replicated_interval(values) if len(values) > 1 else None) or (None, None)
            row |= {f"{name}_low": low, f"{name}_high": high}
    return row


def cells(rows: Iterable[Row]) -> dict[tuple[str, str, str, str], list[Row]]:
    """Return the rows by cell, in the order strict to relaxed, light to heavy."""
    order = [[*SLO.values(), ""], [*ARRIVALS.values(), ""]]
    found: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: str(row["policy"])):
        found.setdefault((row["more"], row["start"], row["slo"], row["arrivals"]), []).append(row)
    return dict(sorted(found.items(), key=lambda item: (*item[0][:2], *_places(item[0][2:], order))))


def _places(values: Sequence[str], order: Sequence[Sequence[str]]) -> list[int]:
    return [known.index(value) if value in known else len(known) for value, known in zip(values, order, strict=True)]


def said(row: Row, *, bold: bool = False) -> str:
    """Return hits and dollars for 1,000 requests, with half the width of their intervals, cut where no share can be."""
    parts = []
    for name, factor, digits in ((KEYS[0], 100.0, 2), (KEYS[1], 1000.0, 4)):
        low, high = row[f"{name}_low"], row[f"{name}_high"]
        most = 1.0 if name == KEYS[0] else high
        half = "" if low is None else f" ± {factor * (min(high, most) - max(low, 0.0)) / 2:.{digits}f}"
        parts.append(f"{factor * row[name]:.{digits}f}{half}")
    text = f"{parts[0]} % at {parts[1]}"
    return f"**{text}**" if bold else text


def table(rows: Sequence[Row]) -> list[str]:
    """Return a Markdown table for each start: a line a policy, a column a cell; the best of a cell in bold."""
    lines = []
    found = cells(rows)
    for more, start in dict.fromkeys(key[:2] for key in found):
        here = {key[2:]: group for key, group in found.items() if key[:2] == (more, start)}
        chosen = {key: [row["policy"] for row in best(group)] for key, group in here.items()}
        policies = dict.fromkeys(row["policy"] for group in here.values() for row in group)
        lines += ["", f"Start {start}{', ' + more if more else ''}:", ""]
        lines += [f"| policy | {' | '.join('-'.join(key) for key in here)} |", "|---" * (len(here) + 1) + "|"]
        for policy in policies:
            by_cell = [next((row for row in group if row["policy"] == policy), None) for group in here.values()]
            texts = [
                "" if row is None else said(row, bold=policy in names)
                for row, names in zip(by_cell, chosen.values(), strict=True)
            ]
            lines.append(f"| `{policy}` | {' | '.join(texts)} |")
    return lines[1:]


def changes(rows: Sequence[Row]) -> list[str]:
    """Return a Markdown table of policies with one option changed, against the same policy without."""
    lines = ["| start | policy | changed | in time, $ for 1,000 | points gained |", "|---|---|---|---|---|"]
    for (_, start, _, _), group in cells(rows).items():
        plain = {row["policy"]: row for row in group if "(" not in row["policy"]}
        for name, base in plain.items():
            lines.append(f"| {start} | `{name}` | | {said(base)} | |")
            changed = [row for row in group if row["policy"].startswith(f"{name}(")]
            for row in sorted(changed, key=lambda row: -row[KEYS[0]]):
                gained = 100 * (row[KEYS[0]] - base[KEYS[0]])
                option = row["policy"].removeprefix(f"{name}(").removesuffix(")")
                lines.append(f"| {start} | `{name}` | `{option}` | {said(row)} | {gained:+.2f} |")
    return lines


def write(rows: Sequence[Row], path: Path) -> None:
    """Write rows as CSV, without columns that are empty."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        named = [key for key in rows[0] if any(row[key] not in ("", None) for row in rows)]
        writer = csv.DictWriter(file, named, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{value:.8g}" if isinstance(value, float) else value for key, value in row.items()})


def load(path: Path) -> list[Row]:
    """Return the rows of a CSV file as they were before they were written, to so many digits."""
    with path.open(newline="", encoding="utf-8") as file:
        read = [dict(row) for row in csv.DictReader(file)]
    numbers = [*KEYS, *(f"{key}_{end}" for key in KEYS[:2] for end in ("low", "high"))]
    names = dict.fromkeys(("more", "start", "slo", "arrivals"), "")
    return [names | row | {key: float(row[key]) if row.get(key) else None for key in numbers} for row in read]


def main(given: Sequence[str] | None = None) -> None:
    """Read the sweeps, write the CSV files, print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sweeps", nargs="+", type=Path)
    parser.add_argument("--changed", nargs="*", type=Path, default=[])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--name", default="cells", help="name of the CSV file, without its ending")
    options = parser.parse_args(given)
    rows = [row for group in cells(read(options.sweeps)).values() for row in group]
    if not rows:
        parser.error(f"no cell of {', '.join(map(str, options.sweeps))} was run")
    write(rows, options.out / f"{options.name}.csv")
    print("\n".join(table(rows)))
    won = [[row["policy"] for row in best(group)] for group in cells(rows).values()]
    counts = {name: sum(name in names for names in won) for names in won for name in names}
    print(f"\nBest of {len(won)} cells: {', '.join(f'{name} in {counts[name]}' for name in sorted(counts))}.")
    if changed := read(options.changed):
        write([row for group in cells(changed).values() for row in group], options.out / "assumptions.csv")
        print("\n" + "\n".join(changes(changed)))


if __name__ == "__main__":
    main()
