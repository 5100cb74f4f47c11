"""Count what jobs asked for in their SubmitLine, and say what becomes of it."""

import polars as pl

from headway.formats.slurm.submit_line import OPTIONS, WRAPPED
from headway.units import HOUR

_HAPPENS = {
    "dependency": "followed as recorded: they arrive when they were eligible",
    "begin": "followed as recorded: they arrive when they were eligible",
    "exclusive": "followed: they hold what they were given",
}
_NOT = "not followed"


def submitted(rows: pl.DataFrame) -> list[str]:
    """Return a note for each option that jobs were submitted with: how many, their wait, what becomes of it."""
    if "submit_line" not in rows.columns or not rows["submit_line"].is_not_null().any():
        return []
    text = rows["submit_line"].str.replace(WRAPPED, "")
    wait = (rows["first_start"] - rows["arrival"]).fill_null(0)
    notes = []
    for name, pattern in OPTIONS.items():
        asked = text.str.contains(rf"\s{pattern}(?:\s|$)").fill_null(False)
        if count := int(asked.sum()):
            hours = int(wait.filter(asked).sum()) / HOUR
            told = f"{count:,} job{'s' if count > 1 else ''} submitted with {name} waited {hours:,.1f} h"
            notes.append(f"{told}: {_HAPPENS.get(name, _NOT)}")
    return notes
