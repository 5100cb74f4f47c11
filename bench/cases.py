"""The cases of ``scripts/bench``: what is prepared, what is timed, and what must have come out.

A case knows headway through an adapter only (``bench/adapter.py``), which it is given: a comparison of two checkouts
plays the same cases with the adapter and the source of each. Most take one to five seconds; those marked ``long`` run
when they are asked for by name or with ``--long``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple

from bench import readers, slurm_site

Adapter = Any
"""The module ``bench/adapter.py`` of a checkout."""
MOST_PAGE_BYTES = 15_000_000


class Place(NamedTuple):
    """Where a case finds public traces, and where it may write."""

    traces: Path
    scratch: Path


class Ready(NamedTuple):
    """A case that was prepared."""

    step: Callable[[], Any]
    """What is timed."""
    told: Callable[[Any], tuple[int, str]]
    """Of what a step returned: the count that must be exact, and a digest that must not change between steps."""
    numbers: Callable[[Any], Mapping[str, int]] = lambda _: {}
    """Of what a step returned: what else is told of it."""


@dataclass(frozen=True)
class Case:
    """One benchmark."""

    name: str
    prepare: Callable[[Adapter, Place], Ready]
    count: int = 0
    """What must come out; 0: the same in each repetition, whatever it is."""
    unit: str = "jobs"
    floor: int = 0
    """Units a second that it must not fall below, on such a machine as docs/background/benchmarks.md describes."""
    long: bool = False
    trace: str = ""
    """The public trace that it reads where there is one."""


@dataclass(frozen=True)
class Runs:
    """The preparation of a case that plays an experiment, its tape written to disk."""

    document: Mapping[str, Any]
    first: int = 0
    trace: Mapping[str, Any] = field(default_factory=dict)
    """Read instead of what the document says, where the file is there."""

    def __call__(self, adapter: Adapter, place: Place) -> Ready:
        """Read and draw everything."""
        document = dict(self.document)
        if self.trace and (place.traces / self.trace["path"]).exists():
            document["trace"] = {**self.trace, "path": str(place.traces / self.trace["path"])}
        prepared = adapter.Prepared(document, self.first)
        folder = place.scratch / "run"

        def step() -> Any:
            rmtree(folder, ignore_errors=True)
            return prepared.play(folder)

        return Ready(step, lambda tape: (prepared.ended(tape), tape.digest))


# --- jobs -----------------------------------------------------------------------------------------------------

PHILLY = ({"path": "philly/philly.csv.gz", "format": "philly-csv"}, 82_247)
SITE_JOBS = 20_000
HELIOS = ({"path": "helios/helios_venus_gpu_jobs.csv.gz", "format": "helios-csv"}, 125_303)


def _jobs(
    name: str,
    source: tuple[Mapping[str, Any], int],
    policy: str,
    *,
    first: int = 0,
    nodes: int = 80,
    floor: int = 0,
    long: bool = False,
    **tables: Any,
) -> Case:
    """Jobs of a public trace, or as many made up, under one policy on nodes of 8 GPUs."""
    trace, jobs = source
    document = {
        "trace": {"synthetic": {"jobs": jobs, "load": 0.9}},
        "cluster": {"nodes": nodes, "gpus_per_node": 8},
        "policy": {"name": policy},
        **tables,
    }
    title = f"training/{name} {policy}" + (f", {first:,} jobs" if first else "")
    return Case(title, Runs(document, first, trace), first or jobs, "jobs", floor, long, str(trace.get("path", "")))


def _training() -> Iterator[Case]:
    yield _jobs("philly", PHILLY, "fifo", floor=40_000)
    yield _jobs("philly", PHILLY, "sjf", floor=40_000)
    yield _jobs("philly", PHILLY, "fifo+fit")
    yield _jobs("philly", PHILLY, "fifo+migrate", floor=3_000)
    for policy in ("srtf", "las", "tiresias", "fifo+easy", "drf", "qssf+fit", "ftf"):
        yield _jobs("helios", HELIOS, policy, first=30_000)
    yield _jobs("helios", HELIOS, "multifactor+easy", first=20_000)
    yield _jobs("helios", HELIOS, "fifo+conservative", first=20_000)
    for policy in ("fifo+fit+fgd", "fifo+fit+consolidate", "fifo+fit+spread"):
        yield _jobs("helios", HELIOS, policy, first=20_000)
    failures = {"failures": {"mtbf": "30d", "repair": "4h"}, "costs": {"preemption": "60s"}}
    yield _jobs("helios with failures", HELIOS, "srtf", first=20_000, **failures)
    yield _site(5_000, "its own policy, 5,000 jobs")
    yield _site(SITE_JOBS, "its own policy, all jobs", long=True)
    yield _jobs("synthetic, 10,000 GPUs,", ({}, 100_000), "fifo", nodes=1250, trace=_drawn(100_000))
    for policy, floor in (("srtf", 12_000), ("las", 12_000), ("fifo+migrate", 3_000), ("srtf+migrate", 3_000)):
        yield _jobs("helios, all,", HELIOS, policy, floor=floor, long=True)
    yield _jobs("helios, all,", HELIOS, "fifo+easy", long=True)
    yield _jobs("synthetic 1M, 10,000 GPUs,", ({}, 1_000_000), "fifo", nodes=1250, long=True, trace=_drawn(1_000_000))


def _site(jobs: int, title: str, *, long: bool = False) -> Case:
    """The first jobs of a made-up Slurm site under the policy that its own slurm.conf describes."""

    def prepare(adapter: Adapter, place: Place) -> Ready:
        folder = place.scratch.parent / f"site-{SITE_JOBS}"
        if not (folder / "slurm.conf").exists():
            slurm_site.write(folder, SITE_JOBS)
        document = {
            "trace": {"path": str(folder / "sacct.txt")},
            "cluster": {"file": [str(folder / "nodes.txt"), str(folder / "partitions.txt")]},
            "policy": {"name": f"slurm:{folder / 'slurm.conf'}"},
        }
        return Runs(document, jobs)(adapter, place)

    return Case(f"training/slurm site of 40 nodes, {title}", prepare, jobs, long=long)


def _drawn(jobs: int) -> dict[str, Any]:
    return {"synthetic": {"jobs": jobs}}


# --- CPUs and memory ------------------------------------------------------------------------------------------


def _divided(allocation: str, jobs: int, order: str = "fifo", *, rounds: str = "300s", nodes: int = 16) -> Case:
    """Jobs as Synergy draws them, on nodes of 8 GPUs, 24 CPUs and 500 GB."""
    document = {
        "trace": {"synergy": {"jobs": jobs, "rate": f"{5 * nodes // 16}/h", "split": "20,70,10", "gpus": "multi"}},
        "cluster": {"nodes": nodes, "gpus_per_node": 8, "cpus_per_node": 24, "memory_per_node": "500GB"},
        "policy": {"name": order, "backfill": "fit", "allocation": allocation, "round": rounds},
        "speed": {"model": "matrix"},
        "run": {"seed": 1},
    }
    when = "at every event" if rounds == "0s" else "in rounds"
    return Case(f"allocations/{allocation}, {order}, {nodes * 8} GPUs, {when}", Runs(document), jobs)


def _allocations() -> Iterator[Case]:
    for allocation, jobs in (
        ("proportional", 12_000),
        ("greedy", 6_000),
        ("drf", 2_000),
        ("tetris", 2_000),
        ("tune", 6_000),
        ("opt", 1_200),
        ("headway", 2_000),
    ):
        yield _divided(allocation, jobs)
    yield _divided("tune", 3_000, "srtf")
    yield _divided("tune", 5_000, rounds="0s")
    yield _divided("headway", 2_000, nodes=64)


# --- requests -------------------------------------------------------------------------------------------------


def _served(scenario: str, policy: str, requests: int, title: str = "", **tables: Any) -> Case:
    """Requests to a scenario that ships."""
    document = {
        "serving": {"scenario": scenario, **tables.pop("serving", {})},
        "workload": {"requests": requests, "overload": True, **tables.pop("workload", {})},
        "policy": {"name": policy},
        "run": {"seed": 1},
        **tables,
    }
    return Case(f"serving/{scenario} {policy}{title}", Runs(document), requests, "requests")


def _serving() -> Iterator[Case]:
    for policy, requests in (
        ("compass", 10_000),
        ("hash", 10_000),
        ("heft", 10_000),
        ("jit", 10_000),
        ("headway", 4_000),
    ):
        yield _served("compass", policy, requests, workload={"rate": 2.0})
    many = {"serving": {"workers": 100}, "workload": {"rate": 40.0}}
    yield _served("compass", "compass", 4_000, ", 100 workers", **_copied(many))
    yield _served("compass", "headway", 1_000, ", 100 workers", **_copied(many))
    for policy, requests in (("stagewise", 8_000), ("plan-once", 8_000), ("esg", 8_000), ("exact", 8_000)):
        yield _served("esg", policy, requests)
    yield _served("esg", "headway", 3_000)
    yield _served("esg", "headway", 3_000, ", heavy", serving={"setting": "relaxed-heavy"})
    yield _served("compass-slo", "headway", 1_500)
    yield _served("compass-slo", "exact", 1_500)
    yield _served("pipelines", "esg", 1_500)
    yield _served("pipelines", "headway", 1_500)
    yield _served("pipelines", "headway", 1_500, ", failures", failures={"mtbf": "60s", "repair": "5s"})


def _copied(tables: Mapping[str, Any]) -> dict[str, Any]:
    return {name: dict(table) for name, table in tables.items()}


# --- kernels --------------------------------------------------------------------------------------------------


def _kernels() -> Iterator[Case]:
    for policy in ("exclusive", "time-slicing", "mps", "mps-priority", "strict", "xsched", "fikit", "headway"):
        table = {"high": ["resnet50"], "low": ["resnet101-b64"], "seconds": 1.5 if policy == "exclusive" else 0.6}
        document = {"kernels": table, "policy": {"name": policy}}
        yield Case(f"kernels/resnet50+resnet101-b64 {policy}", Runs(document), 0, "kernels")
    three = {"high": ["bert"], "low": ["matmul", "bert-b32"], "think": "5ms", "seconds": 0.5}
    yield Case(
        "kernels/bert+matmul+bert-b32 headway", Runs({"kernels": three, "policy": {"name": "headway"}}), 0, "kernels"
    )


# --- files ----------------------------------------------------------------------------------------------------

ROWS = {
    "slurm: sacct with 3 steps a job": 100_000,
    "slurm: sacct --json": 50_000,
    "slurm: scontrol show job -o": 50_000,
    "kubernetes: one container a pod": 50_000,
    "kubernetes: gangs, init containers, labels": 40_000,
    "azure-llm": 500_000,
    "mooncake": 500_000,
}
"""Jobs or requests in a file, where it is not USUAL_ROWS."""
USUAL_ROWS = 200_000
NODES = {"sinfo --json": 5_000}
"""Nodes in a file, where it is not USUAL_NODES."""
USUAL_NODES = 40_000
STEPS = {"slurm: sacct with 3 steps a job": 4}
"""Rows a job, where it is more than one."""


def _made(name: str, known: Mapping[str, Any], count: int, place: Place) -> Path:
    """The file of a case, written where it is not there yet."""
    file, made = known[name]
    path = place.scratch.parent / f"{count}-{file}"
    if not path.exists():
        partial = path.with_name(f"part-{path.name}")
        readers.write(partial, made(count))
        partial.rename(path)
    return path


def _trace(name: str) -> Case:
    count = ROWS.get(name, USUAL_ROWS)

    def prepare(adapter: Adapter, place: Place) -> Ready:
        path = _made(name, readers.CASES, count, place)
        format = name.partition(":")[0]
        columns = readers.MAP if format == "table" else ""
        return Ready(lambda: adapter.read_trace(path, format, columns), lambda found: (found, ""))

    return Case(f"readers/{name}", prepare, count * STEPS.get(name, 1), "rows")


def _cluster(name: str) -> Case:
    count = NODES.get(name, USUAL_NODES)

    def prepare(adapter: Adapter, place: Place) -> Ready:
        path = _made(name, readers.CLUSTERS, count, place)
        return Ready(lambda: adapter.read_cluster([path]), lambda found: (found, ""))

    return Case(f"readers/cluster, {name}", prepare, count, "nodes")


def _public(name: str, path: str, format: str, rows: int) -> Case:
    """A published trace as it is; the made-up file of its format where it is not there."""
    made = _trace(format)

    def prepare(adapter: Adapter, place: Place) -> Ready:
        if not (place.traces / path).exists():
            return made.prepare(adapter, place)

        def told(found: int) -> tuple[int, str]:
            assert found == rows, f"{path}: {found:,} rows instead of {rows:,}"
            return found, ""

        return Ready(lambda: adapter.read_trace(place.traces / path, format), told)

    return Case(f"readers/published {name}", prepare, 0, "rows", trace=path)


def _readers() -> Iterator[Case]:
    for name in readers.CASES:
        yield _trace(name)
    for name in readers.CLUSTERS:
        yield _cluster(name)
    yield _public("philly", PHILLY[0]["path"], "philly-csv", PHILLY[1])
    yield _public("helios", HELIOS[0]["path"], "helios-csv", HELIOS[1])


# --- looking at runs ------------------------------------------------------------------------------------------

LARGE = 40_000
Look = Callable[[Adapter, Path], tuple[int, str]]


def _large(policy: str) -> dict[str, Any]:
    """Jobs like Philly's on 1,000 GPUs."""
    return {
        "trace": {"synthetic": {"jobs": LARGE, "load": 1.0}},
        "cluster": {"nodes": 125, "gpus_per_node": 8, "levels": [{"name": "rack", "nodes_per_domain": 16}]},
        "costs": {"preemption": "60s"},
        "policy": {"name": policy},
    }


FLEET = {
    "serving": {"scenario": "compass"},
    "workload": {"requests": 10_000, "rate": 2.0},
    "policy": {"name": "compass"},
}


def _looks(name: str, document: Mapping[str, Any], count: int, unit: str, look: Look, long: bool = False) -> Case:
    """Something done with the folder of a run that was played before."""

    def prepare(adapter: Adapter, place: Place) -> Ready:
        folder = place.scratch / "run"
        adapter.run(document, folder)
        return Ready(lambda: look(adapter, folder), lambda found: found)

    return Case(f"reports/{name}", prepare, count, unit, long=long)


def _page(count: int, what: str) -> Look:
    def look(adapter: Adapter, folder: Path) -> tuple[int, str]:
        text = adapter.report([folder], folder.with_name("page.html"))
        assert len(text.encode()) < MOST_PAGE_BYTES, f"the page has {len(text.encode()):,} bytes"
        assert f"{count:,}" in text, f"the page does not say that there were {count:,} {what}"
        return count, str(len(text))

    return look


def _exported(file: str) -> Look:
    def look(adapter: Adapter, folder: Path) -> tuple[int, str]:
        target = folder.with_name("out")
        target.mkdir(exist_ok=True)
        adapter.export(folder, target)
        with (target / "csv" / file).open() as lines:
            return sum(1 for _ in lines) - 1, ""

    return look


def _said(*arguments: str, count: int) -> Look:
    """What a command prints of the run."""

    def look(adapter: Adapter, folder: Path) -> tuple[int, str]:
        first, *rest = arguments
        return count, adapter.command(first, str(folder), *rest)

    return look


def _reports() -> Iterator[Case]:
    yield _looks("page, srtf", _large("srtf"), LARGE, "jobs", _page(LARGE, "jobs"))
    yield _looks("page, fifo+easy", _large("fifo+easy"), LARGE, "jobs", _page(LARGE, "jobs"))
    yield _looks("export, srtf", _large("srtf"), LARGE, "jobs", _exported("jobs.csv"))
    yield _looks("audit, srtf", _large("srtf"), LARGE, "jobs", _said("audit", count=LARGE))
    yield _looks("replay, srtf", _large("srtf"), LARGE, "jobs", _said("replay", count=LARGE))
    yield _looks("story, srtf", _large("srtf"), LARGE, "jobs", _said("story", "20000", count=LARGE))
    yield _looks("explain, srtf", _large("srtf"), LARGE, "jobs", _said("explain", "20000", count=LARGE))
    yield _looks("page, fleet", FLEET, 10_000, "requests", _page(10_000, "requests"))
    yield _looks("export, fleet", FLEET, 10_000, "requests", _exported("requests.csv"))
    yield _looks("audit, fleet", FLEET, 10_000, "requests", _said("audit", count=10_000))

    def prepare(adapter: Adapter, place: Place) -> Ready:
        return Ready(adapter.start, lambda text: (1, text))

    yield Case("command line/list of policies in a process of its own", prepare, 1, "starts")


def registry() -> dict[str, Case]:
    """Every case by its name."""
    found = [*_training(), *_allocations(), *_serving(), *_kernels(), *_readers(), *_reports()]
    return {case.name: case for case in found}
