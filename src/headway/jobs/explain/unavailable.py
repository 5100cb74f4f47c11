"""Say which nodes keep a job waiting because they are reserved for others or out of service, and until when."""

from headway.jobs.model.causes import Cause, CauseKind
from headway.jobs.model.cluster import Cluster
from headway.jobs.policies.parts import PlacementRule
from headway.jobs.rules.reservations.reservation import AdvanceReservation
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import members
from headway.jobs.state.state import TrainingState
from headway.units import clock, counted

_MOST_NAMES = 3


def reserved_cause(now: int, state: TrainingState, rule: PlacementRule, js: JobState) -> Cause | None:
    """Return the cause if advance reservations alone keep a job from starting; else None."""
    if state.reserved is None:
        return None
    if (begins := state.reserved.begins.get(js.id)) is not None:
        name = js.job.reservation
        return Cause(
            CauseKind.RESERVED,
            f"reservation {name}, which it names, begins at {clock(begins)}",
            name,
            facts={"begins": begins},
        )
    base = state.eligible(js.job.partition, js.job.gpu_types)
    kept = base & ~js.eligible
    holding = state.reserved.holding(now, js, kept)
    if not holding or not _fits_on(state, rule, js, base):
        return None
    first = holding[0]
    others = f" and {counted(len(holding) - 1, 'other')}" if len(holding) > 1 else ""
    ends = now + js.debt + js.remaining(now)
    why = "" if first.start <= now else f"; it would run until {clock(ends)}"
    text = f"reservation {_told(state.cluster, first, kept)}{others}{why}"
    return Cause(CauseKind.RESERVED, text, first.name, facts={"from": first.start, "to": first.end})


def _fits_on(state: TrainingState, rule: PlacementRule, js: JobState, nodes: int) -> bool:
    """Return whether a job would find a place now if it might use these nodes."""
    before, js.eligible = js.eligible, nodes
    try:
        return rule.place(state.pool, js) is not None
    finally:
        js.eligible = before


def _told(cluster: Cluster, reservation: AdvanceReservation, kept: int) -> str:
    names = _names(cluster, [node for node in reservation.nodes if kept >> node & 1])
    return f"{reservation.name} keeps {names} from {clock(reservation.start)} to {clock(reservation.end)}"


def _names(cluster: Cluster, nodes: list[int]) -> str:
    names = [cluster.nodes[node].name for node in nodes]
    return f"{', '.join(names[:_MOST_NAMES])}{' and others' if len(names) > _MOST_NAMES else ''}"


def away_until(now: int, cluster: Cluster, away: int) -> str:
    """Return until when the first of these nodes are down or drained, as far as the cluster tells; else nothing."""
    told = []
    for each in cluster.outages:
        if each.start <= now < each.end and (nodes := [node for node in members(away) if node in each.nodes]):
            reason = f" ({each.reason})" if each.reason else ""
            what = "down" if each.down else "drained"
            told.append(f"{_names(cluster, nodes)} {what} until {clock(each.end)}{reason}")
    return f"; {', '.join(told[:_MOST_NAMES])}" if told else ""
