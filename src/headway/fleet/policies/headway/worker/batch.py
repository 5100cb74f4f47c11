"""Batch and configuration on one worker: how many tasks of a function run together, with how many CPUs and slices.

Without a deadline the choice minimises the total waiting and run time of all tasks in the queue. The ``i``-th batch of
a function starts when the ones before it leave room, and other tasks wait for the share of the GPU that is taken. For a
task alone that is the fastest configuration that fits. With a deadline a task gets its share of the time left, and the
cheapest configuration within it, with a margin for run times that vary.
"""

from collections.abc import Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from headway.fleet.model.catalogue import Configuration
from headway.fleet.model.fleet import find_slices
from headway.fleet.policies.headway.worker.cells import Fitting
from headway.fleet.policies.headway.worker.order import FleetTables
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import TaskId, WorkerState

SURE = 2.0
"""Margin within a task's share of the time left, in standard deviations of its run time."""
_TOGETHER = 32
"""How many queued tasks of a function are considered."""


def choose(
    now: int, state: ServingState, tables: FleetTables, worker: WorkerState, queue: Sequence[TaskId], first: TaskId
) -> tuple[tuple[TaskId, ...], Configuration] | None:
    """Return a batch that contains ``first``, and its configuration; None: no configuration fits."""
    rs = state.requests[first[0]]
    graph = rs.request.graph
    function = tables.functions[graph][first[1]]
    cells = tables.cells_of.of(worker.id, function)
    if (only := cells.only) is not None and only.batch == 1:
        room = only.cpus <= worker.cpus_free and only.slices <= worker.slices_free
        return (
            ((first,), only) if room and find_slices(worker.worker.gpu, only.slices, worker.taken) is not None else None
        )
    same = _same(state, queue, first, function)
    sizes = state.latency.batches(worker.id, function)
    enough = next((size for size in sizes if size >= len(same)), sizes[-1])
    fitting = cells.fitting(worker, enough)
    if not fitting.cells:
        return None
    waiting = _waiting(fitting, len(same), len(queue) - len(same))
    pick = int(waiting.argmin())
    if rs.request.deadline:
        allotted = (rs.request.deadline - now) * tables.run_times[worker.id][function] // tables.ranks[graph][first[1]]
        surely = 1.0 + SURE * state.catalogue.functions[function].profile.spread
        keeping = np.flatnonzero(fitting.times * surely <= allotted)
        if len(keeping):
            usd = (fitting.held * fitting.times / np.minimum(fitting.batches, len(same)))[keeping]
            cheapest = keeping[usd == usd.min()]
            pick = int(cheapest[waiting[cheapest].argmin()])
    cell = fitting.cells[pick]
    return tuple(same[: cell.batch]), cell


def _waiting(fitting: Fitting, count: int, others: int) -> npt.NDArray[np.float64]:
    """Return by configuration the total waiting and run time of ``count`` tasks of a function and ``others``."""
    batches, times, shares = fitting.batches, fitting.times, fitting.shares
    rounds = -(-count // batches)
    total = np.zeros(len(batches))
    for before in range(int(rounds.max())):
        together = np.minimum(np.maximum(count - before * batches, 0), batches)
        total += together * times * (1.0 + before * shares)
    waiting: npt.NDArray[np.float64] = total + others * times * rounds * shares
    return waiting


def _same(state: ServingState, queue: Sequence[TaskId], first: TaskId, function: int) -> list[TaskId]:
    """Return ``first`` and the queued tasks of its function, the most urgent first."""
    same = (key for key in queue if state.requests[key[0]].graph.functions[key[1]] == function and key != first)
    return [first, *islice(same, _TOGETHER - 1)]
