"""Measuring sessions: the order of measurements, one process for each share, and the log from which they resume.

Several networks may share the processes: each process loads them in turn. Measurements in the log are not repeated.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from headway.errors import ProfileError
from headway.fleet.profiling.process import SHARES, Mps, Worker

Row = dict[str, Any]


@dataclass(frozen=True)
class Grid:
    """The configurations to measure: batch sizes, CPUs, sevenths of the GPU."""

    batches: tuple[int, ...] = (1, 2, 4, 8)
    cpus: tuple[int, ...] = (1, 2, 4, 8)
    shares: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7)

    def __contains__(self, at: tuple[int, int, int]) -> bool:
        """Return whether a point of (batch, cpus, share) is in it."""
        return at[0] in self.batches and at[1] in self.cpus and at[2] in self.shares


@dataclass(frozen=True)
class Effort:
    """How many runs a measurement has."""

    runs: int = 10
    """Timed runs of a cell, at least."""
    least_s: float = 0.25
    """Runs are repeated for at least so many seconds."""
    cold_starts: int = 2
    passes: int = 3
    """Passes over the CPU work, each on other CPUs: CPU times vary more than GPU times, also over minutes."""


def checks_of(grid: Grid) -> list[tuple[int, int, int]]:
    """Return the cells that are measured whole: corners, and two inside, as (batch, cpus, share)."""
    batches, cpus, shares = (sorted(axis) for axis in (grid.batches, grid.cpus, grid.shares))
    at = ((0, 0, 0), (-1, -1, -1), (-1, 0, -1), (0, -1, 0), (len(batches) // 2, len(cpus) // 2, len(shares) // 2))
    inner = (len(batches) // 3, len(cpus) // 3, 2 * len(shares) // 3)
    cells = [(batches[i], cpus[j], shares[k]) for i, j, k in (*at, inner)]
    return sorted(set(cells))


class Log:
    """Measurements, a line each, appended as they are made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: list[Row] = []
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    self._rows.append(json.loads(line))
                except ValueError:
                    continue  # the last line of a session that was killed

    def all(self, part: str, **at: Any) -> list[Row]:
        """Return the lines of a part, at these coordinates."""
        return [row for row in self._rows if row["part"] == part and all(row[key] == at[key] for key in at)]

    def one(self, part: str, **at: Any) -> Row:
        """Return the last such line."""
        if not (rows := self.all(part, **at)):
            told = ", ".join(f"{key} {value}" for key, value in at.items())
            raise ProfileError(f"{self.path}: nothing is measured of {part}{', ' if told else ''}{told}")
        return rows[-1]

    def keep(self, part: str, **row: Any) -> None:
        """Append a line."""
        self._rows.append({"part": part, **row})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self._rows[-1]) + "\n")


class Session:
    """Measures networks."""

    def __init__(
        self,
        factories: Mapping[str, str],
        grid: Grid,
        log: Log,
        effort: Effort | None = None,
        device: str = "cuda",
        deadline: float = math.inf,
        say: Callable[[str], None] | None = None,
        tell: Callable[[int, int, str], None] | None = None,
    ) -> None:
        self.factories = dict(factories)
        self.grid = grid
        self.log = log
        self.device = device
        self.effort = effort or Effort()
        self._deadline = deadline
        self._say = say or (lambda _: None)
        self._tell = tell or (lambda *_: None)
        self._mps: Mps | None = None
        self.shares = tuple(sorted(grid.shares))
        """The shares that can be measured: all of the grid, or only the whole GPU."""

    def __enter__(self) -> "Session":
        if self.device == "cpu":
            self._whole_only("there is no GPU")
        elif self.shares != (SHARES,):
            try:
                self._mps = Mps()
                if not any(row["share"] < SHARES for row in self.log.all("share")):
                    self.worker(self.shares[0]).end()  # a daemon that runs may still refuse its clients
            except ProfileError as problem:
                self.close()
                with Worker(self.device):  # without a GPU at all, this says so
                    self._whole_only(str(problem))
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the daemon."""
        if self._mps is not None:
            self._mps.end()
            self._mps = None

    def _whole_only(self, why: str) -> None:
        if self.shares != (SHARES,):
            self._say(f"{why}: only the whole device is measured, as share {SHARES} of {SHARES}")
        self.shares = (SHARES,)

    def worker(self, share: int) -> Worker:
        """Start a process with so many sevenths of the GPU."""
        self.log.path.parent.mkdir(parents=True, exist_ok=True)
        environment = self._mps.environment(share) if self._mps is not None else {}
        return Worker(self.device, environment, self.log.path.with_suffix(".output"))

    def in_time(self) -> None:
        """Raise TimeoutError after the deadline."""
        if time.monotonic() > self._deadline:
            raise TimeoutError

    # --- what is measured -----------------------------------------------------------------------------------------

    def measure(self) -> None:
        """Measure everything that is missing."""
        self.cold_starts()
        for share in reversed(self.shares):
            self.share(share)

    def cold_starts(self) -> None:
        """Time a new process for each network, from its start to its first answer, and the load of its weights."""
        for name, factory in self.factories.items():
            for turn in range(len(self.log.all("cold", name=name)), self.effort.cold_starts):
                self.in_time()
                with self.worker(SHARES) as worker:
                    loaded = worker.ask("load", name=name, factory=factory)
                    first = worker.ask("first", name=name)
                    about = worker.about
                    if not self.log.all("about"):
                        self.log.keep(
                            "about", **{key: about[key] for key in ("device", "sms", "memory_bytes", "torch", "cuda")}
                        )
                    stamps = {key: value for key, value in about.items() if key.endswith("_ns")}
                    if not self.log.all("load", name=name):
                        self.log.keep("load", name=name, **{k: v for k, v in loaded.items() if not k.endswith("_ns")})
                    if not self.log.all("loads", name=name):
                        self.log.keep("loads", name=name, **worker.ask("loads", name=name))
                    stamps |= {key: value for key, value in loaded.items() if key.endswith("_ns")}
                    self.log.keep("cold", name=name, turn=turn, spawned_ns=worker.spawned_ns, **stamps, **first)

    def share(self, share: int) -> None:
        """Measure all networks at one share, and a pass over the CPU work if it is this share's turn."""
        missing = {name: list(self._missing(name, share)) for name in self.factories}
        if not any(missing.values()):
            return
        with self.worker(share) as worker:
            self.log.keep("share", share=share, sms=worker.about["sms"])
            for name, orders in missing.items():
                if orders:
                    worker.ask("load", name=name, factory=self.factories[name])
                for number, (part, at) in enumerate(orders):
                    self.in_time()
                    self._tell(number, len(orders), f"{name}, share {share}: {part} {at}")
                    self._one(worker, name, share, part, at)
                if orders:
                    worker.ask("drop", name=name)

    def _one(self, worker: Worker, name: str, share: int, part: str, at: Mapping[str, int]) -> None:
        order = {"cpus": max(self.grid.cpus), **at}
        if "turn" in order:
            order["first"] = order.pop("turn") * 3 * max(self.grid.cpus) // 2  # of 16 CPUs 0, 12, 8, 4
        result = worker.ask(part, name=name, **order, runs=self.effort.runs, least_s=self.effort.least_s)
        self.log.keep(part, name=name, **at, share=share, **result)

    def _missing(self, name: str, share: int) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield part and coordinates of each measurement that is not in the log."""
        for batch in self.grid.batches:
            if not self.log.all("gpu", name=name, batch=batch, share=share):
                yield "gpu", {"batch": batch}
        for turn in range(self.effort.passes):
            if self.shares[-1 - turn % len(self.shares)] != share:
                continue
            for batch, cpus in product(self.grid.batches, self.grid.cpus):
                if not self.log.all("cpu", name=name, batch=batch, cpus=cpus, turn=turn):
                    yield "cpu", {"batch": batch, "cpus": cpus, "turn": turn}
        for batch, cpus, at in checks_of(Grid(self.grid.batches, self.grid.cpus, self.shares)):
            if at == share and not self.log.all("joint", name=name, batch=batch, cpus=cpus, share=share):
                yield "joint", {"batch": batch, "cpus": cpus}
