"""Read requests to Azure's LLM services, 2023 and 2024 (Patel et al., ISCA 2024; Stojkovic et al., HPCA 2025).

``TIMESTAMP,ContextTokens,GeneratedTokens``; the stamps of 2023 name no zone, those of 2024 do.
"""

from pathlib import Path

import numpy as np
import polars as pl

from headway.fleet.traces.trace import RequestTrace, in_order
from headway.formats.head import Head
from headway.formats.table import csv_table
from headway.formats.times import stamps
from headway.jobs.traces.sheet import Sheet

NAME = "azure-llm"
COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def recognises(head: Head) -> bool:
    """Return whether the header has all columns."""
    return head.columns() >= set(COLUMNS)


def read(path: Path, strict: bool) -> RequestTrace:
    """Return the requests of an Azure file."""
    sheet = Sheet(csv_table(path), COLUMNS)
    frame = pl.DataFrame(
        {
            "arrival": stamps(sheet, ("TIMESTAMP",))["TIMESTAMP"],
            "input": sheet.whole("ContextTokens", least=0),
            "output": sheet.whole("GeneratedTokens", least=0),
        }
    )
    kept = sheet.kept(frame, strict=strict)
    arrival, tokens_in, tokens_out = (kept[name].to_numpy().astype(np.int64) for name in ("arrival", "input", "output"))
    return in_order((arrival, tokens_in, tokens_out), (), NAME, sheet.dropped, sheet.notes)
