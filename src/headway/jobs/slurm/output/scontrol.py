"""Parse nodes, partitions and reservations as ``scontrol show node|partition|reservation`` print them, with -o or not.

A record is ``Key=value`` pairs; a value may hold blanks (``OS=Linux 6.1 #1 SMP``), so it lasts until the next key.
"""

import re
from collections.abc import Iterator, Sequence

from headway.errors import ExperimentError, InputError
from headway.jobs.slurm.output import cells as slurm, lists as slurm_lists
from headway.jobs.slurm.output.records import PartitionRules, Reservation, SiteRules, Unread
from headway.jobs.slurm.output.reservations import overlaps, reservation
from headway.jobs.traces.clusters.records import Described, NodeRecord, PartitionRecord
from headway.units import SECOND

_NONE_KEPT = "No reservations in the system"
_OPENS = ("NodeName=", "PartitionName=", "ReservationName=", _NONE_KEPT)
_ALLOWED = ("AllowAccounts", "DenyAccounts", "AllowQos", "DenyQos", "AllowGroups")
_UNFOLLOWED = {
    "maxcpuspernode": ("MaxCPUsPerNode", "what its jobs hold of a node together is not limited"),
    "maxcpuspersocket": ("MaxCPUsPerSocket", "sockets are not told apart"),
    "maxmempernode": ("MaxMemPerNode", "the memory that a job has of a node is not limited"),
    "maxmempercpu": ("MaxMemPerCPU", "the memory that a job has for a CPU is not limited"),
    "exclusiveuser": ("ExclusiveUser", "jobs of several users share nodes"),
    "exclusivetopo": ("ExclusiveTopo", "jobs share blocks of nodes"),
    "oversubscribe": ("OverSubscribe", "jobs hold what they asked for, and no more"),
    "shared": ("Shared", "jobs hold what they asked for, and no more"),
    "lln": ("LLN", "nodes are not chosen by their load"),
    "reqresv": ("ReqResv", "jobs without a reservation run too"),
    "tresbillingweights": ("TRESBillingWeights", "fair share counts GPU time"),
}
"""Keys of a partition that change who starts where, and what happens instead."""
_USUAL = ("UNLIMITED", "NO", "0", "NONE", "FORCE:1", "NO:1")
_KEY = re.compile(r"(?:^|\s)([A-Z][A-Za-z0-9_:/]*)=")
_MEBIBYTE = 2**20
_AWAY = (
    "DOWN",
    "DRAIN",
    "DRNG",
    "FAIL",
    "MAINT",
    "POWERED_DOWN",
    "NOT_RESPONDING",
    "UNKNOWN",
    "FUTURE",
    "PLANNED_DOWN",
)
_NAMED = 5
"""So many nodes are named in a note."""


def describes(text: str) -> bool:
    """Return whether a text opens with a node, a partition or a reservation."""
    return text.lstrip().startswith(_OPENS)


def cluster(text: str, where: str) -> Described:
    """Return the nodes, partitions and reservations of a text; all may stand in one."""
    nodes: dict[str, NodeRecord] = {}
    partitions: dict[str, PartitionRecord] = {}
    notes: list[str] = []
    away: list[str] = []
    rules: list[PartitionRules] = []
    kept: list[Reservation] = []
    for line, record in records(text):
        place = f"{where}: line {line}"
        if "NodeName" in record:
            for name in names(record["NodeName"], place):
                nodes[name] = node(record, name, place, notes)
                if gone(record.get("State", "")):
                    away.append(name)
        elif "ReservationName" in record:
            kept.append(reservation(record, place))
        elif "PartitionName" in record:
            partitions[record["PartitionName"]] = _partition(record, place)
            rules.append(partition_rules({key.lower(): value for key, value in record.items()}, place))
        elif record or not text.lstrip().startswith(_NONE_KEPT):
            raise ExperimentError(f"{place}: opens neither with NodeName= nor with PartitionName=")
    notes.extend(overlaps(kept, where))
    # Slurm fills nodes of lower weight first; here their order says which come first.
    ordered = sorted(nodes.values(), key=lambda each: each.weight)
    none_kept = frozenset({"reservations"} if text.lstrip().startswith(_NONE_KEPT) else ())
    site = SiteRules(partitions=tuple(rules), reservations=tuple(kept), empty=none_kept)
    return Described(tuple(ordered), tuple(partitions.values()), (*notes, *away_note(away, where)), site)


def records(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the records of a text, each with its first line; one goes on in the lines below it that are indented."""
    first, gathered = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line[:1].strip() and gathered:
            yield first, pairs(gathered)
            gathered = ""
        if line.strip():
            first, gathered = (first, f"{gathered} {line}") if gathered else (number, line)
    if gathered:
        yield first, pairs(gathered)


def pairs(text: str) -> dict[str, str]:
    """Return the ``Key=value`` pairs of a text; of a key that occurs again the first value counts."""
    values: dict[str, str] = {}
    keys = list(_KEY.finditer(text))
    for match, after in zip(keys, [*(key.start() for key in keys[1:]), len(text)], strict=False):
        values.setdefault(match[1], text[match.end() : after].strip())
    return values


def names(text: str, place: str) -> tuple[str, ...]:
    """Return the hosts of a list; an error says where it stands."""
    try:
        return slurm_lists.hosts(text)
    except InputError as problem:
        raise ExperimentError(f"{place}: {problem}") from None


def node(record: dict[str, str], name: str, place: str, notes: list[str]) -> NodeRecord:
    """Return a node from the keys of ``scontrol show node``."""
    configured = slurm.tres(record.get("CfgTRES", ""))
    if configured is None:
        shown = record["CfgTRES"]
        raise ExperimentError(
            f"{place}: CfgTRES {shown!r} is not understood: it should be like cpu=64,mem=500G,gres/gpu=8"
        )
    gpus, kind = devices(record.get("Gres", ""), name, place, notes)
    if not gpus and configured.gpus:
        gpus, kind = configured.gpus, (configured.gpu_types or ("gpu",))[0]
    return NodeRecord(
        name=name,
        gpus=gpus,
        gpu_type=kind,
        cpus=whole(record.get("CPUTot") or record.get("CPUs"), "CPUTot", place),
        memory_bytes=mebibytes(record.get("RealMemory"), "RealMemory", place),
        partitions=tuple(part for part in record.get("Partitions", "").split(",") if not slurm.absent(part)),
        weight=whole(record.get("Weight"), "Weight", place) or 0,
    )


def devices(text: str, name: str, place: str, notes: list[str]) -> tuple[int, str]:
    """Return a node's GPUs and their type; of several types the most frequent."""
    resources = slurm.gres(text)
    if resources is None:
        raise ExperimentError(f"{place}: Gres {text!r} is not understood: it should be like gpu:a100:4")
    if len(resources.gpu_types) > 1:
        counts = {kind: _count(text, kind) for kind in resources.gpu_types}
        most = max(counts, key=counts.__getitem__)
        notes.append(f"node {name} has GPUs of several types ({', '.join(counts)}): all taken as {most}")
        return resources.gpus or 0, most
    return resources.gpus or 0, (*resources.gpu_types, "gpu")[0]


def _count(text: str, kind: str) -> int:
    parts = [part for part in map(slurm.gres, re.sub(r"\([^)]*\)", "", text).split(",")) if part]
    return sum(part.gpus or 0 for part in parts if part.gpu_types == (kind,))


def whole(text: str | None, key: str, place: str) -> int | None:
    """Parse a whole number above 0; ``16+`` stands for several, of which the least counts."""
    if text is None or slurm.absent(text):
        return None
    plain = text.strip().rstrip("+")
    if not plain.isdecimal() or len(plain) > 15:
        raise ExperimentError(f"{place}: {key} {text!r} is not a whole number")
    return int(plain) or None


def mebibytes(text: str | None, key: str, place: str) -> int | None:
    """Parse memory that is counted in MiB into bytes."""
    size = whole(text, key, place)
    return None if size is None else size * _MEBIBYTE


def gone(state: str) -> bool:
    """Return whether a node in this state takes no job: ``IDLE+DRAIN``, ``down*``, ``drng``."""
    return state.upper().rstrip("*~#!%$@^-+").startswith(_AWAY) or any(f"+{word}" in state.upper() for word in _AWAY)


def away_note(away: Sequence[str], where: str) -> tuple[str, ...]:
    """Return what to say about nodes that were down or drained: they belong to the cluster, and are kept."""
    if not away:
        return ()
    named = ", ".join(away[:_NAMED]) + (f" and {len(away) - _NAMED:,} more" if len(away) > _NAMED else "")
    were = "node was" if len(away) == 1 else "nodes were"
    return (f"{where}: {len(away):,} {were} down or drained when it was written ({named}): kept",)


def _partition(record: dict[str, str], place: str) -> PartitionRecord:
    factor = whole(record.get("PriorityJobFactor") or record.get("Priority"), "PriorityJobFactor", place) or 0
    listed = record.get("Nodes", "")
    nodes = None if listed.upper() == "ALL" else names(listed, place)
    return PartitionRecord(record["PartitionName"], nodes, factor)


def partition_rules(record: dict[str, str], place: str) -> PartitionRules:
    """Return what a partition allows, from its keys in lower case."""
    name = record["partitionname"]
    limit = slurm.span(record.get("maxtime", ""))
    if limit is None:
        raise ExperimentError(f"{place}: partition {name}: MaxTime {record['maxtime']!r} is not a time like 1-00:00:00")
    most = record.get("maxnodes", "")
    grace = slurm.absent(record.get("gracetime")) or record["gracetime"]
    return PartitionRules(
        name,
        whole(record.get("prioritytier") or record.get("priority"), "PriorityTier", place) or 1,
        "" if slurm.absent(record.get("qos")) else record["qos"],
        limit,
        0 if most.upper() == "UNLIMITED" else whole(most, "MaxNodes", place) or 0,
        record.get("preemptmode", "").upper(),
        0 if grace is True else (whole(grace, "GraceTime", place) or 0) * SECOND,
        tuple(
            (key, tuple(part.strip() for part in record[key.lower()].split(",")))
            for key in _ALLOWED
            if not slurm.absent(record.get(key.lower())) and record[key.lower()].upper() != "ALL"
        ),
        whole(record.get("minnodes"), "MinNodes", place) or 0,
        tuple(_unread(name, record)),
    )


def _unread(name: str, record: dict[str, str]) -> Iterator[Unread]:
    """Yield what a partition says about its jobs and is not followed."""
    for key, (spelt, why) in _UNFOLLOWED.items():
        value = record.get(key, "")
        if not slurm.absent(value) and value.upper() not in _USUAL:
            yield Unread(f"{spelt}={value} of partition {name}", (("partition", name),), why)
