"""Check what jobs of a workload wait for: names that nobody has, and jobs that wait for themselves."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from headway.errors import TraceError
from headway.jobs.model.job import Job
from headway.jobs.model.submission import SINGLETON, Dependency, Terms, dependency
from headway.jobs.rules.eligibility.engine import named

_Node = tuple[str, int]
"""A job, or the end of all jobs of a series up to one of them."""


def _found(jobs: Iterable[Job]) -> dict[int, Dependency]:
    return {job.id: dependency(job.terms.after) for job in jobs if job.terms is not None and job.terms.after}


def check_dependencies(jobs: Sequence[Job]) -> None:
    """Refuse a dependency on a job that is not in the workload, and jobs that wait for themselves."""
    found = _found(jobs)
    if not found:
        return
    members = named(jobs, {clause.job for each in found.values() for clause in each.clauses})
    for job, each in found.items():
        for clause in each.clauses:
            if clause.job and clause.job not in members:
                text = f"{_called(jobs[job])}: after {each}: no job or array is called {clause.job!r}"
                raise TraceError(f"{text}: leave it out, or add that job")
    if loop := _loop(_edges(jobs, found, members)):
        names = [jobs[number].name or str(number) for kind, number in loop if not kind]
        raise TraceError(
            f"job {names[0]} waits for itself: {' after '.join([*names, names[0]])}: leave out one of them"
        )


def within_workload(jobs: tuple[Job, ...], notes: list[str]) -> tuple[Job, ...]:
    """Return jobs without dependencies on jobs that are not among them: these count as met, which is noted."""
    found = _found(jobs)
    members = named(jobs, {clause.job for each in found.values() for clause in each.clauses}) if found else {}
    changed: dict[int, str] = {}
    for job, each in found.items():
        kept = tuple(clause for clause in each.clauses if clause.condition == SINGLETON or clause.job in members)
        if len(kept) < len(each.clauses):
            changed[job] = "" if each.one_is_enough else str(each._replace(clauses=kept))
    if not changed:
        return jobs
    notes.append(
        f"{len(changed):,} job{'s wait' if len(changed) > 1 else ' waits'} for jobs that are not in the workload: "
        "those dependencies count as met"
    )
    return tuple(_with_after(job, changed[job.id]) if job.id in changed else job for job in jobs)


def _with_after(job: Job, after: str) -> Job:
    assert job.terms is not None
    terms = replace(job.terms, after=after)
    return replace(job, terms=None if terms == Terms() else terms)


def _called(job: Job) -> str:
    return f"job {job.name or job.id}"


def _edges(
    jobs: Sequence[Job], found: Mapping[int, Dependency], members: Mapping[str, Sequence[int]]
) -> dict[_Node, list[_Node]]:
    """Return who waits for whom. A series adds a node a job, so that a singleton has one edge and not one a job."""
    edges: dict[_Node, list[_Node]] = {}
    last: dict[str, int] = {}
    before: dict[int, int] = {}
    for job in jobs:
        if job.terms is not None and job.terms.series:
            series = job.terms.series
            edges["series", job.id] = [("", job.id)]
            if series in last:
                before[job.id] = last[series]
                edges["series", job.id].append(("series", last[series]))
            last[series] = job.id
    for number, each in found.items():
        waits: list[_Node] = []
        for clause in each.clauses:
            if clause.condition == SINGLETON:
                waits += [("series", before[number])] if number in before else []
            else:
                waits += [("", other) for other in members.get(clause.job, ())]
        edges["", number] = waits
    return edges


def _loop(edges: Mapping[_Node, Sequence[_Node]]) -> list[_Node]:
    """Return nodes that wait for one another in a circle, in order; none where there is no such circle."""
    done: set[_Node] = set()
    for first in edges:
        if first in done:
            continue
        way: dict[_Node, int] = {first: 0}
        stack = [(first, iter(edges[first]))]
        while stack:
            node, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                stack.pop()
                del way[node]
                done.add(node)
            elif following in way:
                return list(way)[way[following] :]
            elif following not in done:
                way[following] = len(way)
                stack.append((following, iter(edges.get(following, ()))))
    return []
