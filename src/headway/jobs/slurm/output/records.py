"""Define the records of a Slurm site's rules: what sacctmgr, sshare and scontrol print, each as one row says it.

Times are nanoseconds since 1970 in the zone of the file, spans nanoseconds, counts as Slurm counts them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple


class Bound(NamedTuple):
    """One limit: ``MaxTRESPU`` of ``gres/gpu`` is 24. ``tres`` is empty where the limit counts jobs or time."""

    name: str
    tres: str
    most: int
    """A number; bytes of memory, nanoseconds of wall time; minutes times a number where the name ends in ``Mins``."""
    history: tuple[tuple[int, int], ...] = ()
    """(since when, amount) of earlier ones and of this one, in order of time; -1: no limit then."""

    def __str__(self) -> str:
        return f"{self.name} {self.tres}".rstrip()


@dataclass(frozen=True, slots=True)
class Unread:
    """A setting that was read and is not followed, as it stands in the file."""

    what: str
    """``MaxJobsAccruePU=5``."""
    where: tuple[tuple[str, str], ...] = ()
    """Which jobs it concerns: pairs like ``("qos", "long")``, all of which hold; of one key any will do."""
    why: str = ""
    span: tuple[int, int] | None = None
    """From when to when, where it is about some time alone: only jobs submitted in it are concerned."""


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service: one row of ``sacctmgr show qos``."""

    name: str
    priority: int = 0
    preempts: tuple[str, ...] = ()
    preempt_mode: str = "cluster"
    grace: int = 0
    exempt: int | None = None
    flags: frozenset[str] = frozenset()
    """In lower case."""
    usage_factor: float = 1.0
    bounds: tuple[Bound, ...] = ()
    unread: tuple[Unread, ...] = ()
    limit_factor: float | None = None
    """Of GrpTRES and MaxTRES of associations so much counts for its jobs; None: all of it."""


@dataclass(frozen=True, slots=True)
class Association:
    """An account, or a user in it: one row of ``sacctmgr show assoc``."""

    account: str
    user: str = ""
    partition: str = ""
    cluster: str = ""
    parent: str | None = None
    """The account above an account; None where the file does not tell."""
    shares: int | None = None
    """None: as its parent (``Fairshare=parent``)."""
    qos: tuple[str, ...] = ()
    default_qos: str = ""
    bounds: tuple[Bound, ...] = ()
    unread: tuple[Unread, ...] = ()
    id: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """What an account or a user has used, decayed: one row of ``sshare``."""

    account: str
    user: str = ""
    parent: str | None = None
    shares: int | None = None
    usage: float = 0.0
    """RawUsage: seconds times billing units, decayed."""
    tres_minutes: tuple[tuple[str, int], ...] = ()
    """GrpTRESRaw, where it was printed."""


@dataclass(frozen=True, slots=True)
class Change:
    """A limit, share or priority that somebody changed: one row of ``sacctmgr show transactions``."""

    at: int
    what: str
    """``QOS long``, or ``association 15, 9`` by their numbers."""
    names: tuple[str, ...]
    """What was set: ``MaxTRESPU``, ``GrpJobs``, …"""
    values: tuple[tuple[str, str], ...] = ()
    """What of it to, as the database writes it: ``'1=400,1001=28'``, ``NULL``, ``5``."""


@dataclass(frozen=True, slots=True)
class Away:
    """A node that took no jobs for a while: one row of ``sacctmgr show events``."""

    node: str
    start: int
    end: int | None
    """None: it was still away."""
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes kept for some: one record of ``scontrol show reservation``."""

    name: str
    start: int
    end: int
    nodes: tuple[str, ...]
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    partition: str = ""
    flags: frozenset[str] = frozenset()
    whole: bool = True
    """Whether it holds whole nodes; otherwise some cores or licences of them."""


@dataclass(frozen=True, slots=True)
class PartitionRules:
    """What a partition allows: ``scontrol show partition``, or its line in slurm.conf."""

    name: str
    tier: int = 1
    qos: str = ""
    most_time: int = 0
    """0: no limit."""
    most_nodes: int = 0
    preempt_mode: str = ""
    grace: int = 0
    allowed: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """``AllowAccounts``, ``DenyQos``, … with their names, where they are not ALL."""
    least_nodes: int = 0
    unread: tuple[Unread, ...] = ()


@dataclass(frozen=True, slots=True)
class SiteRules:
    """All that files say about the rules of one site."""

    qos: tuple[Qos, ...] = ()
    associations: tuple[Association, ...] = ()
    shares: tuple[Share, ...] = ()
    changes: tuple[Change, ...] = ()
    aways: tuple[Away, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    partitions: tuple[PartitionRules, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of slurm.conf or ``scontrol show config``, by name in lower case."""
    empty: frozenset[str] = frozenset()
    """Kinds of rows that a file was about and had none of: ``changes``, ``aways``, ``reservations``."""

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) for each in fields(self) if each.name != "empty")

    def merged(self, other: "SiteRules") -> "SiteRules":
        """Return what both say, each row once; of one setting, QOS or partition the first that names it counts."""
        joined: dict[str, tuple[Any, ...]] = {}
        for kind in (each.name for each in fields(self) if each.name not in ("settings", "empty")):
            mine, theirs = getattr(self, kind), getattr(other, kind)
            known = {row.name for row in mine} if kind in _NAMED else set(mine)
            joined[kind] = (*mine, *(row for row in theirs if (row.name if kind in _NAMED else row) not in known))
        joined["partitions"] = tuple(_completed(each, other.partitions) for each in joined["partitions"])
        settings = {**other.settings, **self.settings}
        return replace(self, **joined, settings=settings, empty=self.empty | other.empty)

    def told(self, kind: str) -> bool:
        """Return whether a file said which rows of a kind there are, if only that there is none."""
        return bool(getattr(self, kind)) or kind in self.empty

    def disputes(self, other: "SiteRules") -> Iterator[str]:
        """Yield what another file says otherwise of QOSs or partitions that are described here already."""
        for kind, (word, keys) in _NAMED.items():
            known = {each.name: each for each in getattr(self, kind)}
            found: dict[str, list[str]] = {}
            for each in getattr(other, kind):
                if each.name in known and (differ := ", ".join(_differing(known[each.name], each, keys))):
                    found.setdefault(differ, []).append(each.name)
            for differ, names in found.items():
                yield f"{one_or_several(word, names)}: {differ} otherwise than in a file before, which counts"


def one_or_several(word: str, names: Sequence[str]) -> str:
    """Return things with what they are: ``partition a``, ``partitions a, b``."""
    return f"{word}{'s' if len(names) > 1 and word != 'QOS' else ''} {', '.join(names)}"


def _completed(partition: PartitionRules, others: tuple[PartitionRules, ...]) -> PartitionRules:
    """Return a partition with the mode of preemption that another file tells, where its own is silent."""
    told = (each.preempt_mode for each in others if each.name == partition.name)
    return partition if partition.preempt_mode else replace(partition, preempt_mode=next(told, ""))


def _differing(before: Any, after: Any, keys: Mapping[str, str]) -> Iterator[str]:
    """Yield what two descriptions of one thing say otherwise, as Slurm calls it."""
    for key, called in keys.items():
        first, second = getattr(before, key), getattr(after, key)
        if key == "allowed":
            lists = dict.fromkeys((*dict(first), *dict(second)))
            yield from (name for name in lists if dict(first).get(name) != dict(second).get(name))
        elif first != second and not (key == "preempt_mode" and "" in (first, second)):
            yield called


_NAMED = {
    "qos": (
        "QOS",
        {
            "priority": "Priority",
            "preempts": "Preempt",
            "preempt_mode": "PreemptMode",
            "grace": "GraceTime",
            "exempt": "PreemptExemptTime",
            "flags": "Flags",
            "usage_factor": "UsageFactor",
            "bounds": "limits",
            "limit_factor": "LimitFactor",
        },
    ),
    "partitions": (
        "partition",
        {
            "tier": "PriorityTier",
            "qos": "QOS",
            "most_time": "MaxTime",
            "most_nodes": "MaxNodes",
            "grace": "GraceTime",
            "least_nodes": "MinNodes",
            "preempt_mode": "PreemptMode",
            "allowed": "",
        },
    ),
}
"""What is described by name, and what two descriptions of one are compared by."""
