"""Write changes of a site's rules as the commands that would make them: ``sacctmgr modify``, ``scontrol update``.

Nothing is executed. What ``scontrol update`` sets is forgotten when slurmctld starts anew: slurm.conf must say it too.
"""

import shlex
from collections.abc import Iterator, Mapping

from headway.jobs.slurm.output import bounds as limits
from headway.jobs.slurm.output.records import Bound, SiteRules
from headway.jobs.slurm.site.modify import BARE, Rules, Value, preempts_by_qos

_SPELT = {"GrpSubmit": "GrpSubmitJobs", "MaxSubmit": "MaxSubmitJobs", "MinTRES": "MinTRESPerJob"} | {
    f"MaxSubmit{per}": f"MaxSubmitJobs{per}" for per in ("PU", "PA")
}
"""Limits that sacctmgr shows under one name and sets under another."""


def commands(site: SiteRules, rules: Rules) -> list[str]:
    """Return a line a change; ``site`` is what holds before them."""
    return [line for whose, pairs in rules.items() for line in _lines(site, whose, pairs)]


def _lines(site: SiteRules, whose: str, pairs: Mapping[str, Value]) -> Iterator[str]:
    kind, _, name = whose.partition(" ")
    kind = kind.lower()
    if kind in BARE:
        for key, value in pairs.items():
            yield from _preemption(site, key, str(value)) if kind == "preempt" else [_shares(key, value)]
    elif kind == "partition":
        given = " ".join(shlex.quote(f"{key}={value}") for key, value in pairs.items())
        yield f"scontrol update {shlex.quote(f'PartitionName={name}')} {given}"
    else:
        whom = f"qos {shlex.quote(name)}" if kind == "qos" else _association(name)
        bounds = _bounds(site, kind, name)
        given = " ".join(shlex.quote(_assigned(key, str(value), bounds)) for key, value in pairs.items())
        yield f"sacctmgr modify {whom} set {given}"


def _bounds(site: SiteRules, kind: str, name: str) -> tuple[Bound, ...]:
    if kind == "qos":
        return next((each.bounds for each in site.qos if each.name == name), ())
    account, _, user = name.partition("/")
    rows = (each for each in site.associations if (each.account, each.user, each.partition) == (account, user, ""))
    return next((each.bounds for each in rows), ())


def _assigned(key: str, value: str, bounds: tuple[Bound, ...]) -> str:
    """Return ``KEY=VALUE``; a limit that is lifted is -1, for each resource that it was on."""
    name = limits.canonical(key)
    if name is None:
        return f"{key}={value}"
    spelt = _SPELT.get(name, name)
    if resource := limits.resource_of(key):
        value = f"{resource}={value or -1}"
    if value.strip().lower() not in ("", "-1", "none"):
        return f"{spelt}={value}"
    held = [each.tres for each in bounds if each.name == name and each.tres]
    return f"{spelt}={','.join(f'{tres}=-1' for tres in held) or '-1'}"


def _association(name: str) -> str:
    account, _, user = name.partition("/")
    if user:
        return f"user {shlex.quote(user)} where {shlex.quote(f'account={account}')}"
    return f"account {shlex.quote(account)}"


def _shares(name: str, value: Value) -> str:
    return f"sacctmgr modify {_association(name)} set fairshare={value}"


def _preemption(site: SiteRules, name: str, value: str) -> Iterator[str]:
    if not preempts_by_qos(site, name):
        yield f"scontrol update {shlex.quote(f'PartitionName={name}')} PreemptMode={value.upper()}"
    elif value.lower() != "off":
        yield f"sacctmgr modify qos {shlex.quote(name)} set PreemptMode={value.lower()}"
    else:
        for each in site.qos:
            if name in each.preempts:
                yield f"sacctmgr modify qos {shlex.quote(each.name)} set {shlex.quote(f'Preempt-={name}')}"
