"""Convert what a Slurm site says about preemption and tiers to the rules of the cluster, and list what is left.

PreemptType says whether QOSs or tiers of partitions preempt; PreemptMode of the QOS, or of the partition, or of the
cluster what becomes of a victim. A suspended job keeps its GPUs, so that nobody gains any by SUSPEND: it is taken as
no preemption. Where jobs may not be requeued (JobRequeue=0), REQUEUE ends them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headway.errors import ExperimentError
from headway.jobs.model.cluster import Qos
from headway.jobs.rules.preemption.preemption import AGAIN_AFTER, Mode, Preemption
from headway.jobs.slurm.output.cells import span
from headway.jobs.slurm.output.records import PartitionRules, Qos as QosRow, SiteRules, Unread
from headway.units import SECOND

_BY = {"preempt/qos": "qos", "preempt/partition_prio": "partition"}
_NONE = ("", "preempt/none", "none")
_MODES = {"REQUEUE": Mode.REQUEUE, "CANCEL": Mode.CANCEL, "OFF": Mode.OFF, "SUSPEND": Mode.OFF, "GANG": Mode.OFF}
_YOUNGEST = ("youngest_first", "preempt_youngest_first")
_NOT = {
    "reorder_count": "victims that are not needed are always spared",
    "preempt_reorder_count": "victims that are not needed are always spared",
    "strict_order": "victims that are not needed are always spared",
    "preempt_strict_order": "victims that are not needed are always spared",
    "min_exempt_priority": "priority exempts nobody",
    "reclaim_licenses": "licences are not followed",
    "send_user_signal": "signals do nothing",
    "suspend_grace_time": "suspending counts as no preemption",
}


@dataclass(frozen=True, slots=True)
class Level:
    """What a partition says about tiers and preemption."""

    name: str
    tier: int
    mode: Mode | None
    grace: int


def preemption(settings: Mapping[str, str], preempts: bool = False) -> Preemption | None:
    """Return the rules of preemption that settings declare; None for none.

    ``preempts``: without any settings the lists of QOSs count, and their victims are requeued.
    """
    kind = settings.get("preempttype", "preempt/qos" if preempts and not settings else "").lower()
    if kind in _NONE:
        return None
    if kind not in _BY:
        raise ExperimentError(f"config: PreemptType {kind!r} must be one of preempt/none, {', '.join(_BY)}")
    parameters = _parameters(settings)
    return Preemption(
        _BY[kind],
        _requeued(settings, _mode(settings.get("preemptmode", "OFF" if settings else "REQUEUE")) or Mode.OFF),
        _exempt(settings),
        _again_after(settings),
        any(name in parameters for name in _YOUNGEST),
    )


def qos_of(site: SiteRules) -> tuple[Qos, ...]:
    """Return the QOSs of a site with their priorities, and whom of those that are described they preempt."""
    known = {each.name for each in site.qos}
    found = []
    for each in site.qos:
        preempts = tuple(name for name in each.preempts if name in known)
        mode = _own_mode(site, each.preempt_mode)
        found.append(Qos(each.name, each.priority, preempts, mode, each.grace, each.exempt, each.usage_factor))
    return tuple(found)


def levels(site: SiteRules) -> tuple[Level, ...]:
    """Return the tiers of partitions, and what becomes of their jobs."""
    return tuple(
        Level(each.name, each.tier, _own_mode(site, each.preempt_mode), each.grace) for each in site.partitions
    )


def is_used(rules: Preemption | None, site: SiteRules) -> bool:
    """Return whether anybody may preempt anybody by these rules."""
    if rules is None:
        return False
    if rules.by == "qos":
        return any(each.preempts for each in site.qos)
    return len({each.tier for each in site.partitions}) > 1


def notes(site: SiteRules, rules: Preemption | None) -> Iterator[str]:
    """Yield what a reader of results should know about preemption at a site."""
    if rules is None:
        return
    if not site.settings and any(each.preempts for each in site.qos):
        yield "PreemptType is not given (slurm.conf or scontrol show config): taken as preempt/qos with REQUEUE"
    suspended = [f"{kind} {name}" for kind, name, mode in _modes(site, rules) if _suspends(mode)]
    if _suspends(site.settings.get("preemptmode", "")):
        suspended.insert(0, "the cluster")
    if suspended:
        yield (
            f"PreemptMode=SUSPEND of {', '.join(suspended)}: a suspended job keeps its GPUs, and nobody gains any: "
            "taken as no preemption"
        )


def unread(site: SiteRules, rules: Preemption | None) -> Iterator[Unread]:
    """Yield what is not followed of preemption, with the jobs that it may concern: victims."""
    if not is_used(rules, site) or rules is None:
        return
    if rules.by == "qos":
        victims = tuple(dict.fromkeys(("qos", name) for each in site.qos for name in each.preempts))
    else:
        highest = max(each.tier for each in site.partitions)
        victims = tuple(("partition", each.name) for each in site.partitions if each.tier < highest)
    for name, value in _parameters(site.settings).items():
        if name in _NOT and value not in ("0", "no"):
            yield Unread(f"PreemptParameters {name}" + (f"={value}" if value != "yes" else ""), victims, _NOT[name])
    exempting = {each.name for each in site.qos if each.exempt is not None}
    for partition in site.partitions:
        if partition.qos in exempting:
            what = f"PreemptExemptTime of QOS {partition.qos} as that of partition {partition.name}"
            yield Unread(what, (("partition", partition.name),), "that of the job's own QOS counts")
    given = [("cluster", "", site.settings.get("preemptmode", "")), *_modes(site, rules)]
    for kind, name, mode in given:
        for word in ("WITHIN", "PRIORITY"):
            if word in _words(mode):
                where = victims if kind == "cluster" else ((kind.lower(), name),)
                of = "" if kind == "cluster" else f" of {kind} {name}"
                yield Unread(f"PreemptMode={word}{of}", where, "the two jobs' priorities are not compared")


def _modes(site: SiteRules, rules: Preemption) -> list[tuple[str, str, str]]:
    """Return (what, name, PreemptMode) of those whose mode counts."""
    rows: tuple[QosRow | PartitionRules, ...] = site.qos if rules.by == "qos" else site.partitions
    return [("QOS" if rules.by == "qos" else "partition", each.name, each.preempt_mode) for each in rows]


def _words(mode: str) -> set[str]:
    return {word.strip() for word in mode.upper().split(",")}


def _suspends(mode: str) -> bool:
    return "SUSPEND" in _words(mode)


def _mode(text: str) -> Mode | None:
    """Return a mode; None where a QOS or a partition has that of the cluster."""
    words = _words(text) - {"", "CLUSTER", "WITHIN", "PRIORITY"}
    if not words:
        return None
    unknown = sorted(words - set(_MODES))
    if unknown:
        raise ExperimentError(f"PreemptMode {text!r} is not known: write one of {', '.join(_MODES)}, CLUSTER")
    return next(mode for name, mode in _MODES.items() if name in words)


def _own_mode(site: SiteRules, text: str) -> Mode | None:
    mode = _mode(text)
    return None if mode is None else _requeued(site.settings, mode)


def _requeued(settings: Mapping[str, str], mode: Mode) -> Mode:
    """Return what becomes of a victim: one that may not be requeued ends."""
    never = settings.get("jobrequeue", "1").lower() in ("0", "no")
    return Mode.CANCEL if never and mode is Mode.REQUEUE else mode


def _exempt(settings: Mapping[str, str]) -> int:
    text = settings.get("preemptexempttime", "")
    length = 0 if text.strip() in ("-1", "NONE") else span(text)
    if length is None:
        raise ExperimentError(f"config: PreemptExemptTime {text!r} is not a time like 00:05:00")
    return length


def _again_after(settings: Mapping[str, str]) -> int:
    """Return how long a requeued job has to wait at least: as long as its credential is good."""
    match = re.search(r"(?:^|,)\s*cred_expire=(\d+)", settings.get("authinfo", ""), re.IGNORECASE)
    return AGAIN_AFTER if match is None else int(match[1]) * SECOND


def _parameters(settings: Mapping[str, str]) -> dict[str, str]:
    """Return what PreemptParameters says, and SchedulerParameters about preemption, by name; ``yes`` without value."""
    given = settings.get("preemptparameters", "").split(",")
    older = [part for part in settings.get("schedulerparameters", "").split(",") if "preempt_" in part.lower()]
    parts = (part.partition("=") for part in (*given, *older) if part.strip())
    return {name.strip().lower(): value.strip() if equals else "yes" for name, equals, value in parts}
