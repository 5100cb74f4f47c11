"""A store beside the loop: the newest counts, what fails is said once, and a hang ends in a line."""

import threading
from typing import Any

from headway.live.kernels.block import Slot
from headway.live.kernels.keeper import Keeper, outcome
from tests.live.kernels.shares import Memory


def _slot(program: str, work_ns: int) -> Slot:
    slot = Slot()
    slot.program = program.encode()
    slot.kernels[7].id, slot.kernels[7].samples, slot.kernels[7].work_ns = 7, 1, work_ns
    return slot


class Gate(Memory):
    """A store that saves when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.saved = threading.Event(), list[tuple[str, int]]()

    def save(self, program: str, kernels: list[dict[str, Any]], steps: list[dict[str, Any]]) -> None:
        self.open.wait()
        self.saved.append((program, kernels[0]["work_ns"]))
        super().save(program, kernels, steps)


def test_of_several_that_wait_the_newest_is_kept() -> None:
    store = Gate()
    keeper = Keeper(store)
    keeper.save(_slot("first", 1))
    for number in (2, 3, 4):
        keeper.save(_slot("a", number))
    known, problem = outcome(keeper.load("a"))
    assert problem == ""
    assert known is not None
    assert known.kernels[0]["work_ns"] == 4
    store.open.set()
    assert list(keeper.close()) == []
    assert store.saved == [("first", 1), ("a", 4)]


def test_what_is_copied_is_what_was_there_then() -> None:
    store = Gate()
    keeper, slot = Keeper(store), _slot("a", 1)
    keeper.save(slot)
    slot.kernels[7].work_ns = 99
    store.open.set()
    keeper.finish()
    assert store.saved == [("a", 1)]


def test_nothing_learnt_is_nothing_kept_and_nothing_kept_is_nothing_known() -> None:
    store = Memory()
    keeper, empty = Keeper(store), Slot()
    empty.program = b"a"
    keeper.save(empty)
    keeper.save(_slot("", 1))
    assert outcome(keeper.load("a")) == (None, "")
    assert list(keeper.close()) == []
    assert store.kept == {}


def test_a_failure_of_any_kind_is_a_line_and_said_once() -> None:
    class Broken(Memory):
        def load(self, program: str) -> None:
            raise RuntimeError("odd")

        def save(self, program: str, kernels: object, steps: object) -> None:
            raise OSError("disk full")

    keeper = Keeper(Broken())
    keeper.save(_slot("a", 1))
    keeper.finish()
    assert list(keeper.problems()) == ["what was learnt of a could not be kept: disk full"]
    assert list(keeper.problems()) == []
    assert outcome(keeper.load("a")) == (None, "RuntimeError: odd")


def test_rows_of_any_shape_do_not_end_it() -> None:
    store = Memory()
    store.kept["a"] = ([{"id": None}, {"id": "8", "work_ns": 5, "samples": 1}], [{"key": []}])
    known, _ = outcome(Keeper(store).load("a"))
    slot = Slot()
    assert known is not None
    assert known.into(slot) == 1
    assert slot.kernels[8].work_ns == 5
