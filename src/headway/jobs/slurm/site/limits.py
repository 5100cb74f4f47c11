"""Turn a Slurm site's rules into limits of the cluster: of several levels that define one limit the first holds.

Slurm asks in this order: the QOS of the partition, the job's QOS (the other way round where that has OverPartQOS), the
user's association, the accounts upward to the root. Group limits of associations hold at every account above, unless a
QOS defines the same one. Time and number of nodes stay capped by the partition. Each limit on each resource is a slot
of its own: a QOS that bounds CPUs leaves an account's bound on GPUs in force.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from headway.errors import ExperimentError
from headway.jobs.rules.limits.limit import AGEING, ANY, NO_LIMIT, NOBODY, PER_NODE, TIMED, LimitRule
from headway.jobs.slurm.output import bounds
from headway.jobs.slurm.output.bounds import ACCRUALS
from headway.jobs.slurm.output.cells import absent, span
from headway.jobs.slurm.output.records import Association, Bound, PartitionRules, Qos, SiteRules
from headway.jobs.slurm.site.accounts import Tree
from headway.units import DAY, MINUTE

OVER, PARTITION_QOS, JOB_QOS, LIFTED = range(4)
FACTORED, ASSOCIATION = 10, 10_000
"""Levels; limits of associations under a LimitFactor, then as they are; accounts upward follow both."""
_BAND = 1000
"""Levels of associations under the LimitFactor of one QOS: that of the partition comes before that of the job."""
ENFORCED = ("limits", "safe", "all")
_NO_LIMIT = {"jobs": 10**9, "submitted": 10**9, "nodes": 10**9, "wall": 100_000 * DAY}
_WORDS = {
    "gres/gpu": ("gpus", 1000, "GRES", ""),
    "cpu": ("cpus", 1000, "Cpu", "Limit"),
    "mem": ("memory", 1, "Memory", ""),
    "node": ("nodes", 1, "Node", "Limit"),
}
"""What a trackable resource is here, how it is counted, and its word in Slurm's reasons."""
_COUNTED = {
    "GrpJobs": ("jobs", "GrpJobsLimit"),
    "GrpSubmit": ("submitted", "GrpSubmitJobsLimit"),
    "MaxJobs": ("jobs", "MaxJobsLimit"),
    "MaxSubmit": ("submitted", "MaxSubmitJobLimit"),
    "MaxJobsPU": ("jobs", "MaxJobsPerUserLimit"),
    "MaxSubmitPU": ("submitted", "MaxSubmitJobPerUserLimit"),
    "MaxJobsPA": ("jobs", "MaxJobsPerAccount"),
    "MaxSubmitPA": ("submitted", "MaxSubmitJobsPerAccount"),
    "MaxWall": ("wall", "MaxWallDurationPerJobLimit"),
    "GrpWall": ("wall_time", "GrpWallLimit"),
    **{name: (AGEING, name) for name in ACCRUALS},
}
_ZERO = ("gpus", "cpus", "memory", "jobs", "submitted", AGEING, *PER_NODE)
"""Of which a limit of 0 leaves some jobs that may start."""
_SLOTS = {"MaxJobs": "MaxJobsPU", "MaxSubmit": "MaxSubmitPU", **dict.fromkeys(ACCRUALS, "JobsAccrue")}
"""An association's limit for each of its users gives way to a QOS's limit for each user."""
_ALONE = ("MaxTRES", "MaxTRESMins", bounds.PER_NODE, bounds.MINIMUM)
_MINIMA = {"cpu": "CpuNotSatisfied", "mem": "Memory", "node": "Node", "gres/gpu": "GRES"}
_PER = {"PU": ("user",), "PA": ("account",)}
_BARE = ("MaxJobsPA", "MaxSubmitPA", "MaxTRESPA")
"""Whose reasons do not begin with QOS."""


def limits(site: SiteRules, tree: Tree) -> tuple[LimitRule, ...]:
    """Return the limits that a site enforces, and its licences."""
    licences = tuple(_licences(site))
    if not is_enforced(site):
        return licences
    half_life = span(site.settings.get("prioritydecayhalflife") or "7-0") or 0
    safe = "safe" in _enforce(site)
    own = [rule for qos in site.qos for rule in _of_qos(qos, site, half_life, safe)]
    parts = [rule for partition in site.partitions for rule in _of_partition(partition, site.qos)]
    below = [rule for each in tree.associations for rule in _of_association(each, tree, site, half_life, safe)]
    return (*own, *parts, *below, *licences)


def _licences(site: SiteRules) -> Iterator[LimitRule]:
    """Yield how many licences there are of each kind, by Licenses in the settings: these bind in any case."""
    given = site.settings.get("licenses", "")
    if absent(given):
        return
    for part in filter(None, (part.strip() for part in given.split(","))):
        name, _, count = part.partition(":")
        if not name or not (count or "1").isdecimal():
            raise ExperimentError(f"config: Licenses {given!r} is not a list like matlab:4,ansys:2")
        yield LimitRule(f"licence {name}", f"licences:{name}", int(count or 1))


def is_enforced(site: SiteRules) -> bool:
    """Return whether limits apply at all: AccountingStorageEnforce says so, or nobody says anything."""
    return "accountingstorageenforce" not in site.settings or not _enforce(site).isdisjoint(ENFORCED)


def _enforce(site: SiteRules) -> set[str]:
    given = site.settings.get("accountingstorageenforce", "limits").lower()
    return {part.strip() for part in given.split(",")}


def _of_qos(qos: Qos, site: SiteRules, half_life: int, safe: bool) -> Iterator[LimitRule]:
    """Yield the limits of a QOS, each with one counter for jobs that name it and those in partitions that have it."""
    level = OVER if "overpartqos" in qos.flags else JOB_QOS
    decay, denies = 0 if "nodecay" in qos.flags else half_life, "denyonlimit" in qos.flags
    own, (both, levels) = (("qos", qos.name),), _of_both(qos, site)
    for bound in qos.bounds:
        per = _PER.get(bound.name[-2:], ("job",) if bound.name in _ALONE else ())
        prefix = "" if bound.name in _BARE else "QOS"
        if bound.name in ACCRUALS:  # that of the partition is not asked
            yield rule(bound, prefix, own, per, ACCRUALS.index(bound.name), f"QOS {qos.name}", False, 0, safe)
            continue
        made = rule(bound, prefix, both, per, level, f"QOS {qos.name}", denies, decay, safe)
        yield replace(made, levels=levels)
        if bound.name in ("MaxJobsPA", "MaxSubmitPA"):  # an association's limit for each user gives way to it too
            resource, name = _COUNTED[bound.name]
            slot = f"{bound.name[:-2]}PU {resource}"
            yield LimitRule(
                f"{name} instead of that of associations", resource, _NO_LIMIT[resource], both, (), slot, LIFTED
            )


def _of_both(qos: Qos, site: SiteRules) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str, int], ...]]:
    """Return which jobs a QOS counts, and the level of those for which it is the QOS of their partition."""
    partitions = [each.name for each in site.partitions if each.qos == qos.name]
    levels = tuple(("partition", name, PARTITION_QOS) for name in partitions)
    if not partitions:
        return (("qos", qos.name),), ()
    if site.associations and not any(qos.name in (*each.qos, each.default_qos) for each in site.associations):
        return tuple(("partition", name) for name in partitions), levels
    chosen = (f"qos:{qos.name}", *(f"partition:{name}" for name in partitions))
    return tuple((ANY, each) for each in chosen), levels


def _of_partition(partition: PartitionRules, qos: Iterable[Qos]) -> Iterator[LimitRule]:
    """Yield the caps of a partition, which a QOS may lift by a flag."""
    caps = (
        ("wall", partition.most_time, "PartitionTimeLimit", ()),
        ("nodes", partition.most_nodes, "PartitionNodeLimit", ("job",)),
    )
    flags = {"wall": "partitiontimelimit", "nodes": "partitionmaxnodes"}
    where = (("partition", partition.name),)
    yield from _least_nodes(partition, where, qos)
    for resource, most, name, per in caps:
        if not most:
            continue
        yield LimitRule(name, resource, most, where, per, f"{name} {resource}", 1)
        for lifting in qos:
            if flags[resource] in lifting.flags:
                both = (*where, ("qos", lifting.name))
                yield LimitRule(f"{name} lifted", resource, _NO_LIMIT[resource], both, per, f"{name} {resource}", 0)


def _least_nodes(
    partition: PartitionRules, where: tuple[tuple[str, str], ...], qos: Iterable[Qos]
) -> Iterator[LimitRule]:
    """Yield how many nodes a job of a partition has to ask for, which a QOS may lift by a flag."""
    if partition.least_nodes < 2:
        return
    name, slot = "PartitionNodeLimit by MinNodes", "MinNodes nodes"
    yield LimitRule(name, "nodes", partition.least_nodes, where, ("job",), slot, 1, least=True)
    for lifting in qos:
        if "partitionminnodes" in lifting.flags:
            both = (*where, ("qos", lifting.name))
            yield LimitRule(f"{name} lifted", "nodes", 1, both, ("job",), slot, 0, least=True)


def _of_association(each: Association, tree: Tree, site: SiteRules, half_life: int, safe: bool) -> Iterator[LimitRule]:
    """Yield the limits of an account or of a user in it; what a user's row only repeats of its account is left out."""
    where = tree.where(each, site.partitions)
    for bound in each.bounds:
        grouped = bound.name.startswith("Grp")
        if not grouped and tree.repeats(each, bound):
            continue
        height = tree.height(each.account) + 1 if not each.user else 0
        level = ASSOCIATION if grouped else ASSOCIATION + height
        if bound.name == "GrpJobsAccrue":  # of one slot with MaxJobsAccrue, which comes before those of accounts
            level = ASSOCIATION - 1 if each.user else ASSOCIATION + _BAND + height
        if bound.name in _ALONE:
            per: tuple[str, ...] = ("job",)
        else:
            per = () if grouped or each.user else ("account", "user")
        made = rule(bound, "Assoc", where, per, level, f"association {tree.told(each)}", False, half_life, safe)
        yield made
        if bound.name in ("GrpTRES", "MaxTRES"):
            yield from _factored(made, site)


def _factored(plain: LimitRule, site: SiteRules) -> Iterator[LimitRule]:
    """Yield a limit of an association as it holds under each QOS with a LimitFactor: all count, only its jobs wait."""
    for qos in site.qos:
        if not qos.limit_factor or qos.limit_factor < 0:
            continue
        over = OVER if "overpartqos" in qos.flags else JOB_QOS
        chosen = [("qos", qos.name, over)]
        chosen += [("partition", each.name, PARTITION_QOS) for each in site.partitions if each.qos == qos.name]
        height = plain.level - ASSOCIATION
        yield replace(
            plain,
            name=f"{plain.name} by LimitFactor of {qos.name}",
            most=_times(plain.most, qos.limit_factor, plain),
            level=NOBODY,
            levels=tuple((key, value, FACTORED + rank * _BAND + height) for key, value, rank in chosen),
            changes=tuple((at, _times(most, qos.limit_factor, plain)) for at, most in plain.changes),
        )


def _times(most: int, factor: float, plain: LimitRule) -> int:
    """Return so much of an amount, in whole GPUs and CPUs as Slurm counts."""
    if most >= NO_LIMIT:
        return NO_LIMIT
    unit = 1000 if plain.kind in ("gpus", "cpus") else 1
    return max(1 if plain.kind == "nodes" else 0, int(most // unit * factor) * unit)


def rule(
    bound: Bound,
    prefix: str,
    where: tuple[tuple[str, str], ...],
    per: tuple[str, ...],
    level: int,
    whose: str,
    denies: bool,
    half_life: int,
    safe: bool,
) -> LimitRule:
    """Return one limit as a rule; a limit of zero on time or nodes, under which nothing could run, is refused."""
    resource, unit, word = _resource(bound, prefix)
    least = bound.name == bounds.MINIMUM
    amounts = [(at, most * unit if most >= 0 else 0 if least else NO_LIMIT) for at, most in bound.history]
    if 0 in (bound.most, *(most for _, most in amounts)) and resource.partition(":")[0] not in _ZERO and not least:
        raise ExperimentError(f"{whose}: {bound} is 0: no job could ever start; -1 lifts a limit")
    slot = f"{_SLOTS.get(bound.name, bound.name)} {resource}"
    used = resource.partition(":")[0] in TIMED
    return LimitRule(
        word,
        resource,
        amounts[0][1] if amounts else bound.most * unit,
        where,
        per if resource != "wall" else (),
        slot,
        level,
        denies,
        half_life if used else 0,
        0,
        safe and used,
        _changes(amounts),
        least,
    )


def _changes(amounts: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return when a limit came to another amount; of several at one time the last counts."""
    last = dict(amounts)
    return tuple((at, most) for (_, before), (at, most) in pairwise(last.items()) if most != before)


def _resource(bound: Bound, prefix: str) -> tuple[str, int, str]:
    """Return what a limit counts, in which unit, and what Slurm calls it when a job waits for it."""
    if bound.name in _COUNTED:
        resource, word = _COUNTED[bound.name]
        return resource, 1000 if resource == "wall_time" else 1, f"{prefix}{word}"
    kind, colon, model = bound.tres.partition(":")
    resource, unit, word, limit = _WORDS[kind]
    if bound.name.endswith("Mins"):
        running = "running_" if bound.name != "GrpTRESMins" else ""
        timed = f"{running}{resource[:-1]}_time{colon}{model}"
        cpu = "CPU" if bound.name.startswith("Grp") and word == "Cpu" else word
        name = {
            "GrpTRESMins": f"Grp{cpu}Minutes",
            "GrpTRESRunMins": f"Grp{cpu}RunMinutes",
            "MaxTRESRunMinsPU": f"Max{word}RunMinutesPerUser",
            "MaxTRESRunMinsPA": f"Max{word}RunMinutesPerAccount",
        }.get(bound.name)
        return timed, MINUTE * 1000, f"{prefix}{name or f'Max{word}MinutesPerJob'}{limit}"
    if bound.name == bounds.MINIMUM:
        return f"{resource}{colon}{model}", unit, f"{prefix}Min{_MINIMA[kind]}"
    short = "Mem" if word == "Memory" and (prefix == "Assoc" or bound.name == "GrpTRES") else word
    if bound.name == "GrpTRES":
        return f"{resource}{colon}{model}", unit, f"{prefix}Grp{short}{'Limit' if short == 'Mem' else limit}"
    if bound.name == bounds.PER_NODE:
        return f"{resource}_per_node{colon}{model}", unit, f"{prefix}Max{short}PerNode"
    per = {"MaxTRESPU": f"PerUser{limit}", "MaxTRESPA": "PerAccount"}.get(bound.name, f"PerJob{limit}")
    return f"{resource}{colon}{model}", unit, f"{prefix}Max{short}{per}"
