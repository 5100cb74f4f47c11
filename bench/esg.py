"""Turn sweeps of ESG's nine cells into CSV files and the tables of docs/background/results/esg.md.

    headway fleet sweep --grid experiments/esg-nine.toml -o sweeps/esg-nine
    headway fleet sweep --grid experiments/esg-assumptions.toml -o sweeps/esg-assumptions
    python -m bench.esg sweeps/esg-nine --changed sweeps/esg-assumptions --out docs/background/results/esg

``esg_cells`` says what is counted.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.esg_cells import (
    ARRIVALS,
    CALIBRATED,
    COST,
    DECISION_TIME,
    HITS,
    NONE,
    SLO,
    Row,
    changes,
    means,
    read,
    write,
)
from headway.fleet.show.terminal.ranking import best

STARTS = ("warm", "cold")
COMPETITORS = ("infless", "fast-gshare", "orion-dag", "aquatope")
LEAST_POINTS, LEAST_COST = 0.3, 0.5
"""Changes of hits in points, and of cost in per cent, that are worth a line of a table."""
CELLS = [(slo, arrivals) for slo in SLO.values() for arrivals in ARRIVALS.values()]
Group = dict[tuple[str, str, str, str], dict[str, Row]]
"""Rows by controller, start, deadline and arrivals, then by policy."""


def grouped(rows: Sequence[Row]) -> Group:
    """Return the rows of each cell by policy."""
    cells: Group = {}
    for row in rows:
        cells.setdefault((row["controller"], row["start"], row["slo"], row["arrivals"]), {})[row["policy"]] = row
    return cells


def best_of(cell: dict[str, Row]) -> list[str]:
    """Return the policies with the most requests in time, within 0.2 points, that cost at most 2 % over the least."""
    return [row["policy"] for row in best(list(cell.values()))]


# --- hits and cost --------------------------------------------------------------------------------------------


def hits_table(rows: Sequence[Row]) -> list[str]:
    """Return per cent in time, from warm / from cold: a line a policy, a column a cell; the best in bold."""
    return _table(rows, lambda row: f"{100 * row[HITS]:.2f}", HITS, 100.0, 2)


def cost_table(rows: Sequence[Row]) -> list[str]:
    """Return the same for dollars a million requests."""
    return _table(rows, lambda row: f"{1e6 * row[COST]:.1f}", COST, 1e6, 1)


def _table(rows: Sequence[Row], said: Callable[[Row], str], key: str, factor: float, digits: int) -> list[str]:
    cells = {place: cell for place, cell in grouped(rows).items() if place[0] == NONE}
    shown = [each for each in CELLS if any((NONE, start, *each) in cells for start in STARTS)]
    lines = [f"| policy | {' | '.join('-'.join(each) for each in shown)} | ± |", "|---" * (len(shown) + 2) + "|"]
    for policy in sorted({policy for cell in cells.values() for policy in cell}):
        texts, halves = [], [0.0]
        for each in shown:
            pair = [cells.get((NONE, start, *each), {}) for start in STARTS]
            texts.append(" / ".join(_cell_text(cell, policy, said) for cell in pair))
            halves += [factor * _half(cell[policy], key) for cell in pair if policy in cell]
        lines.append(f"| `{policy}` | {' | '.join(texts)} | {max(halves):.{digits}f} |")
    return lines


def _cell_text(cell: dict[str, Row], policy: str, said: Callable[[Row], str]) -> str:
    if policy not in cell:
        return ""
    text = said(cell[policy])
    return f"**{text}**" if policy in best_of(cell) else text


def _half(row: Row, key: str) -> float:
    """Return half the width of an interval, cut where no share can be; 0 for a single seed."""
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    if low is None or high is None:
        return 0.0
    return float(min(high, 1.0) - max(low, 0.0)) / 2 if key == HITS else float(high - low) / 2


# --- who is best ----------------------------------------------------------------------------------------------


def verdicts(rows: Sequence[Row], policy: str = "headway") -> list[str]:
    """Return for each controller and start in how many cells a policy is best, and what it lacks in the others.

    Cells that some policy was not run in are left out.
    """
    policies = {row["policy"] for row in rows} | {policy}
    cells = {place: cell for place, cell in grouped(rows).items() if cell.keys() == policies}
    lines = [f"| decisions | start | best: cells of {policy} | others that are | where it is not |", "|---" * 5 + "|"]
    for controller, start in dict.fromkeys(place[:2] for place in cells):
        here = {place[2:]: cell for place, cell in cells.items() if place[:2] == (controller, start)}
        won = {place: best_of(cell) for place, cell in here.items()}
        lost = [
            f"{'-'.join(place)}: {lacks(here[place], policy)}" for place, names in won.items() if policy not in names
        ]
        others = sorted({name for names in won.values() for name in names} - {policy})
        counts = ", ".join(f"`{name}` {sum(name in names for names in won.values())}" for name in others)
        ours = sum(policy in names for names in won.values())
        lines.append(f"| {controller} | {start} | {ours} of {len(won)} | {counts} | {'; '.join(lost)} |")
    return lines


def lacks(cell: dict[str, Row], policy: str) -> str:
    """Return what a policy lacks to be best of its cell: requests in time, or a lower cost."""
    first = cell[best_of(cell)[0]]
    most = max(row[HITS] for row in cell.values())
    fewer, dearer = 100 * (most - cell[policy][HITS]), 100 * (cell[policy][COST] / first[COST] - 1)
    return f"{fewer:.2f} points fewer, {dearer:+.1f} % cost against `{first['policy']}`"


# --- the paper's claims ---------------------------------------------------------------------------------------


def claims(rows: Sequence[Row]) -> list[str]:
    """Return by competitor and arrivals what ``esg`` is ahead in points, and the competitor dearer, over deadlines."""
    cells = grouped(rows)
    lines = ["| competitor | arrivals | points, warm | points, cold | dearer, warm | dearer, cold |", "|---" * 6 + "|"]
    for policy in COMPETITORS:
        for arrivals in ARRIVALS.values():
            texts = [
                span([difference(cells, (NONE, start, slo, arrivals), policy) for slo in SLO.values()], unit)
                for difference, unit in ((ahead, ""), (dearer, " %"))
                for start in STARTS
            ]
            lines.append(f"| `{policy}` | {arrivals} | {' | '.join(texts)} |")
    return lines


def ahead(cells: Group, place: tuple[str, str, str, str], policy: str) -> float | None:
    """Return by how many points ``esg`` has more requests in time; None: not run."""
    cell = cells.get(place, {})
    return 100 * (cell["esg"][HITS] - cell[policy][HITS]) if {"esg", policy} <= cell.keys() else None


def dearer(cells: Group, place: tuple[str, str, str, str], policy: str) -> float | None:
    """Return by how many per cent a policy costs more than ``esg``; None: not run."""
    cell = cells.get(place, {})
    return 100 * (cell[policy][COST] / cell["esg"][COST] - 1) if {"esg", policy} <= cell.keys() else None


def span(values: Sequence[float | None], unit: str) -> str:
    """Return the least and the largest of some values: '12 to 34 %'."""
    known = [value for value in values if value is not None]
    return f"{min(known):.0f} to {max(known):.0f}{unit}" if known else ""


# --- assumptions ----------------------------------------------------------------------------------------------


def decision_times(rows: Sequence[Row]) -> list[str]:
    """Return by policy the law of its decisions, and what they change, over the cells that were run with both."""
    lines = ["| policy | law | most busy | longest wait | points: least, most | dearer: most |", "|---" * 6 + "|"]
    for policy in sorted({row["policy"] for row in rows if row["controller"] == CALIBRATED}):
        timed = [row for row in rows if (row["controller"], row["policy"]) == (CALIBRATED, policy)]
        both = [row for row in timed if row["points"] is not None]
        points, costs = [row["points"] for row in both], [row["cost_percent"] for row in both]
        busy = max(row["controller_utilisation"] for row in timed)
        wait = max(row["decision_wait_mean_s"] for row in timed)
        changed = f"{min(points):+.2f}, {max(points):+.2f} | {max(costs):+.2f} %" if points else " | "
        law = timed[0]["law"]
        lines.append(f"| `{policy}` | `{law}` | {100 * busy:.1f} % | {1e6 * wait:.1f} µs | {changed} |")
    return lines


def assumption_table(rows: Sequence[Row]) -> list[str]:
    """Return by policy and change the points gained, with their interval, and the cost, from warm and from cold.

    What moves neither noticeably is left out, and decision times, which have a table of their own.
    """
    rows = [row for row in rows if row["assumption"] != DECISION_TIME]
    by_start = {(row["start"], row["policy"], row["changed"]): row for row in rows}
    moved = (row for row in rows if abs(row["points"]) >= LEAST_POINTS or abs(row["cost_percent"]) >= LEAST_COST)
    kinds = dict.fromkeys((row["policy"], row["assumption"], row["changed"]) for row in moved)
    lines = [
        "| policy | assumption | changed | points, warm | cost, warm | points, cold | cost, cold |",
        "|---" * 7 + "|",
    ]
    for policy, assumption, changed in kinds:
        texts: list[str] = []
        for start in STARTS:
            row = by_start.get((start, policy, changed))
            texts += ["", ""] if row is None else [_points(row), f"{row['cost_percent']:+.1f} %"]
        lines.append(f"| `{policy}` | {assumption} | `{changed}` | {' | '.join(texts)} |")
    return lines


def _points(row: Row) -> str:
    half = "" if row.get("points_low") is None else f" ± {(row['points_high'] - row['points_low']) / 2:.2f}"
    return f"{row['points']:+.2f}{half}"


def costliest(rows: Sequence[Row]) -> list[str]:
    """Return for each competitor and start which change gains most points: the assumption that costs it most.

    Decision time is taken away the other way round: what it loses with it.
    """
    lines = ["| competitor | start | of the four that competitors share | of all |", "|---|---|---|---|"]
    for policy in COMPETITORS:
        for start in STARTS:
            mine = [(row, _lost(row)) for row in rows if (row["policy"], row["start"]) == (policy, start)]
            shared = [pair for pair in mine if pair[0]["assumption"] != "plan"]
            if mine:
                lines.append(f"| `{policy}` | {start} | {_worst(shared)} | {_worst(mine)} |")
    return lines


def _lost(row: Row) -> float:
    return float(-row["points"] if row["changed"].startswith("controller=") else row["points"])


def _worst(pairs: Sequence[tuple[Row, float]]) -> str:
    row, lost = max(pairs, key=lambda pair: pair[1])
    return f"{row['assumption']} (`{row['changed']}`), {lost:.2f}" if lost > 0 else "none"


# --- all of them ----------------------------------------------------------------------------------------------


def tables(rows: Sequence[Row], changed: Sequence[Row]) -> Iterator[list[str]]:
    """Yield the tables of the page, in its order."""
    yield hits_table(rows)
    yield cost_table(rows)
    yield verdicts(rows)
    yield claims(rows)
    yield decision_times(rows)
    if changed:
        yield costliest(changed)
        yield assumption_table(changed)


def main(given: Sequence[str] | None = None) -> None:
    """Read the sweeps, write the CSV files, print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sweeps", nargs="+", type=Path)
    parser.add_argument("--changed", nargs="*", type=Path, default=[])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(given)
    nine = read(options.sweeps)
    if not nine:
        parser.error(f"no cell of {', '.join(map(str, options.sweeps))} was run")
    rows, changed = means(nine), changes(nine, read(options.changed))
    write(rows, options.out / "cells.csv")
    if changed:
        write(changed, options.out / "assumptions.csv")
    print("\n\n".join("\n".join(table) for table in tables(rows, changed)))


if __name__ == "__main__":
    main()
