"""The books of a worker: bytes, users, and who loads."""

import threading
from typing import Any

import pytest

from headway.fleet.live.weights.device import Cpu
from headway.fleet.live.weights.memory import DriverError, Memory, RefusedError, is_out_of_memory


class Fake:
    """A model that notes what is done to it; what is in ``raises`` is raised by the next loads."""

    def __init__(self, name: str, size_bytes: int, log: list[str]) -> None:
        self.name, self.size_bytes, self.log = name, size_bytes, log
        self.raises: list[Exception] = []
        self.gate: threading.Event | None = None
        self.begun = threading.Event()

    @property
    def value(self) -> Any:
        return self.name.upper()

    def load(self) -> None:
        self.begun.set()
        if self.gate is not None:
            assert self.gate.wait(60)
        if self.raises:
            raise self.raises.pop(0)
        self.log.append(f"load {self.name}")

    def evict(self) -> None:
        self.log.append(f"evict {self.name}")


class Noted(Cpu):
    """A device that notes what it is told."""

    def __init__(self, shares: list[int]) -> None:
        super().__init__()
        self.shares = shares

    def share(self, models_bytes: int) -> None:
        self.shares.append(models_bytes)

    def trim(self) -> None:
        self.shares.append(-1)


class Books:
    """Three models of 40 bytes within 100."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.shares: list[int] = []
        self.models = [Fake(name, 40, self.log) for name in "abc"]
        self.memory = Memory(self.models, 100, Noted(self.shares))

    def use(self, *models: int, evict: tuple[int, ...] = ()) -> None:
        """As a batch does before it runs."""
        self.memory.reserve(models, evict)
        for model in models:
            self.memory.load(model)


def test_models_are_counted_once_and_loaded_once() -> None:
    books = Books()
    assert books.memory.reserve((0, 1))
    books.memory.load(0)
    books.memory.load(1)
    assert not books.memory.reserve((1,))
    books.memory.load(1)
    assert (books.log, books.memory.used_bytes) == (["load a", "load b"], 80)
    assert books.memory.values((1, 0)) == ["B", "A"]
    assert books.shares == [80]


def test_what_does_not_fit_is_refused_and_nothing_is_evicted() -> None:
    books = Books()
    books.use(0)
    books.use(1)
    books.memory.release((0, 1))
    with pytest.raises(RefusedError, match="take 40 bytes more, 20 of 100 are free"):
        books.memory.reserve((2,))
    books.memory.reserve((2,), (0,))
    assert books.log == ["load a", "load b", "evict a"]
    assert books.memory.used_bytes == 80


def test_a_model_in_use_is_not_evicted() -> None:
    books = Books()
    books.use(0)
    books.use(0)
    books.memory.release((0,))
    with pytest.raises(RefusedError, match="model a is in use"):
        books.memory.evict(0)
    with pytest.raises(RefusedError, match="model a is in use"):
        books.memory.reserve((1,), (0,))
    books.memory.release((0,))
    books.memory.evict(0)
    books.memory.evict(0)
    assert (books.log, books.memory.used_bytes) == (["load a", "evict a"], 0)


def test_a_model_that_could_not_be_loaded_is_forgotten_with_its_last_user() -> None:
    books = Books()
    books.models[0].raises = [OSError("no"), OSError("no")]
    books.memory.reserve((0,))
    books.memory.reserve((0,))
    for _ in range(2):
        with pytest.raises(OSError, match="no"):
            books.memory.load(0)
    books.memory.release((0,))
    assert books.memory.used_bytes == 40
    books.memory.release((0,))
    assert books.memory.used_bytes == 0
    assert books.shares == [40, 40, 0]
    books.use(0)
    assert books.log == ["load a"]


def test_when_memory_runs_out_unused_models_go_oldest_first_and_the_load_is_tried_once_more() -> None:
    books = Books()
    books.memory.capacity_bytes = 200
    books.use(1)
    books.use(0)
    books.use(1)
    books.memory.release((0, 1, 1))
    books.models[2].raises = [MemoryError()]
    books.use(2)
    assert books.log == ["load b", "load a", "evict a", "evict b", "load c"]
    assert books.memory.used_bytes == 40
    assert books.shares[-2:] == [40, -1]
    books.models[0].raises = [DriverError("cuMemCreate", 2), DriverError("cuMemCreate", 2)]
    books.memory.reserve((0,))
    with pytest.raises(DriverError, match="cuMemCreate failed with 2"):
        books.memory.load(0)
    assert books.log[5:] == []


def test_models_that_go_without_an_order_are_told_with_the_last_lease() -> None:
    books, told = Books(), []
    books.memory.on_lost = lambda models, lease: told.append((models, lease))
    for model, lease in ((0, 5), (1, 7)):
        books.memory.reserve((model,), (), lease)
        books.memory.load(model)
        books.memory.release((model,))
    books.memory.reserve((), (1,))  # an order: the server knows
    assert books.memory.make_room() == (0,)
    assert told == [((0,), 7)]
    assert books.memory.make_room() == ()
    assert len(told) == 1


def test_other_errors_of_a_load_evict_nothing() -> None:
    books = Books()
    books.use(0)
    books.memory.release((0,))
    books.models[1].raises = [DriverError("cuMemMap", 1)]
    books.memory.reserve((1,))
    with pytest.raises(DriverError):
        books.memory.load(1)
    assert books.log == ["load a"]


def test_who_needs_a_model_that_another_thread_loads_waits_for_it() -> None:
    books = Books()
    books.models[0].gate = threading.Event()
    books.memory.reserve((0,))
    books.memory.reserve((0,))
    first = threading.Thread(target=books.memory.load, args=(0,))
    first.start()
    assert books.models[0].begun.wait(60)
    second = threading.Thread(target=books.memory.load, args=(0,))
    second.start()
    with pytest.raises(RefusedError):
        books.memory.evict(0)
    books.models[0].gate.set()
    first.join()
    second.join()
    assert books.log == ["load a"]


@pytest.mark.parametrize(
    ("problem", "is_one"),
    [
        (MemoryError(), True),
        (type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"), True),
        (DriverError("cuMemCreate", 2), True),
        (DriverError("cuMemCreate", 700), False),
        (RuntimeError("shape mismatch"), False),
        (ValueError("can't allocate memory"), False),
    ],
)
def test_errors_that_say_memory_ran_out_are_known(problem: Exception, is_one: bool) -> None:
    assert is_out_of_memory(problem) == is_one


def test_a_model_that_was_wanted_ahead_of_a_batch_that_has_ended_stays_away() -> None:
    books = Books()
    books.use(0)
    books.memory.release((0,))
    books.memory.evict(0)
    books.memory.load(0)
    assert (books.log, books.memory.used_bytes) == (["load a", "evict a"], 0)
    books.use(0)
    assert books.memory.used_bytes == 40
