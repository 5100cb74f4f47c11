"""docs/background/results/esg.md: its tables are those of its files."""

from bench import esg
from headway.metrics.serving.ranking import best
from tests.docs.pages import ROOT, read

PAGE = read("docs/background/results/esg.md")
FOLDER = ROOT / "docs" / "background" / "results" / "esg"
CELLS, LAW, CHANGED = (esg.load(FOLDER / f"{name}.csv") for name in ("cells", "law", "assumptions"))


def test_every_line_of_the_tables_is_in_the_page() -> None:
    shown = {row["policy"] for row in LAW} - {"infless", "fast-gshare", "aquatope"}
    law = esg.table([row for row in LAW if row["policy"] in shown])
    for line in (*esg.table(CELLS), *law, *esg.changes(CHANGED)):
        assert line in PAGE


def test_headway_is_best_where_the_page_says_so() -> None:
    won = {key: "headway" in [row["policy"] for row in best(rows)] for key, rows in esg.cells(CELLS).items()}
    assert len(won) == 18
    assert all(won.values())
    lost = [key for key, rows in esg.cells(LAW).items() if "headway" not in [row["policy"] for row in best(rows)]]
    assert lost == [("", "cold", "relaxed", "heavy")]


def test_the_page_says_which_seeds_and_requests_were_run() -> None:
    assert {(row["seeds"], row["requests"]) for row in CELLS} == {("2", "5000")}
    assert {(row["seeds"], row["requests"]) for row in LAW} == {("1", "2000")}
    assert "Seeds 0 and 1 of the five" in PAGE
    assert "2,000 requests, seed 0" in PAGE
