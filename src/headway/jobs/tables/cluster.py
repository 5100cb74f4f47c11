"""Build a cluster from the ``[cluster]`` table of an experiment: nodes, topology, partitions and tenants."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from msgspec import Struct, field, structs

from headway.errors import ExperimentError, InputError, unknown_name
from headway.jobs.model.cluster import Cluster, Level, Node, Partition, Tenant
from headway.jobs.rules.limits.table import LimitTable, rule_from_table, table_from_rule, with_values
from headway.jobs.rules.preemption.table import (
    PreemptionTable,
    QosTable,
    mode_of,
    partition_fields,
    preemption_from_table,
    qos_from_table,
    span,
    table_from_preemption,
    table_from_qos,
)
from headway.jobs.tables.dated import (
    OutageTable,
    ReservationTable,
    outages_from,
    reservations_from,
    tables_of_outages,
    tables_of_reservations,
)
from headway.units import REFERENCE_SPEED_PPM, exact_duration, parse_duration, parse_size

MOST_NODES = 50_000
MOST_GPUS_A_NODE = 100_000
MOST_CPUS_A_NODE = 1_000_000
MOST_BYTES = 1 << 60
FASTEST = 1_000.0
TENANCIES = ("pool", "walls", "quotas", "borrow")
SIZINGS = ("gpu-time", "equal")
EQUAL_NODES = ("nodes", "gpus_per_node", "cpus_per_node", "memory_per_node", "storage_per_node", "gpu_type")
"""Keys that describe a cluster whose nodes are all equal."""


class LevelTable(Struct, kw_only=True):
    """A level outside the node has ``nodes_per_domain``, one inside it ``gpus_per_domain``, the node itself neither."""

    name: str
    nodes_per_domain: int = 0
    gpus_per_domain: int = 0
    bandwidth: str = ""


class NodeGroup(Struct, kw_only=True):
    """So many equal nodes."""

    nodes: int
    gpus: int
    gpu_type: str = "gpu"
    cpus: int | None = None
    memory: str = ""
    storage: str = ""
    weight: int | None = None
    """Placement consecutive fills nodes of lower weight first."""
    names: list[str] = field(default_factory=list)
    """What the nodes are called, as many as there are; numbered if left out."""


class PartitionTable(Struct, kw_only=True, omit_defaults=True):
    """``nodes`` is a list of positions, or text like ``0-15,32``."""

    name: str
    nodes: list[int] | str
    priority: int = 0
    tier: int = 1
    preempt_mode: str = ""
    grace: str = ""


class TenantTable(Struct, kw_only=True):
    """Who holds how much; what is left out is not bounded."""

    name: str
    weight: int = 1
    guaranteed_gpus: int | None = None
    limit_gpus: int | None = None
    borrow: bool = False
    parent: str = ""
    users: dict[str, int] = field(default_factory=dict)
    used: dict[str, str] = field(default_factory=dict)
    """GPU time that its users had used when the run began, decayed until then."""


class ClusterTable(Struct, kw_only=True):
    """Equal nodes by ``nodes`` and ``gpus_per_node``, or several kinds in ``node_groups``, or read from files."""

    file: list[str] | str = ""
    """Files of other systems that describe the nodes and partitions; written out when the run is stored."""
    nodes: int | None = None
    gpus_per_node: int | None = None
    cpus_per_node: int | None = None
    memory_per_node: str = ""
    storage_per_node: str = ""
    gpu_type: str = "gpu"
    gpu_speed: dict[str, float] = field(default_factory=dict)
    node_groups: list[NodeGroup] = field(default_factory=list)
    levels: list[LevelTable] = field(default_factory=list)
    islands: list[int] = field(default_factory=list)
    partitions: list[PartitionTable] = field(default_factory=list)
    tenants: list[TenantTable] = field(default_factory=list)
    limits: list[LimitTable] = field(default_factory=list)
    limit: dict[str, float | str] = field(default_factory=dict)
    """Other amounts for limits, by name or address, for sweeps and variants; none: without it."""
    rules: dict[str, dict[str, int | float | str]] = field(default_factory=dict)
    """Changes of the rules that files of a Slurm site describe, as sacctmgr or scontrol would make them:
    "qos long" = { MaxTRESPU = "gres/gpu=32" }, shares = { bio = 40 }; written out when the run is stored."""
    qos: list[QosTable] = field(default_factory=list)
    preemption: PreemptionTable = field(default_factory=PreemptionTable)
    outages: list[OutageTable] = field(default_factory=list)
    reservations: list[ReservationTable] = field(default_factory=list)
    tenancy: str = "pool"
    sizing: str = "gpu-time"
    sharing_penalty: float = 0.0
    interference: str = ""
    """What jobs on parts of one GPU cost each other: a table that ships with the package by its name (h200), store for
    one's own, or a pairs.json."""
    programs: dict[str, str] = field(default_factory=dict)
    """Patterns for what jobs train, to what the table calls that; the first that fits."""


def build(table: ClusterTable) -> Cluster:
    """Return the cluster that a table describes."""
    for what, name, valid in (("tenancy", table.tenancy, TENANCIES), ("sizing", table.sizing, SIZINGS)):
        if name not in valid:
            raise ExperimentError(unknown_name(what, name, valid))
    within("sharing_penalty", table.sharing_penalty, 0, 1)
    _one_size(table)
    groups = table.node_groups or [_only_group(table)]
    count = sum(within("nodes", group.nodes, 1, MOST_NODES) for group in groups)
    within("nodes in all", count, 1, MOST_NODES)
    outer, levels, islands = _levels(table)
    kinds = [group for group in groups for _ in range(group.nodes)]
    names = _names(groups, count)
    return Cluster(
        nodes=tuple(_node(names[i], group, i, outer, islands) for i, group in enumerate(kinds)),
        levels=levels,
        partitions=tuple(_partition(each, count) for each in table.partitions),
        tenants=_tenants(table.tenants),
        gpu_speed_ppm=_speeds(table.gpu_speed, {group.gpu_type for group in groups}),
        limits=with_values(tuple(map(rule_from_table, table.limits)), table.limit),
        qos=tuple(map(qos_from_table, table.qos)),
        preemption=preemption_from_table(table.preemption, table.qos),
        outages=outages_from(table.outages, names),
        reservations=reservations_from(table.reservations, names),
    )


def node_names(table: ClusterTable) -> list[str]:
    """Return what the nodes of a table are called."""
    groups = table.node_groups or [_only_group(table)]
    return _names(groups, sum(group.nodes for group in groups))


def _names(groups: list[NodeGroup], count: int) -> list[str]:
    width = len(str(count - 1))
    names: list[str] = []
    for group in groups:
        if group.names and len(group.names) != group.nodes:
            raise ExperimentError(f"node_groups: {group.nodes} nodes have {len(group.names)} names")
        first = len(names)
        names.extend(group.names or (f"n{index:0{width}d}" for index in range(first, first + group.nodes)))
    return names


def described(table: ClusterTable, cluster: Cluster) -> ClusterTable:
    """Return the table with the cluster's partitions, tenants and limits written out, also those derived from files."""
    return structs.replace(
        table,
        partitions=[
            PartitionTable(name=p.name, nodes=list(p.nodes), priority=p.priority, tier=p.tier, **partition_fields(p))
            for p in cluster.partitions
        ],
        tenants=tables_of_tenants(cluster.tenants),
        limits=list(map(table_from_rule, cluster.limits)),
        limit={},
        rules={},
        qos=list(map(table_from_qos, cluster.qos)),
        preemption=table_from_preemption(cluster.preemption),
        outages=tables_of_outages(cluster),
        reservations=tables_of_reservations(cluster),
    )


def tables_of_tenants(tenants: Iterable[Tenant]) -> list[TenantTable]:
    """Return tenants as an experiment writes them."""
    return [
        TenantTable(
            name=t.name,
            weight=t.weight,
            guaranteed_gpus=t.guaranteed_gpus,
            limit_gpus=t.limit_gpus,
            borrow=t.borrow,
            parent=t.parent,
            users=dict(t.users),
            used={user: exact_duration(time // 1000) for user, time in t.used},
        )
        for t in tenants
    ]


def within(what: str, value: Any, least: float, most: float) -> Any:
    """Return a number if it lies within its bounds; raise an error that names them otherwise."""
    if not least <= value <= most:
        raise ExperimentError(f"{what} {value} must lie in {least:,} to {most:,}")
    return value


def _one_size(table: ClusterTable) -> None:
    """Refuse what describes equal nodes beside groups of nodes, where it would have no effect."""
    plain = ClusterTable()
    for key in EQUAL_NODES if table.node_groups else ():
        if (given := getattr(table, key)) != getattr(plain, key):
            raise ExperimentError(
                f"cluster: {key} = {given!r} stands beside node_groups, which say what each node has: leave one out"
            )


def _only_group(table: ClusterTable) -> NodeGroup:
    if table.nodes is None or table.gpus_per_node is None:
        missing = "nodes" if table.nodes is None else "gpus_per_node"
        raise ExperimentError(
            f"the cluster has no size: give {missing} (--nodes and --gpus-per-node, or --cluster FILE)"
        )
    return NodeGroup(
        nodes=within("nodes", table.nodes, 1, MOST_NODES),
        gpus=within("gpus_per_node", table.gpus_per_node, 1, MOST_GPUS_A_NODE),
        gpu_type=table.gpu_type,
        cpus=table.cpus_per_node,
        memory=table.memory_per_node,
        storage=table.storage_per_node,
    )


def _node(name: str, group: NodeGroup, index: int, outer: list[tuple[str, int]], islands: tuple[int, ...]) -> Node:
    within("gpus", group.gpus, 0, MOST_GPUS_A_NODE)
    cpus = None if group.cpus is None else within("cpus_per_node", group.cpus, 1, MOST_CPUS_A_NODE)
    memory = parse_size(group.memory, what="memory_per_node") if group.memory else None
    return Node(
        name=name,
        gpus=group.gpus,
        gpu_type=group.gpu_type,
        cpu_milli=None if cpus is None else cpus * 1000,
        memory_bytes=None if memory is None else within("memory_per_node (bytes)", memory, 1, MOST_BYTES),
        storage_bytes_per_second=rate("storage_per_node", group.storage) if group.storage else None,
        path=tuple(f"{level}{index // size}" for level, size in outer),
        island_gpus=islands,
        weight=within("weight", group.weight or 0, 0, MOST_BYTES),
    )


def rate(what: str, text: str) -> int:
    """Parse a rate like ``25GB/s`` into bytes a second."""
    size, slash, unit = text.partition("/")
    if slash and unit.strip() != "s":
        raise InputError(f"{what} {text!r} is not understood: write it like 25GB/s")
    return int(within(f"{what} (bytes a second)", parse_size(size, what=what), 1, MOST_BYTES))


def _levels(table: ClusterTable) -> tuple[list[tuple[str, int]], tuple[Level, ...], tuple[int, ...]]:
    """Return (outer levels with their sizes, all levels, sizes of islands)."""
    given = list(table.levels)
    if not any(level.name == "node" for level in given):
        given.append(LevelTable(name="node"))
    for number, size in enumerate(table.islands):
        given.append(LevelTable(name=f"island{number}" if number else "island", gpus_per_domain=size))
    node = next(position for position, level in enumerate(given) if level.name == "node")
    for position, level in enumerate(given):
        size, what = (
            (level.nodes_per_domain, "nodes_per_domain")
            if position < node
            else (level.gpus_per_domain, "gpus_per_domain")
        )
        if position != node:
            within(f"level {level.name}: {what}", size, 1, MOST_GPUS_A_NODE)
    outer = [(level.name, level.nodes_per_domain) for level in given[:node]]
    for (name, size), (inner, inner_size) in pairwise(outer):
        if size % inner_size:
            raise ExperimentError(f"level {name}: {size} nodes cannot be divided into {inner}s of {inner_size}")
    levels = tuple(
        Level(level.name, rate(f"level {level.name}: bandwidth", level.bandwidth) if level.bandwidth else 0)
        for level in given
    )
    return outer, levels, tuple(level.gpus_per_domain for level in given[node + 1 :])


def positions(text: str, what: str) -> list[int]:
    """Parse positions like ``0-15,32`` into a list."""
    indices: list[int] = []
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ExperimentError(f"{what} {text!r} is not understood: write positions like 0-15,32")
        indices.extend(range(int(first), within(what, int(last or first), int(first), MOST_NODES) + 1))
    return indices


def _partition(table: PartitionTable, count: int) -> Partition:
    what = f"partition {table.name}"
    return Partition(
        table.name,
        _positions(table, count),
        table.priority,
        within(f"{what}: tier", table.tier, 0, 65_533),
        mode_of(table.preempt_mode, what),
        span(table.grace, f"{what}: grace"),
    )


def _positions(partition: PartitionTable, count: int) -> tuple[int, ...]:
    nodes = partition.nodes
    what = f"partition {partition.name}: nodes"
    listed = positions(nodes, what) if isinstance(nodes, str) else nodes
    for node in listed:
        within(what, node, 0, count - 1)
    return tuple(sorted(set(listed)))


def _tenants(tables: list[TenantTable]) -> tuple[Tenant, ...]:
    seen: set[str] = set()
    for tenant in tables:
        if tenant.name in seen:
            raise ExperimentError(f"tenant {tenant.name!r} is described twice")
        seen.add(tenant.name)
        within(f"tenant {tenant.name}: weight", tenant.weight, 1, 10**9)
        for what, gpus in (("guaranteed_gpus", tenant.guaranteed_gpus), ("limit_gpus", tenant.limit_gpus)):
            within(f"tenant {tenant.name}: {what}", gpus or 0, 0, MOST_NODES * MOST_GPUS_A_NODE)
        for user, weight in tenant.users.items():
            within(f"tenant {tenant.name}: weight of user {user}", weight, 1, 10**9)
    return tuple(
        Tenant(
            t.name,
            t.weight,
            t.guaranteed_gpus,
            t.limit_gpus,
            t.borrow,
            t.parent,
            tuple(t.users.items()),
            tuple((user, parse_duration(time, what=f"tenant {t.name}: used") * 1000) for user, time in t.used.items()),
        )
        for t in tables
    )


def _speeds(speeds: dict[str, float], types: set[str]) -> dict[str, int]:
    for name, speed in speeds.items():
        if name not in types:
            raise ExperimentError(unknown_name("GPU type in gpu_speed", name, types))
        within(f"gpu_speed {name}", speed, 0.001, FASTEST)
    return {name: round(speed * REFERENCE_SPEED_PPM) for name, speed in speeds.items()}
