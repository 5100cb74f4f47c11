"""Convert results for Python users: polars frames, plotly figures, and tables as text and HTML."""

from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl
from plotly.offline import get_plotlyjs
from rich.table import Table

from headway.files import replacing
from headway.show.page import deflated
from headway.show.palette import coloured
from headway.show.terminal import PlainConsole, width_of

_FIGURE = """<div id="@PLACE"></div>
<script>
window.headwayPlotly ??= window.Plotly ? Promise.resolve(window.Plotly) : (async () => {
  const bytes = Uint8Array.from(atob("@PLOTLY"), (each) => each.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  new Function("define", "module", "exports", await new Response(plain).text())();
  return window.Plotly;
})();
window.headwayPlotly.then((plotly) => {
  const figure = @FIGURE;
  plotly.newPlot("@PLACE", figure.data, figure.layout, {responsive: true});
});
</script>"""


def of_rows(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return the numbers of rows as a frame; lists and tables inside them are left out."""
    flat = [{key: value for key, value in row.items() if not isinstance(value, list | dict)} for row in rows]
    return frame(flat)


def frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return flat rows as a frame, each column of one kind."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return pl.DataFrame([_column(key, [row.get(key) for row in rows]) for key in keys])


def _column(key: str, values: list[Any]) -> pl.Series:
    """Return a column of one kind: whole numbers, numbers, true or false, or text where they are mixed."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} and kinds != {int}:
        return pl.Series(key, values, dtype=pl.Float64, strict=False)
    if len(kinds) == 1:
        return pl.Series(key, values)
    return pl.Series(key, [None if value is None else str(value) for value in values], dtype=pl.String)


def store(rows: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Write ``results.parquet`` and ``results.csv``: a row a cell."""
    table = frame(rows)
    for name in ("results.parquet", "results.csv"):
        with replacing(folder / name) as file:
            table.write_parquet(file) if name.endswith("parquet") else table.write_csv(file)


def stacked(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return the same table of several runs as one, with a first column that says whose a row is."""
    named = [
        frame.with_columns(pl.lit(name).alias("policy")).select("policy", pl.exclude("policy"))
        for name, frame in frames.items()
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
    return f"<pre>{escape(shown)}</pre>" + ("" if drawn is None else _drawn(drawn))


def _drawn(figure: Any) -> str:
    """Return a figure with plotly.js, packed: a cell stands alone, whichever others are run again, cleared or copied.

    A page unpacks it once, for all its figures.
    """
    plain = figure.to_json().replace("<", "\\u003c")
    made = _FIGURE.replace("@PLACE", f"headway-{uuid4().hex}").replace("@PLOTLY", _plotly())
    return made.replace("@FIGURE", plain)


@cache
def _plotly() -> str:
    return deflated(get_plotlyjs().encode())
