"""Tasks on the machines of a Ray cluster. Nothing else in headway imports Ray, and this only when it is asked for.

A task whose process or machine is lost is begun again elsewhere, a few times and no more: Ray itself would begin one
that was killed for want of memory again for ever. Results come back to the process that asked, which alone writes them
down: no machine of the cluster needs to be trusted with a file. What a task reads (a trace) must lie under the same
path everywhere, and headway must be installed there.
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
"""So often a task is begun before it is given up as lost."""
AHEAD_PER_CPU = 4
"""Tasks that Ray is given at a time, for each CPU of the cluster: enough for all to be at work."""
NOTICE_S = 10.0
"""When nothing is at work for so long, that is said."""
CONNECT_S = 5.0
"""So long a cluster's address may take to answer; Ray itself would try for minutes, and then end the process."""
STORE_BYTES = 200_000_000
"""Memory for objects of a cluster of our own: results are small."""
_WAIT_S = 0.5
_HERE = "127.0.0.1"
AUTO = "auto"
"""The address that stands for the cluster of this machine, or of RAY_ADDRESS."""


@dataclass(frozen=True, slots=True)
class RayPool:
    """A Ray cluster: one of this machine's cores that lives as long as the tasks, or one that is there already."""

    address: str = ""
    """Of a cluster to join: ``auto``, or host:port. Empty: start one here."""
    processes: int = 1
    """Cores of a cluster that is started here."""
    note: Callable[[str], None] | None = None
    """Told, in a line, that tasks wait for a CPU."""

    def run(self, tasks: Sequence[Any], work: Work, told: Told | None = None) -> Generator[Done, None, None]:
        """Yield what became of each task, as they end; after Ctrl-C those that have not are stopped.

        Of a task at work that is all that is told: how far it is stays where it is.
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
        """Return the library, connected."""
        ray = library()
        if ray.is_initialized():
            raise ExperimentError("this process is connected to a Ray cluster already")
        quiet = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
        if not self.address:
            here = {"_node_ip_address": _HERE, "num_cpus": self.processes, "object_store_memory": STORE_BYTES}
            ray.init(address="local", **here, **quiet)
            return ray
        quiet.pop("include_dashboard")
        _check_answers(os.environ.get("RAY_ADDRESS", "") if self.address == AUTO else self.address)
        local = {"_node_ip_address": _HERE} if self.address.split(":")[0] in (_HERE, "localhost") else {}
        try:
            ray.init(address=self.address, **local, **quiet)
        except (ConnectionError, ValueError, RuntimeError, OSError, SystemExit) as problem:  # Ray exits by itself
            reason = (str(problem).splitlines() or [type(problem).__name__])[0]
            raise ExperimentError(f"Ray cluster {self.address!r}: cannot be joined ({reason})") from None
        return ray


def _check_answers(address: str) -> None:
    """Refuse an address where nobody listens; ``auto`` without RAY_ADDRESS is left to Ray, which knows at once."""
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
    """Some tasks on their way over a cluster: those ahead, those that Ray has, those of them that have begun."""

    def __init__(self, ray: Any, tasks: Sequence[Any], work: Work) -> None:
        self.ray = ray
        self.tasks = tasks
        self.work = work
        self.pending = deque(range(len(tasks)))
        self.submitted: dict[Any, int] = {}
        self.started: set[int] = set()
        self.attempts = [0] * len(tasks)
        self.idle_since: float | None = monotonic()
        # what comes back first is that it has begun; to begin it again, if it is lost, is up to us
        self.remote = ray.remote(num_cpus=1, max_retries=0, num_returns="streaming")(_steps)

    def submit(self) -> bool:
        """Give Ray as many tasks as its CPUs could be at soon; whether any is left."""
        most = AHEAD_PER_CPU * max(1, int(self.ray.cluster_resources().get("CPU", 0)))
        while self.pending and len(self.submitted) < most:
            number = self.pending.popleft()
            self.attempts[number] += 1
            self.submitted[self.remote.remote(self.work, self.tasks[number])] = number
        return bool(self.submitted)

    def poll(self, told: Told | None) -> Iterator[Done]:
        """Wait a moment for what comes back: tasks that begin, that end, that were lost."""
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
        """Return a line when none of the tasks has been at work for a while; once, until one was."""
        if self.started or not self.submitted:
            self.idle_since = None
        elif self.idle_since is None:
            self.idle_since = monotonic()
        if self.idle_since is None or monotonic() - self.idle_since < NOTICE_S:
            return ""
        self.idle_since = math.inf
        all_of_it, free_of_it = self.ray.cluster_resources(), self.ray.available_resources()
        cpus, free = (int(each.get("CPU", 0)) for each in (all_of_it, free_of_it))
        return f"the Ray cluster is at no task: {free:,} of its {cpus:,} CPUs are free; still waiting"

    def left(self) -> list[int]:
        """Return the tasks that have not ended."""
        return [*self.submitted.values(), *self.pending]

    def cancel(self) -> None:
        """Cancel what still runs."""
        for reference in self.submitted:
            self.ray.cancel(reference, force=True)

    def _taken(self, reference: Any) -> None:
        self.started.discard(self.submitted.pop(reference))


def library() -> Any:
    """Ray, or a line that says how to get it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns of a change to come
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise ExperimentError("--engine ray needs Ray, which is not installed: pip install 'headway[ray]'") from None


def _steps(work: Work, task: Any) -> Iterator[tuple[Any, Exception | None] | None]:
    """On some machine: that it has begun, then what came of it; a problem as it is, not as Ray would wrap it."""
    yield None
    try:
        yield work(task, None), None
    except Exception as problem:  # noqa: BLE001 - it is recorded where the task came from
        yield None, problem


def _lost(problem: Exception) -> HeadwayError:
    reason = (str(problem).splitlines() or [""])[0]
    return HeadwayError(f"lost {ATTEMPTS} times: {type(problem).__name__} ({reason}); is there memory enough?")
