"""Tasks on the machines of a Ray cluster. Nothing else in headway imports Ray, and this only when it is asked for.

A task whose process or machine is lost is begun again elsewhere. Results come back to the process that asked, which
alone writes them down: no machine of the cluster needs to be trusted with a file. What a task reads (a trace) must lie
under the same path everywhere, and headway must be installed there.
"""

import importlib
import os
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from headway.errors import ExperimentError, HeadwayError
from headway.live.tasks import Done, Told, Work

RETRIES = 5
"""So often a task is begun again when its process or machine is lost."""
STORE_BYTES = 200_000_000
"""Memory for objects of a cluster of our own: results are small."""
_WAIT_S = 0.5
_HERE = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class RayPool:
    """A Ray cluster: one of this machine's cores that lives as long as the tasks, or one that is there already."""

    address: str = ""
    """Of a cluster to join: ``auto``, or host:port. Empty: start one here."""
    processes: int = 1
    """Cores of a cluster that is started here."""

    def run(self, tasks: Sequence[Any], work: Work, told: Told | None = None) -> Generator[Done, None, None]:
        """What became of each task, as they end; after Ctrl-C those that have not are stopped. How far is not told."""
        ray = self._joined()
        remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_call)
        ahead: dict[Any, int] = {}
        try:
            ahead |= {remote.remote(work, task): number for number, task in enumerate(tasks)}
            while ahead:
                ready, _ = ray.wait(list(ahead), num_returns=1, timeout=_WAIT_S)
                for reference in ready:
                    yield _done(ray, ahead.pop(reference), reference)
        except KeyboardInterrupt:
            for number in ahead.values():
                yield Done(number, stopped=True)
        finally:
            for reference in ahead:
                ray.cancel(reference, force=True)
            ray.shutdown()

    def _joined(self) -> Any:
        """The library, connected."""
        ray = library()
        if ray.is_initialized():
            raise ExperimentError("this process is connected to a Ray cluster already")
        quiet = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
        if not self.address:
            here = {"_node_ip_address": _HERE, "num_cpus": self.processes, "object_store_memory": STORE_BYTES}
            ray.init(address="local", **here, **quiet)
            return ray
        quiet.pop("include_dashboard")
        local = {"_node_ip_address": _HERE} if self.address.split(":")[0] in (_HERE, "localhost") else {}
        try:
            ray.init(address=self.address, **local, **quiet)
        except (ConnectionError, ValueError, RuntimeError, OSError) as problem:
            reason = (str(problem).splitlines() or [type(problem).__name__])[0]
            raise ExperimentError(f"Ray cluster {self.address!r}: cannot be joined ({reason})") from None
        return ray


def library() -> Any:
    """Ray, or a line that says how to get it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns of a change to come
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise ExperimentError("--engine ray needs Ray, which is not installed: pip install 'headway[ray]'") from None


def _call(work: Work, task: Any) -> tuple[Any, Exception | None]:
    """On some machine: a problem comes back as it is, not as Ray would wrap it."""
    try:
        return work(task, None), None
    except Exception as problem:  # noqa: BLE001 - it is recorded where the task came from
        return None, problem


def _done(ray: Any, number: int, reference: Any) -> Done:
    try:
        result, problem = ray.get(reference)
    except ray.exceptions.RayError as lost:
        reason = (str(lost).splitlines() or [""])[0]
        return Done(number, problem=HeadwayError(f"lost {RETRIES + 1} times: {type(lost).__name__} ({reason})"))
    return Done(number, result, problem)
