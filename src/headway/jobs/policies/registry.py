"""The registry of policy parts, and the parser of strings that name a whole policy.

``srtf`` or ``srtf+easy+fgd+migrate``: an order, then in any order a backfill, a placement, a migration, ``preempt`` or
``no-preempt``, ``quantum(5m)`` and ``round(5m)``; options in brackets, ``tiresias(thresholds=1h/10h)``. What is not
named takes its default: backfill, preemption and quantum as the order wants them, placement best-fit, no rounds, no
migration, no allocation (jobs then hold the CPUs and memory that they ask for). A policy's name is such a string,
and builds the same policy. To add a part: its file, and here its import and its name in the table of its kind.
"""

import inspect
import re
from typing import Any, TypeAlias, get_args, get_origin, get_type_hints

from headway.core.named import built, readable
from headway.errors import ExperimentError, unknown_name
from headway.jobs.policies.allocations.headway.policy import Headway
from headway.jobs.policies.allocations.synergy.drf import DrfDemands
from headway.jobs.policies.allocations.synergy.greedy import Greedy
from headway.jobs.policies.allocations.synergy.opt import Opt
from headway.jobs.policies.allocations.synergy.proportional import Proportional
from headway.jobs.policies.allocations.synergy.tetris import TetrisDemands
from headway.jobs.policies.allocations.synergy.tune import Tune
from headway.jobs.policies.backfills.conservative.policy import Conservative
from headway.jobs.policies.backfills.easy import Easy
from headway.jobs.policies.backfills.fit import Fit
from headway.jobs.policies.backfills.none import NoBackfill
from headway.jobs.policies.checked_keys import with_checked_keys
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.migrations.always import Always, Free
from headway.jobs.policies.migrations.costed import Costed
from headway.jobs.policies.orders.drf import Drf
from headway.jobs.policies.orders.fifo import Fifo
from headway.jobs.policies.orders.ftf import Ftf
from headway.jobs.policies.orders.las import Las
from headway.jobs.policies.orders.multifactor import Multifactor
from headway.jobs.policies.orders.priority import Priority
from headway.jobs.policies.orders.qssf import Qssf
from headway.jobs.policies.orders.sjf import Sjf
from headway.jobs.policies.orders.srtf import Srtf
from headway.jobs.policies.orders.tetris import Tetris
from headway.jobs.policies.orders.tiresias import Tiresias
from headway.jobs.policies.parts import Allocation, Backfill, Migration, Order, PlacementRule
from headway.jobs.policies.placements.best_fit import BestFit
from headway.jobs.policies.placements.consecutive import Consecutive
from headway.jobs.policies.placements.consolidate import Consolidate
from headway.jobs.policies.placements.fgd import Fgd
from headway.jobs.policies.placements.first_fit import FirstFit
from headway.jobs.policies.placements.random_fit import RandomFit
from headway.jobs.policies.placements.spread import Spread
from headway.units import Duration, exact_duration, parse_duration

Part: TypeAlias = Order | Backfill | PlacementRule | Migration | Allocation

ORDERS: dict[str, type[Order]] = {
    part.name: part for part in (Fifo, Sjf, Srtf, Las, Tiresias, Ftf, Drf, Tetris, Priority, Multifactor, Qssf)
}
BACKFILLS: dict[str, type[Backfill]] = {part.name: part for part in (NoBackfill, Fit, Easy, Conservative)}
PLACEMENTS: dict[str, type[PlacementRule]] = {
    part.name: part for part in (BestFit, FirstFit, Consecutive, Spread, Consolidate, Fgd, RandomFit)
}
MIGRATIONS: dict[str, type[Migration]] = {part.name: part for part in (Costed, Free, Always)}
ALLOCATIONS: dict[str, type[Allocation]] = {
    part.name: part for part in (Proportional, Greedy, Tune, Opt, DrfDemands, TetrisDemands, Headway)
}
TABLES: dict[str, dict[str, Any]] = {
    "backfill": BACKFILLS,
    "placement": PLACEMENTS,
    "migration": MIGRATIONS,
    "allocation": ALLOCATIONS,
}
"""The parts that may follow an order, by kind."""
SWITCHES = {"preempt": True, "no-preempt": False}
SPANS = ("quantum", "round")
"""Terms that hold one duration."""

_PLUS = re.compile(r"\+(?![^()]*\))")
"""Between terms; a + in brackets belongs to a number."""
_MIGRATION_FLAGS = {"migrate": "costed", "migrate-free": "free", "migrate-always": "always"}
_TERM = re.compile(r"\s*([^()+]+?)\s*(?:\(([^()]*)\))?\s*")


def build(
    spec: str,
    *,
    backfill: str | None = None,
    placement: str | None = None,
    migration: str | None = None,
    allocation: str | None = None,
    preempts: bool | None = None,
    quantum: int | None = None,
    round_length: int = 0,
) -> ComposedPolicy:
    """Return the policy that a string names; the other arguments fill in what the string leaves open."""
    named = _parse(spec)
    parts = {"backfill": backfill, "placement": placement, "migration": migration, "allocation": allocation}
    for kind, part in parts.items():
        off = kind == "migration" and part == "off"
        _fill(named, spec, kind, False if off else part and _part(part, TABLES[kind], kind))
    _fill(named, spec, "preemption", preempts)
    _fill(named, spec, "quantum", quantum)
    _fill(named, spec, "round", round_length or None)
    if (dividing := named.get("allocation")) and _stays(named, dividing):
        dividing.moves = type(dividing.moves)(0)
    order: Order = named["order"]
    policy = ComposedPolicy(
        "",
        order,
        named.get("backfill") or _part(order.backfill, BACKFILLS, f"backfill of order {order.name}"),
        named.get("placement") or BestFit(),
        named.get("migration") or None,
        named.get("allocation") or None,
        preempts=named.get("preemption"),
        quantum=named.get("quantum"),
        round_length=named.get("round", 0),
    )
    policy.name = _name(policy)
    return policy


def _stays(named: dict[str, Any], allocation: Allocation) -> bool:
    """Return whether an allocation may not move jobs: migration is off, or preemption, which swaps need."""
    return named.get("migration") is False or (allocation.swaps and named.get("preemption") is False)


def _fill(named: dict[str, Any], spec: str, kind: str, given: Any) -> None:
    """Set a part that was given beside the string; refuse it where the string names another one."""
    if given is None:
        return
    said = named.get(kind)
    if said is not None and _told(kind, said) != _told(kind, given):
        flag = _told(kind, given)
        raise ExperimentError(
            f"policy {spec!r} already names the {kind} {_told(kind, said)}; "
            f"policy.{kind}={_MIGRATION_FLAGS.get(flag, flag) if kind == 'migration' else flag} contradicts it"
        )
    named[kind] = given


def _told(kind: str, value: Any) -> str:
    if kind == "preemption":
        return "on" if value else "off"
    if kind in SPANS:
        return exact_duration(value)
    return describe(value) if value else "off"


def _parse(spec: str) -> dict[str, Any]:
    terms = _split(spec)
    found: dict[str, Any] = {"order": _part(terms[0], ORDERS, "policy")}
    slot: str
    value: Any
    for term in terms[1:]:
        bare, bracket, _ = (piece.strip() for piece in term.partition("("))
        if bare in SWITCHES:
            if bracket:
                raise ExperimentError(f"{term.strip()!r} is not understood: {bare} has no options")
            slot, value = "preemption", SWITCHES[bare]
        elif bare in SPANS:
            slot, value = bare, _span(term, bare)
        else:
            slot, table = _slot(bare)
            value = _part(term, table, slot)
        if slot in found:
            raise ExperimentError(f"policy {spec!r} names two parts of the kind {slot}")
        found[slot] = value
    return found


def _split(spec: str) -> list[str]:
    terms = _PLUS.split(spec)
    if not spec.strip() or any(not term.strip() for term in terms):
        raise ExperimentError(f"policy {spec!r} is not understood: write it like srtf+easy+best-fit")
    return terms


def _span(term: str, name: str) -> int:
    match = _TERM.fullmatch(term)
    if match is None or not match.group(2):
        raise ExperimentError(f"{term.strip()!r} is not understood: write it like {name}(5m)")
    return parse_duration(match.group(2), what=name)


def _slot(name: str) -> tuple[str, dict[str, Any]]:
    for slot, table in TABLES.items():
        if name in table:
            return slot, table
    every = [*SWITCHES, *SPANS, *(part for table in TABLES.values() for part in table)]
    raise ExperimentError(unknown_name("part of a policy", name, every))


def _part(term: str, table: dict[str, Any], what: str) -> Any:
    name, options = term.strip(), ""
    if name not in table:  # of an object that was given the whole term is a name
        match = _TERM.fullmatch(term)
        if match is None:
            raise ExperimentError(f"{what} {term!r} is not understood: write it like tiresias(thresholds=1h/10h)")
        name, options = match.group(1), match.group(2) or ""
    if name not in table:
        hint = "; that of a Slurm site is slurm:slurm.conf, with the path of its file" if name == "slurm" else ""
        raise ExperimentError(unknown_name(what, name, table) + hint)
    part = with_checked_keys(table[name]) if table is ORDERS else table[name]
    return _construct(part, name, options)


def _construct(part: type[Part], name: str, options: str) -> Part:
    valid = list(inspect.signature(part).parameters)
    given: dict[str, Any] = {}
    for option in filter(None, (text.strip() for text in options.split(","))):
        key, equals, value = (piece.strip() for piece in option.partition("="))
        if not equals or key not in valid:
            raise ExperimentError(unknown_name(f"option of {name}", key, valid or ["none"]))
        if key in given:
            raise ExperimentError(f"option {key} of {name} is given twice")
        given[key] = _value(readable(part, name, key, tuples=True), value, f"{name}({key}=...)")
    return built(part, name, given)


def _value(kind: Any, text: str, what: str) -> Any:
    try:
        if get_origin(kind) is tuple:
            return tuple(_value(get_args(kind)[0], piece, what) for piece in text.split("/"))
        if kind is Duration:
            return Duration(parse_duration(text, what=what))
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return kind(text)
    except (ValueError, KeyError) as wrong:
        rule = {int: "a whole number", float: "a number", bool: "true or false"}[kind]
        raise ExperimentError(f"{what}: {text!r} is not {rule}") from wrong


def options_of(part: Part) -> dict[str, Any]:
    """Return a part's options and their values: its constructor's arguments, stored under the same names."""
    hints = get_type_hints(part.__init__)  # type: ignore[misc]
    return {name: getattr(part, name) for name in inspect.signature(type(part)).parameters if name in hints}


def describe(part: Part) -> str:
    """Return a part as text: its name, and the options that differ from their defaults."""
    hints = get_type_hints(part.__init__)  # type: ignore[misc]
    signature = inspect.signature(type(part)).parameters
    changed = {k: v for k, v in options_of(part).items() if v != signature[k].default}
    return part.name + (f"({', '.join(f'{k}={written(v, hints[k])}' for k, v in changed.items())})" if changed else "")


def written(value: Any, kind: Any) -> str:
    """Return the value of an option as text that is read back exactly."""
    if get_origin(kind) is tuple:
        return "/".join(written(item, get_args(kind)[0]) for item in value)
    if kind is Duration:
        return exact_duration(value)
    return str(value).lower() if kind is bool else str(value)


def _name(policy: ComposedPolicy) -> str:
    terms = [describe(policy.named_order)]
    if (backfill := describe(policy.backfill)) != policy.named_order.backfill:
        terms.append(backfill)
    if (placement := describe(policy.rule)) != BestFit.name:
        terms.append(placement)
    if policy.migration is not None:
        terms.append(describe(policy.migration))
    if policy.allocation is not None:
        terms.append(describe(policy.allocation))
    if policy.preempts != policy.order.preempts:
        terms.append("preempt" if policy.preempts else "no-preempt")
    if policy.quantum != policy.own_quantum and "quantum" not in options_of(policy.order):
        terms.append(f"quantum({exact_duration(policy.quantum)})")
    if policy.round_length:
        terms.append(f"round({exact_duration(policy.round_length)})")
    return "+".join(terms)
