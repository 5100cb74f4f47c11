"""What every policy must keep, one function a promise. ``test_broken.py`` proves that each of them can fail.

A check takes a way to make the policy (it is made anew for each run) and a world; it raises what the loop raises
(``InfeasibleActionError``, ``StalledRunError``) or ``BrokenPromise`` with the name of what was broken.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from copy import copy
from dataclasses import replace
from itertools import groupby
from unittest import mock

from headway.jobs.audit.audit import audit
from headway.jobs.audit.replay import replay
from headway.jobs.model.actions import Action
from headway.jobs.model.events import JobArrived, JobCancelled, JobFailed, JobFinished, NodeDrained, NodeRecovered, Woke
from headway.jobs.model.job import Job, Outcome
from headway.jobs.model.rows import Kind
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.state.pool import Pool
from headway.jobs.state.state import TrainingState
from headway.units import DAY, HOUR, REFERENCE_SPEED_PPM, SECOND
from tests.drive import FIRST_ACTION, Run, Watched, World, digest, drive, first_difference

Make = Callable[[], ComposedPolicy]
CLOCKS = ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time")
RANKS = {
    Kind.FINISHED: JobFinished.rank,
    Kind.FAILED: JobFailed.rank,
    Kind.NODE_FAILED: JobFailed.rank,
    Kind.CANCELLED: JobCancelled.rank,
    Kind.NODE_RECOVERED: NodeRecovered.rank,
    Kind.NODE_DRAINED: NodeDrained.rank,
    Kind.ARRIVED: JobArrived.rank,
    Kind.WOKE: Woke.rank,
}


class BrokenPromise(AssertionError):  # noqa: N818  (it reads as what it is)
    """A policy or a run broke something it has to keep; the text begins with what."""


def promise(name: str, kept: object, told: object = "") -> None:
    """Raise unless kept."""
    if not kept:
        raise BrokenPromise(f"{name}: {told}")


class Guarded(Watched):
    """Looks at the state whenever the policy hands over, and at when it is asked."""

    def __init__(self, policy: ComposedPolicy) -> None:
        super().__init__(policy)
        self.asked = -1

    def decide(self, now: int, state: TrainingState) -> Iterable[Action]:
        """The policy's actions; the state must be the same before and after each of its turns."""
        promise("asked once an instant", now > self.asked, f"at {now} after {self.asked}")
        self.asked = now
        before = digest(state)
        actions = self.policy.decide(now, state)
        promise("state untouched", digest(state) == before, f"decide() at {now}")
        return self.bounded(self._turns(now, state, iter(actions)))

    def _turns(self, now: int, state: TrainingState, actions: Iterator[Action]) -> Iterator[Action]:
        while True:
            before = digest(state)
            action = next(actions, None)
            promise("state untouched", digest(state) == before, f"before {action} at {now}")
            if action is None:
                return
            yield action


class AsksLater(Watched):
    """Asks for the keys of waiting jobs at several times, unless the order has them computed anew."""

    def decide(self, now: int, state: TrainingState) -> Iterable[Action]:
        """The policy's actions; the key of a job that waits is the same whenever it is asked for."""
        order = self.policy.order
        waiting = [] if order.rekeys() else [state.jobs[job] for _, job in state.queue.in_order()]
        for js in waiting:
            present = order.key(now, js)
            for later in (now + SECOND, now + HOUR, now + 400 * DAY):
                then = order.key(later, js)
                told = f"order {order.name}, job {js.id}: {present} at {now} ns, {then} at {later} ns"
                promise("key stands", then == present, f"{told}; write key_moves_with_time = True in the class")
        return super().decide(now, state)


def check_all(make: Make, world: World) -> Run:
    """Every promise, one after the other."""
    run = check_untouched(make, world)
    check_run(make, world, run)
    return run


def check_run(make: Make, world: World, run: Run) -> None:
    """Every promise about what a run left behind."""
    check_conserved(run, world)
    check_ends(run)
    check_delivered(run)
    check_drained(run)
    check_not_undone(run)
    check_little(run)
    check_repeatable(make, world, run)
    check_replay(make, world, run)
    check_audited(make, world, run)


def check_limited(make: Make, world: World) -> Run:
    """Every promise; a job may be left only where a limit holds it back for ever."""
    run = check_untouched(make, world)
    left = dict(run.state.jobs)
    promise("every job ends", not left or run.state.is_stuck(), f"left: {left}")
    if not left:
        check_run(make, world, run)
        return run
    check_conserved(run, world)
    check_delivered(run)
    check_drained(run)
    check_not_undone(run)
    check_repeatable(make, world, run)
    check_replay(make, world, run)
    check_audited(make, world, run)
    return run


def check_untouched(make: Make, world: World) -> Run:
    """Nothing but ``apply`` and ``commit`` changes the state; the policy is asked once an instant. Gives the run."""
    return drive(make(), world, watch=Guarded)


def check_conserved(run: Run, world: World) -> None:
    """After the run everything is free again, and nobody holds anything."""
    pool, empty = run.state.pool, Pool(world.cluster)
    for node, name in enumerate(n.name for n in world.cluster.nodes):
        held, full = (
            (p.free_mask[node], p.free_count[node], p.cpu_free[node], p.memory_free[node], p.storage_free[node])
            for p in (pool, empty)
        )
        promise("resources conserved", held == full and not pool.shares[node], f"node {name}: {held}, not {full}")
    promise("resources conserved", not pool.sharing and not run.state.queue.size and not run.state.running)
    held_by = {account.name: account.held for account in run.state.accounts.values() if account.held}
    promise("resources conserved", not held_by, f"held at the end: {held_by}")


def check_ends(run: Run) -> None:
    """Every job that arrived ends once, in the way it was said to."""
    ended: Counter[int] = Counter()
    for row in run.tape:
        if row.kind in (Kind.FINISHED, Kind.CANCELLED):
            ended[row.subject] += 1
    for job in run.jobs:
        failed = sum(row.subject == job.id for row in run.rows(Kind.FAILED))
        if job.outcome is Outcome.FAILS and not ended[job.id]:
            promise("every job ends", failed == job.retries + 1, f"job {job.id} failed {failed} times")
        else:
            once = ended[job.id] == 1 and failed <= job.retries
            promise("every job ends", once, f"job {job.id}: {ended[job.id]} ends")


def check_drained(run: Run) -> None:
    """All events of an instant, in rank order, come before the first action."""
    for now, rows in groupby(run.tape, key=lambda row: row.time):
        decided, rank = False, -1
        for row in rows:
            if FIRST_ACTION <= row.kind < Kind.PLACE:
                decided = True
            elif row.kind < FIRST_ACTION:
                of_row = RANKS[Kind(row.value if row.kind == Kind.STALE else row.kind)]
                promise("drained before decided", not decided and of_row >= rank, f"{Kind(row.kind)!r} at {now}")
                rank = of_row
    times = [row.time for row in run.tape]
    promise("drained before decided", times == sorted(times), "time runs backwards")


def check_not_undone(run: Run) -> None:
    """No instant undoes its own actions: a job that is stopped is not started again in the same instant, on the same
    GPUs or on others, and one that is started is not stopped; a move ends elsewhere. To change places is a migration.

    Allocations that move jobs let two of them change places by a stop and a start; they are asked for that.
    """
    swaps = run.policy.allocation is not None and run.policy.allocation.moves > 0
    where: dict[int, list[tuple[int, int, int]]] = {}
    for now, rows in groupby(run.tape, key=lambda row: row.time):
        stopped, started = set[int](), set[int]()
        before: dict[int, list[tuple[int, int, int]]] = {}
        for row in rows:
            job = row.subject
            if row.kind == Kind.PREEMPT:
                promise("nothing undone", swaps or job not in started, f"job {job} is started and stopped at {now}")
                stopped.add(job)
            elif row.kind == Kind.START:
                promise("nothing undone", swaps or job not in stopped, f"job {job} is stopped and started at {now}")
                started.add(job)
            elif row.kind == Kind.MIGRATE:
                before.setdefault(job, where[job])
            if row.kind in (Kind.START, Kind.MIGRATE):
                where[job] = []
            if row.kind in (Kind.START, Kind.MIGRATE, Kind.PLACE):
                where[job].append((row.place, row.detail, row.value if row.kind == Kind.PLACE else 0))
        for job, place in before.items():
            promise("nothing undone", where[job] != place, f"job {job} is moved away and back at {now}")


class Progress:
    """A job's progress as the tape tells it, integrated by itself, write by write: no code shared with the state."""

    def __init__(self, job: Job) -> None:
        self.done = self.base = self.speed = 0
        self.saved = 0
        """Work in the checkpoint of the last preemption, move or drain."""
        self.running = False
        self.every, self.write = (job.checkpoint_every, job.checkpoint) if job.checkpoint else (0, 0)
        self.writing = 0
        """When the periodic checkpoint that was begun last is whole."""
        self.before: Progress | None = None
        """As it was before what was settled last."""

    def start(self, now: int, speed: int) -> None:
        """It runs from now on."""
        self.settle(now)
        self.base, self.speed, self.running, self.writing = now, speed, True, 0

    def by(self, now: int) -> tuple[int, int]:
        """Work delivered by now, and when the periodic checkpoint that was begun last is whole."""
        if not self.running or now <= self.base:
            return self.done, self.writing
        clock, spent, writing = self.base, 0, self.writing
        due = self.done // self.every * self.every + self.every if self.every else 0
        while self.every and spent < now - self.base:
            reached = -(-(due - self.done) * REFERENCE_SPEED_PPM // self.speed)
            if clock + reached - spent > now:
                break
            clock, spent, due = clock + reached - spent, reached, due + self.every
            clock = writing = clock + self.write
            if clock >= now:
                break
        spent += max(0, now - clock)
        return self.done + spent * self.speed // REFERENCE_SPEED_PPM, writing

    def settle(self, now: int) -> None:
        """Count what was delivered until now."""
        if self.running and now > self.base:
            self.before = None
            self.before = copy(self)
        self.done, self.writing = self.by(now)
        self.base = max(self.base, now, self.writing)

    def stop(self, now: int) -> None:
        """It runs no longer."""
        self.settle(now)
        self.running, self.base = False, now

    def ends_at(self, now: int, target: int) -> bool:
        """Whether it has all of its work now, and did not have it a nanosecond ago."""
        self.settle(now)
        return self.before is not None and self.done >= target > self.before.by(now - 1)[0]

    def lost(self, now: int, every: int) -> int:
        """What a node that fails now, after it was settled, takes away."""
        whole = self.done // every * every if every else self.done
        return self.done - max(self.saved, whole - every if self.writing > now else whole)


def check_delivered(run: Run) -> None:
    """Delivered service equals work exactly, and no job ends a nanosecond after it had it all."""
    progress = {job.id: Progress(job) for job in run.jobs}
    for row in run.tape:
        if row.kind in (Kind.NODE_FAILED, Kind.NODE_RECOVERED, Kind.NODE_DRAINED, Kind.WOKE, Kind.WAKE_AT):
            continue
        job = run.jobs[row.subject]
        seen = progress[row.subject]
        target = job.outcome_after if job.outcome else job.work
        if row.kind in (Kind.FINISHED, Kind.FAILED, Kind.CANCELLED):
            if seen.running:
                exact = row.value == target and seen.ends_at(row.time, target)
                promise("service equals work", exact, f"job {job.id}: {row.value} of {target} at {row.time}")
            seen.stop(row.time)
            seen.done = seen.saved = 0
        elif row.kind in (Kind.START, Kind.MIGRATE):
            seen.start(row.time, row.value)
            if row.kind == Kind.MIGRATE:
                seen.saved = seen.done
        elif row.kind == Kind.COST:
            seen.base = row.time + row.value
        elif row.kind == Kind.RESPEED or (row.kind == Kind.REALLOCATE and row.value != seen.speed):
            seen.settle(row.time)
            seen.speed = row.value
        elif row.kind == Kind.PAUSE:
            seen.settle(row.time)
            seen.base += row.value
        elif row.kind == Kind.PREEMPT:
            seen.stop(row.time)
            promise("service equals work", row.value == seen.done, f"job {job.id}: {row.value}, not {seen.done}")
            seen.saved = seen.done
        elif row.kind == Kind.EVICTED:
            seen.stop(row.time)
            told = row.value + row.detail
            promise("service equals work", told == seen.done, f"job {job.id}: {told} evicted, not {seen.done}")
            lost = row.detail in (0, seen.lost(row.time, job.checkpoint_every))
            promise("service equals work", lost, f"job {job.id} lost {row.detail}")
            seen.done = row.value
            if not row.detail:
                seen.saved = seen.done


def check_little(run: Run) -> None:
    """Little's law as an identity of integers: time spent by jobs in the system = jobs in the system over time."""
    arrived, gone, present, area, last = 0, 0, 0, 0, 0
    departures = {row.subject: row.time for row in run.tape if row.kind in (Kind.FINISHED, Kind.FAILED, Kind.CANCELLED)}
    leaving = Counter(departures.values())
    arriving = Counter(job.submit for job in run.jobs)
    for now in sorted({*leaving, *arriving}):
        area += present * (now - last)
        present += arriving[now] - leaving[now]
        arrived, gone, last = arrived + arriving[now], gone + leaving[now], now
    stayed = sum(departures[job.id] - job.submit for job in run.jobs)
    promise("little's law", area == stayed and arrived == gone == len(run.jobs) and not present, f"{area} vs {stayed}")


def check_repeatable(make: Make, world: World, run: Run) -> None:
    """The same seed gives the same digest, and no clock is read on the way."""

    def read(*_: object) -> None:
        raise BrokenPromise("reads no clock: time was asked for")

    with ExitStack() as patches:
        for clock in CLOCKS:
            patches.enter_context(mock.patch.object(time, clock, read))
        again = drive(make(), world)
    promise("repeatable", again.tape.digest == run.tape.digest, "two runs made two tapes")


def check_replay(make: Make, world: World, run: Run) -> None:
    """The events of a tape, played to a fresh policy, yield its actions again."""
    again = replay(world.cluster, world.jobs, run.tape, make(), speed=world.speed(), costs=world.costs)
    promise("replay identical", again.digest == run.tape.digest, first_difference(run.tape, again))


def check_audited(make: Make, world: World, run: Run) -> None:
    """The auditor, who keeps books of its own, finds nothing."""
    found = audit(
        world.cluster, world.jobs, run.tape, policy=make(), speed=world.speed(), costs=world.costs, complete=True
    )
    promise("audited", not found, found[:3])


def check_keys(make: Make, world: World) -> None:
    """A key that depends on the time is computed anew: else it would stand as it was when the job began to wait."""
    drive(make(), world, watch=AsksLater)


def check_blind(make: Make, world: World) -> None:
    """Until a job ends, nobody knows how long it takes: with other true work, all is decided the same until then."""
    run = drive(make(), world)
    for chosen in world.jobs[:3]:
        if not chosen.estimate or chosen.id not in run.ends:
            continue
        longer = tuple(replace(j, work=j.work * 2) if j.id == chosen.id else j for j in world.jobs)
        other = drive(make(), replace(world, jobs=longer))
        until = run.ends[chosen.id] - 1
        same = run.tape.until(until).digest == other.tape.until(until).digest
        promise("blind to the truth", same, f"job {chosen.id} was treated by its true work")
