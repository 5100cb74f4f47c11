"""The page of Compass at scale says what its file says, and the file is of the grid that the page names."""

import itertools

from bench.compass_scale import COLUMNS, SHEET, summary
from headway.formats import toml
from headway.runs.sweep.sweep import axes_of, cells_of
from tests.docs.pages import ROOT, read, rows, table

PAGE = read("docs/background/results/compass-scale.md")
KEPT = {
    (row["fidelity"], row["workers"], row["policy"]): row for row in rows("docs/background/results/compass-scale.csv")
}


def test_the_tables_are_those_of_the_file() -> None:
    for heading, fidelity in (("### By the authors' simplifications", "authors"), ("### As it is", "true")):
        header, body = table(PAGE, heading)
        assert [line[0] for line in body] == [str(workers) for workers in range(20, 241, 20)]
        for workers, *cells in body:
            policy = ""
            for head, cell in zip(header[1:], cells, strict=True):
                policy = policy if head == "authors" else head
                row = KEPT[fidelity, workers, policy]
                interval = f"{row['slowdown_median']} [{row['low']}, {row['high']}]"
                assert cell == (row["slowdown_median_sheet"] if head == "authors" else interval)


def test_the_file_has_every_cell_of_the_grid() -> None:
    document = toml.read(ROOT / "experiments" / "sweeps" / "compass-scale.toml")
    axes = axes_of(document)
    found = {tuple(map(str, values)) for values in itertools.product(*axes.values())}
    assert set(KEPT) == found
    assert {row["seeds"] for row in KEPT.values()} == {str(document["measure"]["seeds"])}
    assert len(cells_of(document, axes, "test")) == 10 * len(KEPT)
    assert "headway fleet sweep --grid experiments/sweeps/compass-scale.toml" in PAGE


def test_what_the_page_says_of_the_brackets_is_so() -> None:
    inside = {"compass": 0, "hash": 0}
    for (policy, workers), theirs in SHEET.items():
        row = KEPT["authors", str(workers), policy]
        assert float(row["low"]) <= float(row["slowdown_median"]) <= float(row["high"])
        inside[policy] += float(row["low"]) <= theirs <= float(row["high"])
    assert inside == {"compass": 6, "hash": 11}


def test_a_summary_is_the_median_of_seeds_with_the_second_least_and_second_greatest() -> None:
    names = {"serving.fidelity": "authors", "serving.workers": "20", "policy.name": "hash", "error": ""}
    numbers = {"slowdown_p95": "9", "workers_used": "3", "cache_hit_rate": "0.5"}
    (row,) = summary([{**names, **numbers, "slowdown_p50": str(seed)} for seed in (5, 1, 9, 2, 3, 4, 6, 7, 8, 10)])
    assert list(row) == list(COLUMNS)
    assert (row["slowdown_median"], row["low"], row["high"]) == ("5.50", "2.00", "9.00")
    assert (row["slowdown_median_sheet"], row["cache_hit_pct"]) == ("113.74", "50.0")
