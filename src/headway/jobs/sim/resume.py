"""Resumes a simulated run at a time: rebuilds its state, its policy and its executor from the tape, ready to go on.

The executor replays the tape: it makes the recorded events happen again and carries out the recorded actions. All that
was pending at that time is then pending again: ends of running jobs, wake-ups, cancellations of waiting jobs, faults to
come and the random streams they are drawn from. The continuation equals the rest of the tape, to the last row, unless
something is changed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from headway.core.scheduler import LOOK_UP_EVERY_STEPS, Scheduler, act, happen
from headway.core.tape import Tape, TapeWriter
from headway.errors import TapeError
from headway.jobs.audit.replay import Step, Walk, decode
from headway.jobs.model.actions import Action, StartJob, WakeAt
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.events import Event
from headway.jobs.model.job import Job
from headway.jobs.model.resources import Grant
from headway.jobs.model.rows import Kind
from headway.jobs.model.speed import Costs, SpeedModel
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.sim.cluster import SimulatedCluster
from headway.jobs.sim.faults import Faults
from headway.jobs.sim.recent import Wakes, asked_from
from headway.jobs.state.state import TrainingState
from headway.units import format_duration

Until = Callable[[TrainingState], bool]
Progress = Callable[[int, TrainingState], None]
"""Called with the time and the state from time to time."""


@dataclass(slots=True)
class Moment:
    """A run after everything up to and including ``time``. Going on uses it up; ``fork`` gives another one like it."""

    time: int
    state: TrainingState
    policy: ComposedPolicy
    executor: SimulatedCluster

    def fork(self) -> "Moment":
        """Return an independent copy. Jobs and the cluster, which never change, are shared."""
        state = self.state
        constants = (state.cluster, state.speed, state.speed.profiles, self.executor.jobs)
        shared: dict[int, Any] = {id(thing): thing for thing in constants}
        shared.update((id(js.job), js.job) for js in state.jobs.values())
        return deepcopy(self, shared)

    def alter(self, job: Job) -> None:
        """Replace a job by one with the same id and other work. If it runs, its end moves, to after this moment."""
        if job.id not in self.state.jobs:
            self.executor.replace(job)
        elif (caused := self.state.revise(job)) is not None:
            self.executor.follow(self.time, caused)

    def expect(self, jobs: Sequence[Job]) -> None:
        """Replace the jobs that have not arrived yet by these, which are in order of submission."""
        self.executor.expect(jobs)
        self.state.expect(len(jobs) + self.executor.held)

    def go_on(self, *, until: Until | None = None) -> Tape:
        """Run on to the end, or until ``until`` is true after some instant; return the tape of what happened."""
        tape = TapeWriter()
        scheduler = _Stoppable(self.state, self.policy, self.executor, tape)
        scheduler.enough = None if until is None else partial(until, self.state)
        scheduler.run()
        return tape.close()


class _Stoppable(Scheduler[Event, Action]):
    """A scheduler loop that can be stopped before each instant."""

    enough: Callable[[], bool] | None = None

    def instants(self, progress: Callable[[int], None] | None = None) -> Iterator[int]:
        """Yield each instant until ``enough`` is true."""
        following = super().instants(progress)
        while True:
            if self.enough is not None and self.enough():
                self.stop()
            if (now := next(following, None)) is None:
                return
            yield now


def resume(
    cluster: Cluster,
    jobs: Sequence[Job],
    tape: Tape,
    at: int,
    policy: ComposedPolicy,
    *,
    speed: SpeedModel | None = None,
    costs: Costs | None = None,
    faults: Faults | None = None,
    completions: int = 0,
    asking: bool = True,
    progress: Progress | None = None,
) -> Moment:
    """Return the moment ``at`` of a simulated run: all steps of its tape up to and including that time.

    ``policy`` is fresh and not bound yet. With ``asking`` it is the policy that was recorded: it decides at each step
    that it may remember, which rebuilds its memory, and has to decide what the tape says. Without, the recorded actions
    are carried out, and the policy only orders the queue: so another policy can go on from here. Ends were noticed at
    multiples of ``completions``. A live run is taken up with its state; programs that ran then end when their jobs are
    expected to.
    """
    if any(job.open_end for job in jobs):
        return _of_live(cluster, jobs, tape.until(at), at, policy, speed, costs, asking)
    state = TrainingState(cluster, to_come=len(jobs), arrangement=policy, speed=speed, costs=costs)
    policy.bind(state)
    moment = Moment(at, state, policy, SimulatedCluster(jobs, state, faults, completions=completions))
    tape = tape.until(at)
    since = asked_from(tape, jobs, policy, state) if asking else at + 1
    for count, step in enumerate(decode(jobs, tape)):
        _again(moment, step)
        if step.time == since:
            policy.take_up(Wakes(tape).last(since) or 0)
        for action in _asked(moment, step) if step.time >= since else map(partial(_as_held, state), step.actions):
            if (refusal := act(state, moment.executor, step.time, action)) is not None:
                raise TapeError(f"the tape has an impossible action at {step.time} ns: {refusal}")
        if progress is not None and count % LOOK_UP_EVERY_STEPS == 0:
            progress(step.time, state)
    moment.executor.catch_up(at)
    return moment


def _of_live(
    cluster: Cluster,
    jobs: Sequence[Job],
    tape: Tape,
    at: int,
    policy: ComposedPolicy,
    speed: SpeedModel | None,
    costs: Costs | None,
    asking: bool,
) -> Moment:
    """Return the end of a live tape as a moment that can be simulated on."""
    walk = Walk(cluster, jobs, tape, policy, asking=asking, speed=speed, costs=costs)
    for _ in walk:
        pass
    state = walk.state
    executor = SimulatedCluster(jobs, state)
    arrived = set(tape.of(int(Kind.ARRIVED))[:, 2].tolist())
    executor.expect([job for job in jobs if job.id not in arrived])
    executor.follow(at, list(state.running.values()))
    for time in tape.of(int(Kind.WAKE_AT))[:, 6].tolist():
        if time > at:
            executor.execute(at, WakeAt(time))
    return Moment(at, state, policy, executor)


def _as_held(state: TrainingState, action: Action) -> Action:
    """Return a recorded action for a policy with an allocation: a start without a grant gets what the job asked for."""
    if not (state.divides and isinstance(action, StartJob) and action.grant is None):
        return action
    job = state.jobs[action.job].job
    return replace(action, grant=Grant(job.cpu_milli, job.memory_bytes))


def _again(moment: Moment, step: Step) -> None:
    """Let the executor produce the events of a step; they have to be those on the tape."""
    happened = moment.executor.next()
    now, events = happened if happened is not None else (-1, ())
    if now != step.time or list(events) != step.events:
        seen = f"{_told(events)} at {format_duration(now)}" if events else "nothing more"
        raise TapeError(
            f"the tape does not follow from its experiment: it has {_told(step.events)} at "
            f"{format_duration(step.time)}, a simulation has {seen}"
        )
    for event in events:
        happen(moment.state, moment.executor, now, event)


def _told(events: Sequence[Event]) -> str:
    """Return the first event as text."""
    event = events[0] if events else None
    subject = getattr(event, "job", getattr(event, "node", ""))
    return f"{type(event).__name__}({getattr(subject, 'id', subject)})"


def _asked(moment: Moment, step: Step) -> Iterable[Action]:
    """Yield the decisions of the policy, which have to be those on the tape."""
    recorded = iter(step.actions)
    for action in moment.policy.decide(step.time, moment.state):
        if action != (then := next(recorded, None)):
            raise _parted(moment, step, action, then)
        yield action
    if (then := next(recorded, None)) is not None:
        raise _parted(moment, step, None, then)


def _parted(moment: Moment, step: Step, now: Action | None, then: Action | None) -> TapeError:
    decided, wrote = (action or "nothing more" for action in (now, then))
    return TapeError(
        f"another policy wrote this tape: at {step.time} ns {moment.policy.name} decides {decided}, not {wrote}"
    )
