"""Count what jobs asked for in their SubmitLine, and say what becomes of it."""

import polars as pl

from headway.jobs.slurm.accounting.submissions import LINE, own_part, told
from headway.jobs.slurm.accounting.submit_line import OPTIONS
from headway.units import HOUR


def with_reservations(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with the reservation of each submission where accounting does not print it."""
    if "Reservation" in frame.columns or LINE not in frame.columns or frame[LINE].null_count() == frame.height:
        return frame
    if not frame[LINE].str.contains("--reservation", literal=True).any():
        return frame
    named = own_part(frame[LINE]).str.extract(rf"\s{OPTIONS['reservation']}(?:\s|$)", 1)
    return frame.with_columns(named.alias("Reservation")) if named.null_count() < frame.height else frame


def submitted(rows: pl.DataFrame) -> list[str]:
    """Return a note for each option that jobs were submitted with: how many, their wait, what becomes of it."""
    wait = (pl.col("first_start") - pl.col("eligible")).fill_null(0).sum()
    return [
        f"{chosen.height:,} job{'s' if chosen.height > 1 else ''} submitted with {option} waited "
        f"{chosen.select(wait).item() / HOUR:,.1f} h: {happens}"
        for option, chosen, happens in told(rows)
        if chosen.height
    ]
