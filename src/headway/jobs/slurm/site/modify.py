"""Change a site's records as ``sacctmgr modify`` and ``scontrol update`` would, before they are turned into rules.

A change stands under what it concerns: ``{"qos long": {"MaxTRESPU": "gres/gpu=32"}, "partition debug":
{"PriorityTier": 2}, "account bio": {"GrpTRES": "cpu=64"}, "preempt": {"scavenger": "off"}, "shares": {"bio": 40}}``.
As in Slurm, -1 or nothing lifts a limit, and resources that a list does not name keep theirs. A cap of 0 on times or
nodes, under which Slurm starts nothing, is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from headway.errors import ExperimentError, unknown_name
from headway.jobs.slurm.output import bounds as limits
from headway.jobs.slurm.output.cells import span
from headway.jobs.slurm.output.records import Association, Bound, PartitionRules, Qos, Share, SiteRules
from headway.jobs.slurm.site.accounts import Tree
from headway.units import DAY, HOUR, MINUTE, SECOND

Value = str | int | float
Rules = Mapping[str, Mapping[str, Value]]
KINDS = ("qos", "partition", "account", "preempt", "shares")
BARE = ("preempt", "shares")
"""What stands without a name: its keys are names."""
MODES = ("off", "requeue", "cancel", "suspend")
_LIFTED = ("", "-1", "none")
_NEVER = "no job could ever start; -1 lifts a limit"
_USERS = ("MaxJobs", "MaxSubmit", "MaxJobsAccrue")
"""Limits that only associations have."""
_QOS_ONLY = (limits.MINIMUM,)
_PER = ("PU", "PA")
"""Endings of limits that only QOSs have."""
_GIBIBYTE, _MEBIBYTE = 2**30, 2**20
_NEEDS = {
    "QOS": "sacctmgr show qos -P",
    "partition": "scontrol show partition",
    "account": "sacctmgr show assoc -P",
}


@dataclass(frozen=True, slots=True)
class Modified:
    """A site's records after some changes."""

    site: SiteRules
    told: tuple[str, ...] = ()
    """What is another than before, a line each."""


@dataclass(slots=True)
class _Change:
    site: SiteRules
    told: list[str] = field(default_factory=list)

    def say(self, what: str, now: str, before: str) -> None:
        if now != before:
            self.told.append(f"{what} {now} instead of {before}")


def modified(site: SiteRules, rules: Rules) -> Modified:
    """Return the records with all changes, in their order, and what they change."""
    change = _Change(site)
    for whose, pairs in rules.items():
        kind, _, name = whose.strip().partition(" ")
        kind, name = kind.lower(), name.strip()
        if kind not in KINDS:
            raise ExperimentError(f"rules: {unknown_name('kind of rule', kind, KINDS)}")
        if bool(name) is (kind in BARE):
            raise ExperimentError(f"rules: {whose!r}: write {kind if kind in BARE else f'{kind} NAME'} and its keys")
        for key, value in pairs.items():
            _CHANGES[kind](change, name, key, str(value).strip())
    return Modified(change.site, tuple(change.told))


def _unknown(what: str, name: str, known: Any) -> ExperimentError:
    """Return what to say about a name that no file describes."""
    names = sorted(set(known))
    if not names:
        return ExperimentError(
            f"{what} {name}: the cluster files describe no {what}: give --cluster with what {_NEEDS[what]} prints"
        )
    return ExperimentError(unknown_name(what, name, names))


# --- QOS --------------------------------------------------------------------------------------------------------------


def _of_qos(change: _Change, name: str, key: str, value: str) -> None:
    found = next((each for each in change.site.qos if each.name == name), None)
    if found is None:
        raise _unknown("QOS", name, (each.name for each in change.site.qos))
    if limits.canonical(key) is not None:
        made = replace(found, bounds=_limited(change, f"QOS {name}", found.bounds, key, value, _USERS))
        if made != found:
            _forget(change, f"QOS {name}", key)
    else:
        made = _set(change, f"QOS {name}", found, key, value, _QOS_KEYS, [x for x in limits.KNOWN if x not in _USERS])
    unknown = set(made.preempts) - {each.name for each in change.site.qos}
    if unknown:
        raise _unknown("QOS", sorted(unknown)[0], (each.name for each in change.site.qos))
    change.site = replace(change.site, qos=tuple(made if each.name == name else each for each in change.site.qos))


def _limited(
    change: _Change, whose: str, bounds: tuple[Bound, ...], key: str, value: str, refused: tuple[str, ...]
) -> tuple[Bound, ...]:
    """Return limits with one of them set, raised, lowered or lifted."""
    name = limits.canonical(key)
    assert name is not None
    if name in limits.UNFOLLOWED:
        raise ExperimentError(f"{whose}: {key} is not followed ({limits.UNFOLLOWED[name]}): nothing would change")
    if name in refused or (refused != _USERS and (name.endswith(_PER) or name in _QOS_ONLY)):
        kind = whose.partition(" ")[0]
        raise ExperimentError(f"{whose}: {name} is no limit of {'a QOS' if kind == 'QOS' else 'an account or a user'}")
    own = {each.tres: each for each in bounds if each.name == name}
    after = dict(own)
    if value.lower() in _LIFTED:
        after = {}
    elif name in limits.COUNTS or name in limits.WALLS:
        after = {"": next(limits.parsed(name, value, whose))}
        if name in limits.WALLS and not after[""].most:
            raise ExperimentError(f"{whose}: {name} is 0: {_NEVER}")
    else:
        for part in _listed(name, key, value, whose):
            tres, _, amount = part.rpartition("=")
            made = next(limits.parsed(name, part, whose), None) if amount.strip() else None
            named = made.tres if made else tres.strip()
            after.pop(named, None)
            if made is not None:
                if not limits.understood(made.tres, name):
                    raise ExperimentError(f"{whose}: {name} of {made.tres} {limits.uncounted(made.tres)}")
                after[named] = made
    if {tres: each.most for tres, each in own.items()} == {tres: each.most for tres, each in after.items()}:
        return bounds
    for tres in dict.fromkeys((*own, *after)):
        what = f"{whose}: {name} {tres}".rstrip()
        change.say(what, _shown(after.get(tres)), _shown(own.get(tres)))
    return (*(each for each in bounds if each.name != name), *(each._replace(history=()) for each in after.values()))


def _forget(change: _Change, whose: str, key: str) -> None:
    """Leave out what a limit was set to earlier: the amount that is set now holds all the time."""
    name, kept = limits.canonical(key), []
    for each in change.site.changes:
        kind, _, numbers = each.what.partition(" ")
        everyone = [f"{kind} {one}" for one in numbers.split(", ")] if kind == "association" else [each.what]
        others = [one for one in everyone if one != whose]
        if len(others) < len(everyone) and name in each.names:
            if others:
                kept.append(replace(each, what=f"{kind} {', '.join(one.partition(' ')[2] for one in others)}"))
            names = tuple(one for one in each.names if one != name)
            values = tuple(pair for pair in each.values if pair[0] != name)
            each = replace(each, what=whose, names=names, values=values)
        if each.names:
            kept.append(each)
    change.site = replace(change.site, changes=tuple(kept))


def _listed(name: str, key: str, value: str, whose: str) -> list[str]:
    """Return the parts of a list of resources; a plain number stands for the resource of an old name (MaxCPUs)."""
    tres = limits.resource_of(key)
    parts = [f"{tres}={value}"] if tres else [part.strip() for part in value.split(",")]
    if any("=" not in part for part in parts):
        raise ExperimentError(f"{whose}: {name} {value!r} is not a list like gres/gpu=8,cpu=400")
    return parts


def _shown(bound: Bound | None) -> str:
    """Return an amount as Slurm writes it."""
    if bound is None:
        return "no limit"
    if bound.tres == "mem":
        whole = bound.most % _GIBIBYTE == 0
        return f"{bound.most // _GIBIBYTE}G" if whole else f"{bound.most // _MEBIBYTE}M"
    return slurm_span(bound.most) if bound.name in limits.WALLS else str(bound.most)


def slurm_span(length: int) -> str:
    """Return a span as Slurm writes it: ``1-00:00:00``."""
    days, rest = divmod(length, DAY)
    clock = f"{rest // HOUR:02}:{rest % HOUR // MINUTE:02}:{rest % MINUTE // SECOND:02}"
    return f"{days}-{clock}" if days else clock


# --- keys of a record -------------------------------------------------------------------------------------------------

_Keys = Mapping[str, tuple[str, str, Callable[[str, str], Any]]]
"""By name in lower case: how it is spelt, its field, and how its value is read."""


def _whole(text: str, what: str) -> int:
    if not text.isdecimal() or len(text) > 10:
        raise ExperimentError(f"{what} {text!r} {limits.wrong_number(text)}")
    return int(text)


def _cap(read: Callable[[str, str], int]) -> Callable[[str, str], int]:
    """Return how a cap is read: 0 in a record means none, so one of 0, under which nothing could run, is refused."""

    def reader(text: str, what: str) -> int:
        if text.lower() in (*_LIFTED, "unlimited", "infinite"):
            return 0
        if not (found := read(text, what)):
            raise ExperimentError(f"{what} is 0: {_NEVER}")
        return found

    return reader


def _time(text: str, what: str) -> int:
    if text.lower() in _LIFTED:
        return 0
    length = span(text)
    if length is None:
        raise ExperimentError(f"{what} {text!r} is not a time like 1-00:00:00")
    return length


def _names(text: str, _what: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip() and name.strip() != "-1")


def _flags(text: str, what: str) -> frozenset[str]:
    return frozenset(name.lower() for name in _names(text, what))


def _mode(text: str, what: str) -> str:
    if text.lower() not in (*MODES, "cluster", "gang"):
        raise ExperimentError(f"{what}: {unknown_name('mode', text, MODES)}")
    return text.lower()


def _seconds(text: str, what: str) -> int:
    return _whole(text, what) * SECOND if text.isdecimal() else _time(text, what)


def _factor(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ExperimentError(f"{what} {text!r} is not a number") from None


_QOS_KEYS: _Keys = {
    "priority": ("Priority", "priority", _whole),
    "preempt": ("Preempt", "preempts", _names),
    "preemptmode": ("PreemptMode", "preempt_mode", _mode),
    "gracetime": ("GraceTime", "grace", _seconds),
    "preemptexempttime": ("PreemptExemptTime", "exempt", lambda text, what: _time(text, what) if text else None),
    "flags": ("Flags", "flags", _flags),
    "usagefactor": ("UsageFactor", "usage_factor", _factor),
    "limitfactor": ("LimitFactor", "limit_factor", lambda text, what: _factor(text, what) if text != "-1" else None),
}
_PARTITION_KEYS: _Keys = {
    "prioritytier": ("PriorityTier", "tier", _whole),
    "maxtime": ("MaxTime", "most_time", _cap(_time)),
    "maxnodes": ("MaxNodes", "most_nodes", _cap(_whole)),
    "qos": ("QOS", "qos", lambda text, _what: "" if text.lower() in _LIFTED else text),
    "preemptmode": ("PreemptMode", "preempt_mode", lambda text, what: _mode(text, what).upper()),
    "gracetime": ("GraceTime", "grace", _seconds),
}


_Record = TypeVar("_Record", Qos, PartitionRules)


def _set(change: _Change, whose: str, record: _Record, key: str, value: str, keys: _Keys, others: Any = ()) -> _Record:
    """Return a record with one key set."""
    if key.lower() not in keys:
        valid = (*(spelt for spelt, _, _ in keys.values()), *others)
        raise ExperimentError(f"{whose}: {unknown_name('key', key, valid)}")
    spelt, name, read = keys[key.lower()]
    made = read(value, f"{whose}: {spelt}")
    before = getattr(record, name)
    change.say(f"{whose}: {spelt}", _said(name, made), _said(name, before))
    return replace(record, **{name: made})


def _said(name: str, value: Any) -> str:
    if isinstance(value, tuple | frozenset):
        return ", ".join(value if isinstance(value, tuple) else sorted(value)) or "none"
    if name in ("most_time", "grace", "exempt"):
        return slurm_span(value) if value else "no limit" if name == "most_time" else "none"
    return "no limit" if name == "most_nodes" and not value else str(value) or "none"


# --- partitions, preemption, accounts ---------------------------------------------------------------------------------


def _of_partition(change: _Change, name: str, key: str, value: str) -> None:
    found = [each for each in change.site.partitions if each.name == name]
    if not found:
        raise _unknown("partition", name, (each.name for each in change.site.partitions))
    made = _set(change, f"partition {name}", found[0], key, value, _PARTITION_KEYS)
    known = {each.name for each in change.site.qos}
    if made.qos and made.qos != found[0].qos and made.qos not in known:
        raise _unknown("QOS", made.qos, known)
    kept = tuple(each for each in change.site.partitions if each.name != name)
    first = change.site.partitions.index(found[0])
    change.site = replace(change.site, partitions=(*kept[:first], made, *kept[first:]))


def preempts_by_qos(site: SiteRules, name: str) -> bool:
    """Return whether ``preempt NAME`` is about a QOS; else it is about a partition of this name."""
    qos = any(each.name == name for each in site.qos)
    partition = any(each.name == name for each in site.partitions)
    return qos and not (partition and _by_partition(site))


def _by_partition(site: SiteRules) -> bool:
    return site.settings.get("preempttype", "").endswith("partition_prio")


def _of_preemption(change: _Change, _none: str, name: str, value: str) -> None:
    site = change.site
    if value.lower() not in MODES:
        raise ExperimentError(f"preempt {name}: {unknown_name('mode', value, MODES)}")
    if not preempts_by_qos(site, name):
        if not any(each.name == name for each in site.partitions):
            what, known = ("partition", site.partitions) if _by_partition(site) else ("QOS", site.qos)
            raise _unknown(what, name, (each.name for each in known))
        return _of_partition(change, name, "PreemptMode", value)
    if value.lower() != "off":
        return _of_qos(change, name, "PreemptMode", value)
    above = [each.name for each in site.qos if name in each.preempts]
    change.say(f"QOS {name}: is preempted by", "nobody", ", ".join(above) or "nobody")
    spared = (replace(each, preempts=tuple(other for other in each.preempts if other != name)) for each in site.qos)
    change.site = replace(site, qos=tuple(spared))
    return None


def _of_account(change: _Change, name: str, key: str, value: str) -> None:
    """Set a limit of an account or, as ACCOUNT/USER, of a user; rows that only show it are changed with it."""
    chosen, wanted = _association(change.site, name), limits.canonical(key)
    if wanted is None:
        known = [each for each in limits.KNOWN if not each.endswith(_PER) and each not in _QOS_ONLY]
        raise ExperimentError(f"account {name}: {unknown_name('limit', key, known)}")
    tree, quiet = Tree(change.site), _Change(change.site)

    def shows(each: Association) -> bool:
        below = each.account == chosen.account or chosen.account in tree.above(each.account)
        same = [bound for bound in each.bounds if bound.name == wanted]
        return not chosen.user and below and bool(same) and all(tree.repeats(each, bound) for bound in same)

    made = []
    for each in change.site.associations:
        if each == chosen:
            each = replace(each, bounds=_limited(change, f"account {name}", each.bounds, key, value, ("",)))
            if each != chosen:
                _forget(change, f"association {each.id}", key)
        elif not wanted.startswith("Grp") and shows(each):
            each = replace(each, bounds=_limited(quiet, name, each.bounds, key, value, ("",)))
        made.append(each)
    change.site = replace(change.site, associations=tuple(made))


def _association(site: SiteRules, name: str) -> Association:
    """Return the row of an account, or of ACCOUNT/USER."""
    account, _, user = name.partition("/")
    for each in site.associations:
        if (each.account, each.user, each.partition) == (account, user, ""):
            return each
    known = {"/".join(filter(None, (each.account, each.user))) for each in site.associations if not each.partition}
    raise _unknown("account", name, known if len(known) <= 20 or user else {each for each in known if "/" not in each})


def _of_shares(change: _Change, _none: str, name: str, value: str) -> None:
    account, _, user = name.partition("/")
    site = change.site
    everybody: list[Association | Share] = [*site.associations, *site.shares]
    rows = [each for each in everybody if (each.account, each.user) == (account, user)]
    if not rows:
        known = {"/".join(filter(None, (each.account, each.user))) for each in everybody if not each.user or user}
        raise _unknown("account", name, known)
    shares = None if value.lower() == "parent" else _whole(value, f"shares of {name}")
    now, before = ("parent" if each is None else str(each) for each in (shares, rows[0].shares))
    change.say(f"shares of {name}:", now, before)

    def with_shares(each: Any) -> Any:
        mine = (each.account, each.user) == (account, user) and not getattr(each, "partition", "")
        return replace(each, shares=shares) if mine else each

    change.site = replace(
        site,
        associations=tuple(map(with_shares, site.associations)),
        shares=tuple(map(with_shares, site.shares)),
    )


_CHANGES: Mapping[str, Callable[[_Change, str, str, str], None]] = {
    "qos": _of_qos,
    "partition": _of_partition,
    "account": _of_account,
    "preempt": _of_preemption,
    "shares": _of_shares,
}
