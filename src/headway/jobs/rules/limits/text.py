"""Say in one line what a limit is about, and who holds how much under it."""

from collections.abc import Mapping

from headway.jobs.rules.limits.counters import Alone, Counter, Submitted
from headway.jobs.rules.limits.limit import AGEING, ANY, PER_NODE, LimitRule
from headway.units import format_duration, format_memory

MOST_HOLDERS = 3
"""Of those that hold what a limit counts, so many are named."""
_NOUNS = {
    **{key: key for key in ("account", "user", "partition", "array")},
    "tenant": "account",
    "qos": "QOS",
}
_OWNERS = ("user", "account", "tenant", "array")


def told(counter: Counter, now: int, wanted: int) -> str:
    """Return the limit that stops a job: ``QOSMaxGRESPerUser: alice holds 24 of 24 GPUs under QOS long``."""
    rule = counter.rule
    most = quantity(rule, rule.bound(counter.most))
    if rule.least:
        asked = quantity(rule, rule.bound(wanted))
        return f"{rule.name}: it wants {asked}, at least {most} must be asked for{_under(counter)}"
    if isinstance(counter, Submitted):
        return f"{rule.name}: {owner(counter)} has {counter.held} of {most} in the system{_under(counter)}"
    if isinstance(counter, Alone) or wanted > counter.most:
        return f"{rule.name}: it wants {quantity(rule, wanted)}, at most {most} may be had{_under(counter)}"
    verb = "has used" if rule.is_used else "may still use" if rule.is_promised else "holds"
    line = f"{rule.name}: {owner(counter)} {verb} {_bare(rule, counter.level(now))} of {most}{_under(counter)}"
    return line if rule.kind == "jobs" or wanted <= 1 else f"{line}, it wants {quantity(rule, wanted)}"


def told_with_holders(counter: Counter, now: int, wanted: int, holders: Mapping[str, int]) -> str:
    """Return the same without the limit's name, and with who holds how much."""
    rule = counter.rule
    text = told(counter, now, wanted).removeprefix(f"{rule.name}: ")
    listed = [f"job {name} ({quantity(rule, held)})" for name, held in holders.items()]
    more = f" and {len(listed) - MOST_HOLDERS} more" if len(listed) > MOST_HOLDERS else ""
    return f"{text}; {', '.join(listed[:MOST_HOLDERS])}{more}" if listed else text


def owner(counter: Counter) -> str:
    """Return whose counter it is: ``alice``, ``account bio``, ``everybody``."""
    rule = counter.rule
    per = [key for key in rule.per if key != "job"]
    named = [value if key == "user" else f"{_NOUNS[key]} {value}" for key, value in zip(per, counter.of, strict=True)]
    if not named:
        chosen = [(key, value) for key, value in _chosen(rule) if key in _OWNERS]
        named = [value if key == "user" else f"{_NOUNS[key]} {value}" for key, value in chosen[:1]]
    return " in ".join(named) or "everybody"


def _chosen(rule: LimitRule) -> list[tuple[str, str]]:
    """Return which jobs a rule chooses; of several selectors of which any will do the first."""
    several = [tuple(value.split(":", 1)) for key, value in rule.where if key == ANY]
    return [*(pair for pair in rule.where if pair[0] != ANY), *((key, value) for key, value in several[:1])]


def _under(counter: Counter) -> str:
    rule = counter.rule
    own = set(_OWNERS) if not [key for key in rule.per if key != "job"] else set(rule.per)
    named = [f"{_NOUNS[key]} {value}" for key, value in _chosen(rule) if key not in own]
    return f" under {' and '.join(named)}" if named else ""


def quantity(rule: LimitRule, amount: int) -> str:
    """Return an amount of a rule's resource with its unit: ``24 GPUs``, ``500 GB``, ``1000 GPU-hours``."""
    kind, gpus = rule.kind, f"{rule.gpu_type} GPU" if rule.gpu_type else "GPU"
    if kind in PER_NODE:
        resource = rule.resource.replace("_per_node", "", 1)
        return f"{quantity(LimitRule(rule.name, resource, 0), amount)} on each node"
    units = {"gpus": gpus, "cpus": "CPU", "nodes": "node", "jobs": "running job", "submitted": "job"}
    units[AGEING] = "ageing job"
    units["licences"] = f"{rule.licence} licence"
    if kind == "wall":
        return format_duration(amount)
    if kind == "memory":
        return f"{format_memory(amount)} of memory"
    if kind.endswith("_time"):
        if "wall" in kind:
            return f"{_bare(rule, amount)} hours of run time"
        return f"{_bare(rule, amount)} {gpus if 'gpu' in kind else 'CPU'}-hours"
    number = _bare(rule, amount)
    return f"{number} {units[kind]}{'' if number == '1' else 's'}"


def _bare(rule: LimitRule, amount: int) -> str:
    kind = rule.kind
    if kind in ("gpus", "cpus"):
        return f"{amount / 1000:g}"
    if kind.endswith("_time"):
        return f"{amount / 3_600_000_000_000_000:.6g}"
    return format_memory(amount) if kind == "memory" else f"{amount:,}"
