"""Engines that many requests share: how much longer one more takes there than alone.

The one configuration of a task that generates is timed for a request alone. Without what others add, all workers with a
free place look alike, and packing puts as many requests as fit into one engine.
"""

from functools import cache

from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.fleet import Worker
from headway.fleet.model.generation import Generation
from headway.fleet.state.workerstate import WorkerState


class Crowding:
    """What the requests in an engine add to the time of one more."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._kinds = [function.generate for function in catalogue.functions]
        self._added = cache(self._more_than_alone)

    def delay(self, worker: WorkerState, function: int) -> int:
        """Return how much longer a task takes on a worker than alone; 0 where its function does not generate.

        Who stands in the line of an engine goes before it, as in any queue.
        """
        if self._kinds[function] is None:
            return 0
        members = sum(batch.function == function for batch in worker.running.values())
        return self._added(function, members) + worker.line

    def _more_than_alone(self, function: int, members: int) -> int:
        kind = self._kinds[function]
        assert kind is not None
        return kind.among(members + 1) - kind.alone()


def by_free_slices(kind: Generation, worker: Worker, slices: int) -> list[int]:
    """Return by number of free slices how long a request takes in an engine: those held tell how many are there.

    ``slices``: what each holds. Requests that hold none leave no trace.
    """
    whole = worker.gpu.slices
    return [kind.among((whole - free) // slices + 1 if slices else 1) for free in range(whole + 1)]
