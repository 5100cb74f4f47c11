"""Play the jobs of a real cluster under another policy, as far as they are known, and go on when more is.

The tape has two parts. What is *settled* depends on nothing that is still to be learned: it is the beginning of the
tape that a simulation of the whole record will write. What follows it, up to the last look, takes every job that has
not ended in reality to run until its time limit, and is made anew at each look.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from headway.core.collector import no_collection
from headway.core.scheduler import Scheduler
from headway.core.tape import Tape, TapeWriter
from headway.jobs.experiment.scene import JobsScene
from headway.jobs.model.job import Job
from headway.jobs.rules.eligibility.engine import gate_of
from headway.jobs.sim.copies import Copies
from headway.jobs.sim.resume import Moment
from headway.jobs.slurm.shadow.cluster import ShadowCluster, learn
from headway.jobs.traces.build import altered
from headway.jobs.traces.past import NEVER


@dataclass(frozen=True, slots=True)
class Played:
    """A run as it stands after a look."""

    scene: JobsScene
    tape: Tape
    settled: int
    """Everything before this time is settled."""
    settled_rows: int
    ahead: tuple[str, ...]
    """Jobs that have run longer in the shadow than they have in reality, and have not ended there, by name."""
    end: Moment
    wall_s: float
    """What it took to play."""
    decide_ns: tuple[int, ...] = ()
    """How long each decision took after what is settled."""


@dataclass(slots=True)
class World:
    """The run of a policy beside a real cluster."""

    revised: int = 0
    """How often what was settled had to be changed: somebody changed a job, or it was heard of late."""
    _scene: JobsScene | None = None
    _known: Sequence[Job] = ()
    _moment: Moment | None = None
    _pieces: list[Tape] = field(default_factory=list)

    def look(self, scene: JobsScene, at: int) -> Played:
        """Play the jobs of a scene as far as they are known at a time of the run."""
        began = perf_counter()
        known = known_so_far(scene)
        with no_collection():
            changed = self._changes(scene, known)
            before = _joined(self._pieces) if changed is None and self._pieces else None
            moment = self._begin(scene, known) if changed is None or self._moment is None else self._moment
            self._learn(moment, changed or (), known)
            self._scene, self._known, self._moment = scene, known, moment
            self._pieces.append(_on(moment, _open(scene), at)[0])
            settled = _joined(self._pieces)
            if before is not None and not _begins_with(settled, before):
                self.revised += 1
            tail, decided, end = _guessed(moment, scene, at)
        tape = _joined([settled, tail])
        took = perf_counter() - began
        return Played(scene, tape, moment.time + 1, len(settled), _ahead(scene, end), end, took, decided)

    def _begin(self, scene: JobsScene, known: Sequence[Job]) -> Moment:
        self._pieces = []
        return replace(scene, jobs=tuple(known)).begin(ShadowCluster)

    def _changes(self, scene: JobsScene, known: Sequence[Job]) -> list[Job] | None:
        """Return the jobs that have arrived and of which more is known; None where the run has to begin anew."""
        moment, before = self._moment, self._scene
        if moment is None or before is None:
            return None
        if scene.cluster != before.cluster or gate_of(known) is not None or len(known) < len(self._known):
            return None
        arrived = len(moment.executor.jobs) - len(moment.executor.to_come)
        changed = []
        for old, new, ran in zip(self._known[:arrived], known, before.past.ran or _none(arrived), strict=False):
            if old != new:
                if ran == NEVER or not _is_more(old, new, moment.time):
                    return None
                changed.append(new)
        return changed

    def _learn(self, moment: Moment, changed: Sequence[Job], known: Sequence[Job]) -> None:
        """Give jobs what became known of them."""
        for job in changed:
            learn(moment, job)
        arrived = len(moment.executor.jobs) - len(moment.executor.to_come)
        moment.expect(known[arrived:])


def known_so_far(scene: JobsScene) -> list[Job]:
    """Return the jobs of a scene with as much work as is known: of those that have not ended, what they have run."""
    ran = scene.past.ran
    if not ran:
        return list(scene.jobs)
    work = [job.work if length == NEVER else length for job, length in zip(scene.jobs, ran, strict=True)]
    return list(altered(scene.jobs, {"work": work}))


def _none(count: int) -> list[int]:
    return [NEVER] * count


def _open(scene: JobsScene) -> frozenset[int]:
    return frozenset(job for job, ran in enumerate(scene.past.ran) if ran != NEVER)


def _is_more(old: Job, new: Job, time: int) -> bool:
    """Return whether a job that was open is the same with more work, or an end, which lies after a time."""
    same = replace(
        old,
        work=new.work,
        outcome=new.outcome,
        outcome_after=new.outcome_after,
        retries=new.retries,
        patience=new.patience,
    )
    late = not new.patience or new.submit + new.patience > time
    return same == new and new.ends_after >= old.work and late


def _on(moment: Moment, open: frozenset[int], horizon: int) -> tuple[Tape, tuple[int, ...]]:
    """Go on as far as possible; return the tape of that, and how long each decision took, in nanoseconds.

    The moment is then that before the first unknown instant.
    """
    executor = moment.executor
    assert isinstance(executor, ShadowCluster)
    executor.reset(open, max(horizon, moment.time + 1))
    tape = TapeWriter()
    scheduler = Scheduler(moment.state, moment.policy, executor, tape)
    scheduler.decide_ns = []
    scheduler.drain()
    moment.time = max(moment.time, executor.rests_at - 1)
    return tape.close(), tuple(scheduler.decide_ns)


def _guessed(moment: Moment, scene: JobsScene, at: int) -> tuple[Tape, tuple[int, ...], Moment]:
    """Return how it goes on up to a time, and a nanosecond more, if every job that has not ended runs to its limit."""
    tail = Copies(moment).make()
    for job in _open(scene):
        if job in tail.state.jobs:
            tail.alter(scene.jobs[job])
    arrived = len(tail.executor.jobs) - len(tail.executor.to_come)
    tail.expect(scene.jobs[arrived:])
    return *_on(tail, frozenset(), at + 2), tail  # who waited at the first look arrives a nanosecond after it


def _ahead(scene: JobsScene, end: Moment) -> tuple[str, ...]:
    found = []
    ran = scene.past.ran
    for js in end.state.jobs.values():
        so_far = ran[js.id] if ran else NEVER
        if so_far != NEVER and js.first_start >= 0 and js.done_at(end.time) > so_far:
            found.append(scene.jobs[js.id].name)
    return tuple(found)


def _joined(tapes: Sequence[Tape]) -> Tape:
    return Tape(np.concatenate([tape.rows for tape in tapes]), {}) if tapes else TapeWriter().close()


def _begins_with(tape: Tape, prefix: Tape) -> bool:
    return len(tape) >= len(prefix) and bool((tape.rows[: len(prefix)] == prefix.rows).all())
