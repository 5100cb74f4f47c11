"""The one loop: drain an instant, decide once, commit what was decided, go on.

All events of one moment are applied, in the rank order that the executor keeps (finished, failed, interrupted,
cancelled, withdrawn, node failed, recovered, drained, arrived, progressed, woke), before the policy is asked. It is
asked once an instant. Each action is checked, committed and handed to the executor before the next one is taken from
the policy. What the state says an event or an action caused is handed to the executor too.
"""

from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Any, Generic, TypeVar

from headway.core.executor import Executor
from headway.core.policy import Policy
from headway.core.state import State
from headway.core.tape import TapeWriter
from headway.errors import InfeasibleActionError, StalledRunError
from headway.units import exact_duration

EventT = TypeVar("EventT")
ActionT = TypeVar("ActionT")
CausedT = TypeVar("CausedT")

LOOK_UP_EVERY_STEPS = 1024


class Scheduler(Generic[EventT, ActionT]):
    """Drives one state with one policy and one executor, and writes the tape."""

    def __init__(
        self,
        state: State[EventT, ActionT, CausedT],
        policy: Policy[Any, ActionT],
        executor: Executor[EventT, ActionT, CausedT],
        tape: TapeWriter,
        *,
        exact: bool = True,
    ) -> None:
        """``exact`` says that the deciding view cannot be stale: an infeasible action is then a bug, and raises."""
        self.state: State[EventT, ActionT, Any] = state
        self.policy = policy
        self.executor: Executor[EventT, ActionT, Any] = executor
        self.tape = tape
        self.exact = exact
        self.steps = 0
        self.decide_ns: list[int] | None = None
        self.stopped = False
        """Whether ``stop`` ended the run before it was over."""
        state.journal = tape.append

    def stop(self) -> None:
        """End after the step in progress; what was done so far is on the tape. Safe in a signal handler."""
        self.stopped = True

    def run(self, progress: Callable[[int], None] | None = None) -> None:
        """Go on until the run is over or ``stop`` is called. ``progress`` is told the time every thousand steps."""
        self.drain(progress)
        if not self.stopped and not self.state.over():
            raise StalledRunError(f"{self.policy.name}: work is left, but nothing will ever happen again")

    def drain(self, progress: Callable[[int], None] | None = None) -> None:
        """Go on until the executor has no further instant; of a live run that is so until something happens again."""
        state, execute, follow = self.state, self.executor.execute, self.executor.follow
        check, commit, decide = state.check, state.commit, self.policy.decide
        durations_ns, clock = self.decide_ns, perf_counter_ns
        for now in self.instants(progress):
            if durations_ns is None:
                for action in decide(now, state):
                    if (refusal := check(action)) is None:
                        caused = commit(now, action)
                        execute(now, action)
                        if caused is not None:
                            follow(now, caused)
                    else:
                        self._refuse(now, action, refusal)
            else:  # the same, with what ``decide`` itself took, commits not counted; a call each would be noticed
                spent, started = 0, clock()
                for action in decide(now, state):
                    spent += clock() - started
                    if (refusal := check(action)) is None:
                        caused = commit(now, action)
                        execute(now, action)
                        if caused is not None:
                            follow(now, caused)
                    else:
                        self._refuse(now, action, refusal)
                    started = clock()
                durations_ns.append(spent + clock() - started)

    def instants(self, progress: Callable[[int], None] | None = None) -> Iterator[int]:
        """Yield each instant once all its events are applied: what is decided then is committed before the next."""
        tape, follow, apply = self.tape, self.executor.follow, self.state.apply
        steps = 0
        following = () if self.stopped else iter(self.executor.next, None)
        for steps, (now, events) in enumerate(following, 1):
            for event in events:
                if (caused := apply(now, event)) is not None:
                    follow(now, caused)
            yield now
            if steps % LOOK_UP_EVERY_STEPS == 0:
                if tape.due:
                    tape.flush()
                if progress is not None:
                    progress(now)
            if self.stopped:
                break
        self.steps += steps

    def act(self, now: int, action: ActionT) -> str | None:
        """Commit one action and carry it out; return why not, where it cannot be done."""
        if (refusal := act(self.state, self.executor, now, action)) is not None:
            self._refuse(now, action, refusal)
        return refusal

    def _refuse(self, now: int, action: ActionT, reason: str) -> None:
        if self.exact:
            raise InfeasibleActionError(f"policy {self.policy.name} at {exact_duration(now)}: {reason}")
        self.tape.append(self.state.refused(now, action))
        self.tape.note(reason)
        self.executor.refused(now, action)


def happen(
    state: State[EventT, ActionT, CausedT], executor: Executor[EventT, ActionT, CausedT], now: int, event: EventT
) -> None:
    """Apply one event and hand the executor what it caused: a step of the loop for whoever leads a run by hand."""
    if (caused := state.apply(now, event)) is not None:
        executor.follow(now, caused)


def act(
    state: State[EventT, ActionT, CausedT], executor: Executor[EventT, ActionT, CausedT], now: int, action: ActionT
) -> str | None:
    """Commit one action, carry it out and hand the executor what it caused; return why not, where it cannot be done."""
    if (refusal := state.check(action)) is None:
        caused = state.commit(now, action)
        executor.execute(now, action)
        if caused is not None:
            executor.follow(now, caused)
    return refusal
