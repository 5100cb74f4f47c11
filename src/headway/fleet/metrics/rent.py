"""Rent of a fleet: for how long each worker was rented, and what that cost."""

import numpy as np

from headway.fleet.metrics.ledger import Ledger
from headway.fleet.model.rows import Kind
from headway.statistics.series import FloatArray, IntArray
from headway.units import HOUR


def rented_time(ledger: Ledger) -> IntArray:
    """Return by worker how long it was rented, from the first arrival to the last row.

    Rent is paid from the start of a worker, its start-up included, until it is stopped.
    """
    workers = np.arange(len(ledger.fleet.workers))
    begun = np.where(np.isin(workers, ledger.fleet.off), ledger.horizon, ledger.start)
    starts, stops = ledger.rows(Kind.START_WORKER), ledger.rows(Kind.STOP_WORKER)
    starts = starts[ledger.lease[starts] > 0]  # lease 0: it drained, still rented, and was used again
    time = (ledger.horizon - begun).astype(np.int64)
    np.add.at(time, ledger.place[starts], ledger.horizon - ledger.time[starts])
    np.add.at(time, ledger.place[stops], ledger.time[stops] - ledger.horizon)
    return time


def rent_usd(ledger: Ledger, rented: IntArray) -> float:
    """Return what the workers cost for as long as they were rented."""
    prices: FloatArray = np.array([ledger.fleet.hour_usd(worker) for worker in ledger.fleet.workers])
    return float((prices * rented).sum()) / HOUR
