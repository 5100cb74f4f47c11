"""A live job, and the account of the tenant it belongs to: what has happened so far, as far as a policy may know.

Only ``state.TrainingState`` changes these. Policies read them; what they must not know (the true work, the outcome) is
in ``job.Job`` and stays there.
"""

from collections.abc import Hashable
from enum import IntEnum
from typing import TYPE_CHECKING

from headway.jobs.model.cluster import Tenant
from headway.jobs.model.job import Job
from headway.jobs.model.periodic_checkpoints import duration, useful
from headway.jobs.model.resources import UNCOUNTED, Grant, Placement
from headway.jobs.state.queue import Key
from headway.units import REFERENCE_SPEED_PPM

if TYPE_CHECKING:
    from headway.jobs.rules.limits.classes import LimitClass


class Status(IntEnum):
    """Where a live job is."""

    WAITING = 0
    RUNNING = 1
    DELAYED = 2
    """It was requeued, and may not start yet: it is in no queue."""


_WAITING, _RUNNING = Status.WAITING, Status.RUNNING


class Account:
    """What a tenant holds and may hold, in thousandths of a GPU."""

    __slots__ = ("borrow", "guaranteed", "held", "limit", "name", "promised", "weight")

    def __init__(self, name: str, guaranteed: int = UNCOUNTED, limit: int = UNCOUNTED, weight: int = 1) -> None:
        self.name = name
        self.guaranteed = guaranteed
        self.limit = limit
        self.borrow = False
        self.promised = False
        """Whether it has a quota of its own, up to which it may reclaim what others borrowed."""
        self.weight = weight
        self.held = 0


def account_of(tenant: Tenant) -> Account:
    """Make the account of a tenant that the cluster describes."""
    guaranteed = UNCOUNTED if tenant.guaranteed_gpus is None else tenant.guaranteed_gpus * 1000
    limit = UNCOUNTED if tenant.limit_gpus is None else tenant.limit_gpus * 1000
    account = Account(tenant.name, min(guaranteed, limit), limit, tenant.weight)
    account.borrow, account.promised = tenant.borrow, tenant.guaranteed_gpus is not None
    return account


class JobState:
    """A live job: its description and what has happened to it so far."""

    __slots__ = (
        "account",
        "accrues",
        "aged_from",
        "arrived",
        "attained",
        "attempt",
        "awaits",
        "base",
        "by",
        "cpu_milli",
        "debt",
        "done",
        "eligible",
        "every",
        "expected",
        "first_start",
        "gpu_milli",
        "gpus",
        "id",
        "job",
        "key",
        "lane",
        "lease",
        "leaves",
        "limits",
        "memory_bytes",
        "nodes",
        "placement",
        "preemptions",
        "rank",
        "regranted",
        "saved",
        "since",
        "speed",
        "status",
        "storage",
        "turn",
        "width",
        "writing",
    )

    def __init__(self, job: Job, account: Account, eligible: int, now: int) -> None:
        self.job = job
        self.id = job.id
        self.account = account
        self.gpus = job.gpus
        self.gpu_milli = job.gpu_milli
        self.width = job.gpus * job.gpu_milli
        self.nodes = job.nodes
        self.cpu_milli = job.cpu_milli
        self.memory_bytes = job.memory_bytes
        self.storage = 0
        """Bytes a second of the nodes' storage bandwidth. While it runs, these three are what it holds."""
        self.eligible = eligible
        self.arrived = job.submit if job.terms is None else now
        """When it was submitted, or became eligible after that."""
        self.limits: LimitClass | None = None
        """The limits that concern it; None where none does."""
        self.expected = job.estimate or job.work
        """Work that the job is believed to be: the user's estimate, or the truth where the trace has none."""
        self.status = _WAITING
        self.lease = 0
        self.placement: Placement = ()
        self.since = now
        """When it last began to wait, or to run where it is; a change of its speed leaves it."""
        self.base = 0
        """From when on it makes progress (a start that restores a checkpoint stands still first)."""
        self.speed = 0
        self.done = 0
        """Work delivered up to ``base``."""
        self.attained = 0
        """GPU time held up to ``since``, in thousandths of a GPU times nanoseconds."""
        self.saved = 0
        """Work that the last checkpoint holds, apart from periodic ones."""
        self.every = job.checkpoint_every if job.checkpoint else 0
        """Work between periodic checkpoints that cost time; 0: none do."""
        self.writing = 0
        """When the periodic checkpoint that was being written when work was last settled is whole."""
        self.regranted = -1
        """When what it holds was last changed."""
        self.turn = 0
        """Lease of its last start; a move does not change it."""
        self.debt = 0
        """What the next start has to stand still for."""
        self.attempt = 0
        self.preemptions = 0
        self.aged_from = self.arrived
        """From when on its age counts: its submission, or when it could start again after it was requeued."""
        self.accrues = 0
        """From when on its age counts besides, where a limit lets that of only so many grow; ``NEVER``: not yet."""
        self.leaves = 0
        """When it goes at the latest: it was given notice for job ``by``; 0: it was not."""
        self.by = -1
        """The job for which it was given notice, or requeued last."""
        self.awaits = 0
        """Until when jobs that were given notice for it leave; 0: none were."""
        self.first_start = -1
        self.lane: Hashable = None
        self.key: Key = 0
        self.rank: tuple[int, Key] = (0, 0)

    @property
    def grant(self) -> Grant:
        """Return what it holds, while it runs, besides GPUs."""
        return Grant(self.cpu_milli, self.memory_bytes, self.storage)

    def done_at(self, now: int) -> int:
        """Return the work delivered by now."""
        if self.status is _RUNNING and now > self.base:
            return self._progress(now)[0] if self.every else self._plain_progress(now)
        return self.done

    def _plain_progress(self, now: int) -> int:
        return self.done + (now - self.base) * self.speed // REFERENCE_SPEED_PPM

    def _progress(self, now: int) -> tuple[int, int]:
        """Return the work delivered by now, after ``base``, and the end of the last periodic checkpoint begun since."""
        spent, end = useful(now - self.base, self.done, self.speed, self.every, self.job.checkpoint)
        return self.done + spent * self.speed // REFERENCE_SPEED_PPM, self.base + end if end else 0

    def settle(self, now: int) -> None:
        """Count the work of a running job up to now; progress goes on from now, or when a checkpoint is written."""
        if now <= self.base:
            return
        if self.every:
            self.done, end = self._progress(now)
            self.base = self.writing = max(now, end)
        else:
            self.done, self.base = self._plain_progress(now), now

    def attained_at(self, now: int) -> int:
        """Return the GPU time held by now."""
        return self.attained + (now - self.since) * self.width if self.status is _RUNNING else self.attained

    def remaining(self, now: int) -> int:
        """Return the work believed to be left; at least 1 ns while it lives, however wrong the estimate was.

        The time in which it will write checkpoints counts as work at its speed (waiting: at reference speed), so that
        what is left of a running job falls evenly.
        """
        done, end, speed = self.done, 0, REFERENCE_SPEED_PPM
        if not self.every:
            if self.status is _RUNNING and now > self.base:
                done = self._plain_progress(now)
            left = self.expected - done
            return left if left > 1 else 1
        if self.status is _RUNNING:
            end, speed = self.writing, self.speed
            if now > self.base:
                done, end = self._progress(now)
        left = max(1, self.expected - done)
        writes = ((done + left - 1) // self.every - done // self.every) * self.job.checkpoint
        return left + (writes + max(0, end - now)) * speed // REFERENCE_SPEED_PPM

    def time_left(self, speed: int) -> int:
        """Return how long it is believed to take at a speed from where its work was last settled."""
        left = max(1, self.expected - self.done)
        if self.every:
            return duration(left, self.done, speed, self.every, self.job.checkpoint)
        return left if speed == REFERENCE_SPEED_PPM else -(-left * REFERENCE_SPEED_PPM // speed)

    def expected_end(self) -> int:
        """Return when it is believed to end if it runs on as it does; if it was given notice, when that is over."""
        end = self.base + self.time_left(self.speed)
        return min(end, self.leaves) if self.leaves else end
