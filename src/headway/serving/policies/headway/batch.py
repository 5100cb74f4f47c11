"""With whom and with what a task runs: how many of its function at once, CPUs and slices.

Without a deadline the choice is what makes all tasks that wait here wait least: the ``i``-th batch of a kind begins
when the ones before it leave room, and everybody else waits for the share of the GPU that is taken. Alone, that is the
fastest configuration there is room for. With a deadline a task is given its share of the time that is left, and the
cheapest configuration that keeps to it, with something in hand for runs that take longer.
"""

from collections.abc import Sequence

from headway.serving.catalogue import Configuration
from headway.serving.policies.headway.order import Outline, fitting
from headway.serving.state import ServingState
from headway.serving.workerstate import TaskId, WorkerState

SURE = 2.0
"""By how many deviations of its run time a task keeps to its share of the time that is left."""
_TOGETHER = 32
"""How many waiting tasks of a function are looked at."""


def choose(
    now: int, state: ServingState, outline: Outline, worker: WorkerState, queue: Sequence[TaskId], first: TaskId
) -> tuple[tuple[TaskId, ...], Configuration] | None:
    """Tasks that run together, ``first`` among them, and what they are given; None: there is no room."""
    rs = state.requests[first[0]]
    graph = rs.request.graph
    function = outline.functions[graph][first[1]]
    cells = fitting(state, worker, function)
    if not cells:
        return None
    if len(cells) == 1 and cells[0].batch == 1:
        return (first,), cells[0]
    same = _same(state, outline, queue, first, function)
    sizes = state.latency.batches(worker.id, function)
    enough = next((size for size in sizes if size >= len(same)), sizes[-1])
    cells = [cell for cell in cells if cell.batch <= enough]
    if not cells:
        return None
    times = state.latency.cells(worker.id, function)
    gpu = worker.worker.gpu
    others = len(queue) - len(same)

    def waiting(cell: Configuration) -> float:
        share = max(cell.slices / gpu.slices, cell.cpus / worker.worker.cpus)
        time, left, batches, total = times[cell], len(same), 0, 0.0
        while left > 0:
            total += min(left, cell.batch) * time * (1.0 + batches * share)
            left -= cell.batch
            batches += 1
        return total + others * time * batches * share

    pick = min(cells, key=lambda cell: (waiting(cell), cell))
    if rs.request.deadline:
        allotted = (rs.request.deadline - now) * outline.pace[worker.id][function] // outline.ranks[graph][first[1]]
        surely = 1.0 + SURE * state.catalogue.functions[function].profile.spread
        keeping = [cell for cell in cells if times[cell] * surely <= allotted]
        prices = state.fleet.prices

        def usd(cell: Configuration) -> float:
            held = cell.cpus * prices.cpu_hour + cell.slices * prices.slice_hour
            return held * times[cell] / min(cell.batch, len(same))

        if keeping:
            pick = min(keeping, key=lambda cell: (usd(cell), waiting(cell), cell))
    return tuple(same[: pick.batch]), pick


def _same(state: ServingState, outline: Outline, queue: Sequence[TaskId], first: TaskId, function: int) -> list[TaskId]:
    """``first`` and the waiting tasks of its function, the most urgent first."""
    same = [first]
    for key in queue:
        if len(same) == _TOGETHER:
            break
        if key != first and outline.functions[state.requests[key[0]].request.graph][key[1]] == function:
            same.append(key)
    return same
