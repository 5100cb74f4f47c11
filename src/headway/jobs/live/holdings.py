"""Who really holds what: leases from their order until their program is gone, whatever the books of the state say."""

from collections.abc import Iterator
from dataclasses import dataclass

from headway.jobs.live.engine import Order
from headway.jobs.model.cluster import Cluster


@dataclass(slots=True)
class Holding:
    """One lease."""

    order: Order
    launched: bool = False
    """Whether the engine was told to start it."""
    leaving: bool = False
    """Whether it is to end, and the state has given its resources to others by now."""
    asked: bool = False
    """Whether it was asked to end while the state still has it running."""
    problem: str = ""
    """Why it could not be started the last time."""


class Holdings:
    """All leases whose programs may still be there."""

    def __init__(self, cluster: Cluster) -> None:
        self._all: dict[int, Holding] = {}
        self._hosts = [node.host[:2] for node in cluster.nodes]
        """By node: CPUs in thousandths and bytes of memory."""

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Holding]:
        return iter(self._all.values())

    def add(self, order: Order) -> Holding:
        """Enter a lease."""
        holding = self._all[order.lease] = Holding(order)
        return holding

    def get(self, lease: int) -> Holding | None:
        """Return a lease; None where it is gone."""
        return self._all.get(lease)

    def remove(self, lease: int) -> Holding | None:
        """Take out a lease whose program is gone, and return it."""
        return self._all.pop(lease, None)

    def leave(self, lease: int) -> bool:
        """Note that a lease is to end; return whether it is there and was not to end before."""
        holding = self._all.get(lease)
        if holding is None or holding.leaving:
            return False
        holding.leaving = True
        return True

    def of_job(self, job: int) -> list[int]:
        """Return the leases of a job that are not to end."""
        return [lease for lease, each in self._all.items() if each.order.job == job and not each.leaving]

    def running(self) -> Iterator[tuple[int, Holding]]:
        """Return the leases that were started and are not to end."""
        return iter([(lease, each) for lease, each in self._all.items() if each.launched and not each.leaving])

    def ready(self) -> list[Holding]:
        """Return what is to be started, in its order, and waits for nobody."""
        waiting = [each for each in self._all.values() if not (each.launched or each.leaving)]
        if not waiting:
            return []
        leaving = [each.order for each in self._all.values() if each.leaving]
        return [each for each in waiting if not leaving or self._has_room(each.order, leaving)]

    def _has_room(self, order: Order, leaving: list[Order]) -> bool:
        """Return whether a start finds what it needs although some leases are not gone that are to end."""
        if any(_overlaps(each, order) for each in leaving):
            return False
        there = [each.order for each in self._all.values() if each.launched or each.leaving]
        for node, _ in order.placement:
            if any(each.on(node)[1:] != (0, 0) for each in leaving):
                held = [sum(amounts) for amounts in zip(*(each.on(node)[1:] for each in (*there, order)), strict=True)]
                if any(amount > most for amount, most in zip(held, self._hosts[node], strict=True)):
                    return False
        return True


def _overlaps(leaving: Order, order: Order) -> bool:
    """Return whether a start has to wait for the end of a lease whatever else is free: its job, or one of its GPUs."""
    return leaving.job == order.job or any(leaving.on(node)[0] & mask for node, mask in order.placement)
