"""The page about how the cost of a run grows says what its data say."""

import re

from bench.growth import POLICIES
from bench.growth_figure import OTHERS, figure, svg, tables
from bench.growth_rows import exponent, measured_only, read
from tests.docs.pages import ROOT, read as text_of

PAGE = text_of("docs/background/results/growth.md")
ROWS = read(ROOT / "docs/background/results/growth.csv")


def test_the_tables_are_those_of_the_data() -> None:
    lines = [line for line in tables(ROWS) if line]
    assert len(lines) >= 2 * (3 + len(POLICIES))
    assert [line for line in lines if line not in PAGE.splitlines()] == []
    assert sum(line.startswith("| `") for line in PAGE.splitlines()) == 2 * len(POLICIES)


def test_the_picture_is_that_of_the_data() -> None:
    assert text_of("docs/background/results/growth.svg") == svg(figure(ROWS))


def test_the_page_says_how_far_it_goes() -> None:
    known = measured_only(ROWS)
    assert f"{len(known)} of {len(ROWS)} points" in PAGE
    assert f"{max(row.limit_s for row in ROWS if row.note):g} CPU seconds" in PAGE


def test_the_page_says_why_points_are_missing() -> None:
    missing = [row for row in ROWS if row.note]
    expected = {f"{row.policy} on {row.gpus:,}": _expected_s(row.note) for row in missing if "expected" in row.note}
    behind = sum("has no result" in row.note for row in missing)
    (ended,) = (row for row in missing if row.note.startswith("ended"))
    assert len(expected) + behind + 1 == len(missing)
    assert f"Of the other {len(missing)}, {len(expected)} were not run because more was expected" in PAGE
    assert f"{behind} because the point before had no result, and 1 was ended at the limit" in PAGE
    assert f"(`{ended.policy}` on {ended.gpus:,} GPUs)" in PAGE
    assert min(expected.items(), key=lambda each: each[1]) == ("fifo on 100,000", 72)
    assert "(72 s at least, for `fifo` on 100,000 GPUs)" in PAGE


def _expected_s(note: str) -> int:
    """CPU seconds that a point was expected to take."""
    return int(re.findall(r"about (\d+) CPU s", note)[0])


def test_the_answer_and_the_noise_are_those_of_the_data() -> None:
    rates = {(row.series, row.policy, row.point.size): row.jobs_per_s or 0 for row in measured_only(ROWS)}
    largest = [f"{rates['jobs', policy, 1_000_000]:,.0f}" for policy in ("fifo", "sjf")]
    assert f"at {largest[0]} jobs a CPU second under `fifo` and {largest[1]} under `sjf`" in PAGE
    for policy, gpus in (("fifo", 30_000), ("las", 10_000)):
        assert f"falls from {rates['gpus', policy, 1_000]:,.0f} to {rates['gpus', policy, gpus]:,.0f}" in PAGE
    twice = [sorted((rates["jobs", policy, 10_000], rates["gpus", policy, 1_000])) for policy in POLICIES]
    apart = [100 * (high / low - 1) for low, high in twice]
    assert f"differ by {min(apart):.0f} to {max(apart):.0f} %" in PAGE
    longest = max((row.wall_s or 0) / (row.cpu_s or 1) for row in measured_only(ROWS))
    assert f"up to {longest:.0f} times as long" in PAGE


def test_the_powers_that_the_page_names_are_those_of_the_data() -> None:
    found = {}
    for series in ("jobs", "gpus"):
        alike = ([row for row in measured_only(ROWS) if (row.series, row.policy) == (series, p)] for p in POLICIES)
        found[series] = [round(exponent(rows) or 0, 2) for rows in alike]
    told = re.findall(r"\((\d\.\d\d) to (\d\.\d\d)\)", PAGE)
    assert told == [(f"{min(powers):.2f}", f"{max(powers):.2f}") for powers in found.values()]


def test_the_rates_of_other_simulators_are_those_of_the_benchmarks() -> None:
    page = text_of("docs/background/benchmarks.md")
    for name, (least, most) in OTHERS.items():
        assert f"{least:,}–{most:,}" in page, name
