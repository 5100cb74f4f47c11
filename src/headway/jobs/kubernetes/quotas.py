"""Turn ResourceQuotas (``kubectl get resourcequota -A -o json``) into limits of their namespaces.

A namespace is the tenant of its jobs. Kubernetes counts a pod from its creation on and refuses one that does not fit,
which its controller then tries again: here a job that does not fit waits, and counts while it runs.
"""

from collections.abc import Iterator, Sequence

from headway.jobs.kubernetes.objects import Item
from headway.jobs.kubernetes.resources import ObjectError, Quantity, counts_devices, thousandths
from headway.jobs.rules.limits.limit import LimitRule
from headway.jobs.slurm.output.records import Unread

KIND = "ResourceQuota"
_ORDINARY = {"cpu": ("cpus", 1), "memory": ("memory", 1000), "pods": ("jobs", 1000), "count/pods": ("jobs", 1000)}
"""What a quota counts, what that is here, and how many thousandths make one of it."""
_EVERY_GPU_POD = "NotBestEffort"
"""A scope that holds every pod that asks for anything."""
_WHY = {
    "limits.": "what containers may use beyond their requests is not counted",
    "count/": "objects other than pods are not counted",
}
Where = tuple[tuple[str, str], ...]


def limits_of(quotas: Sequence[Item]) -> tuple[tuple[LimitRule, ...], tuple[Unread, ...], tuple[str, ...]]:
    """Return the limits that quotas stand for, what of them is not followed, and notes."""
    rules: list[LimitRule] = []
    unread: list[Unread] = []
    for item in quotas:
        name, namespace = item.metadata.name, item.metadata.namespace
        where, not_followed = _scope(item)
        for key, value in (item.spec.hard or {}).items():
            found = None if not_followed else _limit(f"{KIND} {name} {key}", key, value, where)
            if found is None:
                why = not_followed or next((why for start, why in _WHY.items() if key.startswith(start)), "")
                what = f"{key}={value} of {KIND} {namespace}/{name}"
                unread.append(Unread(what, (("tenant", namespace),), why or "is not counted"))
            else:
                rules.append(found)
    return tuple(rules), tuple(unread), tuple(_notes(rules))


def _notes(rules: Sequence[LimitRule]) -> Iterator[str]:
    if rules:
        yield "resource quotas: a job counts while it runs; Kubernetes counts its pods from their creation on"
    if any(rule.kind == "jobs" for rule in rules):
        yield "resource quotas of pods: a job of several pods counts as one"
    for rule in rules:
        if rule.most == 0:
            yield f"{rule}: is 0: no job that counts there can start"


def _limit(name: str, key: str, value: Quantity, where: Where) -> LimitRule | None:
    """Return one limit; None where it counts what is not counted here."""
    plain = key.removeprefix("requests.")
    if plain in _ORDINARY:
        resource, unit = _ORDINARY[plain]
    elif counts_devices(plain):
        resource, unit = "gpus", 1
    else:
        return None
    amount = thousandths(str(value), key)
    if resource != "cpus" and amount % 1000:
        raise ObjectError(f"spec.hard.{key}", value, "must be a whole number", KIND)
    return LimitRule(name, resource, amount // unit, where)


def _scope(item: Item) -> tuple[Where, str]:
    """Return which jobs a quota is about; and why it is not followed, where its scope cannot be told."""
    where: Where = (("tenant", item.metadata.namespace),)
    for scope in item.spec.scopes or ():
        if scope != _EVERY_GPU_POD:
            return where, f"its scope {scope} is not told apart"
    chosen = item.spec.scope_selector
    for each in chosen.match_expressions or () if chosen else ():
        if each.scope_name == "PriorityClass" and each.operator == "In" and each.values:
            where = (*where, *(("qos", value) for value in each.values))
        elif each.scope_name != _EVERY_GPU_POD:
            return where, f"its scope {each.scope_name} {each.operator} is not told apart"
    return where, ""
