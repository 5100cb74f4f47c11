"""What hypothesis draws tests from: clusters, workloads that fit them, faults, and policies from the registry.

Sizes are small on purpose: a dozen jobs on a few nodes reach every branch, and shrink to something that can be read.
"""

from dataclasses import replace

from hypothesis import strategies as st

from headway.jobs.model.cluster import Cluster, Level, Node, Partition, Tenant
from headway.jobs.model.job import Job, Outcome, workload
from headway.jobs.model.speed import Costs
from headway.jobs.policies.registry import BACKFILLS, MIGRATIONS, ORDERS, PLACEMENTS
from headway.jobs.rules.limits.limit import NOBODY, LimitRule
from headway.jobs.sim.faults import FailureModel, Faults, Maintenance
from headway.units import SECOND
from tests.drive import World

GPU_TYPES = ("A100", "V100")
GIGABYTE = 10**9
FAST, MIDDLE, SLOW = 300 * GIGABYTE, 150 * GIGABYTE, 80 * GIGABYTE
SHAPES: tuple[tuple[tuple[Level, ...], tuple[int, ...]], ...] = (
    ((Level("node"),), ()),
    ((Level("rack"), Level("node")), ()),
    ((Level("rack", SLOW), Level("node", FAST)), ()),
    ((Level("zone", SLOW), Level("rack", MIDDLE), Level("node", FAST), Level("island")), (2,)),
    ((Level("rack", SLOW), Level("node", MIDDLE), Level("island", FAST)), (2,)),
)


@st.composite
def clusters(draw: st.DrawFn, *, quotas: bool | None = None) -> Cluster:
    """Some nodes of one or two kinds under up to two levels, with or without partitions and tenants."""
    levels, islands = draw(st.sampled_from(SHAPES))
    outside = next(i for i, level in enumerate(levels) if level.name == "node")
    kinds = draw(st.lists(st.tuples(st.integers(1, 4), st.sampled_from(GPU_TYPES)), min_size=1, max_size=2))
    counted = draw(st.booleans())
    count = draw(st.integers(1, 5))
    nodes = []
    for index in range(count):
        gpus, gpu_type = kinds[draw(st.integers(0, len(kinds) - 1))]
        path = tuple(f"{level.name}{index // 2 ** (outside - i)}" for i, level in enumerate(levels[:outside]))
        host = {"cpu_milli": 4000 * gpus, "memory_bytes": 64 * GIGABYTE * gpus} if counted else {}
        nodes.append(Node(f"n{index}", gpus, gpu_type, path=path, island_gpus=islands, **host))
    speeds = {"V100": draw(st.sampled_from([400_000, 333_333]))} if draw(st.booleans()) else {}
    return Cluster(
        tuple(nodes),
        levels,
        draw(_partitions(count)) if draw(st.booleans()) else (),
        draw(_tenants(sum(node.gpus for node in nodes))) if (draw(st.booleans()) if quotas is None else quotas) else (),
        speeds,
    )


@st.composite
def _partitions(draw: st.DrawFn, nodes: int) -> tuple[Partition, ...]:
    cut = draw(st.integers(1, nodes))
    everything = Partition("all", tuple(range(nodes)))
    return (Partition("left", tuple(range(cut))), Partition("right", tuple(range(max(0, cut - 1), nodes))), everything)


@st.composite
def _tenants(draw: st.DrawFn, gpus: int) -> tuple[Tenant, ...]:
    """Guarantees that the cluster can keep, limits that allow something."""
    first = draw(st.integers(1, gpus))
    left = gpus - first
    second = draw(st.integers(0, left)) if left else 0
    made = [Tenant("a", draw(st.integers(1, 3)), first, None, draw(st.booleans()))]
    if second:
        limit = draw(st.none() | st.integers(second, gpus))
        made.append(Tenant("b", 1, second, limit, draw(st.booleans())))
    if draw(st.booleans()):
        made.append(Tenant("c", 1, None, draw(st.none() | st.integers(1, gpus))))
    return tuple(made)


SELECTED = (
    (),
    (),
    (("user", "u"),),
    (("qos", "long"),),
    (("account", "a"),),
    (("account", "top"),),
    (("tenant", "x"),),
    (("user", "u"), ("user", "v"), ("qos", "long")),
    (("partition", "left"),),
    (("any", "user:u"), ("any", "qos:long"), ("any", "account:top")),
)
COUNTED = ((), ("user",), ("account",), ("user", "qos"), ("job",), ("partition",))


@st.composite
def limits(draw: st.DrawFn) -> tuple[LimitRule, ...]:
    """Up to four rules on anything, some of which share a slot."""
    count = draw(st.integers(1, 4))
    return tuple(draw(_rule(number)) for number in range(count))


@st.composite
def _rule(draw: st.DrawFn, number: int) -> LimitRule:
    kinds = ("gpus", "gpus", "gpus:A100", "cpus", "memory", "nodes", "jobs", "submitted", "wall", "ageing")
    kinds += ("gpus_per_node", "cpus_per_node", "memory_per_node")
    timed = ("gpu_time", "cpu_time", "running_gpu_time", "running_gpu_time:A100", "running_cpu_time")
    resource = draw(st.sampled_from(kinds + timed))
    kind = resource.partition(":")[0]
    used = kind in ("gpu_time", "cpu_time")
    apart = [per for per in COUNTED if per != ("job",) or not (used or kind in ("jobs", "submitted", "ageing"))]
    apart = [("job",)] if kind.endswith("_per_node") else apart
    levels = ((), (), (("qos", "long", 1),), (("qos", "long", 0), ("user", "u", NOBODY)))
    most = {
        "gpus": st.sampled_from([1000, 2000, 2500, 4000, 8000]),
        "cpus": st.sampled_from([3000, 8000]),
        "memory": st.sampled_from([30 * GIGABYTE, 80 * GIGABYTE]),
        "nodes": st.integers(1, 4),
        "jobs": st.integers(1, 3),
        "submitted": st.integers(1, 3),
        "wall": st.sampled_from([30 * SECOND, 100 * SECOND]),
        "ageing": st.integers(0, 2),
        "gpus_per_node": st.sampled_from([1000, 2000]),
        "cpus_per_node": st.sampled_from([1000, 4000]),
        "memory_per_node": st.just(20 * GIGABYTE),
    }.get(kind, st.integers(20, 300).map(lambda seconds: seconds * 1000 * SECOND))
    per = draw(st.sampled_from(apart))
    return LimitRule(
        f"limit{number}",
        resource,
        draw(most),
        draw(st.sampled_from(SELECTED)),
        per,
        draw(st.sampled_from(["", "", "slot"])),
        draw(st.sampled_from([0, 1, 2, NOBODY])),
        half_life=draw(st.sampled_from([0, 20 * SECOND, 60 * SECOND])) if used else 0,
        used=draw(st.sampled_from([0, 10_000 * SECOND])) if used and not per else 0,
        ahead=draw(st.booleans()) if used else False,
        least=draw(st.booleans()) if per == ("job",) and kind in ("gpus", "cpus", "memory", "nodes") else False,
        levels=draw(st.sampled_from(levels)),
    )


@st.composite
def limited(draw: st.DrawFn, *, quotas: bool | None = None, faults: bool | None = None) -> World:
    """A world with limits on jobs that are of several classes, and a tree of accounts."""
    world = draw(worlds(quotas=quotas, faults=faults))
    cluster = world.cluster
    tenants = (*cluster.tenants, Tenant("top")) if cluster.tenants else ()
    tenants = tuple(replace(each, parent="top") if each.name in ("a", "b") else each for each in tenants)
    kinds = draw(st.lists(st.sampled_from(["", "long", "short"]), min_size=len(world.jobs), max_size=len(world.jobs)))
    jobs = tuple(replace(job, qos=kind) for job, kind in zip(world.jobs, kinds, strict=True))
    return replace(world, cluster=replace(cluster, tenants=tenants, limits=draw(limits())), jobs=jobs)


@st.composite
def workloads(
    draw: st.DrawFn, cluster: Cluster, *, max_jobs: int = 12, plain: bool = False, estimated: bool = False
) -> tuple[Job, ...]:
    """Jobs that each fit the empty cluster and their tenant's quota; ``plain`` ones finish and ask for GPUs only."""
    drawn = draw(st.lists(_jobs(cluster, plain=plain, estimated=estimated), min_size=1, max_size=max_jobs))
    return workload(job for job in drawn if fits(cluster, job)) or (Job(0, 0, SECOND),)


@st.composite
def _jobs(draw: st.DrawFn, cluster: Cluster, *, plain: bool, estimated: bool) -> Job:
    work = draw(st.integers(1, 60)) * SECOND + draw(st.sampled_from([0, 0, 1, 333_333_333]))
    estimate = draw(st.sampled_from([work, work // 2, work * 3] if estimated else [0, 0, work, work // 2, work * 3]))
    job = Job(
        0,
        draw(st.integers(0, 60)) * SECOND,
        work,
        draw(st.integers(1, max(1, min(8, cluster.gpus)))),
        estimate=estimate,
        tenant=draw(st.sampled_from([tenant.name for tenant in cluster.tenants] or ["x", "y"])),
        priority=draw(st.integers(0, 2)),
        user=draw(st.sampled_from(["", "u", "v"])),
    )
    return job if plain else _elaborate(draw, cluster, job)


def _elaborate(draw: st.DrawFn, cluster: Cluster, job: Job) -> Job:
    """Give a job some of what a job can have."""
    counted = cluster.nodes[0].cpu_milli is not None
    if draw(st.integers(0, 3)) == 0:
        job = replace(job, gpus=1, gpu_milli=draw(st.sampled_from([100, 250, 500, 700])))
    elif draw(st.integers(0, 3)) == 0:
        job = replace(job, nodes=draw(st.sampled_from([n for n in (1, 2, 3) if job.gpus % n == 0])))
    elif counted and draw(st.integers(0, 5)) == 0:
        job = replace(job, gpus=0, cpu_milli=draw(st.sampled_from([500, 3000])))
    if counted and draw(st.booleans()):
        job = replace(job, cpu_milli=job.gpus * 2500 + 500, memory_bytes=GIGABYTE * draw(st.integers(0, 40)) + 1)
    outcome = draw(st.sampled_from([Outcome.FINISHES, Outcome.FINISHES, Outcome.FAILS, Outcome.CANCELLED]))
    return replace(
        job,
        partition=draw(st.sampled_from(["", *(partition.name for partition in cluster.partitions)])),
        gpu_types=draw(st.sampled_from([(), (), ("A100",), ("V100",), GPU_TYPES])),
        preemptible=draw(st.sampled_from([True, True, True, False])),
        checkpoint=draw(st.sampled_from([0, SECOND])),
        restore=draw(st.sampled_from([0, 2 * SECOND + 1])),
        checkpoint_every=draw(st.sampled_from([0, 7 * SECOND])),
        communication_ppm=draw(st.sampled_from([0, 300_000])),
        outcome=outcome,
        outcome_after=max(1, job.work // draw(st.integers(1, 3))) if outcome else 0,
        retries=draw(st.sampled_from([0, 0, 1, 2])),
        patience=draw(st.sampled_from([0, 0, 0, 20 * SECOND])),
    )


def fits(cluster: Cluster, job: Job) -> bool:
    """Whether every placement must find room for a job on the empty cluster: whole on one node where one has the GPUs,
    on equal parts where that was asked for, else over all nodes it may use."""
    allowed = next((p.nodes for p in cluster.partitions if p.name == job.partition), range(len(cluster.nodes)))
    nodes = [n for n in map(cluster.nodes.__getitem__, allowed) if not job.gpu_types or n.gpu_type in job.gpu_types]
    return bool(nodes) and _quota_allows(cluster, job) and _room(nodes, job)


def _room(nodes: list[Node], job: Job) -> bool:
    if job.nodes > 1:
        return sum(_holds(node, job, job.gpus // job.nodes) for node in nodes) >= job.nodes
    if job.gpus <= max(node.gpus for node in nodes):
        return any(_holds(node, job, job.gpus) for node in nodes)
    if job.nodes == 1:
        return False
    return sum(max(n for n in range(node.gpus + 1) if _holds(node, job, n)) for node in nodes) >= job.gpus


def _holds(node: Node, job: Job, gpus: int) -> bool:
    part = gpus if job.gpus else 1
    whole = max(1, job.gpus)
    cpu_milli, memory_bytes = -(-job.cpu_milli * part // whole), -(-job.memory_bytes * part // whole)
    return (
        gpus <= node.gpus
        and (node.cpu_milli is None or cpu_milli <= node.cpu_milli)
        and (node.memory_bytes is None or memory_bytes <= node.memory_bytes)
    )


def _quota_allows(cluster: Cluster, job: Job) -> bool:
    tenant = next((t for t in cluster.tenants if t.name == job.tenant), None)
    if tenant is None:
        return True
    bounds = [gpus for gpus in (tenant.guaranteed_gpus, tenant.limit_gpus) if gpus is not None]
    if tenant.borrow and job.preemptible:
        bounds = [] if tenant.limit_gpus is None else [tenant.limit_gpus]
    return all(job.width_milli <= gpus * 1000 for gpus in bounds)


@st.composite
def worlds(
    draw: st.DrawFn,
    *,
    max_jobs: int = 12,
    plain: bool = False,
    estimated: bool = False,
    faults: bool | None = None,
    quotas: bool | None = None,
) -> World:
    """A cluster, a workload that fits it, and sometimes failing nodes, maintenance, costs and a price of sharing."""
    cluster = draw(clusters(quotas=quotas))
    jobs = draw(workloads(cluster, max_jobs=max_jobs, plain=plain, estimated=estimated))
    costs = draw(st.sampled_from([None, Costs(0, 0), Costs(3 * SECOND, 5 * SECOND)]))
    penalty = draw(st.sampled_from([0, 0, 250_000]))
    seed = draw(st.integers(0, 1000))
    if not (draw(st.integers(0, 2)) == 0 if faults is None else faults):
        return World(cluster, jobs, None, costs, penalty)
    failures = draw(st.sampled_from([None, FailureModel(400 * SECOND, 15 * SECOND)]))
    start, lead = draw(st.integers(1, 40)) * SECOND, draw(st.sampled_from([0, 5])) * SECOND
    maintenance = draw(st.sampled_from([(), (Maintenance((0,), start, 20 * SECOND, lead),)]))
    count = len(cluster.nodes)
    told = f"seed {seed} {failures} {maintenance}"
    return World(cluster, jobs, lambda: Faults(count, seed, failures, maintenance), costs, penalty, told)


VARIANTS = {
    "spread": ("spread(split=true)",),
    "consolidate": ("consolidate(up_to=any)",),
    "tiresias": ("tiresias(thresholds=20s/60s)", "tiresias(promote=0.5)", "tiresias(thresholds=20s, promote=2)"),
    "las": ("las(quantum=1s)", "las(quantum=10s)"),
    "conservative": ("conservative(depth=1)", "conservative(depth=3, interval=0s)", "conservative(interval=5s)"),
    "migrate": ("migrate(margin=0, rest=0)", "migrate(rest=0.5)"),
}
"""How else a part may be written."""


@st.composite
def specs(
    draw: st.DrawFn,
    *,
    order: str = "",
    backfill: str = "",
    placement: str = "",
    migration: str = "",
    cluster: Cluster | None = None,
) -> str:
    """The name of a policy from the registry; what is given is taken, the rest is drawn, and so are options.

    A level of the topology is named only where the cluster is given and has it.
    """
    terms = [order or draw(st.sampled_from(sorted(ORDERS))), backfill or draw(st.sampled_from(sorted(BACKFILLS)))]
    terms.append(placement or draw(st.sampled_from(sorted(PLACEMENTS))))
    if migration or (MIGRATIONS and draw(st.integers(0, 3)) == 0):
        terms.append(migration or draw(st.sampled_from(sorted(MIGRATIONS))))
    terms = [draw(st.sampled_from(_written(term, cluster))) for term in terms]
    terms.extend(draw(st.sampled_from([(), (), ("preempt",), ("no-preempt",)])))
    return "+".join(terms)


def _written(term: str, cluster: Cluster | None) -> list[str]:
    """A part without options, twice as likely, and with some."""
    variants = list(VARIANTS.get(term, ()))
    if term == "consolidate" and cluster is not None:
        variants.extend(f"consolidate(up_to={level.name})" for level in cluster.outer_levels)
    return [term] * max(1, 2 * len(variants)) + variants
