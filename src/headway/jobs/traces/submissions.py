"""Columns of a trace that become the terms of jobs: what they wait for, and what they count under."""

from collections.abc import Iterable, Sequence
from typing import Any

from headway.jobs.model.job import Job
from headway.jobs.model.submission import Terms, licences, written_licences

COLUMNS = ("after", "begin", "series", "array", "throttle", "licences", "nice")
"""Fields of ``Terms``; times on the clock of ``submit``."""
_NOTHING = Terms()
TERM_DEFAULTS: dict[str, Any] = {name: getattr(_NOTHING, name) for name in COLUMNS} | {"licences": ""}


def built(columns: dict[str, list[Any]], submits: Sequence[int], first: int) -> list[Terms | None]:
    """Return the terms of each row, from the columns there are, which are taken out; ``first`` becomes time 0."""
    given = {name: columns.pop(name) for name in COLUMNS if name in columns}
    if "begin" in given:
        begins = [0 if begin is None else begin - first for begin in given["begin"]]
        given["begin"] = [begin if begin > submit else 0 for begin, submit in zip(begins, submits, strict=True)]
    if "licences" in given:
        read = {text: licences(text) for text in set(given["licences"])}
        given["licences"] = [read[text] for text in given["licences"]]
    names = tuple(given)
    known: dict[tuple[Any, ...], Terms | None] = {}
    made = []
    for values in zip(*given.values(), strict=True):
        terms = known.get(values, _NOTHING)
        if terms is _NOTHING:
            terms = Terms(**dict(zip(names, values, strict=True)))
            terms = known[values] = None if terms == _NOTHING else terms
        made.append(terms)
    return made


def taken_apart(jobs: Iterable[Job]) -> dict[str, list[Any]]:
    """Return a column for each term that any job has, as it is written."""
    terms = [job.terms or _NOTHING for job in jobs]
    columns = {name: [getattr(each, name) for each in terms] for name in COLUMNS}
    columns["licences"] = [written_licences(held) for held in columns["licences"]]
    columns["throttle"] = [most or None for most in columns["throttle"]]
    return {name: values for name, values in columns.items() if any(values)}


def wrong_licences(texts: Iterable[str]) -> list[str]:
    """Return those of these texts that are no lists of licences."""
    return [text for text in texts if not _is_list(text)]


def _is_list(text: str) -> bool:
    try:
        licences(text)
    except ValueError:
        return False
    return True
