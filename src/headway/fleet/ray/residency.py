"""Which replica holds which model, by the books of whoever sends the calls: no replica is asked."""

from collections.abc import Iterable, Mapping

from headway.errors import ServeError
from headway.fleet.model.catalogue import Catalogue, Model
from headway.fleet.model.memory import GpuMemory
from headway.units import parse_size

LOAD_CALLS = 4.0
"""A load takes as long as so many calls, where nobody says otherwise."""


def bytes_of(size: int | str, what: str) -> int:
    """Return a size in bytes, from ``1.7GB`` or a number."""
    return parse_size(size, what=what) if isinstance(size, str) else int(size)


class Books:
    """Models and calls in flight of each replica. A replica evicts what it has not used for longest."""

    def __init__(self, sizes: Mapping[str, int | str], memory: int | str, load_calls: float = LOAD_CALLS) -> None:
        """``sizes``: bytes by model; ``memory``: bytes of each replica; ``load_calls``: calls that a load is worth."""
        self._numbers = {name: number for number, name in enumerate(sizes)}
        models = tuple(Model(name, bytes_of(size, f"model {name}")) for name, size in sizes.items())
        self._catalogue = Catalogue(models, (), ())
        self._memory_bytes = bytes_of(memory, "memory")
        self._load_calls = load_calls
        self._memories: dict[str, GpuMemory] = {}
        self._calls: dict[str, int] = {}
        self._now = 0
        for model in models:
            if model.size_bytes > self._memory_bytes:
                raise ServeError(f"model {model.name}: {model.size_bytes:,} bytes, and a replica has {memory}")

    def ranked(self, model: str, replicas: Iterable[str], holding: Iterable[str] = ()) -> list[str]:
        """Return replicas, best first: where the model is, unless calls wait there for longer than a load takes.

        Among the others: the shortest queue, then room without eviction. ``holding``: replicas that said themselves
        that they have the model.
        """
        number, says = self._numbers.get(model), frozenset(holding)

        def cost(replica: str) -> tuple[float, int]:
            memory, queue = self._memory(replica), self._calls.get(replica, 0)
            if number is None or memory.resident >> number & 1 or replica in says:
                return queue, 0
            return queue + self._load_calls, 2 if memory.free_bytes < memory.sizes[number] else 1

        return sorted(replicas, key=cost)

    def use(self, model: str, replica: str) -> None:
        """Note that a call with a model goes to a replica: the model is there from now on."""
        if (number := self._numbers.get(model)) is None:
            return
        memory, self._now = self._memory(replica), self._now + 1
        if not memory.resident >> number & 1:
            need_bytes = memory.sizes[number] - memory.free_bytes
            oldest = sorted(memory.order, key=memory.order.__getitem__)
            for other in memory.enough(oldest, need_bytes) or ():
                memory.remove(other)
            memory.add(number, self._now)
        memory.order[number] = self._now

    def models(self, replica: str) -> list[str]:
        """Return the models that a replica holds by the books."""
        return [name for name, number in self._numbers.items() if self._memory(replica).resident >> number & 1]

    def begin(self, replica: str) -> None:
        """Count a call to a replica."""
        self._calls[replica] = self._calls.get(replica, 0) + 1

    def end(self, replica: str) -> None:
        """Count the end of a call to a replica."""
        self._calls[replica] = max(0, self._calls.get(replica, 0) - 1)

    def keep(self, replicas: Iterable[str]) -> None:
        """Forget all replicas but these."""
        there = set(replicas)
        for book in (self._memories, self._calls):
            for gone in book.keys() - there:
                del book[gone]

    def _memory(self, replica: str) -> GpuMemory:
        if replica not in self._memories:
            self._memories[replica] = GpuMemory(self._memory_bytes, self._catalogue)
        return self._memories[replica]
