"""Find which limits choose a job, which of them hold, and whose counter it adds to."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from headway.jobs.model.job import Job
from headway.jobs.rules.limits.limit import ANY, NOBODY, LimitRule


def choosing(rules: Iterable[LimitRule], job: Job, parents: Mapping[str, str]) -> list[tuple[int, LimitRule]]:
    """Return the rules that choose a job, with their positions."""
    accounts = set(_upward(job.tenant, parents))
    return [(index, rule) for index, rule in enumerate(rules) if _chooses(rule, job, accounts)]


def binding(rules: Sequence[LimitRule], job: Job) -> list[bool]:
    """Return of each of the rules that choose a job whether it holds: of one slot only those of the least level do."""
    levels = [_level(rule, job) for rule in rules]
    least: dict[str, int] = {}
    for rule, level in zip(rules, levels, strict=True):
        least[rule.slot] = min(level, least.get(rule.slot, level))
    return [
        level < NOBODY and (not rule.slot or level == least[rule.slot])
        for rule, level in zip(rules, levels, strict=True)
    ]


def _level(rule: LimitRule, job: Job) -> int:
    return min((level for key, value, level in rule.levels if _value(job, key) == value), default=rule.level)


def _upward(account: str, parents: Mapping[str, str]) -> Iterator[str]:
    while account:
        yield account
        account = parents.get(account, "")


def _chooses(rule: LimitRule, job: Job, accounts: set[str]) -> bool:
    wanted: dict[str, set[str]] = {}
    for key, value in rule.where:
        wanted.setdefault(key, set()).add(value)
    return all(
        any(_is(job, accounts, *value.split(":", 1)) for value in values)
        if key == ANY
        else values & (accounts if key == "account" else {_value(job, key)})
        for key, values in wanted.items()
    )


def _is(job: Job, accounts: set[str], key: str, value: str) -> bool:
    return value in accounts if key == "account" else value == _value(job, key)


def _value(job: Job, key: str) -> str:
    if key == "array":
        return array_of(job)
    return str(getattr(job, "tenant" if key == "account" else key))


def array_of(job: Job) -> str:
    """Return the array that a job is a task of; empty: none."""
    return "" if job.terms is None else job.terms.array


def counted_for(rule: LimitRule, job: Job) -> tuple[str, ...]:
    """Return whose counter of a rule a job adds to: its user, account, …; a rule about single jobs has one for all."""
    return tuple(_value(job, key) for key in rule.per if key != "job")
