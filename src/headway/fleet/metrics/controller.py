"""Numbers of a controller, from the tape: how busy it was, how long decisions waited, and whether it was overloaded."""

from typing import Any

import numpy as np

from headway.core.tape import Tape
from headway.fleet.metrics.ledger import Ledger
from headway.fleet.model.fleet import Fleet
from headway.fleet.model.rows import UNANSWERED, Kind
from headway.statistics.series import IntArray
from headway.units import SECOND, format_duration

FULL = 0.9
"""A controller, or a fleet, that is busy for this part of the time has none to spare."""
GROWN = 1.5
"""Requests pile up where so many times as many are open when the last one arrives as halfway,"""
LEAST_MORE = 10
"""and at least so many more."""


def controller_numbers(ledger: Ledger, tape: Tape) -> dict[str, Any]:
    """Return the numbers of all controllers together; nothing where decisions took no time."""
    rows = tape.of(Kind.DECIDE)
    if not len(rows):
        return {}
    began, states, place, waited, until = (rows[:, column] for column in (0, 3, 4, 5, 6))
    controllers = 1 if place[0] < 0 else len(ledger.fleet.workers)
    busy = _within(began, until, ledger.start, ledger.horizon)
    span = ledger.span * controllers
    return {
        "decisions": len(rows),
        "controller_utilisation": int(busy.sum()) / span if span else 0.0,
        "decision_wait_mean_s": float(waited.mean()) / SECOND,
        "decision_time_mean_s": float((until - began).mean()) / SECOND,
        "stale_actions": int(np.count_nonzero(tape.column("kind") == Kind.REFUSED)),
        "states_evaluated": int(states.sum()),
    }


def _within(since: IntArray, until: IntArray, start: int, end: int) -> IntArray:
    """Return how much of each stretch lies between two times."""
    inside: IntArray = np.maximum(np.minimum(until, end) - np.maximum(since, start), 0)
    return inside


def controller_overload(fleet: Fleet, tape: Tape, gpu_utilisation: float) -> str | None:
    """Return a line where the busiest controller could not keep up with the requests; None where all could.

    It was busy for all of the second half of the time in which requests arrived, and more and more of them were open.
    """
    arrived = tape.of(Kind.ARRIVED)[:, 0]
    first, last = (int(arrived[0]), int(arrived[-1])) if len(arrived) else (0, 0)
    halfway, rows = (first + last) // 2, tape.of(Kind.DECIDE)
    rows = rows[(rows[:, 0] <= last) & (rows[:, 6] > halfway)]
    if not len(rows) or first == last:
        return None
    busy = np.bincount(rows[:, 4] + 1, weights=_within(rows[:, 0], rows[:, 6], halfway, last))
    share = float(busy.max()) / (last - halfway)
    ended = np.sort(tape.of(Kind.DONE, *UNANSWERED)[:, 0])
    middle, end = (
        int(np.searchsorted(arrived, time, side="right") - np.searchsorted(ended, time, side="right"))
        for time in (halfway, last)
    )
    if share < FULL or end < GROWN * middle or end - middle < LEAST_MORE:
        return None
    busiest = int(busy.argmax()) - 1
    own = rows[rows[:, 4] == busiest]
    takes = format_duration(round(float((own[:, 6] - own[:, 0]).mean())))
    who = "the controller" if busiest < 0 else f"the controller of {fleet.workers[busiest].name}"
    held = f" ({100 * gpu_utilisation:.0f} % of its GPUs were held)"
    not_of = f", not of the fleet{held}" if gpu_utilisation < FULL else ""
    return (
        f"overload of {who}{not_of}: in the second half of the arrivals it was busy {100 * share:.0f} % of the time, "
        f"with {takes} a decision, and {end:,} requests were open at the end, {middle:,} halfway; "
        "lower the rate, or shorten --controller"
    )
