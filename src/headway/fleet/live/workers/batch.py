"""Run one batch in a worker: call the task's function, and see that only the guilty request fails.

A batch that raises is run again, each of its tasks alone. Where memory runs out, models that nobody uses are evicted
and the call is tried once more.
"""

import sys
import traceback
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from headway.errors import HeadwayError, printable
from headway.fleet.live.weights.memory import is_out_of_memory
from headway.fleet.live.workers.messages import Finished, Run
from headway.fleet.live.workers.payload import Packer, Payload, unpack

Function = Callable[..., Any]
_NOTHING = Payload(b"")
_LONGEST_REASON = 2000


def reason(problem: BaseException) -> str:
    """Return what went wrong in one line: the type and the message; headway's own errors are a line already."""
    text = str(problem) if isinstance(problem, HeadwayError) else f"{type(problem).__name__}: {problem}"
    return printable(" ".join(text.split()))[:_LONGEST_REASON].rstrip(": ")


class WrongResultError(HeadwayError):
    """A task's function returned something else than one result a task."""


class Batch:
    """A batch whose models are there."""

    def __init__(
        self, order: Run, name: str, function: Function, models: list[Any], room: Callable[[], object], wait: Function
    ) -> None:
        self._order = order
        self._name = name
        self._function = function
        self._models = models
        self._room = room
        """Evicts what nobody uses."""
        self._wait = wait
        """Waits until the device has done what the function asked of it."""
        self._failures: dict[int, str] = {}
        self._run_ns = 0

    def run(self, packer: Packer) -> Finished:
        """Run it to its end; return what is answered."""
        order = self._order
        given = self._unpacked()
        found = self._results(given)
        packed = tuple([self._packed(packer, position, found) for position in range(len(order.inputs))])
        return Finished(order.lease, packed, self._failures, self._run_ns)

    def _unpacked(self) -> dict[int, tuple[Any, ...]]:
        """Return the inputs of each task, by position."""
        given = {}
        for position, inputs in enumerate(self._order.inputs):
            try:
                given[position] = tuple([unpack(each) for each in inputs])
            except Exception as problem:  # noqa: BLE001 - whatever a user's class raises when it is unpickled
                self._failures[position] = f"input: {reason(problem)}"
        return given

    def _results(self, given: dict[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Return the result of each task that has one, by position."""
        if not given:
            return {}
        found, problem = self._tried(list(given.values()))
        if not problem:
            return dict(zip(given, found, strict=True))
        if len(given) == 1:
            self._failures[next(iter(given))] = problem
            return {}
        results = {}
        for position, inputs in given.items():
            found, problem = self._tried([inputs])
            if problem:
                self._failures[position] = problem
            else:
                results[position] = found[0]
        return results

    def _tried(self, inputs: list[tuple[Any, ...]]) -> tuple[list[Any], str]:
        """Call the function, once more where memory runs out; return its results, or why there are none."""
        found, problem, out_of_memory = self._called(inputs)
        if out_of_memory:
            self._room()
            found, problem, _ = self._called(inputs)
        return found, problem

    def _called(self, inputs: list[tuple[Any, ...]]) -> tuple[list[Any], str, bool]:
        began = perf_counter_ns()
        try:
            found = self._function(*self._models, *map(list, zip(*inputs, strict=True)))
            self._wait()
            return self._checked(found, len(inputs)), "", False
        except BaseException as problem:  # noqa: BLE001 - user code: even sys.exit() fails its own request alone
            traceback.print_exc(file=sys.stderr)
            return [], reason(problem), is_out_of_memory(problem)
        finally:
            self._run_ns += perf_counter_ns() - began

    def _checked(self, found: Any, count: int) -> list[Any]:
        if not isinstance(found, list | tuple):
            raise WrongResultError(f"{self._name} returned a {type(found).__name__}: must be a list of {count} results")
        if len(found) != count:
            raise WrongResultError(f"{self._name} returned {len(found)} results for {count} inputs: must be one each")
        return list(found)

    def _packed(self, packer: Packer, position: int, found: dict[int, Any]) -> Payload:
        if position in found:
            try:
                return packer.pack(found[position])
            except Exception as problem:  # noqa: BLE001 - a value that cannot be pickled, or shared memory is full
                self._failures[position] = f"result: {reason(problem)}"
        return _NOTHING
