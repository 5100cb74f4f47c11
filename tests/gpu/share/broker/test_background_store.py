"""A store beside the loop: the newest counts, what fails is said once, and a hang ends in a line."""

import threading
from typing import Any

from headway.gpu.share.block.block import Slot
from headway.gpu.share.broker.background_store import BackgroundStore, outcome
from tests.gpu.share.shares import Memory


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
    background_store = BackgroundStore(store)
    background_store.save(_slot("first", 1))
    for number in (2, 3, 4):
        background_store.save(_slot("a", number))
    known, problem = outcome(background_store.load("a"))
    assert problem == ""
    assert known is not None
    assert known.kernels[0]["work_ns"] == 4
    store.open.set()
    assert list(background_store.close()) == []
    assert store.saved == [("first", 1), ("a", 4)]


def test_what_is_copied_is_what_was_there_then() -> None:
    store = Gate()
    background_store, slot = BackgroundStore(store), _slot("a", 1)
    background_store.save(slot)
    slot.kernels[7].work_ns = 99
    store.open.set()
    background_store.finish()
    assert store.saved == [("a", 1)]


def test_nothing_learnt_is_nothing_kept_and_nothing_kept_is_nothing_known() -> None:
    store = Memory()
    background_store, empty = BackgroundStore(store), Slot()
    empty.program = b"a"
    background_store.save(empty)
    background_store.save(_slot("", 1))
    assert outcome(background_store.load("a")) == (None, "")
    assert list(background_store.close()) == []
    assert store.kept == {}


def test_a_failure_of_any_kind_is_a_line_and_said_once() -> None:
    class Broken(Memory):
        def load(self, program: str) -> None:
            raise RuntimeError("odd")

        def save(self, program: str, kernels: object, steps: object) -> None:
            raise OSError("disk full")

    background_store = BackgroundStore(Broken())
    background_store.save(_slot("a", 1))
    background_store.finish()
    assert list(background_store.problems()) == ["what was learnt of a could not be kept: disk full"]
    assert list(background_store.problems()) == []
    assert outcome(background_store.load("a")) == (None, "RuntimeError: odd")


def test_rows_of_any_shape_do_not_end_it() -> None:
    store = Memory()
    store.kept["a"] = ([{"id": None}, {"id": "8", "work_ns": 5, "samples": 1}], [{"key": []}])
    known, _ = outcome(BackgroundStore(store).load("a"))
    slot = Slot()
    assert known is not None
    assert known.into(slot) == 1
    assert slot.kernels[8].work_ns == 5
