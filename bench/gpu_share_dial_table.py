"""Pairs that the dial met for the first time, all of one build, beside MPS and what was predicted: CSV and Markdown.

    python -m bench.gpu_share_dial_table STATE docs/background/results/h200-dial

STATE holds what ``scripts/gpu-share new limits`` wrote. In the second folder, ``predict-first.jsonl`` is what was
predicted of the first meeting (``predict-again.jsonl``: of a settled dial, where that is missing), ``build-before.csv``
what MPS gave pairs whose limits were not all measured. Writes ``one-build.csv``, ``limits.csv`` and
``one-build-dial.csv`` there, and prints the tables of the page. Rates below are parts of the rate alone without a
limit on SMs.
"""

import csv
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.gpu_share_limits import slowdown
from bench.gpu_share_rows import rows

Row = dict[str, Any]
BEFORE = {"mps100": "mps100", "mps50": "mps50", "mps30": "mps30", "client100": "client"}
"""Settings of MPS, and their names in ``build-before.csv``."""


def joined(values: Iterable[float]) -> str:
    """Return rates of several programs in one cell."""
    return "+".join(f"{value:.4f}" for value in values)


def flat(row: Row, said: Row | None) -> Row:
    """Return all numbers of a pair at one aim in one row."""
    dial, last, first = row["dial"], row["last"], row["first"]
    share = [rate / alone for rate, alone in zip(row["low_gate_per_s"], row["low_alone_per_s"], strict=True)]
    first_time = row["slo"] == 1.05 and row.get("sms", 100) == 100
    made = {
        "build": row["build"],
        "above": row["high"],
        "below": row["low"],
        "aim": row["slo"],
        "sms": row.get("sms", 100),
        "alone_p50_ms": row["alone"]["p50_ms"],
        "alone_p95_ms": row["alone"].get("p95_ms", ""),
        "first": first.get("value", ""),
        "first_half": first.get("half", ""),
        "last": last["value"],
        "last_half": last["half"],
        "p99": row["late"]["p99_ms"] / row["alone"]["p99_ms"],
        "dial": dial.get("value", ""),
        "dial_low": dial.get("low", ""),
        "dial_high": dial.get("high", ""),
        "holds": dial.get("holds", 0),
        "boldness": dial["boldness"],
        "held": row["held"],
        "below_rate": joined(share),
        "energy": row["energy"].get("ratio", ""),
        "predicted_below": joined(said["modes"]["gate"]["shares"]) if said and first_time else "",
    }
    return {key: f"{value:.4f}" if isinstance(value, float) else value for key, value in made.items()}


def settings(limits: Iterable[Row], before: Iterable[Row]) -> list[Row]:
    """Return a row for each pair and setting of MPS: of pairs that are not in ``limits`` what was measured before."""
    made: list[Row] = []
    for row in limits:
        full = row["modes"]["mps100"]["low_alone_per_s"]
        for mode, found in row["modes"].items():
            if not found or not found["beside"] or not found["alone"]:
                continue
            p50, p99 = (f"{slowdown(found, p):.4f}" for p in ("p50", "p99"))
            below = joined(rate / alone for rate, alone in zip(found["low_per_s"], full, strict=True))
            made.append(
                {"above": row["high"], "below": row["low"], "mode": mode, "p50": p50, "p99": p99, "rate": below}
            )
    there = {(row["above"], row["below"]) for row in made}
    for row in before:
        for mode, name in BEFORE.items():
            if (row["above"], row["below"]) not in there and row[f"{name}_p50"]:
                p50, below = row[f"{name}_p50"], row[f"{name}_below"]
                pair = {"above": row["above"], "below": row["below"]}
                made.append({**pair, "mode": mode, "p50": p50, "p99": "", "rate": below})
    return made


def best(row: Row, mps: Iterable[Row]) -> Row | None:
    """Return the setting of MPS that gives those below most at a p50 no worse than headway's; None: none is as low."""
    mine = [each for each in mps if (each["above"], each["below"]) == (row["above"], row["below"])]
    low_enough = [each for each in mine if float(each["p50"]) <= float(row["last"])]
    return max(low_enough, key=lambda each: total(each["rate"]), default=None)


def total(rates: str) -> float:
    """Return the sum of the rates in a cell."""
    return sum(map(float, rates.split("+")))


def cells(row: Row, mps: Sequence[Row]) -> list[str]:
    """Return a row of the page's table at an aim of 1.05."""
    below = ", ".join(f"`{name}`" for name in row["below"].split(","))
    found = [f"`{row['above']}`", below, _within(row, "first"), _within(row, "last"), _dial(row)]
    found += [f"{float(row['p99']):.2f}", short(row["below_rate"]), short(row["predicted_below"])]
    found.append(f"{float(row['energy']):.2f}" if row["energy"] else "–")
    here = best(row, mps)
    found.append(f"{words(here['mode'])}: {float(here['p50']):.2f}; {short(here['rate'])}" if here else "none")
    if not any((each["above"], each["below"]) == (row["above"], row["below"]) for each in mps):
        found[-1] = "not measured"
    return found


def other_cells(row: Row, others: Sequence[Row]) -> list[str]:
    """Return a row of the page's table of other aims and limits: p50, the dial, and those below, of each."""
    below = ", ".join(f"`{name}`" for name in row["below"].split(","))
    parts = [f"{float(each['last']):.3f} ± {float(each['last_half']):.3f}; {_dial(each)}" for each in others]
    pairs = zip(parts, others, strict=True)
    return [f"`{row['above']}`", below, *(cell for part, each in pairs for cell in (part, short(each["below_rate"])))]


def words(mode: str) -> str:
    """Return a setting of MPS in words."""
    kind, percent = mode.rstrip("0123456789"), mode[len(mode.rstrip("0123456789")) :]
    limit = "" if percent == "100" else f"{percent} % of SMs"
    return ", ".join(part for part in ("client priority" if kind == "client" else "MPS", limit) if part)


def _within(row: Row, name: str) -> str:
    return f"{float(row[name]):.3f} ± {float(row[f'{name}_half']):.3f}" if row[name] else "–"


def _dial(row: Row) -> str:
    if row["dial"] == "":
        return "–"
    low, value, high = (float(row[key]) for key in ("dial_low", "dial", "dial_high"))
    return f"{value:.3f} ({low:.3f}–{high:.3f}, {row['holds']})"


def short(rates: str) -> str:
    """Return rates of a cell with two digits."""
    return ", ".join(f"{float(rate):.2f}" for rate in rates.split("+")) if rates else "–"


def write(path: Path, made: Sequence[Row]) -> None:
    """Write rows as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(made[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(made)


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    """Print a table in Markdown."""
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for line in lines:
        print("| " + " | ".join(line) + " |")
    print()


def main() -> None:
    """Write the files, and print the tables."""
    state, out = Path(sys.argv[1]), Path(sys.argv[2])
    files = out / "predict-again.jsonl", out / "predict-first.jsonl"
    said = {(row["high"], row["low"]): row for file in files for row in rows(file)}
    measured = list(rows(state / "dialled.jsonl"))
    made = [flat(row, said.get((row["high"], row["low"]))) for row in measured]
    before = list(csv.DictReader((out / "build-before.csv").read_text().splitlines()))
    mps = settings(rows(state / "limits.jsonl"), before)
    write(out / "one-build.csv", made)
    write(out / "limits.csv", mps)
    told = [
        {"above": row["high"], "below": row["low"], "aim": row["slo"], "sms": row.get("sms", 100)}
        | {"s": round(each["ns"] / 1e9, 2)}
        | {key: each.get(key, "") for key in ("boldness", "value", "low", "high", "holds")}
        for row in measured
        for each in row["told"]
    ]
    write(out / "one-build-dial.csv", told)
    heads = ["above", "below", "first ten seconds", "at the end", "dial (interval, holds)", "p99 of alone", "below"]
    heads += ["predicted", "energy", "MPS at no worse a p50: p50; below"]
    first = [row for row in made if (row["aim"], row["sms"]) == ("1.0500", 100)]
    table(heads, [cells(row, mps) for row in first])
    for others in (("1.0200", 100), ("1.2000", 100)), (("1.0500", 30), ("1.0500", 100)):
        heads = ["above", "below"]
        for aim, sms in others:
            name = f"aim {float(aim):g}" if aim != "1.0500" else "all SMs" if sms == 100 else f"{sms} % of SMs"
            heads += [f"{name}: at the end; dial (interval, holds)", "below"]
        found = [(row, [_of(made, row, *each) for each in others]) for row in first]
        table(heads, [other_cells(row, every) for row, every in found if all(every)])


def _of(made: Iterable[Row], row: Row, aim: str, sms: int) -> Row:
    """Return the row of the same pair at another aim or limit; empty where there is none."""
    pair = row["above"], row["below"], aim, sms
    return next((each for each in made if (each["above"], each["below"], each["aim"], each["sms"]) == pair), {})


if __name__ == "__main__":
    main()
