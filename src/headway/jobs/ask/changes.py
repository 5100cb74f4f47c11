"""Parse the changes of a what-if, and apply them to the scene of a run.

Nodes keep their numbers: added ones come last, removed ones stay as machines without GPUs that take no jobs. What is
not named stays as it was, later arrivals included.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import msgspec

from headway.errors import ExperimentError, unknown_name
from headway.jobs.ask.limit_changes import with_limits
from headway.jobs.experiment.arrivals import LOADS
from headway.jobs.experiment.policy import divides, policy_of
from headway.jobs.experiment.scene import JobsScene, with_paths
from headway.jobs.experiment.site_changes import with_rules
from headway.jobs.experiment.speed import check_division
from headway.jobs.metrics.host import FIELDS
from headway.jobs.model.cluster import Cluster, Node, Tenant
from headway.jobs.model.job import Job
from headway.jobs.model.sensitivity import Matrix
from headway.jobs.rules.quotas import apportion
from headway.jobs.slurm.site.modify import Rules
from headway.jobs.tables.cluster import FASTEST, MOST_GPUS_A_NODE, MOST_NODES, within
from headway.jobs.tables.settings import Experiment, PolicyTable
from headway.jobs.traces import load_scale
from headway.plugins import anchored
from headway.runs.domain import with_table
from headway.runs.settings.changes import overridden, with_failures
from headway.units import REFERENCE_SPEED_PPM, counted

SETTABLE = (
    "policy.",
    "costs.",
    "failures.mtbf",
    "failures.repair",
    "cluster.gpu_speed.",
    "cluster.sharing_penalty",
    "cluster.limit.",
)
IN_FORCE_AFTER = 2
"""Nanoseconds after the time that was named. The one between is for emptying nodes, which no instant has first."""
_MOST_DIGITS = 18
_ADDED = re.compile(r"(?P<count>\d+)(?:x(?P<type>[\w.+-]+))?(?::(?P<gpus>\d+))?(?:@(?P<partition>.+))?")


@dataclass(frozen=True, slots=True)
class Changes:
    """What is asked for, in the words of the flags; what is left empty stays as it was."""

    add_nodes: Sequence[str] = ()
    """``10``, ``4xh100:8`` (type and GPUs of each), ``4@debug`` (in this partition)."""
    remove_nodes: str = ""
    """Names with commas between them, or how many."""
    policy: str = ""
    quota: Mapping[str, int | None] = field(default_factory=dict)
    """Guaranteed GPUs of tenants; None: no quota."""
    limit: Mapping[str, int | str | None] = field(default_factory=dict)
    """The most that a tenant may hold, in GPUs, or of a limit that the cluster declares; None: no limit."""
    rules: Rules = field(default_factory=dict)
    """Rules of a Slurm site, as ``cluster.rules`` writes them."""
    gpu_speed: Mapping[str, float] = field(default_factory=dict)
    upgrade: Mapping[str, str] = field(default_factory=dict)
    """GPU types that are replaced, and by what."""
    failures: Mapping[str, str] | None = None
    """mtbf and repair; empty: no more failures."""
    load: str = ""
    overrides: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A scene from a time on, and how to come to it."""

    scene: JobsScene
    """Its jobs are all jobs, those to come with other submit times where the load changes."""
    added: range
    removed: tuple[int, ...]
    upgraded: tuple[int, ...]
    same_policy: bool
    same_failures: bool
    same_arrivals: bool
    same_cluster: bool
    """Nodes, quotas, speeds, costs and when ends are noticed are what they were: one scene describes the whole run."""
    told: tuple[str, ...]
    """What changes, a line each."""
    notes: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """Return whether everything stays as it was."""
        return not self.told


def plan(scene: JobsScene, at: int, changes: Changes) -> Plan:
    """Return the scene with the changes applied from a time on."""
    told: list[str] = []
    notes: list[str] = []
    experiment = _experiment(scene.experiment, changes, told)
    cluster, removed = _without(scene.cluster, changes.remove_nodes, told)
    cluster, upgraded = _upgraded(cluster, changes.upgrade, removed, told)
    before = len(cluster.nodes)
    cluster = _with(scene, cluster, changes.add_nodes, told)
    cluster = _with_speeds(cluster, experiment.cluster.gpu_speed, changes, told, notes)
    cluster = _with_tenants(scene, cluster, changes, told, notes)
    cluster = with_limits(cluster, experiment.cluster.limit, changes.limit, told)
    cluster, site = with_rules(cluster, scene.site, changes.rules, told, notes, scene.jobs)
    jobs = _arrivals(scene.jobs, at, changes.load, told, notes)
    past = msgspec.structs.replace(scene.past, site=scene.past.site and not told)
    made = JobsScene(experiment, cluster, jobs, past=past, site=site)
    made.faults()  # here, like the policy and the costs: what is wrong is said before anything runs
    check_division(experiment, cluster, made.policy())
    same_costs = made.costs() == scene.costs()
    same_division = _same_sensitivity(scene, made, told) and made.completions() == scene.completions()
    penalty = within("sharing_penalty", experiment.cluster.sharing_penalty, 0, 1)
    same_penalty = penalty == scene.experiment.cluster.sharing_penalty
    untouched = cluster == scene.cluster and not removed and not upgraded  # a machine that is emptied is not
    return Plan(
        made,
        range(before, len(cluster.nodes)),
        removed,
        upgraded,
        same_policy=experiment.policy == scene.experiment.policy,
        same_failures=experiment.failures == scene.experiment.failures,
        same_arrivals=jobs is scene.jobs,
        same_cluster=untouched and same_costs and same_penalty and same_division,
        told=tuple(told),
        notes=tuple(notes),
    )


# --- the experiment -----------------------------------------------------------------------------------------------


def _experiment(was: Experiment, changes: Changes, described: list[str]) -> Experiment:
    """Return the tables with another policy, other failures, and what was set key by key."""
    now = was
    if changes.policy:
        now = msgspec.structs.replace(now, policy=PolicyTable(name=anchored(changes.policy)))
        if divides(was) and not divides(now):  # what jobs make of CPUs and memory does not go away with the policy
            now = with_table(now, "speed", model=now.speed.model or Matrix.name)
        if (name := policy_of(now).name) == (before := policy_of(was).name):
            now = was
        else:
            described.append(f"policy {name} instead of {before}")
    now = with_failures(now, changes.failures, described, "nodes")
    if not changes.overrides:
        return now
    made = overridden(now, changes.overrides, SETTABLE, described, "in the middle of a run")
    return msgspec.structs.replace(made, policy=with_paths(made.policy, anchored))


def _same_sensitivity(before: JobsScene, after: JobsScene, described: list[str]) -> bool:
    """Return whether jobs make the same of CPUs, memory and storage in both; told where they do not."""
    was, now = before.speed().sensitivity, after.speed().sensitivity
    if was is None and now is not None:
        described.append(f"jobs run as fast as the CPUs and the memory that they are given let them ({now.name})")
    alike = type(was) is type(now) and (was is None or now is None or was.profiles == now.profiles)
    return alike and before.speed().profiles == after.speed().profiles


def _arrivals(jobs: tuple[Job, ...], at: int, load: str, described: list[str], notes: list[str]) -> tuple[Job, ...]:
    """Return the jobs, with arrivals after ``at`` scaled by ``load``."""
    if not load:
        return jobs
    here = sum(job.submit <= at for job in jobs)
    later = load_scale([replace(job, submit=job.submit - at) for job in jobs[here:]], load)
    if within("load", Fraction(load), *LOADS) == 1:
        return jobs
    if not later:
        notes.append(f"--load {load} changes nothing: no job arrives after that time")
        return jobs
    described.append(f"{counted(len(later), 'job')} arrive{'s' if len(later) == 1 else ''} {load} times as fast")
    times = (at + max(IN_FORCE_AFTER, job.submit) for job in later)  # rounded down, but not to where the run has been
    return (*jobs[:here], *(replace(job, submit=time) for job, time in zip(later, times, strict=True)))


# --- nodes --------------------------------------------------------------------------------------------------------


def _without(cluster: Cluster, text: str, described: list[str]) -> tuple[Cluster, tuple[int, ...]]:
    """Return the cluster with some nodes emptied, and which."""
    if not text:
        return cluster, ()
    names = {node.name: index for index, node in enumerate(cluster.nodes)}
    wanted = [piece.strip() for piece in text.split(",")]
    if len(wanted) == 1 and wanted[0].isdecimal() and wanted[0] not in names:
        count = within("--remove-nodes", _whole("--remove-nodes", wanted[0]), 1, MOST_NODES)
        removed = tuple(range(max(0, len(names) - count), len(names)))
    else:
        for name in wanted:
            if name not in names:
                raise ExperimentError(f"--remove-nodes: {_unknown('node', name, names)}")
        removed = tuple(sorted({names[name] for name in wanted}))
    if len(removed) == len(names):
        has = f"all {len(names):,} nodes" if len(names) > 1 else "the only node"
        raise ExperimentError(f"--remove-nodes {text}: would take {has} of the cluster; at least one has to stay")
    nodes = list(cluster.nodes)
    nothing: dict[str, Any] = {
        field: 0 for field, _ in FIELDS if any(getattr(node, field) is not None for node in nodes)
    }
    for index in removed:
        nodes[index] = replace(nodes[index], gpus=0, **nothing)
    gone = sum(cluster.nodes[index].gpus for index in removed)
    described.append(f"{len(removed)} of {len(names)} nodes removed ({_gpus(gone)}): {_listed(cluster, removed)}")
    tenants = _within_capacity(cluster.tenants, sum(node.gpus for node in nodes), described)
    return replace(cluster, nodes=tuple(nodes), tenants=tenants), removed


def _within_capacity(tenants: tuple[Tenant, ...], gpus: int, described: list[str]) -> tuple[Tenant, ...]:
    """Return tenants with guarantees that fit into these GPUs: lowered in proportion where they do not."""
    promised = {tenant.name: tenant.guaranteed_gpus or 0 for tenant in tenants if tenant.guaranteed_gpus}
    if sum(promised.values()) <= gpus:
        return tenants
    kept = apportion(gpus, promised)
    described.append(f"guaranteed GPUs lowered in proportion, from {sum(promised.values())} to {gpus} in all")
    return tuple(replace(t, guaranteed_gpus=kept.get(t.name, t.guaranteed_gpus)) for t in tenants)


def _upgraded(
    cluster: Cluster, upgrade: Mapping[str, str], removed: Iterable[int], described: list[str]
) -> tuple[Cluster, tuple[int, ...]]:
    """Return the cluster with GPUs of one type replaced by another, and on which nodes."""
    types = {node.gpu_type for node in cluster.nodes}
    changed = []
    nodes = list(cluster.nodes)
    for old, new in upgrade.items():
        if old not in types:
            raise ExperimentError(f"--upgrade {old}={new}: {_unknown('GPU type', old, types)}")
        if old == new:  # nobody touches a machine for that
            continue
        upgraded = [i for i, node in enumerate(cluster.nodes) if node.gpu_type == old and i not in set(removed)]
        for index in upgraded:
            nodes[index] = replace(nodes[index], gpu_type=new)
        changed.extend(upgraded)
        described.append(
            f"{counted(len(upgraded), 'node')} of type {old} get{'s' if len(upgraded) == 1 else ''} {new} GPUs"
        )
    return replace(cluster, nodes=tuple(nodes)), tuple(sorted(changed))


def _with(scene: JobsScene, cluster: Cluster, texts: Sequence[str], described: list[str]) -> Cluster:
    """Return the cluster with nodes added at its end, each in the partitions of the node that it copies."""
    for text in texts:
        match = _ADDED.fullmatch(text.strip())
        if match is None:
            raise ExperimentError(f"--add-nodes {text!r} is not understood: write it like 10, 4xh100:8 or 4@partition")
        first = len(cluster.nodes)
        count = within("--add-nodes", _whole("--add-nodes", match["count"]), 1, MOST_NODES - first)
        pattern, homes = _pattern(cluster, match["type"], match["partition"])
        wanted = pattern.gpus if match["gpus"] is None else _whole("--add-nodes: GPUs", match["gpus"])
        gpus = within("--add-nodes: GPUs", wanted, 0, MOST_GPUS_A_NODE)
        taken = {node.name for node in cluster.nodes}
        names = (name for number in range(1, MOST_NODES * 2) if (name := f"added-{number}") not in taken)
        new = [
            replace(
                pattern,
                name=next(names),
                gpus=gpus,
                gpu_type=match["type"] or pattern.gpu_type,
                path=_path(scene, pattern, index),
            )
            for index in range(first, first + count)
        ]
        partitions = tuple(
            replace(p, nodes=(*p.nodes, *range(first, first + count))) if p.name in homes else p
            for p in cluster.partitions
        )
        cluster = replace(cluster, nodes=(*cluster.nodes, *new), partitions=partitions)
        where = f" in {', '.join(homes)}" if homes else ""
        each = " each" if count > 1 else ""
        described.append(f"{counted(count, 'node')} added with {_gpus(gpus)} of type {new[0].gpu_type}{each}{where}")
    return cluster


def _pattern(cluster: Cluster, gpu_type: str | None, partition: str | None) -> tuple[Node, list[str]]:
    """Return the last node of the most common kind (of a type, in a partition, where given), and its partitions."""
    known = {each.name: each.nodes for each in cluster.partitions}
    if partition and partition not in known:
        line = _unknown("partition", partition, known) if known else f"no partition {partition!r}: the cluster has none"
        raise ExperimentError(f"--add-nodes: {line}")
    everywhere = range(len(cluster.nodes))
    inside = [index for index in (known[partition] if partition else everywhere) if cluster.nodes[index].gpus]
    places = [index for index in inside if cluster.nodes[index].gpu_type == gpu_type] or inside or [*everywhere]

    def kind(index: int) -> tuple[object, ...]:
        node = cluster.nodes[index]
        return node.gpus, node.gpu_type, *(getattr(node, field) for field, _ in FIELDS)

    common, _ = Counter(map(kind, places)).most_common(1)[0]
    chosen = max(index for index in places if kind(index) == common)
    return cluster.nodes[chosen], [partition] if partition else [n for n, nodes in known.items() if chosen in nodes]


def _whole(what: str, digits: str) -> int:
    """Return a whole number; an error where it has too many digits."""
    if len(digits) > _MOST_DIGITS:
        raise ExperimentError(f"{what} {digits[:_MOST_DIGITS]}… is too large")
    return int(digits)


def _path(scene: JobsScene, pattern: Node, index: int) -> tuple[str, ...]:
    """Return where a new node stands: racks are filled up as the experiment counts them."""
    levels = scene.experiment.cluster.levels[: len(pattern.path)]
    if len(levels) < len(pattern.path):
        return pattern.path
    return tuple(f"{level.name}{index // level.nodes_per_domain}" for level in levels)


def _listed(cluster: Cluster, nodes: Sequence[int], most: int = 6) -> str:
    names = [cluster.nodes[index].name for index in nodes[:most]]
    return ", ".join(names) + (f" and {len(nodes) - most} more" if len(nodes) > most else "")


# --- speeds and quotas --------------------------------------------------------------------------------------------


def _with_speeds(
    cluster: Cluster, table: Mapping[str, float], changes: Changes, described: list[str], notes: list[str]
) -> Cluster:
    types = {node.gpu_type for node in cluster.nodes}
    known = dict(cluster.gpu_speed_ppm)
    for name, speed in {**table, **changes.gpu_speed}.items():
        ppm = round(within(f"--gpu-speed {name}", speed, 0.001, FASTEST) * REFERENCE_SPEED_PPM)
        if known.get(name) == ppm:
            continue
        if name not in types:
            raise ExperimentError(f"--gpu-speed {name}: {_unknown('GPU type', name, types)}")
        known[name] = ppm
        if name in changes.gpu_speed:  # what was set in the table has been told
            described.append(f"a GPU of type {name} is {speed:g} times as fast as the reference")
    for new in sorted({new for old, new in changes.upgrade.items() if new != old} - set(known)):
        notes.append(f"GPUs of type {new} run at reference speed; --gpu-speed {new}=2 says otherwise")
    return replace(cluster, gpu_speed_ppm=known)


def _with_tenants(
    scene: JobsScene, cluster: Cluster, changes: Changes, described: list[str], notes: list[str]
) -> Cluster:
    tenants = {tenant.name: tenant for tenant in cluster.tenants}
    known = {*tenants, *(job.tenant for job in scene.jobs)}
    for flag, key, given in (
        ("--quota", "guaranteed_gpus", changes.quota),
        ("--limit", "limit_gpus", changes.limit),
    ):
        for name, gpus in given.items():
            if key == "limit_gpus" and name not in known and cluster.limits:
                continue
            if name not in known:
                raise ExperimentError(f"{flag} {name}: {_unknown('tenant', name, known)}")
            if isinstance(gpus, str):
                raise ExperimentError(f"{flag} {name}={gpus}: {gpus!r} is not a whole number")
            if gpus is not None:
                within(f"{flag} {name}", gpus, 0, MOST_NODES * MOST_GPUS_A_NODE)
            before = tenants.get(name, Tenant(name))
            was = getattr(before, key)
            if gpus == was:
                continue
            tenants[name] = replace(before, **{key: gpus})  # type: ignore[arg-type]
            what = "quota" if key == "guaranteed_gpus" else "limit"
            described.append(f"{what} of {name}: {_gpus(gpus)} instead of {_gpus(was)}")
    promised = any(tenant.guaranteed_gpus is not None and not tenant.borrow for tenant in tenants.values())
    if changes.add_nodes and promised and not changes.quota:
        notes.append("quotas stay as they are: tenants that may not borrow hold no more GPUs than before (--quota)")
    return replace(cluster, tenants=tuple(tenants.values()))


def _gpus(gpus: int | None) -> str:
    return "none" if gpus is None else counted(gpus, "GPU")


def _unknown(what: str, name: str, valid: Iterable[str], most: int = 12) -> str:
    """Return the message for a name that does not exist; of hundreds of valid ones only some are listed."""
    line, listed = unknown_name(what, name, valid), sorted(valid)
    if len(listed) <= most:
        return line
    return f"{line.partition(' (valid: ')[0]} (valid: {', '.join(listed[:most])} and {len(listed) - most} more)"
