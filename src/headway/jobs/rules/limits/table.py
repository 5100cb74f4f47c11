"""Read and write a limit as it stands in an experiment: amounts as people write them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec import Struct, field

from headway.errors import ExperimentError, InputError, unknown_name
from headway.formats.dates import is_date
from headway.jobs.rules.limits.limit import NO_LIMIT, LimitRule
from headway.units import exact_duration, parse_duration, parse_size

NONE = "none"


class LimitChangeTable(Struct, kw_only=True):
    """Another amount from a time on: a length since the run began, or a date of the site."""

    at: str | int | float
    most: float | str


class LimitTable(Struct, kw_only=True, omit_defaults=True):
    """The most that some jobs may hold; ``docs/reference/limits.md``."""

    name: str
    resource: str
    most: float | str
    where: dict[str, str | list[str]] = field(default_factory=dict)
    per: list[str] | str = field(default_factory=list)
    slot: str = ""
    level: int = 0
    denies: bool = False
    half_life: str = ""
    used: str = ""
    ahead: bool = False
    changes: list[LimitChangeTable] = field(default_factory=list)
    least: bool = False
    levels: dict[str, int] = field(default_factory=dict)
    """By selector and value, ``qos:long``."""


def rule_from_table(table: LimitTable) -> LimitRule:
    """Return the rule that a table describes."""
    where = ((key, [value] if isinstance(value, str) else value) for key, value in table.where.items())
    return LimitRule(
        table.name,
        table.resource,
        amount(table.name, table.resource, table.most),
        tuple((key, each) for key, values in where for each in values),
        (table.per,) if isinstance(table.per, str) else tuple(table.per),
        table.slot,
        table.level,
        table.denies,
        parse_duration(table.half_life, what=f"limit {table.name}: half_life") if table.half_life else 0,
        amount(table.name, table.resource, table.used) if table.used else 0,
        table.ahead,
        _changes(table),
        table.least,
        tuple(_level(table.name, chosen, level) for chosen, level in table.levels.items()),
    )


def _level(name: str, chosen: str, level: int) -> tuple[str, str, int]:
    key, colon, value = chosen.partition(":")
    if not colon:
        raise ExperimentError(f"limit {name}: levels: {chosen!r} is not like qos:long")
    return key, value, level


def _changes(table: LimitTable) -> tuple[tuple[int, int], ...]:
    """Return the changes of a limit whose times are known."""
    what = f"limit {table.name}: changes"
    return tuple(
        (parse_duration(str(each.at), what=what), amount(table.name, table.resource, each.most))
        for each in table.changes
        if not is_date(str(each.at))
    )


def table_from_rule(rule: LimitRule) -> LimitTable:
    """Return a table that ``rule_from_table`` reads back."""
    where: dict[str, Any] = {}
    for key, value in rule.where:
        where[key] = [*where.get(key, ()), value]
    return LimitTable(
        name=rule.name,
        resource=rule.resource,
        most=written(rule.resource, rule.most),
        where={key: values[0] if len(values) == 1 else values for key, values in where.items()},
        per=list(rule.per),
        slot=rule.slot,
        level=rule.level,
        denies=rule.denies,
        half_life=exact_duration(rule.half_life) if rule.half_life else "",
        used=str(written(rule.resource, rule.used)) if rule.used else "",
        ahead=rule.ahead,
        changes=[
            LimitChangeTable(at=exact_duration(time), most=written(rule.resource, most)) for time, most in rule.changes
        ],
        least=rule.least,
        levels={f"{key}:{value}": level for key, value, level in rule.levels},
    )


def with_values(rules: Sequence[LimitRule], values: Mapping[str, float | str | None]) -> tuple[LimitRule, ...]:
    """Return the rules with other amounts, by name or address; None or ``none``: without this rule."""
    made = list(rules)
    for name, value in values.items():
        rule = named(made, name)
        place = made.index(rule)
        if value is None or value == "none":
            del made[place]
        else:
            made[place] = replace(rule, most=amount(rule.name, rule.resource, value), changes=())
    return tuple(made)


def named(rules: Sequence[LimitRule], name: str) -> LimitRule:
    """Return the rule of a name, or of an address where several have the name."""
    found = [rule for rule in rules if rule.address == name] or [rule for rule in rules if rule.name == name]
    if not found:
        raise ExperimentError(unknown_name("limit", name, {rule.address for rule in rules}))
    if len(found) > 1:
        raise ExperimentError(
            f"limit {name}: {len(found)} limits have this name; write which: "
            f"{', '.join(sorted({rule.address for rule in found})[:6])}"
        )
    return found[0]


def amount(name: str, resource: str, given: float | str) -> int:
    """Return what people write of a resource in units of the core: ``32``, ``500GB``, ``2d``, ``1000h`` of GPU time."""
    kind, what = resource.partition(":")[0], f"limit {name}: {resource}"
    text = str(given)
    if text == NONE:
        return NO_LIMIT
    if kind in ("memory", "memory_per_node"):
        return parse_size(text, what=what)
    if kind == "wall" or kind.endswith("_time"):
        if not isinstance(given, str):
            raise InputError(f"{what} {given!r} is not a time: write it like '12h'")
        return parse_duration(text, what=what) * (1 if kind == "wall" else 1000)
    try:
        number = float(text)
    except ValueError:
        raise InputError(f"{what} {text!r} is not a number") from None
    thousandths = round(number * 1000) if abs(number) < 1e12 else -1
    if kind in ("gpus", "cpus", "gpus_per_node", "cpus_per_node"):
        return thousandths
    if thousandths % 1000:
        raise ExperimentError(f"{what} {text} must be a whole number")
    return thousandths // 1000


def written(resource: str, most: int) -> float | str:
    """Return an amount of a resource as people write it; ``amount`` reads it back."""
    kind = resource.partition(":")[0]
    if most >= NO_LIMIT:
        return NONE
    if kind in ("memory", "memory_per_node"):
        return f"{most}B"
    if kind == "wall":
        return exact_duration(most)
    if kind.endswith("_time"):
        return exact_duration(most // 1000)
    if kind in ("gpus", "cpus", "gpus_per_node", "cpus_per_node"):
        return most // 1000 if most % 1000 == 0 else most / 1000
    return most
