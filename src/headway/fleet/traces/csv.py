"""Read requests from a CSV file of our own: when each arrives, and what it is for, where the file says so.

``arrival_s`` in seconds is required. ``graph`` (or ``model``), ``tenant``, ``class``, ``input_tokens`` and
``output_tokens`` are read where they are there; other columns are ignored.
"""

from pathlib import Path

import numpy as np
import polars as pl

from headway.errors import TraceError
from headway.fleet.traces.trace import IntArray, RequestTrace, in_order
from headway.formats.head import Head
from headway.formats.table import csv_table
from headway.jobs.traces.sheet import Sheet

NAME = "requests"
ARRIVAL = "arrival_s"
NAMES = {"graphs": ("graph", "model"), "tenants": ("tenant",), "classes": ("class",)}
"""Columns of names by what they become."""
TOKENS = ("input_tokens", "output_tokens")


def recognises(head: Head) -> bool:
    """Return whether the header has the column of arrivals."""
    return ARRIVAL in head.columns()


def read(path: Path, strict: bool) -> RequestTrace:
    """Return the requests of such a file."""
    sheet = Sheet(csv_table(path), (ARRIVAL,))
    columns = {ARRIVAL: sheet.time(ARRIVAL, least=0)}
    for column in TOKENS:
        if column in sheet.columns:
            columns[column] = sheet.whole(column, least=0)
    named = {}
    for key, spellings in NAMES.items():
        there = [name for name in spellings if name in sheet.columns]
        if len(there) > 1:
            raise TraceError(f"trace {path}: has both {there[0]} and {there[1]}: leave one out")
        if there:
            columns[key] = sheet.text(there[0])
            named[key] = there[0]
    kept = sheet.kept(pl.DataFrame(columns), strict=strict)
    names = {key: tuple(kept[key].to_list()) for key in named}
    numbers = (_whole(kept, ARRIVAL), _whole(kept, TOKENS[0]), _whole(kept, TOKENS[1]))
    return in_order(numbers, (), NAME, sheet.dropped, sheet.notes, **names)


def _whole(frame: pl.DataFrame, column: str) -> IntArray:
    """Return a column of whole numbers; zeros where there is none."""
    if column not in frame.columns:
        return np.zeros(frame.height, dtype=np.int64)
    return frame[column].to_numpy().astype(np.int64)
