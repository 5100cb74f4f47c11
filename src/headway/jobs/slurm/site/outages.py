"""Convert what holds at a site for some time alone: nodes away, reservations, limits that were others before.

What cannot be converted is returned by name, with why.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from headway.jobs.slurm.output.records import Away, Reservation, Unread
from headway.jobs.slurm.output.reservations import dated
from headway.jobs.tables.dated import OutageTable, ReservationTable
from headway.units import DAY, HOUR, counted

_DOWN = ("DOWN", "FAIL", "ERROR", "POWERED_DOWN", "POWER_DOWN")
"""States of a node in which what ran there is lost."""
_STATES = (
    *_DOWN,
    *("DRAIN", "IDLE", "ALLOC", "MIX", "MAINT", "NO_RESPOND", "NOT_RESPOND", "REBOOT", "RESERVED", "UNKNOWN", "FUTURE"),
    *("INVAL", "COMPLETING", "PLANNED", "BLOCKED", "POWER", "PERFCTRS", "CLOUD", "DYNAMIC"),
)
"""How the words begin in which Slurm tells the state of a node."""
_PERIODS = {"DAILY": DAY, "WEEKLY": 7 * DAY, "HOURLY": HOUR}
_FOLLOWED = ("MAINT", "IGNORE_JOBS", "FLEX", "OVERLAP", "SPEC_NODES", "STATIC_ALLOC", "NO_HOLD_JOBS_AFTER", *_PERIODS)
_MOVING = {"TIME_FLOAT": "its beginning moves with time", "ANY_NODES": "it is of no nodes in particular"}


@dataclass(slots=True)
class SiteTimes:
    """What of a site's calendar is followed, and what is not."""

    outages: list[OutageTable] = field(default_factory=list)
    reservations: list[ReservationTable] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)


def site_times(aways: Sequence[Away], reservations: Sequence[Reservation], nodes: Sequence[str]) -> SiteTimes:
    """Return outages and reservations of nodes of the cluster, as an experiment has them."""
    known, made = set(nodes), SiteTimes()
    strangers = sorted({each.node for each in aways} - known)
    if strangers:
        first = ", ".join(strangers[:3]) + (", …" if len(strangers) > 3 else "")
        made.notes.append(f"events: {counted(len(strangers), 'node')} not in the cluster ({first}): left out")
    odd = sorted({each.state for each in aways if each.node in known and not _is_known(each.state)})
    if odd:
        made.notes.append(f"events: states that are not known ({', '.join(odd)}): taken as drained")
    for away in aways:
        if away.node in known:
            made.outages.append(_outage(away))
    for reservation in reservations:
        _reserve(reservation, reservations, known, made)
    return made


def _is_known(state: str) -> bool:
    """Return whether all words of a state, ``IDLE+DRAIN``, are Slurm's; none at all is fine."""
    return all(word.startswith(_STATES) for word in re.findall(r"[A-Z_]+", state.upper()))


def _outage(away: Away) -> OutageTable:
    """Return an outage; a node that is drained runs what it has to its end."""
    state = away.state.upper()
    down = any(word in state for word in _DOWN) and "FAILING" not in state and "DRAIN" not in state
    end = "" if away.end is None else dated(away.end)
    return OutageTable(
        nodes=[away.node], start=dated(away.start), end=end, state="down" if down else "drained", reason=away.reason
    )


def _reserve(each: Reservation, others: Sequence[Reservation], known: set[str], made: SiteTimes) -> None:
    """Add a reservation, or say why it is not followed."""
    what, span = f"reservation {each.name}", None if each.flags & set(_PERIODS) else (each.start, each.end)
    nodes: list[str | int] = [node for node in each.nodes if node in known]
    if len(nodes) < len(each.nodes):
        made.notes.append(
            f"{what}: {len(each.nodes) - len(nodes):,} of {len(each.nodes):,} nodes are not in the cluster: left out"
        )
    why = next(
        (told for flag, told in _MOVING.items() if flag in each.flags), "" if each.whole else "it is of no nodes"
    )
    if why or not nodes:
        made.unread.append(Unread(what, (), f"{why or 'none of its nodes is in the cluster'}", span))
        return
    made.unread.extend(_flags(each, span))
    if unnamed := [name for name in (*each.users, *each.accounts) if name.startswith("-")]:
        made.notes.append(f"{what}: who may not use it ({', '.join(unnamed[:3])}) is not asked")
    period = next((_PERIODS[flag] for flag in _PERIODS if flag in each.flags), 0)
    made.reservations.append(
        ReservationTable(
            name=each.name,
            nodes=nodes,
            start=dated(each.start),
            end=dated(each.end),
            flex="FLEX" in each.flags,
            overlap=bool(each.flags & {"OVERLAP", "MAINT"}) or _meets_another(each, others),
            every=f"{period // HOUR}h" if period else "",
        )
    )


def _flags(each: Reservation, span: tuple[int, int] | None) -> Iterator[Unread]:
    for flag in sorted(each.flags - set(_FOLLOWED)):
        yield Unread(f"flag {flag} of reservation {each.name}", (), "", span)


def _meets_another(each: Reservation, others: Sequence[Reservation]) -> bool:
    """Return whether others hold nodes of it, perhaps at its times: Slurm let that be, so it is let be here."""
    repeats = set(_PERIODS)
    return any(
        other is not each
        and not set(other.nodes).isdisjoint(each.nodes)
        and ((each.flags | other.flags) & repeats or (other.start < each.end and each.start < other.end))
        for other in others
    )
