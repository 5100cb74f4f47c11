"""The measured rows of ``scripts/gpu-share``, less what no table needs: small enough to lie beside the page of results.

    python -m bench.gpu_share_keep OUT STATE [--slicing F] [--coverage F] [--traces F] [--earlier N=F]…

STATE: the folder of the run with pairs, plain, dial and kills. Numbers are kept to five digits.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.gpu_share_rows import MODES, Measured, rows, slow

DIGITS = 5
GONE = (2, 3, 4, 5)
"""Reasons to go while somebody above is at work (headway.kernels.reflex.Reason)."""


def short(value: Any) -> Any:
    """Numbers to a few digits, all the way down."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: short(each) for key, each in value.items()}
    return [short(each) for each in value] if isinstance(value, list) else value


def pair(row: dict[str, Any]) -> dict[str, Any]:
    """A row of pairs, plain, slicing or dial."""
    kept: dict[str, Any] = {key: row[key] for key in ("high", "low", "think_ms", "slo") if key in row}
    for mode in (mode for mode in MODES if mode in row):
        kept[mode] = {key: each for key, each in row[mode].items() if each is not None}
    kept |= {key: row[key] for key in ("low_alone_per_s", "dial", "ns_a_launch") if row.get(key) is not None}
    if "ledger" in row:
        kept["let_go"] = {
            name: {"kernels": sum(each[f"reason{n}"] for n in GONE), "predicted_ns": each["harvested_ns"]}
            for name, each in row["ledger"].items()
        }
    return kept


def table_rows(all_: Measured) -> list[dict[str, Any]]:
    """The pairs as rows of an interference table, a pause between requests being part of the program's name.

    Nothing runs faster for company: what came out below one is noise and counts as one.
    """
    return [
        {
            "program": row["high"] + (f"@{row['think_ms']:g}ms" if row["think_ms"] else ""),
            "co_runner": row["low"],
            "sm_share_ppm": 1_000_000,
            "slowdown_ppm": max(1_000_000, round(slow(row, "gate") * 1_000_000)),
            "harvest_ppm": round(all_.of(row, "alone") * 1_000_000),
            "measured": True,
        }
        for row in all_.sound
        if "," not in row["low"]
    ]


def longest_ms(traces: Path, program: str) -> float:
    """The longest kernel of a program alone, a graph being one."""
    from headway.formats import kernel_trace

    trace = kernel_trace.read(traces / f"{program}.parquet")
    return float((trace.end_ns - trace.start_ns)[trace.kind != 3].max() / 1e6)


def digests(shared: Path, without: Path) -> list[dict[str, Any]]:
    """A row a process and program: its result with headway and in a process without it, fresh and after sharing."""
    mine, theirs = json.loads(shared.read_text()), json.loads(without.read_text())
    found = []
    for process, (fresh, after) in mine.items():
        for program in fresh:
            row = {"process": process, "program": program, "with": fresh[program], "with_after": after.get(program, "")}
            row |= {"without": theirs[process][0].get(program, "")}
            row |= {"without_after": theirs[process][1].get(program, "")}
            found.append(row)
    return found


def keep(
    out: Path, state: Path, slicing: Path, coverage: Path, traces: Path, earlier: Sequence[tuple[int, Path]] = ()
) -> None:
    """Write the files; what was not measured gives empty ones."""
    files = {name: [pair(row) for row in rows(state / f"{name}.jsonl")] for name in ("pairs", "plain", "dial")}
    files["slicing"] = [pair(row) for row in rows(slicing / "slicing.jsonl")]
    files["kills"] = list(rows(state / "kills.jsonl"))
    files["coverage"] = [
        {**row, "longest_ms": longest_ms(traces, row["program"])} for row in rows(coverage / "coverage.jsonl")
    ]
    with_, without = state / "digests-pairs.json", slicing / "digests-slicing.json"
    files["digests"] = digests(with_, without) if with_.exists() and without.exists() else []
    files["earlier"] = [{"run": n, **pair(row)} for n, folder in earlier for row in rows(folder / "pairs.jsonl")]
    out.mkdir(parents=True, exist_ok=True)
    for name, found in files.items():
        (out / f"{name}.jsonl").write_text("".join(json.dumps(short(row)) + "\n" for row in found))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("state", type=Path)
    for name in ("slicing", "coverage", "traces"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--earlier", action="append", default=[], help="NUMBER=FOLDER")
    given = parser.parse_args()
    state, earlier = given.state, [each.partition("=") for each in given.earlier]
    keep(
        given.out,
        state,
        given.slicing or state,
        given.coverage or state,
        given.traces or state / "traces",
        [(int(run), Path(folder)) for run, _, folder in earlier],
    )


if __name__ == "__main__":
    main()
