"""Count what jobs asked for in their SubmitLine, and say what becomes of it."""

import polars as pl

from headway.formats.slurm.submit_line import OPTIONS, WRAPPED
from headway.units import HOUR

_HAPPENS = {
    "dependency": "followed as recorded: they arrive when they were eligible",
    "begin": "followed as recorded: they arrive when they were eligible",
    "exclusive": "followed: they hold what they were given",
    "reservation": "followed where the reservation is described (scontrol show reservation)",
}
_NOT = "not followed"
LINE = "SubmitLine"
_ANY = r"\s-(?:-[denlarc]|[dbLaCwx])"
"""How options begin that may be among them: most lines have none."""


def options(frame: pl.DataFrame) -> pl.Series:
    """Return which options the line of each row has: a bit for each of ``OPTIONS``, in their order."""
    found = pl.zeros(frame.height, dtype=pl.Int32, eager=True).alias("options")
    if LINE not in frame.columns or frame[LINE].null_count() == frame.height:
        return found
    lines = frame[LINE]
    likely = lines.str.contains(_ANY).fill_null(False)
    text = lines.filter(likely).str.replace(WRAPPED, "")
    bits = pl.DataFrame({"text": text}).select(
        pl.sum_horizontal(
            pl.col("text").str.contains(rf"\s{pattern}(?:\s|$)").cast(pl.Int32) * (1 << place)
            for place, pattern in enumerate(OPTIONS.values())
        ).alias("options")
    )
    return found.scatter(likely.arg_true(), bits["options"])


def with_reservations(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with the reservation of each submission where accounting does not print it."""
    if "Reservation" in frame.columns or LINE not in frame.columns or frame[LINE].null_count() == frame.height:
        return frame
    named = frame[LINE].str.replace(WRAPPED, "").str.extract(rf"\s{OPTIONS['reservation']}(?:\s|$)", 1)
    return frame.with_columns(named.alias("Reservation")) if named.null_count() < frame.height else frame


def submitted(rows: pl.DataFrame) -> list[str]:
    """Return a note for each option that jobs were submitted with: how many, their wait, what becomes of it."""
    notes = []
    wait = (pl.col("first_start") - pl.col("arrival")).fill_null(0).sum()
    for place, name in enumerate(OPTIONS):
        asked = rows.filter((pl.col("options") & (1 << place)) != 0)
        if asked.height:
            hours = asked.select(wait).item() / HOUR
            told = f"{asked.height:,} job{'s' if asked.height > 1 else ''} submitted with {name} waited {hours:,.1f} h"
            notes.append(f"{told}: {_HAPPENS.get(name, _NOT)}")
    return notes
