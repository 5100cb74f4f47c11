"""Parse slurm.conf, with the files that it includes and lines that go on in the next, and ``scontrol show config``.

Names of settings are known in any case. A line ``NodeName=…`` or ``PartitionName=…`` describes a part of the cluster;
one of the name DEFAULT says what the lines below it need not repeat.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from headway.errors import ExperimentError
from headway.jobs.slurm.output import scontrol
from headway.jobs.slurm.output.records import SiteRules
from headway.jobs.traces.clusters.records import Described, NodeRecord, PartitionRecord

_PRINTED = "Configuration data as of"
_SIGNS = re.compile(
    r"^\s*(?:ClusterName|SlurmctldHost|ControlMachine|SlurmUser|PriorityType|SchedulerType|SelectType|Include|"
    r"(?:Node|Partition)Name\s*=\s*DEFAULT)\b",
    re.IGNORECASE | re.MULTILINE,
)
_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*$", re.IGNORECASE)
_PAIR = re.compile(r"(?:^|\s)([A-Za-z]\w*)\s*=")
_MOST_DEEP = 20
_CORES = ("boards", "sockets", "socketsperboard", "corespersocket", "threadspercore")
_REPEATED = ("nodename", "partitionname", "nodeset", "downnodes", "frontendname", "switchname")


def describes(text: str) -> bool:
    """Return whether a text is a slurm.conf or what ``scontrol show config`` prints."""
    return text.lstrip().startswith(_PRINTED) or _SIGNS.search(text) is not None


def text_of(path: str | Path, what: str = "config", *, within: tuple[Path, ...] = ()) -> str:
    """Return the text of a file with those that it includes in their places; their paths are relative to the file."""
    place = Path(path)
    try:
        text = place.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ExperimentError(f"{what} {path}: there is no such file{_included(within)}") from None
    except IsADirectoryError:
        raise ExperimentError(f"{what} {path}: is a directory, not a file") from None
    except (OSError, UnicodeDecodeError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise ExperimentError(f"{what} {path}: cannot be read ({reason})") from None
    return included(text, place, what, within=within)


def included(text: str, path: Path, what: str, *, within: tuple[Path, ...] = ()) -> str:
    """Return a text with the files that it includes in their places."""
    inside = (*within, path)
    if path.resolve() in (each.resolve() for each in within) or len(inside) > _MOST_DEEP:
        raise ExperimentError(f"{what} {path}: includes itself{_included(within)}")
    cluster = settings(text).get("clustername", "")
    lines = []
    for line in text.splitlines():
        match = _INCLUDE.match(_uncommented(line))
        named = None if match is None else match[1].replace("%c", cluster)
        # Slurm looks for every file beside the first one.
        lines.append(line if named is None else text_of(inside[0].parent / named, what, within=inside))
    return "\n".join(lines)


def _included(within: tuple[Path, ...]) -> str:
    return f" (included by {within[-1]})" if within else ""


def _uncommented(line: str) -> str:
    return re.split(r"(?<!\\)#", line, maxsplit=1)[0]


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that say something, each with its number; one that ends in a backslash goes on in the next."""
    first, gathered = 0, ""
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        plain = _uncommented(line).rstrip()
        first, gathered = (first, f"{gathered} {plain}") if gathered else (number, plain)
        if gathered.endswith("\\"):
            gathered = gathered[:-1] or " "
            continue
        if gathered.strip():
            yield first, gathered.strip()
        gathered = ""


def settings(text: str) -> dict[str, str]:
    """Return the settings of a text by name in lower case; the last one of a name wins, as in Slurm."""
    found = {}
    for _, line in lines(text):
        setting = re.match(r"([A-Za-z][\w\[\]]*)\s*=\s*(.*?)\s*$", line)
        if setting and setting[1].lower() not in _REPEATED:
            found[setting[1].lower()] = "" if setting[2] == "(null)" else setting[2]
    return found


def pairs(line: str) -> dict[str, str]:
    """Return the ``Key=value`` pairs of a line, keys in lower case."""
    keys = list(_PAIR.finditer(line))
    ends = [*(key.start() for key in keys[1:]), len(line)]
    return {key[1].lower(): line[key.end() : end].strip() for key, end in zip(keys, ends, strict=True)}


def records(text: str, kind: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the lines of one kind, ``nodename`` say, with what lines of the name DEFAULT above them say."""
    usual: dict[str, str] = {}
    for number, line in lines(text):
        if not line.lower().startswith(kind):
            continue
        record = pairs(line)
        if record.get(kind, "").upper() == "DEFAULT":
            usual |= record
        else:
            yield number, usual | record


def cluster(text: str, where: str) -> Described:
    """Return the nodes, partitions and settings of a text."""
    notes: list[str] = []
    nodes: dict[str, NodeRecord] = {}
    for number, record in records(text, "nodename"):
        place = f"{where}: line {number}"
        if record.get("state", "").upper().startswith(("FUTURE", "CLOUD")):
            notes.append(f"{place}: node {record['nodename']} is {record['state'].upper()}: kept")
        for name in scontrol.names(record["nodename"], place):
            nodes[name] = _node(record, name, place, notes)
    sets = {record["nodeset"]: record.get("nodes", "") for _, record in records(text, "nodeset")}
    partitions, rules = [], []
    for number, record in records(text, "partitionname"):
        place = f"{where}: line {number}"
        rules.append(scontrol.partition_rules(record, place))
        partitions.append(_partition(record, sets, tuple(nodes), place))
    ordered = tuple(sorted(nodes.values(), key=lambda each: each.weight))
    site = SiteRules(partitions=tuple(rules), settings=settings(text))
    return Described(ordered, tuple(partitions), tuple(dict.fromkeys(notes)), site)


def _node(record: dict[str, str], name: str, place: str, notes: list[str]) -> NodeRecord:
    gpus, kind = scontrol.devices(record.get("gres", ""), name, place, notes)
    cpus = scontrol.whole(record.get("cpus") or record.get("procs"), "CPUs", place)
    if cpus is None and any(key in record for key in _CORES):
        cpus = 1
        for key in _CORES:
            cpus *= scontrol.whole(record.get(key), key, place) or 1
    memory = scontrol.mebibytes(record.get("realmemory"), "RealMemory", place)
    weight = scontrol.whole(record.get("weight"), "Weight", place) or 0
    return NodeRecord(name, gpus, kind, cpus, memory, weight=weight)


def _partition(record: dict[str, str], sets: dict[str, str], known: tuple[str, ...], place: str) -> PartitionRecord:
    factor = scontrol.whole(record.get("priorityjobfactor") or record.get("priority"), "PriorityJobFactor", place) or 0
    listed: list[str] = []
    for name in scontrol.names(record.get("nodes", ""), place):
        if name in sets and not sets[name]:
            raise ExperimentError(f"{place}: node set {name} names no nodes but features: use scontrol show partition")
        listed.extend(known if name.upper() == "ALL" else scontrol.names(sets[name], place) if name in sets else [name])
    return PartitionRecord(record["partitionname"], tuple(listed), factor)
