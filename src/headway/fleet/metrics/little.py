"""Little's law as an exact identity: the integral of requests in the system equals the sum of their stays."""

from collections.abc import Sequence

import numpy as np

from headway.core.tape import Tape
from headway.fleet.metrics.ledger import Ledger
from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.fleet import Fleet
from headway.fleet.model.request import Request
from headway.fleet.model.rows import UNANSWERED, Kind
from headway.statistics.series import exact_sum, from_changes


def little(catalogue: Catalogue, fleet: Fleet, requests: Sequence[Request], tape: Tape) -> tuple[int, int]:
    """Return the integral of the number of requests in the system and the sum of their stays, up to the last row.

    Both are in nanoseconds. The first adds up rows in tape order, the second is each request's end less its arrival; on
    a sound tape they are equal.
    """
    ledger = Ledger(catalogue, fleet, requests, tape)
    rows = ledger.rows(Kind.ARRIVED, Kind.DONE, *UNANSWERED)
    inside = from_changes(ledger.time[rows], np.where(ledger.kind[rows] == Kind.ARRIVED, 1, -1).astype(np.int64))
    ends = np.where(ledger.end < 0, ledger.horizon, ledger.end)
    return inside.integral(0, ledger.horizon), exact_sum((ends - ledger.arrival)[ledger.arrived])
