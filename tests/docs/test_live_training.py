"""The page about training programs has the table of its rows, and says what they say."""

from bench.serve_rows import read as rows_of, table
from bench.steps_preempted import COLUMNS
from tests.docs.pages import ROOT, read

PAGE = "docs/background/results/live-training.md"
ROWS = rows_of(ROOT / "docs/background/results/live-training/preempted.jsonl")


def test_the_table_is_that_of_the_rows() -> None:
    assert f"<!-- preempted -->\n{table(ROWS, COLUMNS)}\n<!-- end -->" in read(PAGE)


def test_preempted_twenty_times_with_one_and_with_four_ranks_nothing_differs() -> None:
    assert {(row["ranks"], row["preempted"]) for row in ROWS} >= {(1, 20), (4, 20)}
    assert all(row["identical"] and not row["problems"] for row in ROWS)
    assert any(row["killed"] and row["workers"] for row in ROWS)
