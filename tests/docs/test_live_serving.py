"""The page about live serving has the tables of its rows."""

from bench.serve_rows import TABLES, page_with
from tests.docs.pages import ROOT, read

PAGE = "docs/background/results/live-serving.md"


def test_the_tables_are_those_of_the_rows() -> None:
    text = read(PAGE)
    assert all(f"<!-- {name} -->" in text for name in TABLES)
    assert page_with(text, ROOT / PAGE.removesuffix(".md")) == text
