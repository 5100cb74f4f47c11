"""The invented site: its nodes, partitions, QOSs, accounts and settings, and what may be left out of them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

MINUTE, HOUR, DAY = 60, 3600, 86_400
GPU, CPU = "gres/gpu", "cpu"
PARTS = ("preemption", "tiers", "dependencies", "throttles", "partition-qos")
"""What can be left out."""


@dataclass(frozen=True)
class Node:
    """A node; one without GPUs has no type."""

    name: str
    cpus: int
    memory_gb: int
    gpus: int = 0
    gpu_type: str = ""


@dataclass(frozen=True)
class Partition:
    """Nodes, by their places, and who goes first on them."""

    name: str
    nodes: tuple[int, ...]
    most_time: int
    tier: int = 1
    factor: int = 1
    qos: str = ""
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Qos:
    """What jobs of a QOS may hold. ``per_user`` and ``group`` are by trackable resource."""

    name: str
    priority: int = 0
    preempts: tuple[str, ...] = ()
    per_user: Mapping[str, int] = field(default_factory=dict)
    group: Mapping[str, int] = field(default_factory=dict)
    jobs_per_user: int = 0
    submit_per_user: int = 0
    most_wall: int = 0
    requeues: bool = False


@dataclass(frozen=True)
class Account:
    """An account in the tree, with its users and their shares."""

    name: str
    parent: str
    shares: int
    users: Mapping[str, int] = field(default_factory=dict)
    group: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Site:
    """All rules of a site."""

    nodes: tuple[Node, ...]
    partitions: Mapping[str, Partition]
    qos: Mapping[str, Qos]
    accounts: Mapping[str, Account]
    without: frozenset[str] = frozenset()
    age_weight: int = 2000
    fairshare_weight: int = 6000
    size_weight: int = 200
    partition_weight: int = 1000
    qos_weight: int = 3000
    most_age: int = 7 * DAY
    half_life: int = 7 * DAY
    calc_period: int = 5 * MINUTE
    backfill_interval: int = MINUTE
    backfill_depth: int = 500
    requeue_delay: int = 2 * MINUTE + 1
    """A job that was requeued is eligible again after this time."""

    def above(self, account: str) -> list[str]:
        """Return an account and all above it."""
        found = []
        while account:
            found.append(account)
            account = self.accounts[account].parent
        return found


def _nodes() -> tuple[Node, ...]:
    """Return six nodes of eight H100s, sixteen of eight A100s, six of four A100s and twelve of CPUs."""
    h100 = [Node(f"h{at:02}", 192, 2000, 8, "h100") for at in range(1, 7)]
    a100 = [Node(f"a{at:02}", 128, 1000, 8, "a100") for at in range(1, 17)]
    small = [Node(f"a{at:02}", 64, 500, 4, "a100") for at in range(17, 23)]
    cpu = [Node(f"c{at:02}", 128, 500) for at in range(1, 13)]
    return (*h100, *a100, *small, *cpu)


def _partitions() -> dict[str, Partition]:
    every = (
        Partition("h100", tuple(range(6)), 7 * DAY, tier=10, factor=20, qos="h100part"),
        Partition("a100", tuple(range(6, 28)), 7 * DAY, tier=10, factor=10),
        Partition("cpu", tuple(range(28, 40)), 7 * DAY, tier=10, factor=10),
        Partition("debug", (6, 7, 8), 2 * HOUR, tier=30, factor=100, allowed=("debug",)),
        Partition("scavenge", tuple(range(28)), DAY, tier=1, factor=0, allowed=("scavenger",)),
    )
    return {each.name: each for each in every}


def _qos() -> dict[str, Qos]:
    lower = ("scavenger",)
    every = (
        Qos("normal", 100, lower, {GPU: 20, CPU: 640}, submit_per_user=400, most_wall=2 * DAY),
        Qos("long", 40, lower, {GPU: 12}, {GPU: 64}, jobs_per_user=6, submit_per_user=60, most_wall=7 * DAY),
        Qos("debug", 400, lower, {GPU: 4}, jobs_per_user=2, submit_per_user=8, most_wall=2 * HOUR),
        Qos("scavenger", 0, (), {GPU: 40}, submit_per_user=300, most_wall=DAY, requeues=True),
        Qos("h100part", 0, (), {GPU: 16}),
    )
    return {each.name: each for each in every}


def _accounts() -> dict[str, Account]:
    every = (
        Account("root", "", 1),
        Account("science", "root", 50),
        Account("astro", "science", 20, {"annie": 10, "cecilia": 10, "henrietta": 5, "vera": 10}),
        Account(
            "bio",
            "science",
            30,
            {"barbara": 10, "gregor": 5, "jane": 10, "rosalind": 20, "francis": 10, "linus": 5},
            {GPU: 72},
        ),
        Account("chem", "science", 10, {"dorothy": 10, "marie": 10, "irene": 5}),
        Account("engineering", "root", 40),
        Account("vision", "engineering", 40, {"ada": 10, "grace": 20, "katherine": 10, "mary": 5, "joan": 5}),
        Account("speech", "engineering", 20, {"alan": 10, "edsger": 10, "tony": 5, "leslie": 10, "john": 5}),
        Account("robots", "engineering", 15, {"karel": 10, "joseph": 10, "norbert": 5}),
        Account("teaching", "root", 10),
        Account("course", "teaching", 1, {"emmy": 1, "lise": 1, "chien": 1, "hedy": 1}, {GPU: 32}),
    )
    return {each.name: each for each in every}


def site(without: Collection[str] = (), planted: bool = False) -> Site:
    """Return the site, without some of its parts; ``planted``: QOS long may hold far fewer GPUs than stand idle."""
    if unknown := set(without) - set(PARTS):
        raise SystemExit(f"--without {', '.join(sorted(unknown))}: known are {', '.join(PARTS)}")
    partitions, qos = _partitions(), _qos()
    if "preemption" in without:
        qos = {name: replace(each, preempts=(), requeues=False) for name, each in qos.items()}
    if "tiers" in without:
        partitions = {name: replace(each, tier=1) for name, each in partitions.items()}
    if "partition-qos" in without:
        partitions = {name: replace(each, qos="") for name, each in partitions.items()}
        qos = {name: each for name, each in qos.items() if name != "h100part"}
    if planted:
        qos["long"] = replace(qos["long"], group={GPU: 16})
    return Site(_nodes(), partitions, qos, _accounts(), frozenset(without))
