"""How the cost of a simulated run grows: the points of ``scripts/bench --growth``, each one a case.

Two series, both of jobs that headway's own generator draws (``jobs/traces/workloads/philly_like.py``) at load 0.8 on
nodes of 8 GPUs:

- ``jobs``: more and more jobs on 1,000 GPUs.
- ``gpus``: more and more GPUs, with 10 jobs for each. The jobs grow with the cluster, so that all clusters live through
  the same hours, equally full. With a fixed number of jobs a large cluster would be empty again before it is full.

No job runs for more than 12 hours, so that the smallest point (about two days of arrivals) is past filling up.
A point is known by its name alone, ``growth/gpus srtf+fit 10000 125``: series, policy, jobs, nodes.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from bench.cases import Adapter, Case, Place, Ready, Runs

PREFIX = "growth/"
AUDITED = " audited"
"""After the name of a point: its tape is audited, too."""
POLICIES = ("fifo", "sjf", "srtf+none", "srtf+fit", "las", "fifo+easy", "tune")
GPUS_PER_NODE = 8
JOBS_PER_GPU = 10
NODES = 125
"""Of the series ``jobs``."""
JOBS = (10_000, 30_000, 100_000, 300_000, 1_000_000)
QUICK_JOBS = (1_000, 3_000)
CLUSTERS = (13, 38, 125, 375, 1_250, 3_750, 12_500)
"""Nodes of the series ``gpus``: 104 to 100,000 GPUs."""
QUICK_CLUSTERS = (13, 38)


class Point(NamedTuple):
    """One run of one policy."""

    series: str
    policy: str
    jobs: int
    nodes: int

    @property
    def gpus(self) -> int:
        """Return the GPUs of the cluster."""
        return GPUS_PER_NODE * self.nodes

    @property
    def size(self) -> int:
        """Return what grows along the series."""
        return self.jobs if self.series == "jobs" else self.gpus

    @property
    def name(self) -> str:
        """Return the name, which says everything."""
        return f"{PREFIX}{self.series} {self.policy} {self.jobs} {self.nodes}"

    def document(self) -> dict[str, Any]:
        """Return the experiment; ``tune`` divides CPUs and memory every 300 s under fifo+fit."""
        tables: dict[str, Any] = {
            "trace": {"synthetic": {"jobs": self.jobs, "load": 0.8, "longest": "12h"}},
            "cluster": {"nodes": self.nodes, "gpus_per_node": GPUS_PER_NODE},
            "policy": {"name": self.policy},
            "run": {"seed": 1},
        }
        if self.policy == "tune":
            tables["trace"]["models"] = "20,70,10"
            tables["cluster"] |= {"cpus_per_node": 24, "memory_per_node": "500GB"}
            tables["policy"] = {"name": "fifo+fit", "allocation": "tune"}
        return tables


def points(*, quick: bool = False) -> Iterator[Point]:
    """Yield all points, those of one series and policy from the smallest on."""
    for policy in POLICIES:
        for jobs in QUICK_JOBS if quick else JOBS:
            yield Point("jobs", policy, jobs, NODES)
        for nodes in QUICK_CLUSTERS if quick else CLUSTERS:
            yield Point("gpus", policy, JOBS_PER_GPU * GPUS_PER_NODE * nodes, nodes)


def cases(*, quick: bool = False) -> dict[str, Case]:
    """Return the cases of all points, by name."""
    return {point.name: case_of(point.name) for point in points(quick=quick)}


def point_of(name: str) -> Point:
    """Return the point that a name says."""
    series, policy, jobs, nodes = name.removeprefix(PREFIX).removesuffix(AUDITED).split()
    return Point(series, policy, int(jobs), int(nodes))


def case_of(name: str) -> Case:
    """Return the case of a point, by its name."""
    point = point_of(name)

    def prepare(adapter: Adapter, place: Place) -> Ready:
        ready = Runs(point.document())(adapter, place)

        def numbers(tape: Any) -> dict[str, int]:
            return {"decisions": adapter.decisions(tape), "tape_bytes": adapter.tape_bytes(place.scratch / "run")}

        def told(tape: Any) -> tuple[int, str]:
            if name.endswith(AUDITED):
                adapter.command("audit", str(place.scratch / "run"))  # raises where it finds something
            return ready.told(tape)

        return Ready(ready.step, told, numbers)

    return Case(name, prepare, point.jobs)
