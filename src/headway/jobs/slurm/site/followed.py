"""Bring together what files say about a Slurm site's rules, and list by name what of it is not followed."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from headway.jobs.model.cluster import Qos, Tenant
from headway.jobs.model.job import Job
from headway.jobs.rules.limits.limit import LimitRule
from headway.jobs.rules.preemption.preemption import Preemption, check_lists
from headway.jobs.slurm.output.records import Bound, Change, SiteRules, Unread, one_or_several
from headway.jobs.slurm.output.reservations import dated
from headway.jobs.slurm.site.accounts import Tree, about_shares
from headway.jobs.slurm.site.earlier_limits import with_history
from headway.jobs.slurm.site.limits import is_enforced, limits
from headway.jobs.slurm.site.modify import Rules
from headway.jobs.slurm.site.preemption import (
    Level,
    is_used,
    levels,
    notes as about_preemption,
    preemption,
    qos_of,
    unread as unread_of_preemption,
)
from headway.units import HOUR, counted

_Kind = tuple[str, str, str, str]
_OWNERS = {"partition": "partition", "qos": "QOS"}
"""Of these a job has one each."""
FOLLOWED_FLAGS = (
    *("denyonlimit", "overpartqos", "partitiontimelimit", "partitionmaxnodes", "partitionminnodes", "nodecay", ""),
)


@dataclass(frozen=True, slots=True)
class Followed:
    """A site's rules as a cluster has them, and what is left of them."""

    limits: tuple[LimitRule, ...] = ()
    """Their changes are in nanoseconds since 1970, in the zone of the files."""
    tenants: tuple[Tenant, ...] = ()
    qos: tuple[Qos, ...] = ()
    levels: tuple[Level, ...] = ()
    preemption: Preemption | None = None
    notes: tuple[str, ...] = ()
    unread: tuple[Unread, ...] = ()


def followed(site: SiteRules) -> Followed:
    """Return what of a site's rules is followed, and what is not."""
    check_lists({each.name: each.preempts for each in site.qos})
    preempts = preemption(site.settings, any(each.preempts for each in site.qos))
    site, left = with_history(site)
    tree = Tree(site)
    tenants = tree.tenants(site.shares)
    rules = limits(site, tree)
    notes = (*tree.notes, *_notes(site, tree, rules), *about_preemption(site, preempts))
    unread = (*_unread(site, tree, left), *unread_of_preemption(site, preempts))
    declared = preempts if is_used(preempts, site) else None
    return Followed(rules, tenants, qos_of(site), levels(site), declared, notes, unread)


def brought(before: Followed, now: Followed, site: SiteRules, rules: Rules) -> list[str]:
    """Return the notes that changed rules bring with them; ``site`` has the changes."""
    weights = Tree(site).weights(site.shares)
    changed = [name for kind, pairs in rules.items() if kind.strip().lower() == "shares" for name in pairs]
    everybody = (*before.notes, *about_shares(weights))
    own = about_shares({who: weight for who, weight in weights.items() if "/".join(filter(None, who)) in changed})
    return [*(note for note in now.notes if note not in everybody), *own]


def _notes(site: SiteRules, tree: Tree, rules: Sequence[LimitRule]) -> Iterator[str]:
    """Yield what a reader of results should know about the rules themselves."""
    if (site.qos or site.associations) and "accountingstorageenforce" not in site.settings:
        yield "AccountingStorageEnforce is not given (slurm.conf or scontrol show config): limits are taken as enforced"
    elif not is_enforced(site) and (site.qos or site.associations):
        given = site.settings["accountingstorageenforce"] or "none"
        yield f"AccountingStorageEnforce={given}: the site enforces no limits, and none are followed"
    known = {qos.name for qos in site.qos}
    yield from _strays(site, tree, known)
    for rule in rules:
        if rule.most == 0:
            yield f"{rule}: is 0: no job that counts there can start"


def _strays(site: SiteRules, tree: Tree, known: set[str]) -> Iterator[str]:
    allowed = {name for each in tree.associations for name in (*each.qos, each.default_qos) if name}
    partition_qos = {each.qos for each in site.partitions if each.qos}
    if tree.associations and known:
        for name in sorted(known - allowed - partition_qos):
            yield f"QOS {name}: no association may use it"
        for name in sorted(allowed - known):
            yield f"QOS {name}: associations may use it, and it is not described"
    for name in sorted(partition_qos - known) if known else ():
        whose = one_or_several("partition", [each.name for each in site.partitions if each.qos == name])
        yield f"QOS {name} of {whose} is not described: none of its limits is followed"
    for qos in site.qos:
        for name in qos.preempts:
            if name not in known:
                yield f"QOS {qos.name}: preempts {name}, which is not described"


def _unread(site: SiteRules, tree: Tree, left: Sequence[Change]) -> Iterator[Unread]:
    """Yield every rule that is not followed, with the jobs that it may concern."""
    if is_enforced(site):
        yield from (each for qos in site.qos for each in qos.unread)
        own = [each for association in tree.associations if not association.user for each in association.unread]
        told = {each.what for each in own}
        yield from own
        below = (each for association in tree.associations if association.user for each in association.unread)
        yield from (each for each in below if each.what not in told)  # what an account has is printed of its users too
    for qos in site.qos:
        where = (("qos", qos.name),)
        yield from _of_before(f"QOS {qos.name}", qos.bounds, where)
        for flag in sorted(qos.flags - set(FOLLOWED_FLAGS)):
            yield Unread(f"flag {flag} of QOS {qos.name}", where)
        if qos.usage_factor != 1.0 and any(bound.name == "GrpTRESMins" for bound in qos.bounds):
            why = "it counts for fair share, and not for GrpTRESMins"
            yield Unread(f"UsageFactor={qos.usage_factor:g} of QOS {qos.name}", where, why)
    for association in tree.associations:
        yield from _of_before(
            f"association {tree.told(association)}", association.bounds, tree.where(association, site.partitions)
        )
    yield from _of_partitions(site)
    yield from _of_times(site, left)


def _of_partitions(site: SiteRules) -> Iterator[Unread]:
    for each in site.partitions:
        if each.allowed:
            names = ", ".join(key for key, _ in each.allowed)
            yield Unread(f"{names} of partition {each.name}", (("partition", each.name),), "who may enter is not asked")
        yield from each.unread


def _of_times(site: SiteRules, left: Sequence[Change]) -> Iterator[Unread]:
    """Yield values that were others before, as far as that is not followed."""
    changed: dict[str, list[Change]] = {}
    for change in left:
        changed.setdefault(change.what, []).append(change)
    for what, changes in changed.items():
        names = ", ".join(dict.fromkeys(name for change in changes for name in change.names))
        last = max(each.at for each in changes)
        kind, _, name = what.partition(" ")
        where = (("qos", name),) if kind == "QOS" else ()
        why = f"{names} until {dated(last)}: what holds since then is taken for all the time"
        if kind == "association" and not any(each.id for each in site.associations):
            why += "; sacctmgr show assoc with the column ID tells which it is"
        yield Unread(f"earlier values of {_named(what, site)}", where, why, (0, last))


def _of_before(whose: str, bounds: Sequence[Bound], where: tuple[tuple[str, str], ...]) -> Iterator[Unread]:
    """Yield limits that were changed, for the time before the first change that is known."""
    for bound in bounds:
        if bound.history:
            first = bound.history[0][0]
            why = "it was changed then, and from what is not told: taken as since then"
            yield Unread(f"{bound} of {whose} before {dated(first)}", where, why, (0, first))


def _named(what: str, site: SiteRules) -> str:
    """Return what was changed with the names of associations where the files tell their numbers."""
    kind, _, numbers = what.partition(" ")
    told = {each.id: "/".join(filter(None, (each.account, each.user))) for each in site.associations if each.id}
    if kind != "association" or not told:
        return what
    return f"association {', '.join(told.get(number, number) for number in numbers.split(', '))}"


@dataclass(frozen=True, slots=True)
class Concern:
    """A rule that is not followed, how many jobs it may concern and how long those waited in the record."""

    rule: Unread
    jobs: int
    wait: int | None
    """Nanoseconds; None where the record does not tell."""

    def __str__(self) -> str:
        why = f" ({self.rule.why})" if self.rule.why else ""
        waited = "" if self.wait is None else f", which waited {self.wait / HOUR:,.0f} h in all"
        return (
            f"not followed: {self.rule.what}{_whose(self.rule)}{why}: may concern {counted(self.jobs, 'job')}{waited}"
        )


def _whose(rule: Unread) -> str:
    """Return whose rule it is, where what it says does not name that."""
    if any(f" {value}" in rule.what for _, value in rule.where):
        return ""
    words = {"qos": "QOS", "tenant": "account"}
    owners: dict[str, list[str]] = {}
    for key, value in rule.where:
        owners.setdefault(words.get(key, key), []).append(value)
    told = ", ".join(one_or_several(word, names) for word, names in owners.items())
    return f" of {told}" if told else ""


def _folded(found: Sequence[Concern]) -> list[Concern]:
    """Return what is said alike of several partitions, or of several QOSs, as one; their jobs are not the same."""
    alike: dict[tuple[object, ...], list[Concern]] = {}
    for each in found:
        rule = each.rule
        key, name = rule.where[0] if len(rule.where) == 1 else ("", "")
        bare = rule.what.removesuffix(f" of {_OWNERS.get(key, '')} {name}")
        which = (bare, key, rule.why, rule.span) if key in _OWNERS else (rule,)
        alike.setdefault(which, []).append(each)
    return [_one_of(which[0], several) for which, several in alike.items()]


def _one_of(bare: object, several: Sequence[Concern]) -> Concern:
    first = several[0]
    if len(several) == 1:
        return first
    where = tuple(pair for each in several for pair in each.rule.where)
    wait = None if first.wait is None else sum(each.wait or 0 for each in several)
    return Concern(replace(first.rule, what=str(bare), where=where), sum(each.jobs for each in several), wait)


def concerns(
    unread: Sequence[Unread],
    jobs: Sequence[Job],
    waits: Mapping[str, int],
    tenants: Sequence[Tenant],
    begins: int | None = None,
) -> list[Concern]:
    """Return what is not followed and concerns a job at all, the most waiting first.

    Jobs are in order of submission; ``begins`` is their time 0 in nanoseconds since 1970, where it is known.
    """
    everybody, parents = _kinds(jobs, waits), {tenant.name: tenant.parent for tenant in tenants}
    found = []
    for each in unread:
        kinds = everybody
        if each.span is not None and begins is not None:
            first, last = (bisect_left(jobs, at - begins, key=attrgetter("submit")) for at in each.span)
            kinds = _kinds(jobs[first:last], waits)
        chosen = [told for kind, told in kinds.items() if _chooses(each.where, kind, parents)]
        if count := sum(jobs for jobs, _ in chosen):
            found.append(Concern(each, count, sum(wait for _, wait in chosen) if waits else None))
    return sorted(_folded(found), key=lambda concern: (-(concern.wait or 0), -concern.jobs))


def _kinds(jobs: Sequence[Job], waits: Mapping[str, int]) -> dict[_Kind, tuple[int, int]]:
    """Count jobs and what they waited, by whose they are and where they belong."""
    kinds: dict[_Kind, tuple[int, int]] = {}
    for job in jobs:
        kind = (job.tenant, job.user, job.qos, job.partition)
        count, wait = kinds.get(kind, (0, 0))
        kinds[kind] = (count + 1, wait + waits.get(job.name, 0))
    return kinds


def _chooses(where: Sequence[tuple[str, str]], kind: _Kind, parents: Mapping[str, str]) -> bool:
    tenant, user, qos, partition = kind
    above = {tenant}
    while tenant := parents.get(tenant, ""):
        above.add(tenant)
    values = {"account": above, "tenant": {kind[0]}, "user": {user}, "qos": {qos}, "partition": {partition}}
    wanted: dict[str, set[str]] = {}
    for key, value in where:
        wanted.setdefault(key, set()).add(value)
    return all(values[key] & names for key, names in wanted.items())
