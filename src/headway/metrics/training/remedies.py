"""Say what an error of a replay likely comes from, and what would close it: files to give, or to doubt if given."""

from collections.abc import Collection

Cause = tuple[str, str]
"""What it likely is, and the remedy."""
RULES = ("qos", "association", "partition", "usage", "reservation", "event")
"""What a site's files may tell: limits of QOSs, of accounts and users, of partitions; usage before the window;
reservations; nodes that were down."""

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
    (("JobArrayTaskLimit",), "", "array throttles", "dump SubmitLine as well, which has them"),
    (("Dependency",), "", "dependencies", "dump Eligible and SubmitLine as well"),
    (("BeginTime", "JobHeld"), "", "jobs that were held, or to begin later", "dump Eligible as well"),
    (("Reservation", "ReqNodeNotAvail"), "reservation", "reservations, and nodes that were down",
     "give scontrol show reservation and sacctmgr show events"),
    (("NodeDown", "Nodes_required", "BadConstraints"), "event", "nodes that were down", "give sacctmgr show events"),
    (("Licenses",), "", "licences", "say how many there are: Licenses in slurm.conf by --cluster, or a limit"),
    (("Partition",), "partition", "limits of partitions", "give scontrol show partition by --cluster"),
)  # fmt: skip
_GROUPS: dict[str, tuple[str, str, str]] = {
    "qos": ("qos", "QOS limits, or the priority of the QOS", "give sacctmgr show qos -P by --cluster, and --config"),
    "partition": (
        "partition",
        "limits, tiers or nodes of the partition",
        "give scontrol show partition by --cluster",
    ),
    "gpu_type": ("", "which nodes have these GPUs", "give scontrol show node by --cluster"),
    "account": (
        "usage",
        "shares of the account, and use before the window",
        "give sshare -a -l -P by --cluster",
    ),
    "user": ("usage", "shares of the user, and use before the window", "give sshare -a -l -P by --cluster"),
}
_GIVEN = {
    "qos": "they were given: look whether they were others then (sacctmgr show transactions), whether the log has the "
    "jobs of all users (sacct -a), and at what the notes call not followed",
    "association": "they were given: look whether they were others then (sacctmgr show transactions), and at what the "
    "notes call not followed",
    "partition": "its rules were given: look at what the notes call not followed, and whether nodes were away "
    "(sacctmgr show events)",
    "usage": "they were given: look at what the notes call not followed",
    "reservation": "they were given: look at what the notes call not followed",
    "event": "they were given: look at what the notes call not followed",
}


_LIMITS = ("qos", "association", "partition")
_OTHER = (
    "the files that were given have no such limit: print all columns (sacctmgr show qos -P, show assoc -P), and look "
)
_OTHER += "whether it was there then (sacctmgr show transactions)"


def for_reason(reason: str, given: Collection[str] = ()) -> Cause | None:
    """Return what a reason of Slurm stands for, and what would close it; None for other reasons.

    ``given``, of ``RULES``, is what the files of the site told already.
    """
    for prefixes, rule, cause, remedy in _REASONS:
        if reason.startswith(prefixes):
            return cause, _GIVEN[rule] if rule in given else remedy
    return None


def limit_not_given(reason: str, given: Collection[str], limits: Collection[str]) -> str:
    """Return which file would tell a limit that a reason names and nobody gave; empty: it is no limit, or was given.

    ``limits`` are the names of those that were.
    """
    for prefixes, rule, _, remedy in _REASONS:
        if reason.startswith(prefixes) and rule in _LIMITS:
            if rule not in given:
                return remedy
            return "" if rule == "partition" or reason in limits else _OTHER
    return ""


def for_group(by: str, given: Collection[str] = ()) -> Cause:
    """Return what errors of one QOS, partition, GPU type, account or user likely come from."""
    rule, cause, remedy = _GROUPS[by]
    return cause, _GIVEN[rule] if rule in given else remedy


GROUPS = tuple(_GROUPS)
