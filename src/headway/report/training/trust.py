"""Make the parts of a report that say how far to trust it: the verdict, caveats, the recorded past, and its dates."""

from collections.abc import Mapping
from html import escape
from typing import Any

from headway.formats.dates import Calendar
from headway.metrics.training.verdict import NO, RELATIVE, UNKNOWN, YES, spread
from headway.report.formatting import count
from headway.report.training.measured import Comparison

_LEVELS = (YES, RELATIVE, NO, UNKNOWN)


def past_of(compared: Comparison) -> Mapping[str, Any] | None:
    """Return the recorded past of the jobs; None where no run knows it, or runs are of different jobs."""
    if not compared.same_jobs:
        return None
    return next((run.result["recorded"] for run in compared.runs if run.result.get("recorded")), None)


def calendar_of(compared: Comparison) -> Calendar | None:
    """Return the dates of the runs; None where they have none, or not the same."""
    calendars = {run.stored.scene.past.calendar for run in compared.runs}
    return calendars.pop() if len(calendars) == 1 else None


def verdict_box(compared: Comparison) -> str:
    """Return how far to trust the answer, beside it, with all caveats; nothing for runs of no Slurm log."""
    judged = spread([run.result for run in compared.runs])
    caveats = dict.fromkeys(line for run in compared.runs for line in run.result.get("caveats") or ())
    return verdict_of_row({"verdict": judged, "caveats": list(caveats)})


def verdict_of_row(row: Mapping[str, Any], about: str = "") -> str:
    """Return the same for the verdict and the caveats of one result; ``about`` says of what, where not of this."""
    judged, caveats = row.get("verdict"), row.get("caveats") or ()
    if not judged:
        return ""
    listed = "".join(f"<li>{escape(line)}</li>" for line in caveats)
    more = f"<details><summary>{count(len(caveats), 'caveat')}</summary><ul>{listed}</ul></details>" if caveats else ""
    level = judged["level"] if judged["level"] in _LEVELS else UNKNOWN
    return (
        f'<aside class="verdict {level}" aria-label="How far to trust this"><p><b>Verdict.</b> '
        f"{about}{escape(judged['text'])}</p>{more}</aside>"
    )
