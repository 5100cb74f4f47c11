"""Parse ``squeue`` as it was printed again and again: why jobs waited, over time. Accounting keeps one reason a job.

``while sleep 300; do date +%s; squeue -a -h -o '%i|%T|%r'; done >> squeue.txt`` writes such a file: a line with the
time, then a line a job. With headings (without -h) the columns may come in any order.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from headway.errors import ExperimentError, InputError
from headway.formats.slurm.cells import Fate, fate
from headway.formats.slurm.lists import tasks
from headway.formats.slurm.reservations import dated, instant
from headway.formats.training.cluster_records import Described
from headway.units import SECOND

_COLUMNS = ("JOBID", "STATE", "REASON")
_SHORT = {"ST": "STATE", "NODELIST(REASON)": "REASON", "ARRAY_JOB_ID": ""}
_SHOWN = 6


@dataclass(slots=True)
class Sample:
    """One look at the queue: how many jobs waited for which reason."""

    at: int
    """Nanoseconds since 1970."""
    waiting: dict[str, int] = field(default_factory=dict)


def describes(text: str) -> bool:
    """Return whether a text begins with a time alone, and then names jobs between bars."""
    lines = [line for line in text[:10_000].splitlines() if line.strip()][:3]
    return len(lines) > 1 and "|" not in lines[0] and instant(lines[0].strip()) is not None and "|" in lines[1]


def samples(text: str, where: str) -> list[Sample]:
    """Return the looks that a text holds, in order of time."""
    found: list[Sample] = []
    columns: tuple[str, ...] = _COLUMNS
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        place = f"{where}: line {number}"
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 1:
            at = instant(cells[0])
            if at is None:
                raise ExperimentError(
                    f"{place}: {cells[0][:40]!r} is neither a time nor a job like 123|PENDING|Priority"
                )
            found.append(Sample(at))
        elif "JOBID" in (headings := tuple(_SHORT.get(cell.upper(), cell.upper()) for cell in cells)):
            columns = headings
            if missing := [name for name in _COLUMNS if name not in columns]:
                raise ExperimentError(f"{place}: has no column {missing[0]}: print squeue -o '%i|%T|%r'")
        elif not found:
            raise ExperimentError(f"{place}: names a job before any time")
        else:
            _count(found[-1], dict(zip(columns, cells, strict=False)), place)
    return sorted(found, key=lambda sample: sample.at)


def _count(sample: Sample, row: dict[str, str], place: str) -> None:
    kind = fate(row.get("STATE", ""))
    if kind is None:
        raise ExperimentError(f"{place}: {row.get('STATE', '')!r} is not a state of a job")
    if kind is Fate.WAITING:
        _, several, inside = row["JOBID"].partition("_[")
        try:
            count = len(tasks(inside.removesuffix("]"))) if several else 1
        except InputError as problem:
            raise ExperimentError(f"{place}: {problem}") from None
        reason = row.get("REASON", "").strip("()").partition(",")[0]
        sample.waiting[reason] = sample.waiting.get(reason, 0) + count


def shares(looks: list[Sample]) -> dict[str, float]:
    """Return which part of all waiting had which reason, the largest first; a look stands for the time to the next."""
    gaps = [later.at - sooner.at for sooner, later in pairwise(looks)]
    waited: dict[str, float] = {}
    for look, gap in zip(looks, [*gaps, median(gaps) if gaps else SECOND], strict=True):
        for reason, count in look.waiting.items():
            waited[reason] = waited.get(reason, 0.0) + count * gap
    whole = sum(waited.values())
    return {reason: part / whole for reason, part in sorted(waited.items(), key=lambda each: -each[1])} if whole else {}


def cluster(text: str, where: str) -> Described:
    """Return a note on why jobs waited; it tells nothing about nodes."""
    looks = samples(text, where)
    parts = [f"{reason or 'none'} {100 * part:.0f} %" for reason, part in shares(looks).items()]
    more = f" and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
    span = f"{len(looks):,} looks at the queue from {dated(looks[0].at)} to {dated(looks[-1].at)}"
    waited = f"jobs waited for {', '.join(parts[:_SHOWN])}{more}" if parts else "nobody waited"
    return Described(notes=(f"{where}: {span}: {waited}",))
