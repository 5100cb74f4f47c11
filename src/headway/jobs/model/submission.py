"""What a job was submitted with besides resources: which jobs it waits for, when it may start, what it counts under.

A dependency is written as Slurm writes it: ``afterok:17:18,afterany:19``, or with ``?`` where one of them is enough.
Most jobs have no terms at all; ``Job.terms`` is then None.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headway.errors import unknown_name
from headway.units import MINUTE

AFTER, AFTER_OK, AFTER_ANY, AFTER_NOT_OK, SINGLETON = "after", "afterok", "afterany", "afternotok", "singleton"
CONDITIONS = (AFTER, AFTER_OK, AFTER_ANY, AFTER_NOT_OK, SINGLETON)
_LATEST = 10**7
"""Minutes; no delay comes near."""


class Clause(NamedTuple):
    """One condition of a dependency."""

    condition: str
    job: str = ""
    """The name of a job, or of an array: then all its tasks. Empty for ``singleton``."""
    delay: int = 0
    """Of ``after``: nanoseconds from the start of that job."""


class Dependency(NamedTuple):
    """What a job waits for."""

    clauses: tuple[Clause, ...]
    one_is_enough: bool = False

    def __str__(self) -> str:
        return ("?" if self.one_is_enough else ",").join(map(_written, self.clauses))


def _written(clause: Clause) -> str:
    delay = f"+{clause.delay // MINUTE}" if clause.delay else ""
    return f"{clause.condition}:{clause.job}{delay}" if clause.job else clause.condition


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of a submission; the defaults ask for nothing."""

    after: str = ""
    """The jobs it waits for, as a text that ``dependency`` reads."""
    begin: int = 0
    """It is not eligible before this time, in nanoseconds since the run began."""
    series: str = ""
    """Jobs of one user and one job name; a job with ``singleton`` waits for all earlier ones of its series."""
    array: str = ""
    """The array it is a task of."""
    throttle: int = 0
    """How many tasks of its array may run at once; 0: any number."""
    licences: tuple[tuple[str, int], ...] = field(default=())
    """Licences that it holds while it runs, by name."""
    nice: int = 0
    """Taken off its priority, where the policy has priorities in Slurm's units."""


def dependency(text: str) -> Dependency:
    """Parse a dependency; a ``ValueError`` says what is wrong with it."""
    if "?" in text and "," in text:
        raise ValueError("mixes ',' (all of them) and '?' (one of them): Slurm knows one or the other")
    one = "?" in text
    return Dependency(tuple(clause for part in text.split("?" if one else ",") for clause in _clauses(part)), one)


def _clauses(part: str) -> Iterator[Clause]:
    condition, colon, rest = part.strip().partition(":")
    if condition not in CONDITIONS:
        raise ValueError(unknown_name("dependency", condition, CONDITIONS))
    if condition == SINGLETON:
        if colon:
            raise ValueError(f"{part!r}: singleton names no job")
        yield Clause(SINGLETON)
        return
    names = rest.split(":") if colon else []
    if not names or not all(names):
        raise ValueError(f"{part!r} names no job: write {condition}:17")
    for name in names:
        job, plus, minutes = name.rpartition("+")
        if condition == AFTER and plus and job and minutes.isdecimal():
            if int(minutes) > _LATEST:
                raise ValueError(f"{part!r}: {minutes} minutes are too many")
            yield Clause(AFTER, job, int(minutes) * MINUTE)
        else:
            yield Clause(condition, name)


def licences(text: str) -> tuple[tuple[str, int], ...]:
    """Parse ``matlab:2,ansys``; a ``ValueError`` says what is wrong with it."""
    counts: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.replace(";", ",").split(","))):
        name, colon, number = part.partition(":")
        if not name or (colon and not (number.isdecimal() and 0 < int(number) < 10**9)):
            raise ValueError(f"{part!r} is not a licence like matlab or matlab:2")
        counts[name] = counts.get(name, 0) + int(number or 1)
    return tuple(counts.items())


def written_licences(held: tuple[tuple[str, int], ...]) -> str:
    """Return licences as a text that ``licences`` reads."""
    return ",".join(f"{name}:{count}" for name, count in held)


def broken_terms(terms: Terms) -> str | None:
    """Return the rule that terms break, as a line; None if they are sound."""
    if terms.begin < 0:
        return f"begin {terms.begin} ns is before the run began"
    if terms.throttle < 0:
        return f"throttle {terms.throttle} must be at least 1: no task of its array could ever run"
    if terms.throttle and not terms.array:
        return f"throttle {terms.throttle} needs the name of an array"
    if any(count <= 0 for _, count in terms.licences):
        return f"licences {written_licences(terms.licences)}: each must be at least 1"
    if terms.after:
        try:
            wanted = dependency(terms.after)
        except ValueError as problem:
            return f"after {terms.after!r}: {problem}"
        if not terms.series and any(clause.condition == SINGLETON for clause in wanted.clauses):
            return f"after {terms.after!r}: singleton needs a series"
    return None


def shifted(terms: Terms | None, by: int) -> Terms | None:
    """Return terms on a clock that began so much later."""
    if terms is None or not terms.begin:
        return terms
    return replace(terms, begin=max(0, terms.begin - by))
