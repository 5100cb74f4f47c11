"""Change the rules of a Slurm site: as flags and knobs write it, and in the middle of a run for a what-if.

``qos long.MaxTRESPU=gres/gpu=32`` changes the site's records and is then translated like what the files say; what
follows from it (limits, shares, priorities, tiers) is carried over into the cluster of the run.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from headway.errors import ExperimentError
from headway.formats import toml
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.rules.limits.limit import LimitRule
from headway.jobs.slurm.output.records import SiteRules
from headway.jobs.slurm.site.accounts import Tree
from headway.jobs.slurm.site.followed import Followed, brought, followed
from headway.jobs.slurm.site.modify import BARE, KINDS, Rules, Value, modified
from headway.jobs.tables.cluster import ClusterTable, PartitionTable, build
from headway.jobs.traces.clusters.file import ruled
from headway.runs.settings.flags import one_of_each

TABLE = "cluster.rules"
FLAGS = ("qos", "partition", "preempt", "shares")
EXAMPLES = {
    "qos": "long.MaxTRESPU=gres/gpu=32",
    "partition": "debug.PriorityTier=2",
    "account": "bio.GrpTRES=gres/gpu=64",
    "preempt": "scavenger=off",
    "shares": "bio=40",
}
_GPU_TYPE = re.compile(r"gres/gpu:([^=,\s]+)\s*=\s*\d", re.IGNORECASE)
"""A GPU type for which a limit is set."""
Choices = dict[str, list[Any]]
"""Values to choose from, by the dotted key of the setting."""


# --- as they are written ----------------------------------------------------------------------------------------------


def choices(kind: str, given: Any) -> Choices:
    """Read one flag, ``long.MaxTRESPU=gres/gpu=16|24``, given once, several times, or as a mapping."""
    found: Choices = {}
    for text in _texts(given):
        for part in text.split(",") if kind in BARE else [text]:
            key, values = _choice(kind, part)
            if key in found:
                raise ExperimentError(f"--{kind}: {part.partition('=')[0].strip()} is given twice")
            found[key] = values
    return found


def knob(text: str) -> tuple[str, list[Any]]:
    """Read ``qos long.MaxTRESPU=gres/gpu=16|24|32``: the key of the setting, and the values to try."""
    kind, _, rest = text.strip().partition(" ")
    if kind.lower() not in KINDS or not rest.strip():
        examples = ", ".join(f"{kind} {example}" for kind, example in EXAMPLES.items())
        raise ExperimentError(f"knob {text!r} is not understood: write it like {examples}")
    return _choice(kind.lower(), rest)


def rules_of(chosen: Mapping[str, Value]) -> dict[str, dict[str, Value]]:
    """Return values by the keys of settings as a table of rules."""
    document: toml.Document = {}
    for key, value in chosen.items():
        toml.put(document, key, value)
    return document.get("cluster", {}).get("rules", {})  # type: ignore[no-any-return]


def _texts(given: Any) -> list[str]:
    if isinstance(given, Mapping):
        return [f"{name}={value}" for name, value in given.items()]
    return [given] if isinstance(given, str) else [str(each) for each in given]


def _choice(kind: str, text: str) -> tuple[str, list[Any]]:
    """Return the key of a setting and its values; what stands before the first number holds for those after it."""
    left, equals, right = (piece.strip() for piece in text.partition("="))
    name, dot, key = left.rpartition(".")
    if not equals or not left or (kind not in BARE and not (dot and name and key)):
        raise ExperimentError(f"--{kind} {text!r} is not understood: write it like --{kind} {EXAMPLES[kind]}")
    values = [each.strip() for each in right.split("|")]
    before, sign, _ = values[0].rpartition("=")
    values = [each if not sign or "=" in each or not each else f"{before}={each}" for each in values]
    if twice := next((each for index, each in enumerate(values) if each in values[:index]), None):
        raise ExperimentError(f"--{kind} {text!r}: {twice} is named twice; name each once")
    if kind in BARE:
        return f"{TABLE}.{kind}.{toml.quoted(left)}", values
    return f"{TABLE}.{toml.quoted(f'{kind} {name}')}.{key}", values


# --- in the middle of a run -------------------------------------------------------------------------------------------


def about_nobody(site: SiteRules, rules: Rules, jobs: Iterable[Job]) -> list[str]:
    """Say which changed rules concern no job."""
    whose = {(job.qos, job.partition, job.tenant, job.user) for job in jobs}
    have, tree = {each.name: each.qos for each in site.partitions}, Tree(site)
    found = {
        "qos": {qos for qos, _, _, _ in whose} | {have.get(partition, "") for _, partition, _, _ in whose},
        "partition": {partition for _, partition, _, _ in whose},
        "account": {name for _, _, tenant, user in whose for name in (tenant, f"{tenant}/{user}", *tree.above(tenant))},
    }
    found |= {"preempt": found["qos"] | found["partition"], "shares": found["account"]}
    kinds = {"qos": "QOS", "preempt": "QOS or partition", "shares": "account"}
    named = [
        (kind, each)
        for rule, pairs in rules.items()
        for kind, name in [(rule.partition(" ")[0].lower(), rule.partition(" ")[2].strip())]
        for each in (pairs if kind in BARE else [name])
    ]
    return [
        f"no job is of {kinds.get(kind, kind)} {name}: its change concerns nobody"
        for kind, name in dict.fromkeys(named)
        if name not in found[kind]
    ]


def about_no_gpus(rules: Rules, cluster: Cluster) -> list[str]:
    """Say which GPU types that changed limits name no node has."""
    known = {node.gpu_type.lower() for node in cluster.nodes if node.gpus}
    values = (str(value) for pairs in rules.values() for value in pairs.values())
    named = dict.fromkeys(name for value in values for name in _GPU_TYPE.findall(value))
    return [f"no node has GPUs of type {name}" for name in named if name.lower() not in known]


def with_rules(
    cluster: Cluster, site: SiteRules, rules: Rules, told: list[str], notes: list[str], jobs: Iterable[Job] = ()
) -> tuple[Cluster, SiteRules]:
    """Return the cluster and the site's records under changed rules; what the change does not concern stays.

    A limit that was raised because recorded jobs ran beyond it stays raised, unless it is the one that is changed.
    """
    if not rules:
        return cluster, site
    if not site:
        raise ExperimentError(
            "the run knows no rules of a Slurm site: make it anew with --cluster and what sacctmgr show qos -P, "
            "sacctmgr show assoc -P or scontrol show partition prints"
        )
    after = modified(site, rules)
    if not after.told:
        return cluster, site
    before, then = followed(site), followed(after.site)
    was, now = _translated(site, before), _translated(after.site, then)
    told.extend(after.told)
    notes.extend(brought(before, then, after.site, rules))
    notes.extend(about_no_gpus(rules, cluster))
    if was == now:
        notes.append(f"{after.told[0]}: that is not followed, and changes nothing")
    notes.extend(about_nobody(site, rules, jobs))
    carried: dict[str, Any] = {
        each.name: _carried(getattr(cluster, each.name), getattr(was, each.name), getattr(now, each.name))
        for each in fields(Cluster)
        if each.init and getattr(was, each.name) != getattr(now, each.name)
    }
    return replace(cluster, **carried), after.site


def _translated(site: SiteRules, rules: Followed) -> Cluster:
    """Return the rules of a site on a cluster of one node."""
    partitions = [PartitionTable(name=name, nodes=[0]) for name in dict.fromkeys(each.name for each in site.partitions)]
    return build(ruled(ClusterTable(nodes=1, gpus_per_node=1, partitions=partitions), rules))


def _carried(present: Any, was: Any, now: Any) -> Any:
    """Return what a run has, with the difference between two translations: of named things those that differ."""
    if not isinstance(now, tuple) or not all(is_dataclass(each) for each in (*was, *now)):
        return now
    before, after = ({_identity(each): each for each in some} for some in (was, now))
    here = {_identity(each): each for each in present}
    for key, each in after.items():
        if key in before and each == before[key]:
            continue
        here[key] = _updated(here[key], before[key], each) if key in here and key in before else each
    return tuple(each for key, each in here.items() if key in after or key not in before)


def _identity(each: Any) -> Any:
    return replace(each, most=1, used=0, changes=()) if isinstance(each, LimitRule) else each.name


def _updated(present: Any, before: Any, after: Any) -> Any:
    """Return something with those of its fields changed that a change of the rules changes."""
    if isinstance(after, LimitRule):
        return replace(after, used=present.used)
    names = [each.name for each in fields(after) if each.init]
    return replace(
        present, **{name: getattr(after, name) for name in names if getattr(after, name) != getattr(before, name)}
    )


def rules_from(given: Mapping[str, Any], kinds: Sequence[str] = FLAGS) -> dict[str, dict[str, Value]]:
    """Return the rules that the flags of a what-if change."""
    chosen: dict[str, Value] = {}
    for kind in kinds:
        if given.get(kind) is not None:
            chosen |= one_of_each(f"--{kind}", choices(kind, given[kind]))
    return rules_of(chosen)
