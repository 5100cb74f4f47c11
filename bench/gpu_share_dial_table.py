"""Pairs that the dial met for the first time, all of one build, beside MPS and what was predicted: CSV and Markdown.

    python -m bench.gpu_share_dial_table STATE docs/background/results/h200-dial

STATE holds what ``scripts/gpu-share new limits`` wrote; ``predict.jsonl`` in the second folder what was predicted.
Writes ``one-build.csv`` and ``one-build-dial.csv`` there, and prints the table of the page. Rates below are parts of
the rate alone without a limit on SMs.
"""

import csv
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.gpu_share_rows import rows

MPS = {"mps100": "MPS", "mps30": "30 % of SMs", "mps50": "50 % of SMs", "client": "client priority"}
Row = dict[str, Any]


def joined(values: Iterable[float]) -> str:
    """Return rates of several programs in one cell."""
    return "+".join(f"{value:.4f}" for value in values)


def flat(row: Row, limits: Row | None, said: Row | None) -> Row:
    """Return all numbers of a pair in one row."""
    dial, last, first = row["dial"], row["last"], row["first"]
    share = [rate / alone for rate, alone in zip(row["low_gate_per_s"], row["low_alone_per_s"], strict=True)]
    made = {
        "build": row["build"],
        "above": row["high"],
        "below": row["low"],
        "aim": row["slo"],
        "alone_p50_ms": row["alone"]["p50_ms"],
        "first": first["value"],
        "first_half": first["half"],
        "last": last["value"],
        "last_half": last["half"],
        "p99": row["late"]["p99_ms"] / row["alone"]["p99_ms"],
        "dial": dial["value"],
        "dial_low": dial["low"],
        "dial_high": dial["high"],
        "holds": dial["holds"],
        "boldness": dial["boldness"],
        "held": dial["held"] / row["seconds"],
        "below_rate": joined(share),
        "energy": row["energy"]["ratio"],
    }
    for mode in MPS:
        found = limits["modes"].get(mode) if limits else None
        full = limits["modes"]["mps100"]["low_alone_per_s"] if limits else []
        made[f"{mode}_p50"] = found["beside"]["p50_ms"] / found["alone"]["p50_ms"] if found else ""
        rates = [rate / alone for rate, alone in zip(found["low_per_s"], full, strict=True)] if found else []
        made[f"{mode}_below"] = joined(rates)
    shares = said["modes"]["gate"]["shares"] if said else []
    made["predicted_below"] = joined(shares)
    return {key: f"{value:.4f}" if isinstance(value, float) else value for key, value in made.items()}


def cells(row: Row) -> list[str]:
    """Return a row of the page's table."""
    number = {key: float(row[key]) for key in ("first", "first_half", "last", "last_half", "p99", "energy")}
    low, value, high = (float(row[key]) for key in ("dial_low", "dial", "dial_high"))
    below = ", ".join(f"`{name}`" for name in row["below"].split(","))
    found = [f"`{row['above']}`", below, f"{number['first']:.3f} ± {number['first_half']:.3f}"]
    found += [
        f"{number['last']:.3f} ± {number['last_half']:.3f}",
        f"{value:.3f} ({low:.3f}–{high:.3f}, {row['holds']})",
    ]
    found += [
        f"{number['p99']:.2f}",
        short(row["below_rate"]),
        short(row["predicted_below"]),
        f"{number['energy']:.2f}",
    ]
    for mode in MPS:
        p50 = row[f"{mode}_p50"]
        found.append(f"{float(p50):.2f}; {short(row[f'{mode}_below'])}" if p50 else "–")
    return found


def short(rates: str) -> str:
    """Return rates of a cell with two digits."""
    return ", ".join(f"{float(rate):.2f}" for rate in rates.split("+")) if rates else "–"


def write(path: Path, made: Sequence[Row]) -> None:
    """Write rows as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(made[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(made)


def main() -> None:
    """Write both files, and print the table."""
    state, out = Path(sys.argv[1]), Path(sys.argv[2])
    files = state / "limits.jsonl", out / "predict.jsonl"
    limits, said = ({(row["high"], row["low"]): row for row in rows(path)} for path in files)
    measured = list(rows(state / "dialled.jsonl"))
    names = [(row["high"], row["low"]) for row in measured]
    made = [flat(row, limits.get(name), said.get(name)) for name, row in zip(names, measured, strict=True)]
    write(out / "one-build.csv", made)
    told = [
        {"above": row["high"], "below": row["low"], "s": round(each["ns"] / 1e9, 2)}
        | {key: each.get(key, "") for key in ("boldness", "value", "low", "high", "holds")}
        for row in measured
        for each in row["told"]
    ]
    write(out / "one-build-dial.csv", told)
    heads = ["above", "below", "first ten seconds", "last 20 s", "dial (interval, holds)", "p99 of alone"]
    heads += ["below", "predicted", "energy", *(f"{name}: p50; below" for name in MPS.values())]
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for row in made:
        print("| " + " | ".join(cells(row)) + " |")


if __name__ == "__main__":
    main()
