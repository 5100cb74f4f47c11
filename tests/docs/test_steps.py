"""The page about the noise of steps says what its data say."""

import csv
import re

from tests.docs.pages import ROOT, read, tables

PAGE = read("docs/background/results/steps.md")
PAIRS = "median of pairs"
with (ROOT / "docs/background/results/h200/steps.csv").open(encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file))
NOISE = {
    (row["program"], row["estimator"], row["stretch_ms"], row["held_share"]): row["half_width_95"]
    for row in ROWS
    if row["over_s"] == "20"
}
PROGRAMS = sorted({row["program"] for row in ROWS})


def _pairs(program: str, stretch_ms: str, share: str) -> float:
    return float(NOISE[program, PAIRS, stretch_ms, share])


def test_the_table_is_that_of_the_data() -> None:
    ((header, rows),) = tables(PAGE)
    columns = [re.fullmatch(r"(.+), (\d+) ms", name) for name in header[2:]]
    steps = {row["program"]: row["step_ms"] for row in ROWS}
    assert [row[0].strip("`") for row in rows] == PROGRAMS
    for program, row in zip(PROGRAMS, rows, strict=True):
        wanted = [NOISE[program, found[1], found[2], "0.05"] for found in columns if found]
        assert row[1:] == [steps[program], *wanted]
        assert len(wanted) == 5


def test_what_is_said_of_the_ways_to_compare_is_so() -> None:
    noise = [_pairs(program, "50", "0.05") for program in PROGRAMS]
    pooled = [float(NOISE[program, "ratio of medians", "50", "0.05"]) for program in PROGRAMS]
    assert f"Their noise is {min(noise)} to {max(noise):.3f}." in PAGE
    assert f"is up to {max(pooled):.2f}." in PAGE
    assert f"All {len(ROWS)} rows" in PAGE


def test_what_is_said_of_the_length_of_stretches_is_so() -> None:
    for program in PROGRAMS:
        longer = [_pairs(program, stretch, "0.05") for stretch in ("100", "250", "500")]
        assert (min(longer) > _pairs(program, "50", "0.05")) == (program != "decoder-graph")
    larger = sum(_pairs(program, "500", "0.5") > _pairs(program, "50", "0.05") for program in PROGRAMS)
    assert larger == 8
    assert "for eight of ten programs" in PAGE
