"""The measured rows of ``scripts/gpu-share``, less what no table needs: small enough to lie beside the page of results.

    python -m bench.gpu_share_keep OUT STATE [--traces FOLDER]

STATE: the folder of the run. Numbers are kept to five digits.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.gpu_share_merge import MODES, key, merge, slow
from bench.gpu_share_rows import Measured, rows

DIGITS = 5
OF_THE_MACHINE = ("said", "doctor", "wall_s")
"""What the commands said of the machine they ran on: paths, and the last words of programs that were ended."""
HELD = ("bypass", "shim", "alone")
"""Modes in which those below do nothing."""


def short(value: Any) -> Any:
    """Numbers to a few digits, all the way down."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: short(each) for key, each in value.items()}
    return [short(each) for each in value] if isinstance(value, list) else value


def pair(row: dict[str, Any]) -> dict[str, Any]:
    """A row of pairs, slicing or dial."""
    kept: dict[str, Any] = {key: row[key] for key in ("high", "low", "think_ms", "slo") if key in row}
    for mode in (mode for mode in MODES if mode in row):
        kept[mode] = {key: each for key, each in row[mode].items() if each is not None}
        if mode in HELD:
            kept[mode].pop("low_per_s", None)
        if "iqr" in kept[mode]:
            kept[mode]["error"] = kept[mode].pop("iqr") / float(kept[mode].pop("rounds")) ** 0.5
    return kept | {
        key: row[key] for key in ("low_alone_per_s", "dial", "ns_a_launch", "ask_ns") if row.get(key) is not None
    }


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
        for row in (*all_.pairs, *merge(all_.lines("fresh")))
        if "," not in row["low"]
    ]


def longest_ms(traces: Path, program: str) -> float:
    """The longest kernel of a program alone, a graph being one."""
    from headway.gpu.programs import trace as kernel_trace

    trace = kernel_trace.read(traces / f"{program}.parquet")
    return float((trace.end_ns - trace.start_ns)[trace.kind != 3].max() / 1e6)


def digests(shared: Path, without: Path) -> list[dict[str, Any]]:
    """A row a process and program: its result with headway and in a process without it, fresh and after sharing."""
    theirs: dict[str, list[dict[str, str]]] = {}
    for name, both in (each for row in rows(without) for each in row.items()):  # a line a session
        theirs[name] = [{**before, **found} for before, found in zip(theirs.get(name, [{}, {}]), both, strict=True)]
    made = []
    for process, (fresh, after) in ((name, found) for row in rows(shared) for name, found in row.items()):
        other = theirs.get(process.replace("plain", "low"), [{}, {}])
        for program in fresh:
            row = {"process": process, "program": program, "with": fresh[program], "with_after": after.get(program, "")}
            row |= {"without": other[0].get(program, ""), "without_after": other[1].get(program, "")}
            made.append(row)
    return made


def keep(out: Path, state: Path, traces: Path) -> None:
    """Write the files; what was not measured gives empty ones."""
    last = {key(row): row for row in rows(state / "pairs.jsonl")}  # one that was measured again counts once
    every = [pair(row) for row in last.values()]
    files = {"pairs": [row for row in every if "mps" in row], "fresh": [row for row in every if "mps" not in row]}
    files |= {name: [pair(row) for row in rows(state / f"{name}.jsonl")] for name in ("slicing", "dial")}
    files["kills"] = list(rows(state / "kills.jsonl"))
    files["commands"] = [
        {name: each for name, each in row.items() if name not in OF_THE_MACHINE}
        for row in rows(state / "commands.jsonl")
    ]
    files["coverage"] = [
        {**row, "longest_ms": longest_ms(traces, row["program"])} for row in rows(state / "coverage.jsonl")
    ]
    files["digests"] = digests(state / "digests-pairs.jsonl", state / "digests-slicing.jsonl")
    for name, found in files.items():
        put(out, name, found)


def both(kept: Path, again: Path) -> None:
    """A second pass beside the first: rows of pairs and results by their run; what the first lacks is the second's."""
    for name in ("pairs", "fresh", "digests"):
        put(
            kept,
            name,
            [{**row, "run": n} for n, one in enumerate((kept, again), 1) for row in rows(one / f"{name}.jsonl")],
        )
    for name in ("slicing", "dial", "coverage", "kills", "commands"):
        found = [(n, row) for n, one in enumerate((kept, again), 1) for row in rows(one / f"{name}.jsonl")]
        first = min((n for n, _ in found), default=0)
        put(kept, name, [{**row, "run": n} for n, row in found if n == first])


def put(out: Path, name: str, found: Iterable[dict[str, Any]]) -> None:
    """Write one of the files."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.jsonl").write_text("".join(json.dumps(short(row)) + "\n" for row in found))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("state", type=Path)
    parser.add_argument("--traces", type=Path)
    given = parser.parse_args()
    keep(given.out, given.state, given.traces or given.state / "traces")


if __name__ == "__main__":
    main()
