"""State and executor share no back door: the state returns what a change causes, and an executor writes no state.

A walk over the syntax of ``sim/`` and ``live/`` of each tree. Whatever is reached from a state
(``self._state.running[7]``, a name that was given such a thing, a parameter of a state's type) may be read and not
written: nothing is assigned to it or deleted from it, and of its methods only those are called that read. The loop's
own steps (``Scheduler``, ``happen``, ``act``) are the way in; who takes up a run in the middle may besides call the
verbs for changes from outside.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source import FILES, PACKAGE, dotted, inside, name

ROOMS = (
    *("core/clock.py", "device", "door", "runs/sweep/ray_pool.py"),
    *("jobs/live", "jobs/sim", "jobs/slurm/live", "jobs/slurm/shadow"),
    *("fleet/live", "fleet/ray", "fleet/sim", "gpu/share", "gpu/sim"),
)
EXECUTING = [path for path in FILES if inside(path, ROOMS)]
STATES = {"state", "_state"}
"""What a state is called, alone or as an attribute."""
TYPES = {"TrainingState", "JobState", "ServingState", "WorkerState", "RequestState", "KernelsState", "ClientState"}
TYPES |= {"Pool", "Queue", "Account", "GpuMemory", "Batch", "Respeeded"}
READING = {"cell_of", "cells", "check", "copy", "done_at", "entry_worker", "fastest_path", "get", "in_order", "items"}
READING |= {"keys", "launch", "on", "over", "values"}
"""Methods of what belongs to a state that change nothing."""
FROM_OUTSIDE = {"expect", "revise"}
"""Verbs of a state for changes from outside: no executor calls them."""
PASSING_ON = {"enumerate", "iter", "list", "map", "next", "reversed", "sorted", "tuple", "zip"}


class Written:
    """Finds what one function, or a whole file, writes to a state."""

    def __init__(self, tree: ast.AST, known: set[str], allowed: set[str]) -> None:
        self.tree = tree
        self.known = set(known)
        """Names, also of the kind ``self.device``, of what belongs to a state."""
        self.allowed = allowed
        before = -1
        while before != len(self.known):
            before = len(self.known)
            self._name()

    def _name(self) -> None:
        """Learn the names that are given to what belongs to a state."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.arg) and node.annotation is not None:
                if TYPES & set(re.findall(r"\w+", ast.unparse(node.annotation))):
                    self.known.add(node.arg)
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    self._bind(target, node.value)
            elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                self._bind(node.target, node.value)
            elif isinstance(node, ast.For | ast.comprehension):
                self._bind(node.target, node.iter)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for each, of in zip(target.elts, value.elts, strict=True):
                self._bind(each, of)
        elif self.belongs(value):
            for each in target.elts if isinstance(target, ast.Tuple) else (target,):
                if isinstance(each, ast.Name) or dotted(each).startswith("self."):
                    self.known.add(dotted(each))

    def belongs(self, node: ast.expr) -> bool:
        """Whether an expression is a state or is reached from one."""
        if isinstance(node, ast.Name | ast.Attribute) and (
            dotted(node) in self.known or dotted(node).rpartition(".")[2] in STATES
        ):
            return True
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
            return self.belongs(node.value)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                return node.func.attr in READING and self.belongs(node.func.value)
            return dotted(node.func) in PASSING_ON and any(map(self.belongs, node.args))
        if isinstance(node, ast.IfExp):
            return self.belongs(node.body) or self.belongs(node.orelse)
        return isinstance(node, ast.BoolOp) and any(map(self.belongs, node.values))

    def found(self) -> Iterator[str]:
        """Whatever is written."""
        for node in ast.walk(self.tree):
            targets: list[ast.expr] = []
            if isinstance(node, ast.Assign | ast.Delete):
                targets = node.targets
            elif isinstance(node, ast.AugAssign | ast.AnnAssign):
                targets = [node.target]
            for target in targets:
                for each in target.elts if isinstance(target, ast.Tuple | ast.List) else (target,):
                    if isinstance(each, ast.Attribute | ast.Subscript) and self.belongs(each.value):
                        yield f"line {each.lineno}: writes {ast.unparse(each)}"
            if isinstance(node, ast.Call):
                yield from self._called(node)

    def _called(self, node: ast.Call) -> Iterator[str]:
        if dotted(node.func) in ("setattr", "delattr", "heappush", "heappop", "vars") and self.belongs(node.args[0]):
            yield f"line {node.lineno}: writes by {ast.unparse(node)}"
        called, harmless = node.func, READING | self.allowed
        if isinstance(called, ast.Attribute) and called.attr not in harmless and self.belongs(called.value):
            yield f"line {node.lineno}: calls {ast.unparse(called)}"


def writes(source: str) -> list[str]:
    """Return whatever a file writes to a state, function by function."""
    tree = ast.parse(source)
    own = {each for each in Written(tree, set(), set()).known if each.startswith("self.")}
    found: dict[str, None] = {}
    for part in _parts(tree):
        methods = {each.name for each in ast.walk(part) if isinstance(each, ast.FunctionDef)}
        allowed = set() if "execute" in methods else FROM_OUTSIDE
        for function in ast.walk(part):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
                found |= dict.fromkeys(Written(function, own, allowed).found())
    return list(found)


def _parts(tree: ast.Module) -> list[ast.AST]:
    """The classes of a file, each by itself, and all the rest of it."""
    classes = [each for each in tree.body if isinstance(each, ast.ClassDef)]
    return [*classes, ast.Module([each for each in tree.body if each not in classes], [])]


def test_every_room_that_is_named_is_there() -> None:
    assert [room for room in ROOMS if not (PACKAGE / room).exists()] == []


@pytest.mark.parametrize("path", EXECUTING, ids=name)
def test_what_carries_actions_out_writes_no_state(path: Path) -> None:
    assert writes(path.read_text()) == []


EXECUTOR = "class Some:\n    def execute(self, now, action):\n        {}"


@pytest.mark.parametrize(
    "line",
    [
        "self._state.to_come = 3",
        "self._state.to_come -= 1",
        "self._state.running[7].job = None",
        "js = self._state.jobs.get(7); js.job = None",
        "for js in list(self._state.running.values()): js.done = 0",
        "for _, js in self._state.running.items(): js.done += 1",
        "if (js := self._state.jobs.get(7)) is not None: js.job = None",
        "state = self._state; pool = state.pool; del pool.shares[0][1]",
        "self._state.queue.add(0, (1, 2))",
        "self._state.outbox.clear()",
        "self._state.apply(now, action)",
        "self._state.commit(now, action)",
        "self._state.expect(3)",
        "setattr(self._state, 'to_come', 3)",
        "self._pool = self._state.pool; self._pool.free = 3",
    ],
)
def test_an_executor_that_writes_its_state_is_caught(line: str) -> None:
    assert writes(EXECUTOR.format(line))


@pytest.mark.parametrize(
    "source",
    [
        EXECUTOR.format("self._state = action; self._cursor += 1"),
        EXECUTOR.format("js = self._state.running[7]; self._moved[js.id] = js.lease"),
        EXECUTOR.format("if not self._state.over(): self._heap.append(self._state.leases)"),
        "def go_on(moment):\n    happen(moment.state, moment.executor, 3, None)",
        "class Moment:\n    def expect(self, jobs):\n        self.state.expect(len(jobs))",
    ],
)
def test_who_reads_a_state_or_goes_through_the_loop_passes(source: str) -> None:
    assert writes(source) == []


def test_a_function_that_changes_the_jobs_it_was_given_is_caught() -> None:
    assert writes("def follow(now: int, caused: Respeeded) -> None:\n    for js in caused:\n        js.done = 0")


def test_no_state_keeps_for_the_executor_what_was_caused() -> None:
    words = {name(path): set(re.findall(r"\w+", path.read_text())) for path in FILES}
    assert [path for path, found in words.items() if "outbox" in found] == []
    kept = [path for path in FILES if re.search(r"\.respeeded\b", path.read_text())]
    assert [path.relative_to(PACKAGE).as_posix() for path in kept] == []
