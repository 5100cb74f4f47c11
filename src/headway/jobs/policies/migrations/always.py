"""AnalySIM's migration, kept to reproduce its results: moves jobs to every strictly tighter node after a completion.

Whenever GPUs were given back, each running job that fits into one node is moved if another node would be left with
fewer free GPUs than the one it leaves has now. ``migrate-always`` charges each move, ``migrate-free`` does not:
charging turns its gain into a loss under backfill, which is why ``migrate`` is the one to use.
"""

from collections.abc import Iterable, Iterator

from headway.jobs.model.actions import Action, MigrateJob
from headway.jobs.model.resources import Placement
from headway.jobs.policies.parts import Admission, Migration, PlacementRule
from headway.jobs.policies.placements.pick import on_node
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import Pool, members
from headway.jobs.state.state import TrainingState


class Always(Migration):
    """Moves jobs whatever it costs."""

    name = "migrate-always"

    def __init__(self) -> None:
        self._seen = -1

    def decide(self, now: int, state: TrainingState, policy: Admission) -> Iterator[Action]:
        """Move jobs to tighter nodes after a release, then start jobs that fit now."""
        if state.releases == self._seen:
            return
        moved = False
        for action in self._tighten(state, policy.placement):
            moved = True
            yield action
        self._seen = state.releases
        if moved and state.queue.size:
            policy.blocked = None
            yield from policy.walk(now, state)

    def idle(self, now: int, state: TrainingState, policy: Admission) -> Iterable[Action]:
        """Move jobs even if no job waits, as AnalySIM does."""
        return () if state.releases == self._seen else self.decide(now, state, policy)

    def _tighten(self, state: TrainingState, rule: PlacementRule) -> Iterator[Action]:
        for js in sorted(state.running.values(), key=lambda js: (js.gpus, js.id)):
            if len(js.placement) == 1 and js.gpu_milli == 1000 and js.gpus and js.job.preemptible:
                target = _tighter(state.pool, js, rule)
                if target is not None:
                    yield MigrateJob(js.id, target)


def _tighter(pool: Pool, js: JobState, rule: PlacementRule) -> Placement | None:
    """Return the placement on the node that would have the fewest GPUs left, if that is fewer than here."""
    left_here = pool.free_count[js.placement[0][0]]
    for free in range(js.gpus, min(len(pool.buckets), left_here + js.gpus)):
        for node in members(pool.buckets[free] & js.eligible & ~pool.bits[js.placement[0][0]]):
            placement = on_node(pool, node, js.gpus)
            if pool.host_fits(js, node, js.gpus) and rule.allows(js, placement):
                return placement
    return None


class Free(Always):
    """The same, at no charge."""

    name = "migrate-free"
    charged = False
