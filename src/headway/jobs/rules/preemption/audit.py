"""Audit of the preemption that a cluster declares: who was stopped for whom, when, and whether that was of any use.

Everything is worked out from the rows and the cluster's own tables, without ``tiers.py``: a victim's QOS is listed by
the preemptor's, or its tier is lower and it held nodes of the preemptor's partition; it had run for its exempt time; it
was stopped as its mode says, after its grace where it has any; a requeued job does not start before its delay is over;
and a job for which others went at once starts in that instant.
"""

from collections.abc import Iterator

from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.model.resources import Placement
from headway.jobs.model.rows import Kind
from headway.jobs.rules.preemption.preemption import Mode

_REQUEUE, _KILL, _WARN = int(Kind.REQUEUE), int(Kind.KILL), int(Kind.WARN)
STOPS = (_REQUEUE, _KILL, _WARN)


class PreemptionBooks:
    """Notices, delays and victims, entered row by row; each method yields what is wrong."""

    def __init__(self, cluster: Cluster, jobs: dict[int, Job]) -> None:
        assert cluster.preemption is not None
        self._rules = cluster.preemption
        self._qos = {each.name: each for each in cluster.qos}
        self._partitions = {each.name: each for each in cluster.partitions}
        self._jobs = jobs
        """Those that are alive."""
        self._notices: dict[int, tuple[int, int]] = {}
        """By job: for whom, and when it goes."""
        self._not_before: dict[int, int] = {}
        self._winners: set[int] = set()
        """Jobs for which others went in this instant, without notice."""

    def start(self, now: int, job: int) -> Iterator[str]:
        """Enter a start."""
        self._winners.discard(job)
        if now < (least := self._not_before.pop(job, 0)):
            yield f"job {job} starts before {least} ns, when it may again after it was requeued"

    def stop(self, job: int) -> None:
        """Enter that a job has stopped by itself, or with its node."""
        self._notices.pop(job, None)

    def row(self, row: list[int], victim: Job, since: int, placement: Placement) -> Iterator[str]:
        """Enter a REQUEUE, KILL or WARN row about a job that has run since a time."""
        now, kind, job, _, _, by, value = row
        told = f"job {job} goes for job {by}"
        mode, grace, exempt = self._terms(victim)
        if kind != _WARN and mode is not (Mode.REQUEUE if kind == _REQUEUE else Mode.CANCEL):
            yield f"{told} by {Kind(kind).name}, its mode is {mode}"
        if kind == _REQUEUE:
            self._not_before[job] = now + self._rules.again_after
        noticed = self._notices.pop(job, None)
        if noticed is not None:
            if kind == _WARN or noticed != (by, now):
                yield f"{told} at {now} ns; it was given notice for job {noticed[0]} until {noticed[1]} ns"
            return
        if by not in self._jobs:
            yield f"{told}, which is not there"
            return
        yield from self._unlawful(told, self._jobs[by], victim, placement)
        if now < since + exempt:
            yield f"{told} after {now - since} ns, it is exempt for {exempt}"
        if grace != (value - now if kind == _WARN else 0):
            yield f"{told}; its grace is {grace} ns"
        if kind == _WARN:
            self._notices[job] = by, value
        else:
            self._winners.add(by)

    def _unlawful(self, told: str, winner: Job, victim: Job, placement: Placement) -> Iterator[str]:
        """Yield why a job may not preempt another one."""
        if self._rules.by == "qos":
            qos = self._qos.get(winner.qos)
            if qos is None or victim.qos not in qos.preempts or victim.qos == winner.qos:
                yield f"{told}: QOS {winner.qos or '(none)'} does not preempt {victim.qos or '(none)'}"
            return
        high, low = (self._partitions.get(each.partition) for each in (winner, victim))
        if (1 if high is None else high.tier) <= (1 if low is None else low.tier):
            yield f"{told}: the tier of partition {winner.partition} is not above that of {victim.partition}"
        if high is not None and not set(high.nodes) & {node for node, _ in placement}:
            yield f"{told}: it holds no node of partition {winner.partition}"

    def _terms(self, victim: Job) -> tuple[Mode, int, int]:
        """Return mode, grace and exempt time."""
        qos = self._qos.get(victim.qos)
        of = qos if self._rules.by == "qos" else self._partitions.get(victim.partition)
        mode = (of.preempt_mode if of is not None else None) or self._rules.mode
        exempt = self._rules.exempt if qos is None or qos.exempt is None else qos.exempt
        return mode, 0 if of is None else of.grace, exempt

    def end_instant(self, now: int) -> Iterator[str]:
        """Yield who was made room for and did not start, and who still runs though its notice is over."""
        waiting = {by for by, _ in self._notices.values()}
        for job in sorted(self._winners - waiting):
            if job in self._jobs:
                yield f"others went for job {job}, and it does not start"
        self._winners.clear()
        for job, (by, until) in self._notices.items():
            if until <= now:
                yield f"job {job} still runs at {now} ns; it was given notice for job {by} until {until} ns"
