"""Make the parts of a report that say how far to trust it: the verdict, caveats, the recorded past, and its dates."""

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from headway.formats.dates import Calendar
from headway.jobs.metrics.backtest.verdict import NO, RELATIVE, UNKNOWN, YES, spread
from headway.jobs.show.page.measured import Comparison
from headway.show.formatting import count

MOST_VERDICTS = 3
"""So many verdicts of a sweep are printed, those of most combinations first."""
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


def sweep_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return verdicts and caveats of the combinations of a sweep, each once; nothing where they are of no Slurm log."""
    texts = Counter(row["verdict"]["text"] for row in rows if row.get("verdict"))
    caveats = Counter(line for row in rows for line in dict.fromkeys(row.get("caveats") or ()))
    return [
        *(f"{line}{_some(count, rows)}" for line, count in caveats.items()),
        *(f"verdict{_some(count, rows)}: {text}" for text, count in texts.most_common(MOST_VERDICTS)),
        *([f"{len(texts) - MOST_VERDICTS:,} more verdicts: --json has them"] if len(texts) > MOST_VERDICTS else []),
    ]


def _some(count: int, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return how many combinations it is about, where not about all."""
    return "" if count == len(rows) else f" ({count:,} of {len(rows):,} combinations)"


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
