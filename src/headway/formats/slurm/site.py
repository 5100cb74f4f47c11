"""Convert a Slurm site's parameters, from ``slurm.conf`` or ``scontrol show config``, to the nearest policy.

The weights, ages and periods of priority/multifactor are taken over; priority/basic is first come, first served.
sched/backfill plans a start for each of the first ``bf_max_job_test`` jobs every ``bf_interval`` seconds, which is
conservative backfilling; sched/builtin overtakes nobody. Nodes are filled in their order, as select/cons_tres does
where they have equal weights. What has no counterpart here is returned as a note.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headway.errors import ExperimentError
from headway.formats.slurm.cells import span
from headway.units import DAY, SECOND

_WEIGHTS = {
    "priorityweightage": "age_weight",
    "priorityweightfairshare": "fairshare_weight",
    "priorityweightjobsize": "size_weight",
    "priorityweightqos": "qos_weight",
    "priorityweightpartition": "partition_weight",
}
_SPANS = {"prioritymaxage": "max_age", "prioritydecayhalflife": "half_life", "prioritycalcperiod": "period"}
_BACKFILL_DEPTH = 500
_BACKFILL_INTERVAL = 30
_DEFAULT_HALF_LIFE = "7-0"
_FOR_EVER = 10_000 * DAY
_NOTHING = ("", "0", "none", "no", "n/a")
_FLAGS = ("NO_FAIR_TREE", "FAIR_TREE")
"""Priority flags that are followed."""


@dataclass(frozen=True, slots=True)
class Site:
    """A policy that stands for the site's settings, and what of them it does not follow."""

    policy: str
    notes: tuple[str, ...] = ()


def read(path: str | Path) -> Site:
    """Return the site that a file of settings describes."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ExperimentError(f"config {path}: there is no such file") from None
    except IsADirectoryError:
        raise ExperimentError(f"config {path}: is a directory, not a file") from None
    except (OSError, UnicodeDecodeError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise ExperimentError(f"config {path}: cannot be read ({reason})") from None
    settings = parse(text)
    known = ("prioritytype", "schedulertype", "slurmctldhost", "clustername", "controlmachine", *_WEIGHTS)
    if not any(key.partition("[")[0] in known for key in settings):
        raise ExperimentError(f"config {path}: is neither a slurm.conf nor what scontrol show config prints")
    return site(settings)


def parse(text: str) -> dict[str, str]:
    """Return the settings of a text by name in lower case; the last one of a name wins, as in Slurm."""
    settings = {}
    for line in text.replace("\\\n", " ").splitlines():
        plain = re.split(r"(?<!\\)#", line, maxsplit=1)[0]
        if setting := re.match(r"\s*([A-Za-z][\w\[\]]*)\s*=\s*(.*?)\s*$", plain):
            settings[setting[1].lower()] = "" if setting[2] == "(null)" else setting[2]
    return settings


def site(settings: Mapping[str, str]) -> Site:
    """Return the policy that is nearest to a site's settings."""
    notes: list[str] = []
    policy = f"{_order(settings, notes)}{_backfill(settings)}"
    preempts = settings.get("preempttype", "preempt/none")
    if preempts != "preempt/none":
        notes.append(f"PreemptType={preempts} is not followed: nothing is preempted")
    notes.extend(f"{key}={value} is not followed" for key, value in _left(settings))
    return Site(f"{policy}+first-fit", tuple(notes))


def _left(settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield settings of the order or the backfill that have a value and no counterpart here."""
    taken = ("prioritytype", "priorityfavorsmall", *_WEIGHTS, *_SPANS)
    for key, value in settings.items():
        if key == "priorityflags":
            others = [flag for flag in value.split(",") if flag.strip().upper() not in ("", *_FLAGS)]
            yield from ((key, flag.strip()) for flag in others)
        elif key.startswith("priority") and key not in taken and value.lower() not in _NOTHING:
            yield key, value
    for name, value in _parameters(settings).items():
        if name.startswith("bf_") and name not in ("bf_interval", "bf_max_job_test") and value not in _NOTHING:
            yield name, value


def _order(settings: Mapping[str, str], notes: list[str]) -> str:
    kind = settings.get("prioritytype", "")
    weights = {name: _number(settings, key) for key, name in _WEIGHTS.items()}
    if kind == "priority/basic" or not any(weights.values()):
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
    if weights["fairshare_weight"]:
        if "no_fair_tree" not in settings.get("priorityflags", "").lower():
            options.append("fair_tree=true")
        notes.append("fair-share: accounts count equally unless cluster.tenants gives weights; usage starts at none")
    if weights["qos_weight"]:
        notes.append("QOS priorities are not in the settings: the QOS factor is 0 for all")
    return f"multifactor({','.join(options)})"


def _backfill(settings: Mapping[str, str]) -> str:
    kind = settings.get("schedulertype", "sched/backfill")
    given = _parameters(settings)
    interval = _parameter(given, "bf_interval", _BACKFILL_INTERVAL)
    if kind != "sched/backfill" or interval < 0:
        return "+none"
    depth = _parameter(given, "bf_max_job_test", _BACKFILL_DEPTH)
    return f"+conservative(depth={max(1, depth)},interval={interval}s)"


def _parameters(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the parts of SchedulerParameters by name; one without a value is on."""
    parts = (part.partition("=") for part in settings.get("schedulerparameters", "").split(",") if part.strip())
    return {name.strip().lower(): value.strip() if equals else "yes" for name, equals, value in parts}


def _number(settings: Mapping[str, str], key: str) -> int:
    text = settings.get(key) or "0"
    if not text.isdecimal():
        raise ExperimentError(f"config: {key} {text!r} is not a whole number")
    return int(text)


def _parameter(parameters: Mapping[str, str], name: str, default: int) -> int:
    text = parameters.get(name) or str(default)
    if not re.fullmatch(r"-?\d+", text):
        raise ExperimentError(f"config: SchedulerParameters {name} {text!r} is not a whole number")
    return int(text)


def _span(text: str, key: str) -> int:
    length = span(text)
    if length is None:
        raise ExperimentError(f"config: {key} {text!r} is not a time like 5, 00:05:00 or 7-0")
    return length
