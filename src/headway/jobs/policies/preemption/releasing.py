"""Release running jobs in a draft, one after the other, until a waiting job fits.

Whole GPUs are counted first. The pool is touched only once the count says that the job may fit, and then only for the
jobs that matter, so that a search that comes to nothing costs a few additions.
"""

from collections.abc import Callable

from headway.jobs.model.resources import Placement
from headway.jobs.policies.parts import PlacementRule
from headway.jobs.state.draft import Draft
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import Demand, Pool
from headway.jobs.state.state import TrainingState
from headway.units import WHOLE_GPU_MILLI


class Releasing:
    """A draft in which running jobs stop one by one, to make room for one that waits."""

    __slots__ = (
        "_counts",
        "_divides",
        "_draft",
        "_eligible",
        "_free",
        "_gained",
        "_js",
        "_pending",
        "_place",
        "_single",
        "needed",
    )

    def __init__(
        self,
        state: TrainingState,
        draft: Draft,
        js: JobState,
        rule: PlacementRule,
        place: Callable[[], Placement | None],
    ) -> None:
        """``place`` is asked where the waiting job goes, once there may be room for it."""
        pool = draft.pool
        self._draft, self._js, self._place = draft, js, place
        whole = js.gpu_milli == WHOLE_GPU_MILLI
        self._single = whole and rule.needs_one_node(pool, js)
        self._eligible = js.eligible if self._single else js.eligible & pool.schedulable
        self._counts = whole and not state.quotas  # with quotas, others look at what tenants hold in the draft
        self._divides = state.divides  # where a job goes then depends on more than the nodes with GPUs for it
        self._free = pool.free_among(js.eligible) if whole and not self._single else 0
        self._gained: dict[int, int] = {}
        """GPUs of those that are counted but not released yet, by node."""
        self._pending: list[JobState] = []
        """Those."""
        self.needed: list[JobState] = []
        """Those that are released in the draft, in the order in which they were added."""

    def add(self, leaver: JobState) -> Placement | None:
        """Release one more running job; return where the waiting one then fits, None when it does not."""
        self._pending.append(leaver)
        if not self._counts:
            return self._try(leaver)
        if leaver.gpu_milli != WHOLE_GPU_MILLI:  # what a share frees is for the pool to say
            self._counts = False
            return self._try(leaver)
        eligible, need = self._eligible, self._js.gpus
        if not self._single:
            for node, mask in leaver.placement:
                if eligible >> node & 1:
                    self._free += mask.bit_count()
            if self._free < need:
                return None
            self._counts = False
            return self._try(leaver)
        gained, free_count = self._gained, self._draft.pool.free_count
        enough = []
        for node, mask in leaver.placement:
            gained[node] = more = gained.get(node, 0) + mask.bit_count()
            if free_count[node] + more >= need and eligible >> node & 1:
                enough.append(node)
        if not enough:
            return None
        self._counts = False
        if self._divides or len(enough) > 1:
            return self._try(leaver)
        # The first node with room: whoever left elsewhere does not matter.
        everybody, (node,) = self._pending, enough
        self._pending = [js for js in everybody if any(where == node for where, _ in js.placement)]
        if (placement := self._try(leaver)) is None:
            self._pending = [js for js in everybody if js not in self.needed]
            self._release()
            self.needed = everybody
        return placement

    def shortfall(self) -> int:
        """Return how many GPUs, at least, are missing when all were added and it does not fit."""
        if not self._counts:
            return 1
        need, pool = self._js.gpus, self._draft.pool
        if not self._single:
            return max(1, need - self._free)
        most = _most_free(pool, self._eligible)
        for node, gained in self._gained.items():
            if self._eligible >> node & 1:
                most = max(most, pool.free_count[node] + gained)
        return max(1, need - most)

    def _try(self, leaver: JobState) -> Placement | None:
        """Release in the draft what is pending; return where the waiting job then fits."""
        self._release()
        js, pool = self._js, self._draft.pool
        if self._single:
            enough = any(pool.free_count[n] >= js.gpus and js.eligible >> n & 1 for n, _ in leaver.placement)
        else:
            enough = js.gpu_milli < WHOLE_GPU_MILLI or pool.free_among(js.eligible) >= js.gpus
        return self._place() if enough else None

    def _release(self) -> None:
        for leaver in self._pending:
            self._draft.release(leaver)
        self.needed += self._pending
        self._pending = []


def shortfall(pool: Pool, js: Demand, rule: PlacementRule) -> int:
    """Return how many GPUs have to be given back, at least, before a job that does not fit now may."""
    if js.gpu_milli != WHOLE_GPU_MILLI:
        return 1
    return max(1, js.gpus - (_most_free(pool, js.eligible) if rule.needs_one_node(pool, js) else pool.free_gpus))


def _most_free(pool: Pool, eligible: int) -> int:
    """Return the number of free GPUs of the node, of these, that has most."""
    buckets = pool.buckets
    for free in range(len(buckets) - 1, 0, -1):
        if buckets[free] & eligible:
            return free
    return 0
