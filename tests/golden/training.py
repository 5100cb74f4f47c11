"""Digests of jobs on a cluster: all orders, backfills, placements and migrations; costs, failures, quotas, shares."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench import adapter
from tests.drive import drive
from tests.golden.worlds import WORLDS

SAMPLES = Path(__file__).resolve().parent.parent / "samples"
POLICIES = (
    "fifo",
    "fifo+fit",
    "fifo+easy",
    "fifo+conservative",
    "fifo+migrate",
    "fifo+fit+spread",
    "sjf+easy+first-fit",
    "srtf",
    "srtf+none",
    "srtf+fit+fgd",
    "las",
    "las+none",
    "tiresias+fit",
    "ftf",
    "drf+consolidate+preempt",
    "drf+consolidate",
    "multifactor+easy",
    "qssf+fit+random",
)
"""In the worlds that have been here from the beginning."""
ORDERS = (
    "fifo+preempt",
    "sjf+preempt",
    "srtf+no-preempt",
    "las(quantum=5m)",
    "las+quantum(10m)+fit",
    "tiresias(thresholds=10m/1h,promote=2)+quantum(5m)",
    "ftf",
    "ftf(lease=5m,margin=0.5,contention=false)",
    "drf",
    "drf(quantum=2m)+easy",
    "tetris",
    "priority",
    "priority+preempt+fit",
    "multifactor(fair_tree=true,favor_small=true,max_age=1h,half_life=1h)",
    "multifactor(age_weight=5000,size_weight=0,qos_weight=0)+conservative",
    "qssf(estimates=true,recent=0.2)",
    "srtf+round(5m)",
)
BACKFILLS = (
    "srtf+easy",
    "las+easy",
    "srtf+conservative",
    "sjf+conservative(depth=3,interval=10m)",
    "drf+conservative(depth=10)",
    "fifo+conservative(slurm=true)",
    "tetris+fit",
    "priority+easy+preempt",
    "fifo+easy+round(2m)",
)
PLACEMENTS = (
    "fifo+fit+best-fit",
    "fifo+fit+consecutive",
    "fifo+fit+first-fit",
    "fifo+fit+spread(split=true)",
    "fifo+fit+consolidate",
    "fifo+fit+consolidate(up_to=rack)",
    "fifo+fit+fgd",
    "fifo+fit+fgd(shapes=4)",
    "las+easy+random(seed=3)",
)
MIGRATIONS = (
    "fifo+migrate-free",
    "fifo+migrate-always",
    "fifo+fit+migrate(margin=1.0,rest=0.0)",
    "srtf+migrate+fgd",
    "srtf+easy+migrate-always+spread",
    "las+migrate",
    "fifo+conservative+migrate",
)


LIMITED = (
    *("fifo", "fifo+fit", "fifo+easy", "fifo+conservative", "srtf", "srtf+easy+migrate", "las+fit", "drf+easy"),
    *(
        "multifactor+easy",
        "multifactor(fair_tree=true)+conservative",
        "multifactor(fair_tree=true)+conservative(interval=20s,slurm=true)+consecutive",
        "priority+preempt+fit",
        "tiresias",
        "fifo+round(5m)",
    ),
)


def cases() -> Iterator[tuple[str, partial[str]]]:
    """Every case by its name."""
    for world in ("plain", "mixed", "failing"):
        for policy in POLICIES:
            yield f"{world}/{policy}", partial(of_world, world, policy)
    for group, worlds in (
        (ORDERS, ("plain", "mixed", "serviced")),
        (BACKFILLS, ("plain", "mixed", "failing")),
        (PLACEMENTS, ("mixed", "serviced")),
        (MIGRATIONS, ("plain", "mixed", "serviced")),
    ):
        for policy in group:
            for world in worlds:
                yield f"{world}/{policy}", partial(of_world, world, policy)
    for world in ("limited", "preempting by qos", "preempting by tier"):
        for policy in LIMITED:
            yield f"{world}/{policy}", partial(of_world, world, policy)
    for name, document in documents():
        yield f"experiment/{name}", partial(of_document, document)


def of_world(world: str, policy: str) -> str:
    """The digest of a policy's tape in a world."""
    return drive(policy, WORLDS[world](), bounded=False).tape.digest


def of_document(document: dict[str, Any]) -> str:
    """The digest of the tape of an experiment."""
    return adapter.Prepared(document).play().digest


def drawn(name: str, jobs: int = 150, **tables: Any) -> dict[str, Any]:
    """Jobs like Philly's on 6 nodes, a little more than they can take, under one policy."""
    return {
        "trace": {"synthetic": {"jobs": jobs, "load": 1.1}, "skip_infeasible": True, **tables.pop("trace", {})},
        "cluster": {"nodes": 6, "gpus_per_node": 8, **tables.pop("cluster", {})},
        "policy": {"name": name},
        "run": {"seed": 7},
        **tables,
    }


def sampled(file: str, name: str, **tables: Any) -> dict[str, Any]:
    """A trace of the samples under one policy."""
    return {
        "trace": {"path": str(SAMPLES / file), "skip_infeasible": True},
        "cluster": {"nodes": 4, "gpus_per_node": 8, **tables.pop("cluster", {})},
        "policy": {"name": name},
        **tables,
    }


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Experiments: what the tables of a file add to a policy."""
    costs = {"preemption": "2m", "migration": "90s"}
    failures = {"mtbf": "12h", "repair": "1h"}
    rich = {
        "levels": [{"name": "rack", "nodes_per_domain": 2, "bandwidth": "25GB"}, {"name": "node", "bandwidth": "300GB"}]
    }
    yield "seed 0", drawn("fifo+easy", run={"seed": 0})
    yield "costs", drawn("srtf", costs=costs)
    for kind in ("migrate", "migrate-free", "migrate-always"):
        yield f"costs, {kind}", drawn(f"fifo+{kind}", costs=costs)
    yield "own costs of jobs", drawn("las+migrate", costs={"preemption": "", "migration": ""})
    yield "failures", drawn("srtf+easy", failures=failures, costs=costs)
    yield (
        "failures, maintenance",
        drawn(
            "fifo+conservative",
            failures={**failures, "maintenance": [{"nodes": "0-2", "start": "6h", "length": "2h", "lead": "1h"}]},
        ),
    )
    yield "estimates, exact", drawn("sjf+easy", trace={"estimates": "exact"})
    yield "estimates, factor", drawn("sjf+easy", trace={"estimates": "factor:3"})
    yield "estimates, user", drawn("fifo+conservative", trace={"estimates": "user"})
    yield "load", drawn("las", trace={"load": 1.5})
    yield "racks", drawn("fifo+fit+consolidate", cluster=rich)
    yield "islands", drawn("fifo+fit+fgd", cluster={"islands": [4, 4], **rich})
    yield "random placement by seed", drawn("fifo+fit+random")
    yield "preemption off, quantum, migration by key", drawn("fifo", policy=_keys())
    groups = [
        {"nodes": 4, "gpus": 8, "gpu_type": "A100", "cpus": 64, "memory": "512GB"},
        {"nodes": 4, "gpus": 4, "gpu_type": "V100", "cpus": 32, "memory": "256GB"},
    ]
    mixed = {"nodes": None, "gpus_per_node": None, "node_groups": groups, "gpu_speed": {"A100": 1.0, "V100": 0.5}}
    yield "two kinds of nodes", drawn("srtf+fit", cluster=mixed)
    for tenancy in ("pool", "walls", "quotas", "borrow"):
        for sizing in ("gpu-time", "equal"):
            yield f"{tenancy}, {sizing}", drawn("drf+easy", cluster=_tenancy(tenancy, sizing))
    tenants = [
        {"name": "vision", "guaranteed_gpus": 12, "limit_gpus": 20, "borrow": True, "weight": 2},
        {"name": "speech", "guaranteed_gpus": 8, "borrow": True},
    ]
    partitions = [{"name": "gpu", "nodes": "0-3", "priority": 1}]
    site = {"tenants": tenants, "partitions": partitions}
    for policy in ("fifo+easy", "srtf", "multifactor+conservative"):
        yield f"sacct, quotas and partitions, {policy}", sampled("sacct.txt", policy, cluster=site)
    shares = {"sharing_penalty": 0.1}
    yield "openb, shares of GPUs", sampled("openb-pods.csv", "las+fgd", cluster={**shares, "nodes": 1})
    limits = [
        {"name": "MaxGPUs", "resource": "gpus", "most": 12, "per": ["user"]},
        {"name": "MaxJobs", "resource": "jobs", "most": 6, "where": {"tenant": ["vc0", "vc1"]}},
        {"name": "GPUTime", "resource": "gpu_time", "most": "400h", "half_life": "12h", "per": "account"},
    ]
    for policy in ("fifo+easy", "srtf", "multifactor+conservative"):
        yield f"limits, {policy}", drawn(policy, cluster={"limits": limits})
    files = {"nodes": None, "gpus_per_node": None, "file": [str(SAMPLES / "nodes.json")]}
    yield "pods on their nodes", sampled("pods.json", "priority+easy", cluster=files)


def _keys() -> dict[str, Any]:
    return {"name": "las", "preemption": "on", "quantum": "15m", "migration": "costed", "backfill": "fit"}


def _tenancy(tenancy: str, sizing: str) -> dict[str, Any]:
    return {"nodes": 16, "tenancy": tenancy, "sizing": sizing}
