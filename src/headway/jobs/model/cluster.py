"""A cluster: nodes, the physical topology over and under them, and the logical partitions and tenants across it.

Topology is a list of levels from the outermost to the innermost, e.g. zone, rack, node, island. Exactly one level
is called ``node``; levels before it group nodes, levels after it divide the GPUs of one node. Each level has
the bandwidth with which GPUs inside one of its domains talk. Partitions say where a job may run, tenants how much
they may hold; both are independent of the topology.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.errors import ExperimentError
from headway.jobs.model.outages import Outage, check_outages
from headway.jobs.model.resources import UNCOUNTED, Grant
from headway.jobs.rules.limits.limit import LimitRule, check_rules, check_tree
from headway.jobs.rules.preemption.preemption import Mode, Preemption, check_lists
from headway.jobs.rules.reservations.reservation import AdvanceReservation, check_reservations


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the topology; a domain of it is one rack, one node, one NVLink island."""

    name: str
    bandwidth_bytes_per_second: int = 0
    """Between GPUs whose smallest common domain is of this level; 0 means no slower than the level inside."""


@dataclass(frozen=True, slots=True)
class Node:
    """One machine. ``path`` names its domain at each level outside the node, outermost first."""

    name: str
    gpus: int
    gpu_type: str = "gpu"
    cpu_milli: int | None = None
    """None: CPUs are not counted."""
    memory_bytes: int | None = None
    """None: memory is not counted."""
    storage_bytes_per_second: int | None = None
    path: tuple[str, ...] = ()
    island_gpus: tuple[int, ...] = ()
    """GPUs a domain at each level inside the node, e.g. (4,) for two NVLink islands in an 8-GPU node."""
    weight: int = 0
    """A placement that goes by weights (consecutive) fills nodes of lower weight first."""

    @property
    def host(self) -> Grant:
        """Return all CPUs, memory and storage bandwidth that it has; what is not counted is ``UNCOUNTED``."""
        has = (self.cpu_milli, self.memory_bytes, self.storage_bytes_per_second)
        return Grant(*(UNCOUNTED if amount is None else amount for amount in has))


@dataclass(frozen=True, slots=True)
class Partition:
    """A set of nodes with a name: a job that names it runs on them only."""

    name: str
    nodes: tuple[int, ...]
    priority: int = 0
    tier: int = 1
    """Its jobs are considered before all jobs of partitions with a lower one, whatever their priority."""
    preempt_mode: Mode | None = None
    """What becomes of its jobs that higher tiers preempt; None: as the cluster has it."""
    grace: int = 0
    """Nanoseconds that such a job keeps what it holds."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who jobs belong to, and how much they may hold.

    Up to ``guaranteed_gpus`` a tenant is served within one decision, if need be by reclaiming what others
    borrowed. Beyond it a tenant with ``borrow`` may hold idle GPUs, up to ``limit_gpus``, with preemptible jobs only.
    """

    name: str
    weight: int = 1
    guaranteed_gpus: int | None = None
    """None: no quota, the tenant is bounded by the limit alone and nothing of it is ever reclaimed."""
    limit_gpus: int | None = None
    borrow: bool = False
    parent: str = ""
    """The account above it; empty: none. Limits of an account count what all accounts below it hold."""
    users: tuple[tuple[str, int], ...] = ()
    """Weights of its users for fair share; those not named have 1."""
    used: tuple[tuple[str, int], ...] = ()
    """GPU time that its users had used when the run began, decayed until then, for fair share: thousandths of a GPU
    times nanoseconds."""


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service that jobs name, its priority, and whom its jobs preempt."""

    name: str
    priority: int = 0
    preempts: tuple[str, ...] = ()
    """QOSs whose jobs its jobs may preempt, where the cluster preempts by QOS."""
    preempt_mode: Mode | None = None
    """What becomes of its own jobs that others preempt; None: as the cluster has it."""
    grace: int = 0
    """Nanoseconds that such a job keeps what it holds."""
    exempt: int | None = None
    """Nanoseconds that its jobs have run, at least, before they are preempted; None: as the cluster has it."""
    usage_factor: float = 1.0
    """What its jobs hold counts so many times for fair share."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """All of it. Node order is the order of first-fit and of every tie."""

    nodes: tuple[Node, ...]
    levels: tuple[Level, ...] = (Level("node"),)
    partitions: tuple[Partition, ...] = ()
    tenants: tuple[Tenant, ...] = ()
    gpu_speed_ppm: dict[str, int] = field(default_factory=dict)
    """Speed of a GPU type against the reference; types not named run at reference speed."""
    limits: tuple[LimitRule, ...] = ()
    qos: tuple[Qos, ...] = ()
    preemption: Preemption | None = None
    """None: nothing is preempted but by the policy itself."""
    reservations: tuple[AdvanceReservation, ...] = ()
    outages: tuple[Outage, ...] = ()

    def __post_init__(self) -> None:
        names = [level.name for level in self.levels]
        if names.count("node") != 1 or len(set(names)) != len(names):
            raise ExperimentError(f"levels {names} must be distinct and hold 'node' exactly once")
        outside = names.index("node")
        inside = len(names) - outside - 1
        for what, given in (("nodes", self.nodes), ("partitions", self.partitions), ("tenants", self.tenants)):
            seen: set[str] = set()
            for each in given:
                if each.name in seen:
                    raise ExperimentError(f"two {what} of the cluster have the same name {each.name!r}")
                seen.add(each.name)
        for node in self.nodes:
            if node.gpus < 0:
                raise ExperimentError(f"node {node.name}: gpus {node.gpus} must not be negative")
            if len(node.path) != outside or len(node.island_gpus) != inside:
                raise ExperimentError(
                    f"node {node.name}: needs a domain for each of {names[:outside]} "
                    f"and an island size for each of {names[outside + 1 :]}"
                )
        if not self.nodes:
            raise ExperimentError("a cluster needs at least one node")
        for partition in self.partitions:
            if any(not 0 <= index < len(self.nodes) for index in partition.nodes):
                raise ExperimentError(f"partition {partition.name}: names a node that does not exist")
        self._check_quotas()
        check_tree({tenant.name: tenant.parent for tenant in self.tenants})
        check_rules(self.limits)
        check_lists({each.name: each.preempts for each in self.qos})
        nodes = [node.name for node in self.nodes]
        check_reservations(self.reservations, nodes)
        check_outages(self.outages, nodes)

    def _check_quotas(self) -> None:
        for tenant in self.tenants:
            guaranteed, limit = tenant.guaranteed_gpus, tenant.limit_gpus
            if guaranteed is not None and limit is not None and guaranteed > limit:
                raise ExperimentError(
                    f"tenant {tenant.name}: guaranteed_gpus {guaranteed} must not be above limit_gpus {limit}"
                )
        promised = sum(tenant.guaranteed_gpus or 0 for tenant in self.tenants)
        if promised > self.gpus:
            raise ExperimentError(
                f"the tenants' guaranteed_gpus sum to {promised}, which is more than the cluster's {self.gpus} GPUs"
            )

    @property
    def gpus(self) -> int:
        """Devices in all."""
        return sum(node.gpus for node in self.nodes)

    @property
    def outer_levels(self) -> tuple[Level, ...]:
        """The levels that group nodes, outermost first."""
        return self.levels[: self.node_level]

    @property
    def node_level(self) -> int:
        """Position of the level ``node`` in ``levels``."""
        return next(i for i, level in enumerate(self.levels) if level.name == "node")


class Eligible(dict[tuple[str, tuple[str, ...]], int]):
    """The nodes where jobs may run, as bit sets, by (partition, GPU types); computed when first asked for."""

    def __init__(self, cluster: Cluster) -> None:
        self.partitions = {part.name: sum(1 << node for node in part.nodes) for part in cluster.partitions}
        self._nodes = cluster.nodes

    def __missing__(self, key: tuple[str, tuple[str, ...]]) -> int:
        partition, gpu_types = key
        nodes = self.partitions.get(partition, 0) if partition else (1 << len(self._nodes)) - 1
        if gpu_types:
            nodes &= sum(1 << index for index, node in enumerate(self._nodes) if node.gpu_type in gpu_types)
        self[key] = nodes
        return nodes


def uniform(
    nodes: int,
    gpus_per_node: int,
    *,
    gpu_type: str = "gpu",
    cpus_per_node: int | None = None,
    memory_per_node_bytes: int | None = None,
    storage_bytes_per_second: int | None = None,
    nodes_per_group: Sequence[tuple[str, int]] = (),
    levels: tuple[Level, ...] | None = None,
    island_gpus: tuple[int, ...] = (),
    partitions: tuple[Partition, ...] = (),
    tenants: tuple[Tenant, ...] = (),
    limits: tuple[LimitRule, ...] = (),
    reservations: tuple[AdvanceReservation, ...] = (),
    outages: tuple[Outage, ...] = (),
) -> Cluster:
    """A cluster of equal nodes; ``nodes_per_group`` lists the outer levels, e.g. ``[("zone", 40), ("rack", 8)]``."""
    if nodes < 1 or gpus_per_node < 0:
        raise ExperimentError(f"a cluster of {nodes} nodes with {gpus_per_node} GPUs each cannot be built")
    if levels is None:
        inner = tuple(Level(f"island{i}" if i else "island") for i in range(len(island_gpus)))
        levels = (*(Level(name) for name, _ in nodes_per_group), Level("node"), *inner)
    width = len(str(nodes - 1))
    return Cluster(
        nodes=tuple(
            Node(
                name=f"n{index:0{width}d}",
                gpus=gpus_per_node,
                gpu_type=gpu_type,
                cpu_milli=None if cpus_per_node is None else cpus_per_node * 1000,
                memory_bytes=memory_per_node_bytes,
                storage_bytes_per_second=storage_bytes_per_second,
                path=tuple(f"{name}{index // size}" for name, size in nodes_per_group),
                island_gpus=island_gpus,
            )
            for index in range(nodes)
        ),
        levels=levels,
        partitions=partitions,
        tenants=tenants,
        limits=limits,
        reservations=reservations,
        outages=outages,
    )
