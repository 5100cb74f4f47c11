"""Tests of the tests: policies that are broken on purpose, each caught by the check that is there for it."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from headway.errors import InfeasibleActionError, StalledRunError
from headway.jobs.model.actions import Action, MigrateJob, PreemptJob, StartJob
from headway.jobs.model.cluster import uniform
from headway.jobs.policies.backfills.fit import Fit
from headway.jobs.policies.backfills.none import NoBackfill
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.orders.fifo import Fifo
from headway.jobs.policies.parts import Order
from headway.jobs.policies.placements.best_fit import BestFit
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.queue import Key
from headway.jobs.state.state import TrainingState
from headway.streams import small_stream
from headway.units import SECOND
from tests.conformance.checks import BrokenPromise, check_all, check_blind, check_keys, check_not_undone
from tests.drive import World, drive, seconds_of

SMALL = World(uniform(2, 4), seconds_of((0, 30, 2), (0, 10, 3), (1, 20, 8), (2, 5, 1), (2, 5, 4), (9, 40, 6)))


class Broken(ComposedPolicy):
    """Sound until a subclass breaks it."""

    def __init__(self, order: Order | None = None) -> None:
        super().__init__("broken", order or Fifo(), NoBackfill(), BestFit())


def test_the_policy_that_the_broken_ones_are_made_of_is_sound() -> None:
    check_all(Broken, SMALL)


class Overbooks(Broken):
    """Places every job on the first GPUs, free or not."""

    def decide(self, now: int, state: TrainingState) -> Iterable[Action]:
        for _, job in list(state.queue.in_order()):
            yield StartJob(job, ((0, (1 << state.jobs[job].gpus) - 1),))


class Splits(Broken):
    """Gives a job fewer GPUs than it asked for."""

    def decide(self, now: int, state: TrainingState) -> Iterable[Action]:
        for action in super().decide(now, state):
            if isinstance(action, StartJob) and state.jobs[action.job].gpus > 1:
                ((node, mask), *_) = action.placement
                action = StartJob(action.job, ((node, mask & -mask),))
            yield action


class PreemptsTheDead(Broken):
    """Preempts a job that does not run."""

    def decide(self, now: int, state: TrainingState) -> Iterable[Action]:
        yield PreemptJob(99)


@pytest.mark.parametrize("policy", [Overbooks, Splits, PreemptsTheDead])
def test_what_cannot_be_done_is_refused(policy: type[Broken]) -> None:
    with pytest.raises(InfeasibleActionError, match="broken at"):
        check_all(policy, SMALL)


class Forgets(Broken):
    """Never starts job 3."""

    def decide(self, now: int, state: TrainingState) -> Iterator[Action]:
        for entry in list(state.queue.in_order()):
            js = state.jobs[entry[1]]
            if js.id != 3 and (placement := self.placement.place(state.pool, js)) is not None:
                yield StartJob(js.id, placement)


class GivesUp(Broken):
    """Stops deciding after a while: what waits then starves."""

    def decide(self, now: int, state: TrainingState) -> Iterable[Action]:
        return super().decide(now, state) if now < 5 * SECOND else ()


@pytest.mark.parametrize("policy", [Forgets, GivesUp])
def test_a_forgotten_job_stalls_the_run(policy: type[Broken]) -> None:
    with pytest.raises(StalledRunError, match="work is left"):
        check_all(policy, SMALL)


class MutatesThePool(Broken):
    """Helps itself to a GPU."""

    def decide(self, now: int, state: TrainingState) -> Iterable[Action]:
        state.pool.free_count[0] -= 1
        return super().decide(now, state)


class LeavesADraftOpen(Broken):
    """Tries a placement and forgets to take it back."""

    def decide(self, now: int, state: TrainingState) -> Iterator[Action]:
        for js in list(state.jobs.values()):
            if js.id not in state.running and (placement := self.placement.place(state.pool, js)) is not None:
                state.draft().start(js, placement)
        yield from super().decide(now, state)


class Reorders(Broken):
    """Lies about how long a job takes."""

    def decide(self, now: int, state: TrainingState) -> Iterator[Action]:
        for action in super().decide(now, state):
            yield action
            for js in state.jobs.values():
                js.expected = 1


class CommitsByItself(Broken):
    """Does not wait for the loop."""

    def decide(self, now: int, state: TrainingState) -> Iterator[Action]:
        for js in list(state.jobs.values()):
            if js.id not in state.running and (placement := self.placement.place(state.pool, js)) is not None:
                state.commit(now, StartJob(js.id, placement))
        yield from ()


@pytest.mark.parametrize("policy", [MutatesThePool, LeavesADraftOpen, Reorders, CommitsByItself])
def test_a_changed_state_is_noticed(policy: type[Broken]) -> None:
    with pytest.raises(BrokenPromise, match="state untouched"):
        check_all(policy, SMALL)


class ReadsTheClock(Broken):
    """Decides by the time of day."""

    def decide(self, now: int, state: TrainingState) -> Iterable[Action]:
        return super().decide(now, state) if time.time_ns() else ()


def test_a_read_clock_is_noticed() -> None:
    with pytest.raises(BrokenPromise, match="reads no clock"):
        check_all(ReadsTheClock, SMALL)


class Dice(Order):
    """Carries memory from run to run, outside of itself: its draws depend on how many of it there were."""

    name = "dice"
    lives = 0

    def __init__(self, same_for: int) -> None:
        type(self).lives += 1
        self._draw = small_stream(self.lives // same_for, "hidden")

    def key(self, now: int, js: JobState) -> Key:
        return self._draw.random()


@pytest.mark.parametrize(("same_for", "promise"), [(1, "repeatable"), (2, "replay identical")])
def test_hidden_randomness_is_noticed(same_for: int, promise: str) -> None:
    Dice.lives = same_for - 1
    with pytest.raises(BrokenPromise, match=promise):
        check_all(lambda: Broken(Dice(same_for)), SMALL)


class Truth(Order):
    """Shortest job first by the true work, whatever the estimate says."""

    name = "truth"

    def key(self, now: int, js: JobState) -> Key:
        return js.job.work


def test_a_policy_that_looks_at_the_truth_is_noticed() -> None:
    jobs = seconds_of((0, 8, 4), (0, 4, 4), (0, 6, 4), (0, 5, 4))
    world = World(uniform(1, 4), tuple(replace(job, estimate=7 * SECOND) for job in jobs))
    with pytest.raises(BrokenPromise, match="blind to the truth"):
        check_blind(lambda: Broken(Truth()), world)
    check_blind(Broken, world)


class Ages(Order):
    """Longest wait first for each GPU, without saying that its key moves; nobody is preempted."""

    name = "ages"

    def key(self, now: int, js: JobState) -> Key:
        return (js.job.submit - now) // js.gpus


def test_a_key_that_moves_with_time_without_saying_so_is_noticed() -> None:
    line = r"key stands: order ages, job \d: .*; write key_moves_with_time = True in the class"
    with pytest.raises(BrokenPromise, match=line):
        check_keys(lambda: Broken(Ages()), SMALL)
    check_keys(lambda: Broken(type("Says", (Ages,), {"key_moves_with_time": True})()), SMALL)
    check_all(lambda: Broken(Ages()), SMALL)  # nothing else notices


class Jitters(Broken):
    """Moves the first running job to and fro for ever, so that nothing new is learnt and time stands almost still."""

    def decide(self, now: int, state: TrainingState) -> Iterator[Action]:
        for js in list(state.running.values()):
            ((node, mask), *_) = js.placement
            yield MigrateJob(js.id, ((node, mask),))
        yield from super().decide(now, state)


def test_a_move_to_where_a_job_is_already_is_refused() -> None:
    with pytest.raises(InfeasibleActionError, match="is there already"):
        check_all(Jitters, SMALL)


class Fidgets(Broken):
    """Stops the last job that runs and starts it again at once, where it was or on the other node."""

    elsewhere = False

    def decide(self, now: int, state: TrainingState) -> Iterator[Action]:
        yield from super().decide(now, state)
        for js in list(state.running.values())[-1:]:
            where = js.placement
            yield PreemptJob(js.id)
            if self.elsewhere and len(where) == 1 and not state.on_node[1 - where[0][0]]:
                where = ((1 - where[0][0], where[0][1]),)
            yield StartJob(js.id, where)


class FidgetsElsewhere(Fidgets):
    """The same, on the other node if that is empty."""

    elsewhere = True


class StartsToStop(Broken):
    """Starts a job and stops it in the same instant."""

    def decide(self, now: int, state: TrainingState) -> Iterator[Action]:
        for action in super().decide(now, state):
            yield action
            if isinstance(action, StartJob) and now == 0:
                yield PreemptJob(action.job)
                return


@pytest.mark.parametrize("policy", [Fidgets, FidgetsElsewhere, StartsToStop])
def test_an_action_that_its_own_instant_undoes_is_noticed(policy: type[Broken]) -> None:
    with pytest.raises(BrokenPromise, match="nothing undone"):
        check_not_undone(drive(policy(), SMALL))
    check_not_undone(drive(Broken(), SMALL))


class LosesTrack(Fit):
    """A backfill that is asked for one job and starts another twice."""

    def decide(self, now: int, state: TrainingState, policy: object) -> Iterator[Action]:
        for _, job in list(state.queue.in_order()):
            placement = BestFit().place(state.pool, state.jobs[job])
            if placement is not None:
                yield StartJob(job, placement)
                yield StartJob(job, placement)


def test_a_job_that_is_started_twice_is_refused() -> None:
    with pytest.raises(InfeasibleActionError, match="runs already"):
        check_all(lambda: ComposedPolicy("broken", Fifo(), LosesTrack(), BestFit()), SMALL)
