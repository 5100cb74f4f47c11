"""Parse nodes and partitions from Slurm's JSON: ``sinfo --json``, ``scontrol show nodes|partitions --json``.

Up to 22.05 ``sinfo --json`` lists ``nodes``, as ``scontrol`` does since; newer ones list groups of nodes that are
alike, under ``sinfo``, once for each partition.
"""

from typing import Any

import msgspec

from headway.errors import ExperimentError
from headway.jobs.slurm.output import cells as slurm
from headway.jobs.slurm.output.jobs_json import number, within, words
from headway.jobs.slurm.output.scontrol import away_note, devices, gone, names
from headway.jobs.traces.clusters.records import Described, NodeRecord, PartitionRecord

_MEBIBYTE = 2**20


class _File(msgspec.Struct):
    nodes: list[Any] | None = None
    sinfo: list[Any] | None = None
    partitions: list[Any] | None = None
    apiVersion: Any = None  # noqa: N815  # Kubernetes' spelling, which tells its files apart


def describes(text: str) -> bool:
    """Return whether it is JSON with one of these lists."""
    return text.lstrip()[:1] == "{" and _parsed(text) is not None


def _parsed(text: str) -> _File | None:
    try:
        file = msgspec.json.decode(text, type=_File)
    except (msgspec.DecodeError, RecursionError):
        return None
    return file if file.apiVersion is None and (file.nodes or file.sinfo or file.partitions) else None


def cluster(text: str, where: str) -> Described:
    """Return the nodes and partitions of a file."""
    file = _parsed(text)
    assert file is not None
    notes: list[str] = []
    nodes: dict[str, NodeRecord] = {}
    away: dict[str, None] = {}
    partitions: list[PartitionRecord] = []
    for place, each in _numbered(file.nodes, "node", where):
        state = "+".join([*words(each.get("state")), *words(each.get("state_flags"))])
        record = _node(each, place, notes)
        nodes[record.name] = record
        away.update({record.name: None} if gone(state) else {})
    for place, each in _numbered(file.sinfo, "group", where):
        hosts = _hosts(each, place)
        away.update(dict.fromkeys(hosts if gone("+".join(words(within(each, "node", "state")))) else ()))
        for record in _alike(each, hosts, place, notes):
            nodes.setdefault(record.name, record)
        partitions.append(_partition(within(each, "partition"), place, hosts))
    for place, each in _numbered(file.partitions, "partition", where):
        listed = names(str(within(each, "nodes", "configured") or ""), place)
        partitions.append(_partition(each, place, listed))
    named = tuple(record for record in partitions if not slurm.absent(record.name))
    return Described(tuple(nodes.values()), named, (*dict.fromkeys(notes), *away_note(tuple(away), where)))


def _numbered(listed: list[Any] | None, what: str, where: str) -> list[tuple[str, dict[str, Any]]]:
    numbered = []
    for position, each in enumerate(listed or [], start=1):
        if not isinstance(each, dict):
            raise ExperimentError(f"{where}: {what} {position} is no object")
        numbered.append((f"{where}: {what} {position}", each))
    return numbered


def _node(record: dict[str, Any], place: str, notes: list[str]) -> NodeRecord:
    name = record.get("name")
    if not isinstance(name, str) or not name:
        raise ExperimentError(f"{place}: has no name")
    gpus, kind = devices(str(record.get("gres") or ""), name, place, notes)
    belongs = tuple(words(record.get("partitions")))
    return NodeRecord(name, gpus, kind, *_sizes(record.get("cpus"), record.get("real_memory"), place), belongs)


def _hosts(group: dict[str, Any], place: str) -> tuple[str, ...]:
    listed = words(within(group, "nodes", "nodes")) or words(within(group, "nodes", "hostnames"))
    return tuple(name for text in listed for name in names(text, place))


def _alike(group: dict[str, Any], hosts: tuple[str, ...], place: str, notes: list[str]) -> list[NodeRecord]:
    gres = str(within(group, "gres", "total") or "")
    cpus, memory = _sizes(within(group, "cpus", "minimum"), within(group, "memory", "minimum"), place)
    return [NodeRecord(host, *devices(gres, host, place, notes), cpus, memory) for host in hosts]


def _partition(record: Any, place: str, hosts: tuple[str, ...]) -> PartitionRecord:
    name = within(record, "name")
    if not isinstance(name, str):
        raise ExperimentError(f"{place}: its partition has no name")
    return PartitionRecord(name, hosts, _count(within(record, "priority", "job_factor"), "priority", place) or 0)


def _sizes(cpus: Any, memory: Any, place: str) -> tuple[int | None, int | None]:
    """Return (CPUs, memory in bytes), None where the file does not say."""
    mebibytes = _count(memory, "memory", place)
    return _count(cpus, "cpus", place), None if mebibytes is None else mebibytes * _MEBIBYTE


def _count(value: Any, key: str, place: str) -> int | None:
    count = number(value)
    told = value is not None and not isinstance(value, dict)
    if (count is None and told) or (count is not None and count < 0):
        raise ExperimentError(f"{place}: {key} {value!r} must be a whole number, 0 or more")
    return count or None
