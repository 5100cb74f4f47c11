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
