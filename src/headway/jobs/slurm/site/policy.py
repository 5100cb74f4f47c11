"""Convert a Slurm site's parameters, from ``slurm.conf`` or ``scontrol show config``, to the nearest policy.

The weights, ages and periods of priority/multifactor are taken over; priority/basic is first come, first served.
sched/backfill plans a start for each of the first ``bf_max_job_test`` jobs every ``bf_interval`` seconds, which is
conservative backfilling; sched/builtin overtakes nobody. Jobs take the tightest stretch of neighbouring nodes, as
select/cons_tres does. What has no counterpart here is returned beside the policy.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.errors import ExperimentError
from headway.jobs.model.cluster import Cluster
from headway.jobs.rules.preemption.preemption import Mode
from headway.jobs.rules.preemption.tiers import tiers_of
from headway.jobs.slurm.output import conf
from headway.jobs.slurm.output.cells import span
from headway.jobs.slurm.output.records import PartitionRules, SiteRules, Unread
from headway.jobs.slurm.output.scontrol import partition_rules
from headway.jobs.slurm.site.preemption import preemption
from headway.units import DAY, SECOND

_WEIGHTS = {
    "priorityweightage": "age_weight",
    "priorityweightfairshare": "fairshare_weight",
    "priorityweightjobsize": "size_weight",
    "priorityweightqos": "qos_weight",
    "priorityweightpartition": "partition_weight",
}
_TRES_WEIGHTS = "priorityweighttres"
_TRES = {"gres/gpu": "gpu", "cpu": "cpu", "mem": "mem"}
_SPANS = {"prioritymaxage": "max_age", "prioritydecayhalflife": "half_life", "prioritycalcperiod": "period"}
_RANGES = {"bf_interval": (30, 1, 10_800), "bf_max_job_test": (500, 1, 1_000_000), "bf_window": (1440, 1, 43_200)}
"""Options of the backfill that are followed: what Slurm takes without them, the least and the most; seconds, jobs and
minutes."""
_OFF = -1
"""A bf_interval that means no backfill."""
_NO_BACKFILL = "+none"
_DEFAULT_HALF_LIFE = "7-0"
_FOR_EVER = 10_000 * DAY
_NOTHING = ("", "0", "none", "no", "n/a")
QOS_UNKNOWN = (
    "QOS priorities are not in the settings: the QOS factor is 0 for all; give --cluster qos.txt of sacctmgr show "
    "qos -P, or slurm:FILE(qos=high:1000/low:10)"
)
EQUAL_SHARES = "fair-share: accounts count equally unless associations, or cluster.tenants, give their shares"
PREEMPTION_UNKNOWN = (
    "preemption is a rule of the cluster: give this file with --cluster too, and sacctmgr show qos -P where QOSs "
    "preempt; without them nothing is preempted"
)
PREEMPTING_QOS_UNKNOWN = (
    "preemption goes by QOS: give --cluster with what sacctmgr show qos -P prints; without it nothing is preempted"
)
TIERS_UNKNOWN = (
    "PriorityTier differs between partitions: tiers are a rule of the cluster; give this file, or scontrol show "
    "partition, with --cluster too; without it they do not count"
)
NO_USAGE = "fair-share: usage starts at none; --cluster sshare.txt of sshare -a -l -P begins with that"
_SCHEDULER = (
    *("assoc_limit_stop", "default_queue_depth", "partition_job_depth", "max_sched_time", "sched_max_job_start"),
    *("defer", "defer_batch", "pack_serial_at_end"),
)
"""Other parts of SchedulerParameters that change who starts when."""
_TAKES_NO_TIME = ("bf_continue", "bf_max_time", "bf_yield_interval", "bf_yield_rpc_cnt", "bf_yield_sleep")
"""They say how long Slurm may plan without a pause; a plan takes no time here, and is made to its end."""
_CONSEQUENCES = {
    "bf_max_job_user": "all jobs of a user are planned for",
    "bf_max_job_part": "all jobs of a partition are planned for",
    "bf_max_job_assoc": "all jobs of an association are planned for",
    "bf_max_job_user_part": "all jobs of a user in a partition are planned for",
    "bf_max_job_start": "as many jobs start in a cycle as can",
    "bf_min_age_reserve": "a job is planned for from its first moment on",
    "bf_min_prio_reserve": "jobs of any priority are planned for",
    "bf_resolution": "plans are exact to the nanosecond",
}
"""What happens here in place of an option of the backfill."""
_PLAIN_TOPOLOGIES = ("", "topology/none", "topology/default", "topology/flat")
_FLAGS = ("NO_FAIR_TREE", "FAIR_TREE")
"""Priority flags that are followed."""


@dataclass(frozen=True, slots=True)
class Site:
    """A policy that stands for the site's settings, and what of them it does not follow."""

    policy: str
    notes: tuple[str, ...] = ()
    unread: tuple[Unread, ...] = ()
    """Settings of the order or the backfill that have no counterpart here."""


def read(path: str | Path) -> Site:
    """Return the site that a file of settings describes."""
    text = conf.text_of(path)
    settings = conf.settings(text)
    known = ("prioritytype", "schedulertype", "slurmctldhost", "clustername", "controlmachine", *_WEIGHTS)
    if not any(key.partition("[")[0] in known for key in settings):
        raise ExperimentError(f"config {path}: is neither a slurm.conf nor what scontrol show config prints")
    rules = (partition_rules(record, f"config {path}") for _, record in conf.records(text, "partitionname"))
    try:
        return site(settings, tuple(rules))
    except ExperimentError as problem:
        raise ExperimentError(f"config {path}: {str(problem).removeprefix('config: ')}") from None


def with_options(policy: str, options: str) -> str:
    """Return the policy of a site with options of its order set anew: ``qos=high:1000/low:10``."""
    order, _, rest = policy.partition(")+") if policy.startswith("multifactor(") else policy.partition("+")
    name, _, own = order.partition("(")
    kept = dict(part.split("=", 1) for part in own.split(",") if part)
    for part in filter(None, (part.strip() for part in options.split(","))):
        key, _, value = part.partition("=")
        kept[key.strip()] = value.strip()
    written = ",".join(f"{key}={value}" for key, value in kept.items())
    return f"{name}({written})+{rest}"


def told(notes: Iterable[str], cluster: Cluster, rules: SiteRules) -> list[str]:
    """Return the notes that hold for a cluster: one that knows QOSs, shares or tiers makes some needless."""
    kind = rules.settings.get("preempttype", "").lower()
    preempting = rules.qos if kind == "preempt/qos" else rules.partitions if kind else ()
    settled = {
        QOS_UNKNOWN: bool(cluster.qos),
        EQUAL_SHARES: bool(cluster.tenants),
        PREEMPTION_UNKNOWN: cluster.preemption is not None or bool(preempting),
        TIERS_UNKNOWN: bool(tiers_of(cluster) or rules.partitions),
        NO_USAGE: bool(rules.shares) or any(tenant.used for tenant in cluster.tenants),
    }
    left = [note for note in notes if not settled.get(note)]
    if kind != "preempt/qos":
        return left
    return [PREEMPTING_QOS_UNKNOWN if note == PREEMPTION_UNKNOWN else note for note in left]


def site(settings: Mapping[str, str], partitions: Sequence[PartitionRules] = ()) -> Site:
    """Return the policy that is nearest to a site's settings."""
    notes: list[str] = []
    policy = f"{_order(settings, notes)}{_backfill(settings)}"
    rules = preemption(settings)
    if rules is not None and rules.mode is not Mode.OFF:
        notes.append(PREEMPTION_UNKNOWN)
    if len({each.tier for each in partitions}) > 1:
        notes.append(TIERS_UNKNOWN)
    notes += () if policy.endswith(_NO_BACKFILL) else _out_of_range(settings)
    unread = tuple(Unread(f"{key}={value}", why=_CONSEQUENCES.get(key, "")) for key, value in _left(settings))
    return Site(f"{policy}+consecutive", tuple(notes), unread)


def _left(settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield settings of the order or the backfill that have a value and no counterpart here."""
    taken = ("prioritytype", "priorityfavorsmall", _TRES_WEIGHTS, *_WEIGHTS, *_SPANS)
    yield from ((_TRES_WEIGHTS, f"{name}={weight}") for name, weight in _tres(settings).items() if name not in _TRES)
    for key, value in settings.items():
        if key == "priorityflags":
            others = [flag for flag in value.split(",") if flag.strip().upper() not in ("", *_FLAGS)]
            yield from ((key, flag.strip()) for flag in others)
        elif key.startswith("priority") and key not in taken and value.lower() not in _NOTHING:
            yield key, value
    planned = _backfill(settings) != _NO_BACKFILL
    for name, value in _parameters(settings).items():
        told = name in _SCHEDULER or (planned and name.startswith("bf_") and name not in (*_RANGES, *_TAKES_NO_TIME))
        if told and value not in _NOTHING:
            yield name, value
    if settings.get("selecttype", "").lower() == "select/linear":
        yield "SelectType", settings["selecttype"]
    if (topology := settings.get("topologyplugin", "").lower()) not in _PLAIN_TOPOLOGIES:
        yield "TopologyPlugin", topology


def _order(settings: Mapping[str, str], notes: list[str]) -> str:
    kind = settings.get("prioritytype", "")
    weights = {name: _number(settings, key) for key, name in _WEIGHTS.items()}
    tres = {_TRES[name]: weight for name, weight in _tres(settings).items() if name in _TRES}
    if kind == "priority/basic" or not any((*weights.values(), *tres.values())):
        return "fifo"
    if not kind:
        notes.append("PriorityType is not given: taken for priority/multifactor, because there are weights")
    elif kind != "priority/multifactor":
        notes.append(f"PriorityType={kind} is taken for priority/multifactor")
    options = [f"{name}={weight}" for name, weight in weights.items()]
    for key, name in _SPANS.items():
        length = _span(settings.get(key) or (_DEFAULT_HALF_LIFE if name != "period" else "5"), key)
        if name == "half_life" and length == 0:
            length = _FOR_EVER  # 0 means that usage is never forgotten
        options.append(f"{name}={max(1, length // SECOND)}s")
    if settings.get("priorityfavorsmall", "no").lower() == "yes":
        options.append("favor_small=true")
    if tres:
        options.append(f"tres={'/'.join(f'{name}:{weight}' for name, weight in tres.items())}")
    if weights["fairshare_weight"]:
        if "no_fair_tree" not in settings.get("priorityflags", "").lower():
            options.append("fair_tree=true")
        notes.extend((EQUAL_SHARES, NO_USAGE))
    if weights["qos_weight"]:
        notes.append(QOS_UNKNOWN)
    return f"multifactor({','.join(options)})"


def _tres(settings: Mapping[str, str]) -> dict[str, int]:
    """Return the weights of PriorityWeightTRES by resource."""
    found = {}
    for part in filter(None, settings.get(_TRES_WEIGHTS, "").split(",")):
        name, _, weight = part.partition("=")
        if not weight.strip().isdecimal():
            raise ExperimentError(f"config: {_TRES_WEIGHTS} {part.strip()!r} is not like gres/gpu=1000")
        if int(weight):
            found[name.strip().lower()] = int(weight)
    return found


def _backfill(settings: Mapping[str, str]) -> str:
    kind = settings.get("schedulertype", "sched/backfill")
    given = _parameters(settings)
    if kind != "sched/backfill" or _parameter(given, "bf_interval") == _OFF:
        return _NO_BACKFILL
    interval, depth, window = (_counted(given, name) for name in ("bf_interval", "bf_max_job_test", "bf_window"))
    return f"+conservative(depth={depth},interval={interval}s,slurm=true,window={window}m)"


def _out_of_range(settings: Mapping[str, str]) -> Iterator[str]:
    """Say which options of the backfill Slurm would call invalid, and what counts in their place."""
    given = _parameters(settings)
    for name, (default, low, high) in _RANGES.items():
        if _counted(given, name) != (asked := _parameter(given, name)):
            yield f"{name}={asked} is not between {low} and {high:,}: {default} counts, Slurm's default"


def _counted(given: Mapping[str, str], name: str) -> int:
    """Return an option of the backfill, or its default where it is out of range, as Slurm does."""
    default, low, high = _RANGES[name]
    asked = _parameter(given, name)
    return asked if low <= asked <= high else default


def _parameters(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the parts of SchedulerParameters by name; one without a value is on."""
    parts = (part.partition("=") for part in settings.get("schedulerparameters", "").split(",") if part.strip())
    return {name.strip().lower(): value.strip() if equals else "yes" for name, equals, value in parts}


def _number(settings: Mapping[str, str], key: str) -> int:
    text = settings.get(key) or "0"
    if not text.isdecimal():
        raise ExperimentError(f"config: {key} {text!r} is not a whole number")
    return int(text)


def _parameter(parameters: Mapping[str, str], name: str) -> int:
    """Return an option of the backfill as it is written; its default where it is not."""
    text = parameters.get(name) or str(_RANGES[name][0])
    if not re.fullmatch(r"-?\d+", text):
        raise ExperimentError(f"config: SchedulerParameters {name} {text!r} is not a whole number")
    return int(text)


def _span(text: str, key: str) -> int:
    length = span(text)
    if length is None:
        raise ExperimentError(f"config: {key} {text!r} is not a time like 5, 00:05:00 or 7-0")
    return length
