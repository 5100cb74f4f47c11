"""The CSV files of results: each is one whole table, and a page links to it."""

import csv
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT, links, name, read, rows, table, tables

RESULTS = DOCS / "background" / "results"
FILES = sorted(RESULTS.rglob("*.csv"))


def _faults(path: Path) -> list[str]:
    """Return what keeps a file from being one table: the header, its columns, the rows."""
    header, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines())
    faults = [] if rows else ["no row"]
    if not all(header) or any(not cell[:1].isalpha() for cell in header):
        faults.append("a column without a name")
    if len(set(header)) < len(header):
        faults.append("two columns of one name")
    if any(len(row) != len(header) for row in rows):
        faults.append("a row of another length")
    elif rows:
        faults += [f"{column}: empty" for column, *cells in zip(header, *rows, strict=True) if not any(cells)]
    if len({tuple(row) for row in rows}) < len(rows):
        faults.append("a row twice")
    return faults


def test_there_are_files() -> None:
    assert {"figures.csv", "pairs.csv", "steps.csv", "bench.csv"} <= {path.name for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_file_of_results_is_one_whole_table(path: Path) -> None:
    assert _faults(path) == []


def test_what_is_no_table_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    for text, fault in (
        ("a,b\n", "no row"),
        ("a,\n1,2\n", "a column without a name"),
        ("1,2\n3,4\n", "a column without a name"),
        ("a,a\n1,2\n", "two columns of one name"),
        ("a,b\n1,2,3\n", "a row of another length"),
        ("a,b\n1,\n2,\n", "b: empty"),
        ("a,b\n1,2\n1,2\n", "a row twice"),
    ):
        path.write_text(text)
        assert fault in _faults(path), text
    path.write_text("a,b\n1,\n2,3\n")
    assert _faults(path) == []


def test_every_file_of_results_is_linked_from_a_page() -> None:
    targets = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in PAGES
        for link in links(page.read_text(encoding="utf-8"))
    }
    assert [name(path) for path in FILES if path not in targets] == []
    assert ROOT in FILES[0].parents


def _numbers(cells: Iterable[str]) -> set[str]:
    """Return the cells that are numbers, without the commas between thousands."""
    return {plain for cell in cells if re.fullmatch(r"[-+]?[\d.]+", plain := cell.replace(",", "").removesuffix(" %"))}


@pytest.mark.parametrize(
    ("page", "number", "file"),
    [
        ("migration", 0, "migration/costs"),
        ("migration", 1, "migration/policies"),
        ("analysim-helios", 0, "analysim-helios"),
        ("partitions", 0, "partitions/variants"),
        ("full-runs", 1, "full-runs"),
        ("h200-synergy", 0, "h200-synergy/divisions"),
        ("profiling-cpu", 0, "profiling-cpu/checks"),
    ],
)
def test_the_rows_of_a_table_are_rows_of_its_file(page: str, number: int, file: str) -> None:
    """Every number of a row stands in one row of the file, beside the same words."""
    _, body = list(tables(read(RESULTS / f"{page}.md")))[number]
    kept = [set(row.values()) for row in rows(RESULTS / f"{file}.csv")]
    for cells in body:
        wanted = _numbers(cells) | {cell for cell in cells if cell and not _numbers([cell])}
        assert any(wanted <= each for each in kept), cells


def test_the_table_of_every_part_is_that_of_the_file() -> None:
    kept = rows(RESULTS / "full-runs.csv")
    _, body = next(tables(read(RESULTS / "full-runs.md")))
    of = {(row["trace"], row["policy"]): row for row in kept if row["condition"] == "none"}
    assert len(body) * 2 == len(of)
    for policy, *cells in body:
        both = [of[trace, policy] for trace in ("philly", "helios venus")]
        assert cells == [row[column] for row in both for column in ("jct_mean_h", "fragmentation_mean_pct")]
    assert f"in all {len(kept)} runs every job finished" in read(RESULTS / "full-runs.md")
    assert all(row["finished"] == row["jobs"] and row["audit"] == "clean" for row in kept)
    other = {row["policy"]: row for row in rows(RESULTS / "migration/policies.csv") if row["workload"] == "philly"}
    assert other["fifo"]["jct_mean_with_h"] == of["philly", "fifo+migrate"]["jct_mean_h"]


def test_the_tables_of_the_benchmarks_are_those_of_the_files() -> None:
    page = read("docs/background/benchmarks.md")
    kept = {row["case"]: row for row in rows(RESULTS / "benchmarks/cases.csv")}
    for case, count, *cells in next(tables(page))[1]:
        row = kept[case]
        assert count == f"{int(row['count']):,} {row['unit']}"
        assert [cell.replace(",", "") for cell in cells] == [
            row[key] for key in ("cpu_s", "count_per_cpu_s", "peak_mb")
        ]
    traces = {row["case"]: row for row in rows(RESULTS / "benchmarks/whole-traces.csv")}
    for case, *cells in table(page, "## Whole traces")[1]:
        wanted = [traces[case][key] for key in ("jobs", "jobs_per_s", "wall_s", "peak_mb")]
        assert [cell.replace(",", "") for cell in cells] == wanted
    ten, hundred = (float(traces[f"synthetic {size}, 10,000 GPUs"]["jobs_per_s"]) for size in ("1M", "100k"))
    assert f"at {ten / hundred:.2f} of the rate" in page
    for link, count, _ in table(page, "## The files")[1]:
        path = link.partition("(")[2].rstrip(")")
        assert len(rows(f"docs/background/{path}")) == int(count)
