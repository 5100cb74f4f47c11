"""Read what changes on a cluster over time: nodes out of service, advance reservations, limits with other values.

Times are lengths since the run began, like ``2d 3h``, or dates of the site. Dates are put into lengths once it is known
when the run begins (``resolved``); until then ``build`` leaves out what has one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import Struct, field, structs

from headway.errors import ExperimentError, unknown_name
from headway.formats.dates import Calendar, is_date
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.outages import Outage
from headway.jobs.rules.limits.table import LimitTable
from headway.jobs.rules.reservations.reservation import AdvanceReservation
from headway.units import DAY, MINUTE, counted, exact_duration, parse_duration

if TYPE_CHECKING:
    from headway.jobs.tables.cluster import ClusterTable

STATES = ("down", "drained")
_AFTER = 60 * DAY
"""A repeated reservation is repeated until so long after the last job is submitted."""
_LEAST_PERIOD = MINUTE
_MOST_TIMES = 10_000


class OutageTable(Struct, kw_only=True, omit_defaults=True):
    """Nodes that are down (their jobs are stopped and queued again) or drained (no new job starts there)."""

    nodes: list[str | int] | str
    start: str | int | float
    end: str | int | float = ""
    """Empty: until the last job is submitted."""
    state: str = "down"
    reason: str = ""


class ReservationTable(Struct, kw_only=True, omit_defaults=True):
    """Nodes that are kept for jobs that name the reservation."""

    name: str
    nodes: list[str | int] | str
    start: str | int | float
    end: str | int | float
    users: list[str] = field(default_factory=list)
    tenants: list[str] = field(default_factory=list)
    flex: bool = False
    overlap: bool = False
    every: str | int | float = ""
    """Repeated so often, before and after; empty: once."""


# --- tables in lengths of time ------------------------------------------------------------------------------------


def outages_from(tables: Sequence[OutageTable], names: Sequence[str]) -> tuple[Outage, ...]:
    """Return the outages whose times are known."""
    made = []
    for table in tables:
        if table.state not in STATES:
            raise ExperimentError(f"outages: {unknown_name('state', table.state, STATES)}")
        nodes = positions_of(table.nodes, names, "outages")
        if table.end != "" and not _has_date(table.start, table.end):
            start, end = (_length(time, "outages") for time in (table.start, table.end))
            made.append(Outage(nodes, start, end, table.state == "down", table.reason))
    return tuple(made)


def reservations_from(tables: Sequence[ReservationTable], names: Sequence[str]) -> tuple[AdvanceReservation, ...]:
    """Return the reservations whose times are known."""
    made = []
    for table in tables:
        what = f"reservation {table.name}"
        nodes = positions_of(table.nodes, names, what)
        if table.every == "" and not _has_date(table.start, table.end):
            start, end = (_length(time, what) for time in (table.start, table.end))
            whose = tuple(table.users), tuple(table.tenants)
            made.append(AdvanceReservation(table.name, start, end, nodes, *whose, table.flex, table.overlap))
    return tuple(made)


def tables_of_outages(cluster: Cluster) -> list[OutageTable]:
    """Return tables that ``outages_from`` reads back."""
    return [
        OutageTable(
            nodes=[cluster.nodes[node].name for node in each.nodes],
            start=exact_duration(each.start),
            end=exact_duration(each.end),
            state=STATES[not each.down],
            reason=each.reason,
        )
        for each in cluster.outages
    ]


def tables_of_reservations(cluster: Cluster) -> list[ReservationTable]:
    """Return tables that ``reservations_from`` reads back."""
    return [
        ReservationTable(
            name=each.name,
            nodes=[cluster.nodes[node].name for node in each.nodes],
            start=exact_duration(each.start),
            end=exact_duration(each.end),
            users=list(each.users),
            tenants=list(each.tenants),
            flex=each.flex,
            overlap=each.overlaps,
        )
        for each in cluster.reservations
    ]


def positions_of(nodes: list[str | int] | str, names: Sequence[str], what: str) -> tuple[int, ...]:
    """Return the positions of nodes that are named, or given by position; ``all`` is all of them."""
    if nodes == "all":
        return tuple(range(len(names)))
    listed = [part.strip() for part in nodes.split(",")] if isinstance(nodes, str) else list(nodes)
    known = {name: place for place, name in enumerate(names)}
    found = []
    for each in listed:
        if isinstance(each, int) and 0 <= each < len(names):
            found.append(each)
        elif each in known:
            found.append(known[str(each)])
        else:
            raise ExperimentError(f"{what}: {unknown_name('node', str(each), known)}")
    return tuple(sorted(set(found)))


def _has_date(*times: str | int | float) -> bool:
    return any(isinstance(time, str) and is_date(time) for time in times)


def _length(time: str | int | float, what: str) -> int:
    if str(time).strip().startswith("-"):
        raise ExperimentError(f"{what}: time {time!r} must not be negative")
    return parse_duration(str(time), what=f"{what}: time")


# --- dates --------------------------------------------------------------------------------------------------------


def is_open(table: "ClusterTable") -> bool:
    """Return whether a cluster's table has times that have to be resolved."""
    return (
        any(_has_date(each.start, each.end) or each.end == "" for each in table.outages)
        or any(_has_date(each.start, each.end) or each.every != "" for each in table.reservations)
        or any(_has_date(change.at) for each in table.limits for change in each.changes)
    )


def resolved(table: "ClusterTable", calendar: Calendar | None, last: int, notes: list[str]) -> "ClusterTable":
    """Return a cluster's table with all times as lengths since the run began; ``last`` is the last submission.

    What was over before is left out. Where the jobs have no dates what has one is left out, with a note.
    """
    if not is_open(table):
        return table
    made = _Times(calendar, last)
    outages = [each for given in table.outages for each in made.outage(given)]
    reservations = [each for given in table.reservations for each in made.reservation(given)]
    limits = [made.limit(given) for given in table.limits]
    notes.extend(made.notes())
    return structs.replace(table, outages=outages, reservations=reservations, limits=limits)


class _Times:
    """Puts dates into times of the run, and counts what it could not."""

    def __init__(self, calendar: Calendar | None, last: int) -> None:
        self._calendar, self._last = calendar, last
        self._undated = self._open = 0

    def notes(self) -> Iterator[str]:
        """Yield what became of tables that say too little."""
        if self._undated:
            yield (
                f"not followed: {self._undated:,} outages, reservations or limits have dates, and the "
                "jobs have none (--set trace.begins=2026-03-01 says when they begin)"
            )
        if self._open:
            nodes = counted(self._open, "outage")
            yield f"{nodes} without an end: these nodes are back when the last job is submitted"

    def at(self, time: str | int | float, what: str) -> int | None:
        """Return a time of the run, negative before it; None for a date where nobody knows when it begins."""
        if not _has_date(time):
            return _length(time, what)
        return None if self._calendar is None else self._calendar.time_of(str(time), what)

    def outage(self, given: OutageTable) -> Iterator[OutageTable]:
        """Yield an outage in times of the run."""
        start = self.at(given.start, "outages")
        end = max(self._last, (start or 0) + 1) if given.end == "" else self.at(given.end, "outages")
        if start is None or end is None:
            self._undated += 1
            return
        self._open += given.end == ""
        if end <= start:
            raise ExperimentError(f"outages: {_nodes(given.nodes)}: end {given.end} is not after start {given.start}")
        if end > 0:
            yield structs.replace(given, start=exact_duration(max(0, start)), end=exact_duration(end))

    def reservation(self, given: ReservationTable) -> Iterator[ReservationTable]:
        """Yield each time of a reservation, in times of the run."""
        what = f"reservation {given.name}"
        start, end = self.at(given.start, what), self.at(given.end, what)
        if start is None or end is None:
            self._undated += 1
            return
        if end <= start:
            raise ExperimentError(f"{what}: end {given.end} is not after start {given.start}")
        for shift in self._repeats(given, start, end):
            if end + shift > 0:
                times = exact_duration(max(0, start + shift)), exact_duration(end + shift)
                yield structs.replace(given, start=times[0], end=times[1], every="")

    def _repeats(self, given: ReservationTable, start: int, end: int) -> Iterator[int]:
        if given.every == "":
            yield 0
            return
        what = f"reservation {given.name}: every"
        period = parse_duration(str(given.every), what=what)
        if period < max(_LEAST_PERIOD, end - start):
            raise ExperimentError(f"{what} {given.every!r} must be at least as long as it lasts, and a minute")
        first, last = -(-(1 - end) // period), (self._last + _AFTER - start) // period
        if last - first > _MOST_TIMES:
            raise ExperimentError(f"{what} {given.every!r} is over {_MOST_TIMES:,} times in this run")
        yield from (number * period for number in range(first, last + 1))

    def limit(self, given: LimitTable) -> LimitTable:
        """Return a limit with its changes in times of the run; the last before it begins is what it begins with."""
        if not given.changes:
            return given
        times = [(self.at(change.at, f"limit {given.name}: changes"), change) for change in given.changes]
        if any(time is None for time, _ in times):
            self._undated += 1
            return structs.replace(given, most=given.changes[-1].most, changes=[])
        ordered = sorted(((time or 0, change.most) for time, change in times), key=lambda each: each[0])
        before = [most for time, most in ordered if time <= 0]
        later = [
            structs.replace(given.changes[0], at=exact_duration(time), most=most) for time, most in ordered if time > 0
        ]
        return structs.replace(given, most=before[-1] if before else given.most, changes=later)


def _nodes(nodes: list[str | int] | str) -> str:
    return nodes if isinstance(nodes, str) else ", ".join(map(str, nodes[:3])) + (", …" if len(nodes) > 3 else "")


# --- a run that begins later --------------------------------------------------------------------------------------


def shifted(cluster: Cluster, by: int) -> Cluster:
    """Return the cluster of a run that begins so much later: the first jobs were left out."""
    if not by or not (cluster.outages or cluster.reservations or any(rule.changes for rule in cluster.limits)):
        return cluster
    outages = [replace(each, start=max(0, each.start - by), end=each.end - by) for each in cluster.outages]
    reserved = [replace(each, start=max(0, each.start - by), end=each.end - by) for each in cluster.reservations]
    limits = []
    for rule in cluster.limits:
        changes = tuple((time - by, most) for time, most in rule.changes)
        before = [most for time, most in changes if time <= 0]
        later = tuple(change for change in changes if change[0] > 0)
        limits.append(replace(rule, most=before[-1] if before else rule.most, changes=later))
    return replace(
        cluster,
        outages=tuple(each for each in outages if each.end > 0),
        reservations=tuple(each for each in reserved if each.end > 0),
        limits=tuple(limits),
    )
