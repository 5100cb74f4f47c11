"""Convert cluster descriptions of other systems (their nodes and partitions) to the ``[cluster]`` table.

Several files may describe one cluster together (nodes in one, partitions in another). A parser of such a file is a
module with ``describes(text)`` and ``cluster(text, where)``; it is listed in ``SOURCES``.
"""

import gzip
import zlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol

from msgspec import structs

from headway.errors import ExperimentError
from headway.formats import toml
from headway.jobs import kubernetes
from headway.jobs.rules.limits.limit import LimitRule
from headway.jobs.rules.limits.table import (
    LimitChangeTable,
    LimitTable,
    table_from_rule,
    written as amount_written,
)
from headway.jobs.rules.preemption.table import table_from_preemption, table_from_qos, written
from headway.jobs.slurm.output import (
    cluster_json as slurm_cluster_json,
    conf as slurm_conf,
    sacctmgr as slurm_sacctmgr,
    scontrol as slurm_scontrol,
    sinfo as slurm_sinfo,
)
from headway.jobs.slurm.output.records import Share, SiteRules, Unread
from headway.jobs.slurm.output.reservations import dated, overlaps
from headway.jobs.slurm.site.followed import Followed, brought, followed
from headway.jobs.slurm.site.modify import Rules, modified
from headway.jobs.slurm.site.outages import site_times
from headway.jobs.slurm.site.preemption import Level
from headway.jobs.slurm.site.usage import used_before
from headway.jobs.tables.cluster import (
    ClusterTable,
    NodeGroup,
    PartitionTable,
    node_names,
    tables_of_tenants,
)
from headway.jobs.traces.clusters import openb
from headway.jobs.traces.clusters.records import Described, NodeRecord, PartitionRecord
from headway.units import exact_duration


class Source(Protocol):
    """What the module of a parser offers."""

    def describes(self, text: str) -> bool:
        """Return whether this is a text that the parser is for."""

    def cluster(self, text: str, where: str) -> Described:
        """Return what the text says; ``where`` names it in errors."""


SOURCES: tuple[Source, ...] = (
    kubernetes,
    openb,
    slurm_conf,
    slurm_sacctmgr,
    slurm_scontrol,
    slurm_sinfo,
    slurm_cluster_json,
)


class Read(NamedTuple):
    """What files say about a cluster."""

    table: ClusterTable
    notes: tuple[str, ...] = ()
    """What to know about them."""
    unread: tuple[Unread, ...] = ()
    """Rules of a site that are not followed."""
    site: SiteRules = SiteRules()
    """The rules of a Slurm site, with the changes that were asked for."""
    changed: tuple[str, ...] = ()
    """What those change, a line each."""
    set_limits: frozenset[LimitRule] = frozenset()
    """Limits that are as somebody set them for this run."""
    rules: Rules = MappingProxyType({})
    """The changes as they were asked for."""
    brought: tuple[str, ...] = ()
    """Those of the notes that the changes bring with them."""


def read(paths: Sequence[str], rules: Rules | None = None) -> Read:
    """Return the cluster that files describe together, with changes of a Slurm site's rules."""
    tables = [_table(Path(path)) for path in paths if path.endswith(".toml")]
    described = [_described(path) for path in paths if not path.endswith(".toml")]
    if len(tables) > 1:
        raise ExperimentError("cluster files: only one of them may be a TOML file")
    base = tables[0] if tables else ClusterTable()
    site, disputes = SiteRules(), list[str]()
    for path, each in zip((path for path in paths if not path.endswith(".toml")), described, strict=True):
        disputes += [f"cluster {path}: {told}" for told in site.disputes(each.rules)]
        if site.reservations:
            disputes += overlaps(each.rules.reservations, f"cluster {path}", site.reservations)
        site = site.merged(each.rules)
    base = structs.replace(
        base, limits=[*base.limits, *(table_from_rule(x) for each in described for x in each.limits)]
    )
    keys = dict.fromkeys((*base.rules, *(rules or {})))
    asked = {key: {**base.rules.get(key, {}), **(rules or {}).get(key, {})} for key in keys}
    after = modified(site, asked)
    if not described:
        return Read(base)
    now = followed(after.site)
    before = followed(site) if after.told else now
    whole = merged(described, structs.replace(base, rules={}))
    table = ruled(whole, now)
    notes: tuple[str, ...] = tuple(
        dict.fromkeys((*(note for each in described for note in each.notes), *disputes, *now.notes))
    )
    if after.told and table == ruled(whole, before):
        notes = (*notes, f"{after.told[0]}: that is not followed, and changes nothing here")
    set_limits = frozenset(now.limits) - frozenset(before.limits)
    table, usage = _with_usage(table, site.shares)
    times = site_times(site.aways, site.reservations, node_names(table))
    table = structs.replace(
        table,
        outages=[*table.outages, *times.outages],
        reservations=[*table.reservations, *times.reservations],
    )
    new = tuple(brought(before, now, after.site, asked)) if after.told else ()
    unread = (*(rule for each in described for rule in each.unread), *now.unread, *times.unread)
    return Read(table, (*notes, *times.notes, *usage), unread, after.site, after.told, set_limits, asked, new)


def ruled(table: ClusterTable, rules: Followed) -> ClusterTable:
    """Return a table with the rules of a site; what it says itself comes first."""
    levels = {each.name: each for each in rules.levels}
    return structs.replace(
        table,
        limits=[*table.limits, *map(_dated_limit, rules.limits)],
        tenants=table.tenants or tables_of_tenants(rules.tenants),
        qos=table.qos or list(map(table_from_qos, rules.qos)),
        partitions=[_leveled(each, levels) for each in table.partitions],
        preemption=table.preemption if table.preemption.by else table_from_preemption(rules.preemption),
    )


def _leveled(table: PartitionTable, levels: dict[str, Level]) -> PartitionTable:
    """Return a partition with the tier that the site gives it."""
    level = levels.get(table.name)
    if level is None or table.tier != PartitionTable(name="", nodes="").tier:
        return table
    return structs.replace(table, tier=level.tier, preempt_mode=str(level.mode or ""), grace=written(level.grace))


def _with_usage(table: ClusterTable, shares: Sequence[Share]) -> tuple[ClusterTable, list[str]]:
    """Return the table with what accounts had used before, unless it says that itself; and a note on it."""
    cpus, gpus = (sum(group.nodes * amount for group, amount in amounts) for amounts in _amounts(table))
    used, note = used_before(shares, cpus / max(1, gpus))
    if not note or any(tenant.used for tenant in table.tenants):
        return table, []
    tenants = [
        structs.replace(tenant, used={user: exact_duration(time) for user, time in used.get(tenant.name, {}).items()})
        for tenant in table.tenants
    ]
    return structs.replace(table, tenants=tenants), [note]


def _amounts(table: ClusterTable) -> tuple[list[tuple[NodeGroup, int]], list[tuple[NodeGroup, int]]]:
    with_gpus = [group for group in table.node_groups if group.gpus]
    return [(group, group.cpus or 0) for group in with_gpus], [(group, group.gpus) for group in with_gpus]


def _dated_limit(rule: LimitRule) -> LimitTable:
    """Return the table of a site's limit, whose changes have dates."""
    changes = [LimitChangeTable(at=dated(at), most=amount_written(rule.resource, most)) for at, most in rule.changes]
    return structs.replace(table_from_rule(replace(rule, changes=())), changes=changes)


def merged(described: Sequence[Described], base: ClusterTable) -> ClusterTable:
    """Merge descriptions into one table: runs of equal nodes become groups, with their names."""
    nodes: dict[str, NodeRecord] = {}
    for record in (record for each in described for record in each.nodes):
        before = nodes.get(record.name)
        belongs = record.partitions if before is None else (*before.partitions, *record.partitions)
        nodes[record.name] = replace(before or record, partitions=tuple(dict.fromkeys(belongs)))
    if not nodes and (base.nodes or base.node_groups):
        return base  # the files tell rules alone
    if not nodes:
        named = "partitions but " if any(each.partitions for each in described) else ""
        hints = "".join(f"; {note}" for each in described for note in each.notes)
        raise ExperimentError(f"cluster files: they name {named}no node; add a file with the nodes{hints}")
    groups = []
    weighed = len({node.weight for node in nodes.values()}) > 1
    for kind, same in groupby(nodes.values(), key=lambda node: replace(node, name="", partitions=())):
        names = [node.name for node in same]
        memory = "" if kind.memory_bytes is None else f"{kind.memory_bytes}B"
        groups.append(
            NodeGroup(
                nodes=len(names),
                gpus=kind.gpus,
                gpu_type=kind.gpu_type,
                cpus=kind.cpus,
                memory=memory,
                weight=kind.weight if weighed else None,
                names=names,
            )
        )
    return structs.replace(base, node_groups=groups, partitions=_partitions(described, nodes))


def _partitions(described: Sequence[Described], nodes: dict[str, NodeRecord]) -> list[PartitionTable]:
    known: dict[str, PartitionRecord] = {}
    for record in (record for each in described for record in each.partitions):
        before = known.get(record.name, record)
        members = (*(before.nodes or ()), *(record.nodes or ()))
        known[record.name] = PartitionRecord(record.name, members, record.priority or before.priority)
    named = dict.fromkeys((*known, *(name for node in nodes.values() for name in node.partitions)))
    position = {name: index for index, name in enumerate(nodes)}
    tables = []
    for name in named:
        record = known.get(name, PartitionRecord(name))
        listed = {position[node] for node in record.nodes or () if node in position}
        listed |= {position[node.name] for node in nodes.values() if name in node.partitions}
        if listed:
            tables.append(PartitionTable(name=name, nodes=sorted(listed), priority=record.priority))
    return tables


def _table(path: Path) -> ClusterTable:
    document = toml.read(path)
    return toml.typed(document.get("cluster", document), ClusterTable, str(path))


def _described(path: str) -> Described:
    text = _text(path)
    for source in SOURCES:
        if source.describes(text):
            whole = slurm_conf.included(text, Path(path), "cluster") if source is slurm_conf else text
            return source.cluster(whole, f"cluster {path}")
    if text.lstrip("-\n ").startswith("apiVersion:"):
        raise ExperimentError(f"cluster {path}: is YAML: print it once more with kubectl get … -o json")
    raise ExperimentError(
        f"cluster {path}: is none of the files that describe a cluster (scontrol show node -o, sinfo -N, "
        "scontrol show partition, slurm.conf, sacctmgr show qos -P, kubectl get nodes -o json, "
        "kubectl get resourcequota -A -o json, an openb node list, TOML)"
    )


def _text(path: str) -> str:
    try:
        data = Path(path).read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        text = data.decode("utf-8-sig")
    except FileNotFoundError:
        raise ExperimentError(f"cluster {path}: there is no such file") from None
    except UnicodeDecodeError:
        raise ExperimentError(f"cluster {path}: is not UTF-8 text") from None
    except EOFError:
        raise ExperimentError(f"cluster {path}: the gzip data is truncated") from None
    except (OSError, ValueError, zlib.error) as problem:
        raise ExperimentError(
            f"cluster {path}: cannot be read ({getattr(problem, 'strerror', 0) or problem})"
        ) from None
    if not text.strip():
        raise ExperimentError(f"cluster {path}: the file is empty")
    return text
