"""Work out which amounts limits had before, from who changed what when (``sacctmgr show transactions``).

A transaction tells what was set and not what it was before: until the first one that is known, its amount is taken to
have held already. Trackable resources stand there by their numbers in the database. Those of CPUs, memory and nodes are
the same everywhere; what a number of a GRES means is learned from limits that still have the amount that was set last.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from headway.jobs.slurm.output.bounds import COUNTS, MINUTES, TRES, WALLS, understood
from headway.jobs.slurm.output.records import Bound, Change, SiteRules
from headway.units import MINUTE

_NUMBERS = {"1": "cpu", "2": "mem", "4": "node", "5": "billing"}
_MEBIBYTE = 1 << 20
_NOTHING = ("NULL", "-1", "4294967295", "''")
_Set = tuple[int, str]
"""When, and to what."""


def with_history(site: SiteRules) -> tuple[SiteRules, tuple[Change, ...]]:
    """Return a site whose limits know their earlier amounts, and the changes of which nothing could be made."""
    if not site.changes:
        return site, ()
    sets, left = _sets(site)
    numbers = dict(_NUMBERS) | _learned(site, sets)
    qos = []
    for each in site.qos:
        bounds, unknown = _bounds(each.bounds, sets.get(f"QOS {each.name}", {}), numbers)
        left += _unread(f"QOS {each.name}", unknown)
        qos.append(replace(each, bounds=bounds))
    associations = []
    for association in site.associations:
        whose = f"association {association.id}"
        bounds, unknown = _bounds(association.bounds, sets.get(whose, {}) if association.id else {}, numbers)
        left += _unread(whose, unknown)
        associations.append(replace(association, bounds=bounds))
    return replace(site, qos=tuple(qos), associations=tuple(associations)), tuple(left)


def _sets(site: SiteRules) -> tuple[dict[str, dict[str, list[_Set]]], list[Change]]:
    """Return what each limit was set to, by whose it is and its name; and changes of other things."""
    known = {f"QOS {each.name}" for each in site.qos} | {
        f"association {each.id}" for each in site.associations if each.id
    }
    found: dict[str, dict[str, list[_Set]]] = {}
    left = []
    for change in sorted(site.changes, key=lambda change: change.at):
        kind, _, named = change.what.partition(" ")
        everyone = [f"{kind} {one}" for one in named.split(", ")] if kind == "association" else [change.what]
        values = {name: text for name, text in change.values if name in (*COUNTS, *TRES, *MINUTES, *WALLS)}
        other = tuple(name for name in change.names if name not in values)
        if not set(everyone) <= known:
            left.append(change)
            continue
        if other:
            left.append(replace(change, names=other))
        for whose in everyone:
            for name, text in values.items():
                found.setdefault(whose, {}).setdefault(name, []).append((change.at, text))
    return found, left


def _learned(site: SiteRules, sets: Mapping[str, Mapping[str, Sequence[_Set]]]) -> dict[str, str]:
    """Return which GRES numbers of the database mean, where one limit alone can be meant."""
    owners = {f"QOS {each.name}": each.bounds for each in site.qos}
    owners |= {f"association {each.id}": each.bounds for each in site.associations}
    found: dict[str, set[str]] = {}
    for whose, names in sets.items():
        for name, amounts in names.items():
            for number, amount in _pairs(amounts[-1][1]):
                if number not in _NUMBERS:
                    bounds = [each for each in owners[whose] if each.name == name and each.tres.startswith("gres/")]
                    meant = {each.tres for each in bounds if each.most == amount}
                    if meant:
                        found[number] = found.get(number, meant) & meant
    return {number: next(iter(meant)) for number, meant in found.items() if len(meant) == 1}


def _pairs(text: str) -> Iterator[tuple[str, int]]:
    """Yield numbers of resources and amounts of ``'1=400,1001=28'``."""
    for part in text.strip("'").split(","):
        number, equals, amount = part.partition("=")
        if equals and amount.isdecimal():
            yield number, int(amount)


def _bounds(
    bounds: Sequence[Bound], sets: Mapping[str, Sequence[_Set]], numbers: Mapping[str, str]
) -> tuple[tuple[Bound, ...], list[tuple[str, int]]]:
    """Return limits with their earlier amounts, and (name, last change) of those that could not be understood."""
    made, unknown = {(each.name, each.tres): each for each in bounds}, []
    for name, amounts in sets.items():
        if name not in TRES and name not in MINUTES:
            history = [(at, _plain(name, text)) for at, text in amounts]
            _enter(made, name, "", history)
            continue
        seen = {number for _, text in amounts for number, _ in _pairs(text)}
        if any(number not in numbers for number in seen):
            unknown.append((name, amounts[-1][0]))
            continue
        for number in seen:
            tres = numbers[number]
            if understood(tres, name):
                unit = _MEBIBYTE if tres == "mem" and name in TRES else 1
                _enter(made, name, tres, [(at, dict(_pairs(text)).get(number, -1) * unit) for at, text in amounts])
    return tuple(made.values()), unknown


def _plain(name: str, text: str) -> int:
    if text in _NOTHING or not text.isdecimal():
        return -1
    return int(text) * (MINUTE if name in WALLS else 1)


def _enter(made: dict[tuple[str, str], Bound], name: str, tres: str, history: list[tuple[int, int]]) -> None:
    """Give a limit its history; one that is not there any more is made."""
    now = made.get((name, tres))
    last = -1 if now is None else now.most
    history[-1] = (history[-1][0], last)  # what holds now, whoever set it
    kept = [(at, max(-1, most)) for at, most in history]
    if any(most >= 0 for _, most in kept):
        made[name, tres] = Bound(name, tres, last, tuple(kept))


def _unread(whose: str, unknown: Iterable[tuple[str, int]]) -> list[Change]:
    return [Change(at, whose, (name,)) for name, at in unknown]
