"""Say what an error of a replay likely comes from, and what would close it: files to give, or to doubt if given."""

from collections.abc import Collection
from typing import NamedTuple

RULES = (
    *("qos", "association", "partition", "usage", "reservation", "event"),
    *("transaction", "nodes", "settings", "throttle", "dependency", "eligible", "licence"),
)
"""What a site's files may tell: limits of QOSs, of accounts and users, of partitions; usage before the window;
reservations; nodes that were down; limits that were others before; which node has which GPUs; slurm.conf; and of the
log array throttles, dependencies, when jobs were eligible, and licences that the site counts."""


class Cause(NamedTuple):
    """What an error likely comes from."""

    text: str
    remedy: str
    rule: str
    """Which of ``RULES`` it is about; empty: none of them."""


_REASONS: tuple[tuple[tuple[str, ...], str, str, str], ...] = (
    (
        ("QOS", "MaxTRES", "MaxGRES", "MaxJobs", "MaxCpu", "MaxNode", "MaxMem", "MaxBilling"),
        "qos",
        "QOS limits",
        "give the limits: --cluster with what sacctmgr show qos -P prints",
    ),
    (
        ("Assoc",),
        "association",
        "limits of accounts and users",
        "give them: --cluster with what sacctmgr show assoc -P prints",
    ),
    (("JobArrayTaskLimit",), "throttle", "array throttles", "dump SubmitLine as well, which has them"),
    (("Dependency",), "dependency", "dependencies", "dump Eligible and SubmitLine as well"),
    (("BeginTime", "JobHeld"), "eligible", "jobs that were held, or to begin later", "dump Eligible as well"),
    (("Reservation", "ReqNodeNotAvail"), "reservation", "reservations, and nodes that were down",
     ""),
    (("NodeDown", "Nodes_required", "BadConstraints"), "event", "nodes that were down", "give sacctmgr show events"),
    (("Licenses",), "licence", "licences", "say how many there are: Licenses in slurm.conf by --cluster, or a limit"),
    (("Partition",), "partition", "limits of partitions", "give scontrol show partition by --cluster"),
)  # fmt: skip
_GROUPS: dict[str, tuple[str, str, str]] = {
    "qos": ("qos", "QOS limits, or the priority of the QOS", "give sacctmgr show qos -P by --cluster"),
    "partition": (
        "partition",
        "limits, tiers or nodes of the partition",
        "give scontrol show partition by --cluster",
    ),
    "gpu_type": ("nodes", "which nodes have these GPUs", "give scontrol show node by --cluster"),
    "account": (
        "usage",
        "shares of the account, and use before the window",
        "give sshare -a -l -P by --cluster",
    ),
    "user": ("usage", "shares of the user, and use before the window", "give sshare -a -l -P by --cluster"),
}
_THEN = ("transaction", "whether they were others then (sacctmgr show transactions)")
_GIVEN: dict[str, tuple[tuple[str, str], ...]] = {
    "qos": (_THEN, ("", "whether the log has the jobs of all users (sacct -a)")),
    "association": (_THEN,),
    "partition": (("event", "whether nodes were away (sacctmgr show events)"),),
    "nodes": (("event", "whether nodes were away (sacctmgr show events)"),),
}
"""Where to look if a rule was given, each unless a file tells that already."""


def _looked_at(rule: str, given: Collection[str]) -> str:
    """Return where else to look for what a rule, which was given, leaves open."""
    places = [told for known, told in _GIVEN.get(rule, ()) if known not in given]
    said = "its rules were given" if rule == "partition" else "they were given"
    return f"{said}: look {', '.join((*places, ''))}{'and ' if places else ''}at what the notes call not followed"


def _remedy(rule: str, given: Collection[str], remedy: str) -> str:
    """Return what would close an error of a rule: the files that tell it, or where to look if all were given."""
    if rule != "reservation":
        return _looked_at(rule, given) if rule in given else remedy
    missing = [file for known, file in _AWAY.items() if known not in given]
    return f"give {' and '.join(missing)}" if missing else _looked_at(rule, given)


LIMITS = ("qos", "association", "partition")
"""Rules that limit what jobs may hold."""
_AWAY = {"reservation": "scontrol show reservation", "event": "sacctmgr show events"}
"""The files that tell why nodes could not be had."""
_OTHER = "the files that were given have no such limit: print all columns (sacctmgr show qos -P, show assoc -P)"


def for_reason(reason: str, given: Collection[str] = ()) -> Cause | None:
    """Return what a reason of Slurm stands for, and what would close it; None for other reasons.

    ``given``, of ``RULES``, is what the files of the site told already.
    """
    for prefixes, rule, cause, remedy in _REASONS:
        if reason.startswith(prefixes):
            return Cause(cause, _remedy(rule, given, remedy), rule)
    return None


def limit_not_given(reason: str, given: Collection[str], limits: Collection[str]) -> str:
    """Return which file would tell a limit that a reason names and nobody gave; empty: it is no limit, or was given.

    ``limits`` are the names of those that were.
    """
    for prefixes, rule, _, remedy in _REASONS:
        if reason.startswith(prefixes) and rule in LIMITS:
            if rule not in given:
                return remedy
            then = "" if "transaction" in given else ", and look whether it was there then (sacctmgr show transactions)"
            return "" if rule == "partition" or reason in limits else f"{_OTHER}{then}"
    return ""


def for_group(by: str, given: Collection[str] = ()) -> Cause:
    """Return what errors of one QOS, partition, GPU type, account or user likely come from."""
    rule, cause, remedy = _GROUPS[by]
    if rule == "qos" and "settings" not in given:
        remedy += ", and --config slurm.conf"
    return Cause(cause, _remedy(rule, given, remedy), rule)


GROUPS = tuple(_GROUPS)
