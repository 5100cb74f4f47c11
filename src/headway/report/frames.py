"""Results as Python users hold them: polars frames, plotly figures, and tables as text and HTML."""

from collections.abc import Mapping, Sequence
from html import escape
from io import StringIO
from typing import Any

import polars as pl
from rich.table import Table

from headway.report import pivot
from headway.report.palette import coloured
from headway.report.terminal import PlainConsole, width_of


def of_rows(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return the numbers of rows as a frame; lists and tables inside them are left out."""
    flat = [{key: value for key, value in row.items() if not isinstance(value, list | dict)} for row in rows]
    return pivot.frame(flat)


def stacked(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return the same table of several runs as one, with a first column that says whose a row is."""
    named = [
        each.with_columns(pl.lit(name).alias("policy")).select("policy", pl.exclude("policy"))
        for name, each in frames.items()
    ]
    return pl.concat(named, how="diagonal_relaxed")


def figure(drawn: Mapping[str, Any]) -> Any:
    """Return a figure of a page as an object of plotly, in the colours of a light page."""
    from plotly.graph_objects import Figure

    return Figure(coloured(drawn))


def text(table: Table, notes: Sequence[str] = ()) -> str:
    """Return a table as text, no cell cut, and notes below it."""
    return "\n".join([*lines(table), *(f"note: {note}" for note in notes)])


def lines(table: Table) -> list[str]:
    """Return the lines of a table, no cell cut."""
    console = PlainConsole(width=width_of(table), height=25, record=True, file=StringIO())
    console.print(table)
    return console.export_text().rstrip().splitlines()


def html(shown: str, drawn: Any = None) -> str:
    """Return text, and a figure below it, as a notebook shows them; it asks nothing of a network."""
    return f"<pre>{escape(shown)}</pre>" + ("" if drawn is None else drawn.to_html(full_html=False))
