"""docs/background/results/esg.md: its tables are those of its files, and what it says of them holds."""

from bench import esg, esg_cells
from tests.docs.pages import ROOT, read

PAGE = read("docs/background/results/esg.md")
FOLDER = ROOT / "docs" / "background" / "results" / "esg"
CELLS, CHANGED = (esg_cells.load(FOLDER / f"{name}.csv") for name in ("cells", "assumptions"))


def test_every_line_of_the_tables_is_in_the_page() -> None:
    tables = list(esg.tables(CELLS, CHANGED))
    assert len(tables) == 7
    for line in (line for table in tables for line in table):
        assert line in PAGE


def test_headway_is_best_in_at_least_eight_of_nine_cells_from_each_start() -> None:
    """Decisions take no time; the cell that is missing is the one that the page explains."""
    cells = {place[1:]: cell for place, cell in esg.grouped(CELLS).items() if place[0] == esg_cells.NONE}
    assert len(cells) == 18
    lost = [place for place, cell in cells.items() if "headway" not in esg.best_of(cell)]
    assert lost == [("warm", "relaxed", "light")]


def test_all_runs_are_of_five_thousand_requests_and_all_cells_are_there() -> None:
    assert {row["requests"] for row in CELLS} == {5000}
    assert {row["seeds"] for row in CELLS} == {5}
    without = [row for row in CELLS if row["controller"] == esg_cells.NONE]
    assert len(without) == 162
