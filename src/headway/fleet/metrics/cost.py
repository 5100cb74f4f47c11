"""Cost of a serving run: of batches, of idle processes, and, for comparison, of the whole fleet."""

from dataclasses import dataclass

import numpy as np

from headway.fleet.metrics.ledger import Ledger
from headway.fleet.model.fleet import GIB
from headway.fleet.model.rows import Kind
from headway.fleet.state.warm import placed
from headway.statistics.series import FloatArray
from headway.units import HOUR


@dataclass(frozen=True, slots=True)
class Costs:
    """US dollars."""

    batches_usd: float
    keepalive_usd: float
    fleet_usd: float
    requests_usd: FloatArray
    """Cost by request: its share of batches and idle processes; adds up to both."""

    @property
    def total_usd(self) -> float:
        """Return the cost of batches, set-up included, and of idle processes."""
        return self.batches_usd + self.keepalive_usd


def costs(ledger: Ledger) -> Costs:
    """Return the costs of a run at the fleet's prices."""
    prices = ledger.fleet.prices
    rate = ledger.cpus * prices.cpu_hour + ledger.slices * prices.slice_hour
    price_ratios = np.array([ledger.fleet.price_ratio(worker) for worker in ledger.fleet.workers])
    batches = rate * price_ratios[ledger.worker] * (ledger.batch_end - ledger.began) / HOUR
    idle = idle_usd(ledger)
    rent = sum(map(ledger.fleet.hour_usd, ledger.fleet.workers))
    return Costs(float(batches.sum()), float(idle.sum()), rent * ledger.span / HOUR, _by_request(ledger, batches, idle))


def idle_usd(ledger: Ledger) -> FloatArray:
    """Return by function the cost of the memory of processes that start or are idle.

    Which idle process a batch takes does not matter: the total idle time is the sum of all ends less all beginnings.
    """
    functions = ledger.catalogue.functions
    need = np.array([function.cold_start > 0 for function in functions], dtype=np.bool_)
    finished, started = ledger.rows(Kind.FINISHED), ledger.rows(Kind.INSTANCE_STARTED)
    finished = finished[need[ledger.detail[finished]]]
    expired = ledger.rows(Kind.EXPIRED)
    taken = ledger.batch_row[need[ledger.function] & ~ledger.cold]
    left = np.zeros(len(functions))
    """Idle nanoseconds by function. A process expires at the end of its keep-alive, even if its row comes later."""
    for rows, sign in ((finished, 1), (started, 1), (taken, -1)):
        np.add.at(left, ledger.detail[rows], sign * (ledger.horizon - ledger.time[rows]))
    for begins_with in placed(ledger.catalogue, ledger.fleet):
        left[list(begins_with.processes)] += ledger.horizon
    gone = np.minimum(ledger.time[expired], ledger.value[expired] + ledger.fleet.keep_alive)
    np.add.at(left, ledger.detail[expired], gone - ledger.horizon)
    left += _starting(ledger)
    memory = np.array([function.instance_bytes / GIB for function in functions])
    cost: FloatArray = left / HOUR * memory * ledger.fleet.prices.memory_gib_hour
    return cost


def _starting(ledger: Ledger) -> FloatArray:
    """Return nanoseconds that processes took to start, ahead of batches and as part of them, by function."""
    asked, there = ledger.rows(Kind.START_INSTANCE), ledger.rows(Kind.INSTANCE_STARTED)
    ends = np.full(int(ledger.lease.max(initial=0)) + 1, ledger.horizon, dtype=np.int64)
    died = ledger.next_failure(ledger.place[asked], asked)
    gone = died < len(ledger.time)
    ends[ledger.lease[asked[gone]]] = ledger.time[died[gone]]
    ends[ledger.lease[there]] = ledger.time[there]
    spent = np.zeros(len(ledger.catalogue.functions))
    np.add.at(spent, ledger.detail[asked], ends[ledger.lease[asked]] - ledger.time[asked])
    np.add.at(spent, ledger.function, np.minimum(ledger.cold_start, ledger.batch_end - ledger.began))
    return spent


def _by_request(ledger: Ledger, batches: FloatArray, idle: FloatArray) -> FloatArray:
    """Return dollars by request: tasks share a batch equally, and the idle processes of the function that they call."""
    function = ledger.function[ledger.run_batch]
    share = (batches / np.maximum(ledger.batch_size, 1))[ledger.run_batch]
    calls = np.bincount(function, minlength=len(idle))
    share = share + (idle / np.maximum(calls, 1))[function]
    paid = np.bincount(ledger.run_request, weights=share, minlength=len(ledger.graph)).astype(np.float64)
    uncalled = float(idle[calls == 0].sum())
    """Cost of processes that no request called: shared by all requests."""
    return paid + uncalled / max(len(paid), 1)
