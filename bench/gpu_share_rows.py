"""What ``scripts/gpu-share`` measured, as the tables read it: rows, ratios, and what follows from two files at once."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.gpu_share_merge import Key, Row, key, merge, slow

REQUESTS = 14
"""Of a program while it was counted."""
WIDE = 1.15
FIKIT = (1.32, 16.41)


def rows(path: Path) -> Iterator[Row]:
    """The lines of a file of results, none if it is not there."""
    if path.exists():
        yield from (json.loads(text) for text in path.read_text().splitlines() if text.strip())


def slow99(row: Row, mode: str) -> float:
    """The same at the 99th percentile, over all rounds together."""
    return float(row[mode]["p99_ms"] / row["alone"]["p99_ms"])


def share(mine: Sequence[float], theirs: Sequence[float]) -> float:
    """What the programs below got done, of what they get done elsewhere: the mean over them."""
    return sum(a / b for a, b in zip(mine, theirs, strict=True)) / len(mine)


def table(header: str, body: Iterable[Sequence[object]]) -> str:
    """Markdown."""
    names = header.split(" | ")
    lines = [f"| {header} |", "|" + "---|" * len(names)]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in body)])


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Median and range."""
    return f"{median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def named(row: Row) -> str:
    """A pair in a table."""
    pause = "" if not row["think_ms"] else f", {row['think_ms']:g} ms"
    return f"{row['high']} + {row['low'].replace(',', ', ')}{pause}"


@dataclass
class Measured:
    """All that was measured, as it lies in a folder. ``pairs``: of several passes (``run``) the means."""

    folder: Path
    pairs: list[Row] = field(init=False)
    passes: list[Row] = field(init=False)
    slicing: dict[Key, Row] = field(init=False)
    programs: dict[str, Row] = field(init=False)
    earlier: list[Row] = field(init=False)

    def __post_init__(self) -> None:
        """Read the files."""
        self.slicing = {key(row): row for row in self.lines("slicing")}
        self.passes = [row for row in self.lines("pairs") if key(row) in self.slicing]
        self.pairs = merge(self.passes)
        self.programs = {row["program"]: row for row in self.lines("coverage")}
        self.earlier = self.lines("earlier")

    def lines(self, name: str) -> list[Row]:
        """The rows of a file."""
        return list(rows(self.folder / f"{name}.jsonl"))

    def busy_ms(self, program: str) -> float:
        """Time on the GPU of a request: its kernels' durations alone, added up."""
        found = self.programs[program]
        return float(found["busy_share"] * found["request_ms"])

    def before(self, row: Row) -> float:
        """The GPU's busy share with the program above alone."""
        return self.busy_ms(row["high"]) / float(row["alone"]["p50_ms"] + row["think_ms"])

    def after(self, row: Row) -> float:
        """With those below beside it. Kernels that overlap count twice: it may be above one."""
        high = self.busy_ms(row["high"]) / float(row["alone"]["p50_ms"] * slow(row, "gate") + row["think_ms"])
        lows = zip(row["low"].split(","), row["gate"]["low_per_s"], strict=True)
        return high + sum(float(rate) * self.busy_ms(low) / 1000 for low, rate in lows)

    def bound_ms(self, row: Row) -> float:
        """The p99 that is allowed: alone and 1.2 of the longest kernel below."""
        longest = max(float(self.programs[low]["longest_ms"]) for low in row["low"].split(","))
        return float(row["alone"]["p99_ms"]) + 1.2 * longest

    def surely_late(self, row: Row) -> bool:
        """Whether the p99 is above what is allowed in 19 of 20 ways to draw the rounds again."""
        least: float = row["gate"]["p99_over_ms"][0]
        return least > self.bound_ms(row) - float(row["alone"]["p99_ms"])

    def of(self, row: Row, where: str) -> float:
        """What those below got through the gate, of what they get alone, under MPS or under time slicing."""
        if where == "slicing":
            mine, sliced = self.with_slicing(row)
            return share(mine["gate"]["low_per_s"], sliced["slicing"]["low_per_s"])
        theirs = row["low_alone_per_s"] if where == "alone" else row[where]["low_per_s"]
        return share(row["gate"]["low_per_s"], theirs)

    def of_alone_sliced(self, row: Row) -> float | None:
        """The same of time slicing, each as a share of what it was alone in its own session: the machine falls out."""
        row, sliced = self.with_slicing(row)
        if not sliced.get("low_alone_per_s"):
            return None
        mine, theirs = row["gate"]["low_per_s"], sliced["slicing"]["low_per_s"]
        ours = [a / b for a, b in zip(mine, row["low_alone_per_s"], strict=True)]
        return share(ours, [a / b for a, b in zip(theirs, sliced["low_alone_per_s"], strict=True)])

    @property
    def runs(self) -> list[int]:
        """The passes whose means the pairs are."""
        return sorted({row["run"] for row in self.passes if "run" in row})

    def again(self, row: Row, run: int) -> Row | None:
        """The same pair in one pass, or in an earlier run."""
        every = (*self.passes, *self.earlier)
        return next((each for each in every if each.get("run") == run and key(each) == key(row)), None)

    def with_slicing(self, row: Row) -> tuple[Row, Row]:
        """A pair under time slicing, and before it the same of the pass on the same machine, where that is known."""
        sliced = self.slicing[key(row)]
        beside = self.again(row, sliced["run"]) if "run" in sliced else None
        return beside or row, sliced

    def faster(self, row: Row) -> float:
        """By how much a request is quicker through the gate than under time slicing."""
        mine, sliced = self.with_slicing(row)
        return slow(sliced, "slicing") / slow(mine, "gate")

    def predicted(self) -> list[tuple[Row, Row]]:
        """Pairs that were predicted before they were measured: what was said, what came."""
        came = {key(row): row for row in merge(self.lines("fresh"))}
        return [(row, came[key(row)]) for row in self.lines("predict") if key(row) in came]


def overheads(all_: Measured) -> list[tuple[Row, float, float, float]]:
    """Of each pair back to back: shim and measuring over hooks that do nothing; the hooks' own time of p50."""
    found = []
    for row in (row for row in all_.pairs if "shim" in row):
        program = all_.programs[row["high"]]
        own = row.get("ns_a_launch", 0) * program["seen"] / REQUESTS / 1e6 / row["alone"]["p50_ms"]
        found.append((row, float(row["shim"]["over_bypass"]), float(row["alone"]["over_bypass"]), own))
    return found
