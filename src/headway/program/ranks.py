"""Processes that train one model together (torch.distributed): they stop at the same step, and fail together.

They talk over a gloo group of their own, so that nothing waits for a GPU. What a rank wants after a step is known to
all after the next one: the exchange runs beside the computation.
"""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from headway.errors import CheckpointError

T = TypeVar("T")

NOTHING, SAVE, STOP = 0, 1, 2


class Alone:
    """A program of one process."""

    rank, count = 0, 1

    def agreed(self, wish: int) -> int:
        """Return the largest wish of all ranks: their wishes of the last call, where there are several."""
        return wish

    def agreed_now(self, wish: int) -> int:
        """Return the largest wish of all ranks at once."""
        return wish

    def all_do(self, work: Callable[[], T]) -> T:
        """Let every rank do something and wait for all; an error of one is an error of all."""
        return work()

    def told(self, value: T) -> T:
        """Return what rank 0 gave."""
        return value

    def gathered(self, value: T) -> list[T]:
        """Return what each rank gave."""
        return [value]

    def close(self) -> None:
        """End what is still being exchanged."""


class Ranks(Alone):
    """Several processes in a process group of torch."""

    def __init__(self, torch: Any) -> None:
        self._torch, self._dist = torch, torch.distributed
        self.rank, self.count = self._dist.get_rank(), self._dist.get_world_size()
        self._group = self._dist.new_group(backend="gloo")
        self._pending: tuple[Any, Any] | None = None

    def agreed(self, wish: int) -> int:
        """Return the largest wish of the last call; ask for that of this call."""
        found = self._settled()
        if found == NOTHING:
            wishes = self._torch.tensor([wish])
            self._pending = wishes, self._sent(wishes, async_op=True)
        return found

    def agreed_now(self, wish: int) -> int:
        """Return the largest wish of all ranks at once."""
        wishes = self._torch.tensor([max(wish, self._settled())])
        self._sent(wishes, async_op=False)
        return int(wishes.item())

    def _sent(self, wishes: Any, *, async_op: bool) -> Any:
        return self._dist.all_reduce(wishes, op=self._dist.ReduceOp.MAX, group=self._group, async_op=async_op)

    def _settled(self) -> int:
        if self._pending is None:
            return NOTHING
        wishes, exchange = self._pending
        self._pending = None
        exchange.wait()
        return int(wishes.item())

    def all_do(self, work: Callable[[], T]) -> T:
        """Let every rank do something and wait for all; an error of one is an error of all."""
        found, problem = None, None
        try:
            found = work()
        except Exception as raised:  # noqa: BLE001 (whatever it is, the others must not wait for ever)
            problem = raised
        said = self.gathered(None if problem is None else f"{type(problem).__name__}: {problem}")
        if problem is not None:
            raise problem
        for rank, line in enumerate(said):
            if line is not None:
                raise CheckpointError(f"rank {rank} failed, so that all ranks end: {line}")
        return found  # type: ignore[return-value]

    def told(self, value: T) -> T:
        """Return what rank 0 gave."""
        values = [value]
        self._dist.broadcast_object_list(values, src=self._dist.get_global_rank(self._group, 0), group=self._group)
        return values[0]

    def gathered(self, value: T) -> list[T]:
        """Return what each rank gave."""
        found: list[T] = [value] * self.count
        self._dist.all_gather_object(found, value, group=self._group)
        return found

    def close(self) -> None:
        """Wait for what is still being exchanged."""
        self._settled()


def ranks() -> Alone:
    """Return the ranks that this process is one of."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return Alone()
    return Ranks(torch) if torch.distributed.get_world_size() > 1 else Alone()
