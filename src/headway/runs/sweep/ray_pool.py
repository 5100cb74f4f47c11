"""Runs tasks on a Ray cluster. Nothing else in headway imports Ray, and this module only when it is used.

A task whose process or machine is lost is retried elsewhere, a few times only: Ray itself would retry one that ran out
of memory for ever. Results come back to the process that asked, which alone writes files. What a task reads (a trace)
must be under the same path on every machine, and headway must be installed there.
"""

import importlib
import math
import os
import socket
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from headway.core.tasks import Done, Told, Work
from headway.errors import ExperimentError, HeadwayError

ATTEMPTS = 6
"""A task that was lost this often fails."""
AHEAD_PER_CPU = 4
"""Tasks submitted to Ray at a time for each CPU of the cluster: enough to keep all busy."""
NOTICE_S = 10.0
"""A line is printed when no task has run for this long."""
CONNECT_S = 5.0
"""Timeout for a cluster's address; Ray itself would try for minutes, and then end the process."""
STORE_BYTES = 200_000_000
"""Object store of a cluster that is started here: results are small."""
_WAIT_S = 0.5
_HERE = "127.0.0.1"
AUTO = "auto"
"""The address that stands for the cluster of this machine, or of RAY_ADDRESS."""


@dataclass(frozen=True, slots=True)
class RayPool:
    """A Ray cluster: one that is started on this machine for the tasks, or one that runs already."""

    address: str = ""
    """Of a cluster to join: ``auto``, or host:port. Empty: start one here."""
    processes: int = 1
    """Cores of a cluster that is started here."""
    note: Callable[[str], None] | None = None
    """Called with a line when tasks wait for a CPU."""

    def run(self, tasks: Sequence[Any], work: Work, told: Told | None = None) -> Generator[Done, None, None]:
        """Yield the outcome of each task as it ends; after Ctrl-C the others are stopped.

        ``told`` is called when a task starts; its progress is not reported.
        """
        ray = self._joined()
        queue = _TaskQueue(ray, tasks, work)
        try:
            while queue.submit():
                yield from queue.poll(told)
                if self.note is not None and (line := queue.waiting()):
                    self.note(line)
        except KeyboardInterrupt:
            for number in queue.left():
                yield Done(number, stopped=True)
        finally:
            queue.cancel()
            ray.shutdown()

    def _joined(self) -> Any:
        """Return the Ray library, connected to the cluster."""
        ray = library()
        if ray.is_initialized():
            raise ExperimentError("this process is connected to a Ray cluster already")
        quiet = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
        if not self.address:
            here = {"_node_ip_address": _HERE, "num_cpus": self.processes, "object_store_memory": STORE_BYTES}
            ray.init(address="local", **here, **quiet)
            return ray
        quiet.pop("include_dashboard")
        check_answers(os.environ.get("RAY_ADDRESS", "") if self.address == AUTO else self.address)
        local = {"_node_ip_address": _HERE} if self.address.split(":")[0] in (_HERE, "localhost") else {}
        try:
            ray.init(address=self.address, **local, **quiet)
        except (ConnectionError, ValueError, RuntimeError, OSError, SystemExit) as problem:  # Ray exits by itself
            reason = (str(problem).splitlines() or [type(problem).__name__])[0]
            raise ExperimentError(f"Ray cluster {self.address!r}: cannot be joined ({reason})") from None
        return ray


def check_answers(address: str) -> None:
    """Raise for an address that does not answer; ``auto`` without RAY_ADDRESS is left to Ray, which knows at once."""
    if not address or address == AUTO:
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not host or not colon or not port.isdecimal():
        raise ExperimentError(f"Ray cluster {address!r}: is no address: write {AUTO}, or host:port like 10.0.0.1:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except (OSError, OverflowError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise ExperimentError(
            f"Ray cluster {address!r}: cannot be joined ({reason}); is it up, and is the port that of its head?"
        ) from None


class _TaskQueue:
    """Tasks of a run: pending ones, submitted ones, and those of them that have started."""

    def __init__(self, ray: Any, tasks: Sequence[Any], work: Work) -> None:
        self.ray = ray
        self.tasks = tasks
        self.work = work
        self.pending = deque(range(len(tasks)))
        self.submitted: dict[Any, int] = {}
        self.started: set[int] = set()
        self.attempts = [0] * len(tasks)
        self.idle_since: float | None = monotonic()
        # the first result says that it has started; lost tasks are retried here, not by Ray
        self.remote = ray.remote(num_cpus=1, max_retries=0, num_returns="streaming")(_steps)

    def submit(self) -> bool:
        """Submit tasks up to the limit of the cluster; return whether any are unfinished."""
        most = AHEAD_PER_CPU * max(1, int(self.ray.cluster_resources().get("CPU", 0)))
        while self.pending and len(self.submitted) < most:
            number = self.pending.popleft()
            self.attempts[number] += 1
            self.submitted[self.remote.remote(self.work, self.tasks[number])] = number
        return bool(self.submitted)

    def poll(self, told: Told | None) -> Iterator[Done]:
        """Wait briefly for tasks that start, end or are lost; yield the outcomes."""
        ready, _ = self.ray.wait(list(self.submitted), num_returns=1, timeout=_WAIT_S)
        for reference in ready:
            number = self.submitted[reference]
            try:
                answer = self.ray.get(next(reference))
            except (self.ray.exceptions.RayError, StopIteration) as lost:
                self._taken(reference)
                if self.attempts[number] >= ATTEMPTS:
                    yield Done(number, problem=_lost(lost))
                else:
                    self.pending.appendleft(number)
                continue
            if answer is None:
                self.started.add(number)
                if told is not None:
                    told(number, None)
                continue
            self._taken(reference)
            yield Done(number, *answer)

    def waiting(self) -> str:
        """Return a line when no task has run for a while, once until one does; else an empty text."""
        if self.started or not self.submitted:
            self.idle_since = None
        elif self.idle_since is None:
            self.idle_since = monotonic()
        if self.idle_since is None or monotonic() - self.idle_since < NOTICE_S:
            return ""
        self.idle_since = math.inf
        total, available = self.ray.cluster_resources(), self.ray.available_resources()
        cpus, free = (int(resources.get("CPU", 0)) for resources in (total, available))
        return f"the Ray cluster runs none of the tasks: {free:,} of its {cpus:,} CPUs are free; still waiting"

    def left(self) -> list[int]:
        """Return the tasks that have not ended."""
        return [*self.submitted.values(), *self.pending]

    def cancel(self) -> None:
        """Cancel what still runs."""
        for reference in self.submitted:
            self.ray.cancel(reference, force=True)

    def _taken(self, reference: Any) -> None:
        self.started.discard(self.submitted.pop(reference))


def library(name: str = "ray") -> Any:
    """Return the Ray library, or a module of it; raise ExperimentError with how to install it where it is missing."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns of a change to come
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ExperimentError("--engine ray needs Ray, which is not installed: pip install 'headway[ray]'") from None


def _steps(work: Work, task: Any) -> Iterator[tuple[Any, Exception | None] | None]:
    """Run a task on a machine of the cluster: yield None when it starts, then (result, problem); Ray wraps neither."""
    yield None
    try:
        yield work(task, None), None
    except Exception as problem:  # noqa: BLE001 - it is recorded where the task came from
        yield None, problem


def _lost(problem: Exception) -> HeadwayError:
    reason = (str(problem).splitlines() or [""])[0]
    return HeadwayError(f"lost {ATTEMPTS} times: {type(problem).__name__} ({reason}); is there memory enough?")
