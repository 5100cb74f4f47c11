"""Make what a notebook shows and computes with: frames of several runs, and figures."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from headway.report.palette import coloured


def stacked(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return the frames of several runs as one, with a first column that names the run."""
    named = [
        frame.with_columns(pl.lit(label).alias("policy")).select("policy", pl.exclude("policy"))
        for label, frame in frames.items()
    ]
    return pl.concat(named, how="diagonal_relaxed")


def of_rows(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return the plain numbers of some runs as a frame, one row a run."""
    flat = [{key: value for key, value in row.items() if not isinstance(value, list | dict)} for row in rows]
    return pl.DataFrame(flat, infer_schema_length=None)


def figure(spec: Mapping[str, Any]) -> Any:
    """Return a figure of a page for plotly, in the colours of a light page."""
    from plotly.graph_objects import Figure

    return Figure(coloured(spec))
