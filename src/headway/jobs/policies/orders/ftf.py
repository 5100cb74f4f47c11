"""Finish-time fairness (Themis, Mahajan et al., NSDI 2020): the job that sharing hurts most comes first.

A job's rho is T_shared / T_ideal. T_shared is the time from its submission to its end if it ran from now on without
interruption. T_ideal is what it would take with a 1/n part of the cluster to itself, n being the jobs alive now: its
whole work at reference speed, longer in proportion where it is wider than that part. The LARGEST rho comes first
(some published code sorts it the other way round). A start is a lease: at the end of a round, jobs that have run for
one may be preempted for a job whose rho is larger by a margin.

Departures: jobs here are rigid gangs, so Themis' partial auction comes down to the order of bids; its rho is per app
of many trials, ours per job; and n is the present contention, not its mean over the job's life. ``margin`` is ours,
against swapping equals every lease, and off by default. A job that does not fit is skipped: what the worst off cannot
use goes to the next.
"""

from headway.errors import ExperimentError
from headway.jobs.policies.orders.rounds import RoundOrder
from headway.jobs.policies.ranges import from_zero
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.queue import Key
from headway.jobs.state.state import TrainingState
from headway.units import MINUTE, WHOLE_GPU_MILLI, Duration

LEASE = Duration(20 * MINUTE)
PPM = 1_000_000


class Ftf(RoundOrder):
    """Orders jobs by finish-time fairness, the largest rho first, with preemption at the end of leases."""

    name = "ftf"
    preempts = True
    backfill = "fit"
    starves = True

    def __init__(self, lease: Duration = LEASE, margin: float = 0.0, contention: bool = True) -> None:
        super().__init__()
        if lease <= 0:
            raise ExperimentError(f"ftf(lease=...): {lease} ns must be above 0")
        from_zero(self.name, margin=margin)
        self.lease = lease
        self.margin = margin
        self.contention = contention
        self.refresh = lease
        self._margin_ppm = PPM + round(margin * PPM)

    def bind(self, state: TrainingState) -> None:
        """Set the state whose jobs compete, and the total of its GPUs."""
        self._state = state
        self._total = max(1, state.cluster.gpus * WHOLE_GPU_MILLI)

    def key(self, now: int, js: JobState) -> Key:
        """Return minus rho, in millionths."""
        return -self.rho_ppm(now, js)

    def rho_ppm(self, now: int, js: JobState) -> int:
        """Return T_shared / T_ideal of a job that waits or runs, in millionths."""
        shared = now - js.arrived + js.remaining(now)
        wanted = js.width * len(self._state.jobs) if self.contention else 0
        if wanted <= self._total:
            return shared * PPM // js.expected
        return shared * PPM * self._total // (js.expected * wanted)

    def gives_way(self, waiting: tuple[int, int], running: tuple[int, int]) -> bool:
        """Return whether the rho of the waiting job is larger than that of the running one, by the margin if set."""
        if self.margin:
            return waiting[0] * PPM < running[0] * self._margin_ppm
        return super().gives_way(waiting, running)
