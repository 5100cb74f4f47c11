"""Run several experiments at a time, each in a process of its own: progress, retries, and a stop that reaches all.

A process that is killed loses the run it was at and no other: that run is begun once more in a new process. Ctrl-C, or
a signal to the parent alone, stops every run in good order. When the parent is killed its processes end with it.
"""

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from pickle import PicklingError
from time import monotonic
from traceback import format_exception
from types import ModuleType
from typing import Any

from headway.core.tasks import Done, Far, Progress, Told, Work
from headway.errors import HeadwayError
from headway.runs.stopping import stops_on_interrupt

ATTEMPTS = 2
TELL_EVERY_S = 0.2
_LOOK_UP_EVERY_S = 0.5
_GRACE_S = 10.0
"""Longer than what each run has to end by itself."""


class _DiedError(HeadwayError):
    """The end of a process before its result; with its exit status."""


@dataclass(slots=True, eq=False)
class _Runner:
    process: Any
    pipe: Connection
    task: int | None = None


@dataclass(slots=True)
class LocalPool:
    """Processes of this machine."""

    processes: int
    _runners: list[_Runner] = field(default_factory=list)
    _stopping: bool = False

    def run(self, tasks: Sequence[Any], work: Work, told: Told | None = None) -> Generator[Done, None, None]:
        """Yield what became of each task, as they end; after a stop, of those at work and then of those not begun."""
        ahead = deque(range(len(tasks)))
        attempts = [0] * len(tasks)
        self._stopping = False
        try:
            with stops_on_interrupt(self.stop, _GRACE_S):
                while (ahead and not self._stopping) or any(runner.task is not None for runner in self._runners):
                    if not self._stopping:
                        self._assign(ahead, tasks, work, told is not None, attempts)
                    for runner in self._ready():
                        if (done := self._heard(runner, told)) is None:
                            continue
                        if (
                            isinstance(done.problem, _DiedError)
                            and not self._stopping
                            and attempts[done.task] < ATTEMPTS
                        ):
                            ahead.appendleft(done.task)
                            continue
                        yield self._explained(done)
                for task in ahead:
                    yield Done(task, stopped=True)
        finally:
            self._end()

    def stop(self) -> None:
        """Let every run end after the step in progress. Safe in a signal handler."""
        self._stopping = True
        for runner in self._runners:
            if runner.process.is_alive():
                runner.process.terminate()

    def _assign(self, ahead: "deque[int]", tasks: Sequence[Any], work: Work, tells: bool, attempts: list[int]) -> None:
        idle = [runner for runner in self._runners if runner.task is None]
        while ahead and (idle or len(self._runners) < self.processes):
            runner = idle.pop() if idle else self._started(work, tells)
            runner.task = ahead.popleft()
            attempts[runner.task] += 1
            with suppress(ConnectionError):  # it died meanwhile, as will be heard
                runner.pipe.send((runner.task, tasks[runner.task]))

    def _started(self, work: Work, tells: bool) -> _Runner:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, work, tells), daemon=True)
        with _main_hidden():
            process.start()
        theirs.close()
        runner = _Runner(process, ours)
        self._runners.append(runner)
        return runner

    def _ready(self) -> list[_Runner]:
        pipes = connection.wait([runner.pipe for runner in self._runners], _LOOK_UP_EVERY_S)
        return [runner for runner in self._runners if runner.pipe in pipes]

    def _heard(self, runner: _Runner, told: Told | None) -> Done | None:
        """Handle one message of a process: progress (None), a result, a problem, or its end."""
        try:
            kind, task, value = runner.pipe.recv()
        except (EOFError, ConnectionError):
            self._runners.remove(runner)
            runner.process.join()
            runner.pipe.close()
            return None if runner.task is None else Done(runner.task, problem=_DiedError(runner.process.exitcode))
        if kind == "told":
            if told is not None:
                told(task, value)
            return None
        runner.task = None
        return Done(task, problem=value) if kind == "problem" else Done(task, value)

    def _explained(self, done: Done) -> Done:
        if not isinstance(done.problem, _DiedError):
            return done
        if self._stopping:
            return Done(done.task, stopped=True)
        code = done.problem.args[0]
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        return Done(done.task, problem=HeadwayError(f"its process {how}, {ATTEMPTS} times; is there memory enough?"))

    def _end(self) -> None:
        """End all processes, whatever happened."""
        for runner in self._runners:
            if runner.task is not None:
                runner.process.kill()
            runner.pipe.close()  # one that waits for a task reads that there is none
        for runner in self._runners:
            runner.process.join(_GRACE_S)
            if runner.process.is_alive():
                runner.process.kill()
        self._runners.clear()


@contextmanager
def _main_hidden() -> Iterator[None]:
    """Keep a new process from running the user's script once more: all that it is to do is headway's."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


# --- in the other process -------------------------------------------------------------------------------------


def _serve(pipe: Connection, work: Work, tells: bool) -> None:
    """Do one task after the other until the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C comes through the parent; a run in progress listens itself
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            task, given = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            message = ("done", task, work(given, _teller(pipe, task) if tells else None))
        except KeyboardInterrupt:  # the second Ctrl-C
            os._exit(128 + signal.SIGINT)
        except Exception as problem:  # noqa: BLE001 - it is raised again in the parent
            message = ("problem", task, problem)
        _send(pipe, message)


def _send(pipe: Connection, message: tuple[str, int, Any]) -> None:
    kind, task, value = message
    if isinstance(value, Exception):
        value.add_note("".join(format_exception(value)))
    try:
        pipe.send((kind, task, value))
    except (PicklingError, TypeError, AttributeError):  # the problem itself may hold what cannot be sent
        pipe.send(("problem", task, HeadwayError(f"{type(value).__name__}: {value}")))


def _teller(pipe: Connection, task: int) -> Progress:
    last = 0.0

    def told(far: Far) -> None:
        nonlocal last
        if (moment := monotonic()) - last >= TELL_EVERY_S:
            last = moment
            pipe.send(("told", task, far))

    return told


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
