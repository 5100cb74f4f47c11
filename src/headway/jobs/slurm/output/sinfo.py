"""Parse nodes and partitions as ``sinfo`` prints them: ``-N``, ``--long``, ``-o "%N %P %c %m %G %t"``, or without -N.

A column is known by its heading. Without headings (``-h``) two layouts can be told apart: that of plain ``sinfo -N``,
and that of ``%N %P %c %m %G %t``. A table without GRES does not say how many GPUs a node has: it describes partitions.
"""

import re

from headway.errors import ExperimentError
from headway.jobs.slurm.output import cells as slurm
from headway.jobs.slurm.output.scontrol import away_note, devices, gone, mebibytes, names, whole
from headway.jobs.traces.clusters.records import Described, NodeRecord, PartitionRecord

_ADVICE = "sinfo -N -o '%N %P %c %m %G %t' or scontrol show node -o"
_NAME = ("NODELIST", "HOSTNAMES")
_HEADINGS = frozenset({"PARTITION", "STATE", "GRES", "CPUS", "MEMORY", "NODES", "AVAIL"})
_PLAIN = ("NODELIST", "NODES", "PARTITION", "STATE")
_FULL = ("NODELIST", "PARTITION", "CPUS", "MEMORY", "GRES", "STATE")
_STATES = r"(?:alloc|allocated|comp|completing|down|drain|drained|draining|drng|fail|failg|future|idle|inval|maint|mix|"
_STATES += r"mixed|npc|plnd|planned|pow_dn|pow_up|reboot|resv|reserved|unk|unknown)[*~#!%$@^+-]*"
_ROWS = {
    _PLAIN: re.compile(rf"\S+\s+\d+\s+\S+\s+{_STATES}\s*", re.IGNORECASE),
    _FULL: re.compile(rf"\S+\s+\S+\s+\d+\+?\s+\d+\+?\s+\S+\s+{_STATES}\s*", re.IGNORECASE),
}


def describes(text: str) -> bool:
    """Return whether a text is a table of ``sinfo``."""
    return _layout(text) is not None


def cluster(text: str, where: str) -> Described:
    """Return the nodes of a table, or its partitions where it does not say what its nodes hold."""
    layout = _layout(text)
    assert layout is not None
    columns, start, separator = layout
    nodes: dict[str, NodeRecord] = {}
    members: dict[str, dict[str, None]] = {}
    away: dict[str, None] = {}
    notes: list[str] = []
    for number, line in enumerate(text.splitlines()[start:], start=start + 1):
        if not line.strip() or set(line.strip()) <= {"-", " "}:
            continue
        place = f"{where}: line {number}"
        cells = line.split("|") if separator else line.split(None, len(columns) - 1)
        row: dict[str, str] = {}
        for name, cell in zip(columns, cells, strict=False):
            row.setdefault(name, cell.strip())
        hosts = names(next((row[name] for name in _NAME if name in row), ""), place)
        members.setdefault(row.get("PARTITION", "").rstrip("*"), {}).update(dict.fromkeys(hosts))
        away.update(dict.fromkeys(hosts if gone(row.get("STATE", "")) else ()))
        if "GRES" in columns:
            nodes.update((host, _node(row, host, place, notes)) for host in hosts if host not in nodes)
    partitions = tuple(PartitionRecord(name, tuple(hosts)) for name, hosts in members.items() if not slurm.absent(name))
    if "GRES" not in columns:
        notes.append(f"{where}: has no column GRES: it tells partitions, not what a node holds (use {_ADVICE})")
    if not any(members.values()):
        raise ExperimentError(f"{where}: names no node")
    return Described(tuple(nodes.values()), partitions, (*dict.fromkeys(notes), *away_note(tuple(away), where)))


def _layout(text: str) -> tuple[tuple[str, ...], int, bool] | None:
    """Return headings, the line where rows begin, and whether they are separated by ``|``."""
    lines = [(number, line) for number, line in enumerate(text.splitlines()[:20]) if line.strip()]
    for number, line in lines[:2]:  # --long writes the date above the headings
        separator = "|" in line
        headings = tuple(word.strip() for word in (line.split("|") if separator else line.split()))
        if any(name in headings for name in _NAME) and not _HEADINGS.isdisjoint(headings):
            return headings, number + 1, separator
    for columns, row in _ROWS.items():
        if lines and all(row.fullmatch(line) for _, line in lines):
            return columns, 0, False
    return None


def _node(row: dict[str, str], host: str, place: str, notes: list[str]) -> NodeRecord:
    if "GRES" not in row:
        raise ExperimentError(f"{place}: ends before the column GRES")
    gpus, kind = devices(row["GRES"], host, place, notes)
    cpus = whole(row.get("CPUS"), "CPUS", place)
    return NodeRecord(host, gpus, kind, cpus, mebibytes(row.get("MEMORY"), "MEMORY", place))
