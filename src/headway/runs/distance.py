"""Tell how far two runs of one workload are from each other: of a live run, how far its simulation is from it.

What is compared is how long each job took from its submission to its end, each request from its arrival to its answer,
each request of a program on a GPU from its beginning to its end.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from headway.errors import ExperimentError
from headway.runs.answer import Answer
from headway.runs.domain import StoredRun
from headway.runs.play import play
from headway.runs.registry import domain_of
from headway.units import counted

if TYPE_CHECKING:
    from rich.table import Table

FAR = 0.3
"""A mean that is off by more than this share is worth a line."""
FEW = 20
"""Percentiles of fewer subjects than this say little."""


def distance(first: StoredRun, second: StoredRun | None) -> Answer:
    """Return how far the second run is from the first; without a second, the simulation of the first."""
    domain = domain_of(first.scene.experiment)
    is_live = second is None
    if second is None:
        second = simulated(first)
    elif (other := domain_of(second.scene.experiment)) is not domain:
        raise ExperimentError(f"a run of {domain.name} and one of {other.name} have no common workload")
    a, b = domain.view.paired(first, second)
    if not (common := [name for name in a if name in b]):
        raise ExperimentError(
            f"{first.folder} and {second.folder} have no {domain.subject} in common that ended in both: runs of one "
            "workload are compared"
        )
    record = compared(np.array([a[name] for name in common]), np.array([b[name] for name in common]))
    record = {"runs": [str(first.folder), str(second.folder)], **record}
    record |= {"only_in_first": len(a) - len(common), "only_in_second": len(b) - len(common)}
    notes = _notes(record, domain.subject)
    if is_live and second.scene.notes and abs(record["mean"]["off"] or 0) > FAR:
        notes.append(f"the simulation is far from it: {'; '.join(second.scene.notes)}")
    return Answer(record, [_table(record, domain.subject)], notes)


def simulated(live: StoredRun) -> StoredRun:
    """Play the workload of a run in virtual time, under the same policy and on the same fleet or cluster."""
    scene = live.scene.simulated(live.tape)
    if scene is None:
        raise ExperimentError(f"{live.folder} is a simulated run: name the run to compare it with")
    result = play(scene)
    return StoredRun(live.folder / "(simulated)", scene, result.tape, not result.stopped, {})


def compared(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return both means and percentiles in seconds, and how far the second is from the first as a share of it."""
    numbers: dict[str, Any] = {"compared": len(first)}
    measures = {"mean": np.mean, **{f"p{at}": lambda x, at=at: np.percentile(x, at) for at in (50, 90, 99)}}
    for name, of in measures.items():
        one, other = float(of(first)), float(of(second))  # type: ignore[operator]
        numbers[name] = {"first_s": one, "second_s": other, "off": other / one - 1 if one else None}
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.abs(second / first - 1)
    each = each[np.isfinite(each)]
    numbers["each_off_p50"] = float(np.percentile(each, 50)) if len(each) else None
    numbers["each_off_p90"] = float(np.percentile(each, 90)) if len(each) else None
    return numbers


def _table(record: dict[str, Any], subject: str) -> "Table":
    from headway.show.terminal import framed

    table = framed((subject,), ("first", "second", "off"), f"{' against '.join(record['runs'])}")
    for name in ("mean", "p50", "p90", "p99"):
        row = record[name]
        table.add_row(name, _seconds(row["first_s"]), _seconds(row["second_s"]), _share(row["off"]))
    return table


def _notes(record: dict[str, Any], subject: str) -> list[str]:
    median, tenth = (_share(record[f"each_off_{name}"], signed=False) for name in ("p50", "p90"))
    both = f"{counted(record['compared'], subject)} ended in both"
    notes = [f"{both}; between the two runs one differs by {median} in the median, a tenth of them by {tenth} or more"]
    left = [(record["only_in_first"], "first"), (record["only_in_second"], "second")]
    notes += [f"{counted(count, subject)} ended in the {which} run only" for count, which in left if count]
    if record["compared"] < FEW:
        notes.append(f"percentiles of {record['compared']} say little")
    return notes


def _seconds(value: float) -> str:
    return f"{value:,.1f} s" if value >= 100 else f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def _share(value: float | None, *, signed: bool = True) -> str:
    return "" if value is None else f"{value:+.1%}" if signed else f"{value:.1%}"
