"""Order of a queue under central control: by deadline, less the head start of a request's priority."""

from bisect import insort

from headway.fleet.policies.central.priority import HeadStarts
from headway.fleet.policies.headway.central.batching import QueueEntry


class DueOrder(HeadStarts):
    """Keeps queues in order of when their entries are due."""

    def due(self, entry: QueueEntry) -> int:
        """Return by when an entry goes: never after its deadline."""
        return entry.deadline - self.of(entry.request)

    def insert(self, queue: list[QueueEntry], entry: QueueEntry) -> None:
        """Put an entry into a queue that is in order; plainly by deadline where no request has a priority."""
        insort(queue, entry, key=(lambda each: (self.due(each), each)) if self else None)
