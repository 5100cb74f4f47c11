"""Numbers of a controller, from the tape: how busy it was, how long decisions waited, and whether it was overloaded."""

from typing import Any

import numpy as np

from headway.core.tape import Tape
from headway.metrics.serving.ledger import Ledger
from headway.serving.rows import Kind
from headway.units import SECOND, format_duration

FULL = 0.99
"""A controller that is busy for this part of the time in which requests arrive has no time to spare."""
GROWN = 5.0
"""Waits have grown where those of the last decisions are this multiple of a mean service time, and the longest."""
_TENTH = 10


def controller_numbers(ledger: Ledger, tape: Tape) -> dict[str, Any]:
    """Return the numbers of all controllers together; nothing where decisions took no time."""
    rows = tape.of(Kind.DECIDE)
    if not len(rows):
        return {}
    began, waited, place, states, until = (rows[:, column] for column in (0, 3, 4, 5, 6))
    controllers = 1 if place[0] < 0 else len(ledger.fleet.workers)
    span = ledger.span * controllers
    return {
        "decisions": len(rows),
        "controller_utilisation": float((until - began).sum() / span) if span else 0.0,
        "decision_wait_mean_s": float(waited.mean()) / SECOND,
        "decision_time_mean_s": float((until - began).mean()) / SECOND,
        "stale_actions": int(np.count_nonzero(tape.column("kind") == Kind.REFUSED)),
        "states_evaluated": int(states.sum()),
    }


def controller_overload(tape: Tape, first_arrival: int, last_arrival: int) -> str | None:
    """Return a line where the busiest controller could not keep up with the requests; None where all could."""
    rows = tape.of(Kind.DECIDE)
    rows = rows[rows[:, 0] <= last_arrival]
    window = last_arrival - first_arrival
    if not len(rows) or window <= 0:
        return None
    busy = np.bincount(rows[:, 4] + 1, weights=np.minimum(rows[:, 6], last_arrival) - rows[:, 0])
    busiest = int(busy.argmax()) - 1
    own = rows[rows[:, 4] == busiest]
    share, waited, takes = float(busy.max()) / window, own[:, 3], float((own[:, 6] - own[:, 0]).mean())
    tenth = max(1, len(own) // _TENTH)
    last, before = float(waited[-tenth:].mean()), float(waited[:-tenth].mean()) if len(own) > tenth else 0.0
    if share < FULL or last < GROWN * takes or last <= before:
        return None
    who = "the controller" if busiest < 0 else f"the controller of worker {busiest}"
    return (
        f"overload of {who}, not of the fleet: it was busy {100 * share:.0f} % of the time in which requests arrived, "
        f"a decision took {format_duration(round(takes))} and the last ones waited {format_duration(round(last))}; "
        "lower the rate, shorten --controller, or decide on each worker (--control decentralised)"
    )
