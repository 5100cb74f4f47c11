"""Measure how long a policy's decisions take on this machine: a fixed time, and a time for each state it evaluates.

The policy decides the beginning of the run itself, with decisions that take no simulated time. For each question, the
CPU time until the policy's answer is complete is measured, commits not counted, with the actions of the answer and the
states that the policy says it evaluated. The decision time is fitted by least squares to all answers with
actions or states. Wall time would grow with whatever else the machine does; CPU time is that of the thread that
decides.
"""

from collections.abc import Iterator
from time import thread_time_ns

import numpy as np

from headway.core.collector import no_collection
from headway.core.scheduler import Scheduler
from headway.core.tape import TapeWriter
from headway.fleet.model.actions import Action, WakeAt
from headway.fleet.model.decision_time import DecisionTime
from headway.fleet.model.events import Event
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.sim.fleet import SimulatedFleet
from headway.fleet.state.state import ServingState
from headway.statistics.series import FloatArray
from headway.units import SECOND

LONGEST = 2 * SECOND
"""The measurement ends after so much CPU time, or with the run."""
KEPT_PERCENT = 99
"""The slowest answers, beside what the fit says, are left out: the machine was interrupted there."""
_READINGS = 100


class Stopwatch(ServingPolicy):
    """Lets a policy decide, and measures its answers."""

    name = "stopwatch"

    def __init__(self, policy: ServingPolicy) -> None:
        self.inner = policy
        self.answers: list[tuple[int, int, int]] = []
        """Actions, states and nanoseconds of each answer."""
        self.reading = min(-(thread_time_ns() - thread_time_ns()) for _ in range(_READINGS))
        """What reading the clock takes."""

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """Yield the actions of the policy."""
        policy, clock, reading = self.inner, thread_time_ns, self.reading
        before, actions, spent = policy.states_evaluated, 0, 0
        started = clock()
        answer = iter(policy.decide(now, state))
        while (action := next(answer, None)) is not None:
            spent += clock() - started - reading
            actions += not isinstance(action, WakeAt)
            yield action
            started = clock()
        spent += clock() - started - reading
        self.answers.append((actions, policy.states_evaluated - before, max(0, spent)))


def calibrate(policy: ServingPolicy, state: ServingState, executor: SimulatedFleet) -> DecisionTime:
    """Return the decision time of a policy that is bound to a state, from the beginning of its run."""
    stopwatch = Stopwatch(policy)
    scheduler = Scheduler[Event, Action](state, stopwatch, executor, TapeWriter())
    ends = thread_time_ns() + LONGEST
    with no_collection():
        for now in scheduler.instants():
            for action in stopwatch.decide(now, state):
                scheduler.act(now, action)
            if thread_time_ns() > ends:
                break
    return fitted(stopwatch.answers)


def fitted(answers: list[tuple[int, int, int]]) -> DecisionTime:
    """Return the decision time, no part of it below 0, that fits measured answers best."""
    rows = np.array([answer for answer in answers if answer[0] or answer[1]], dtype=np.float64).reshape(-1, 3)
    counts, times = rows[:, :2], rows[:, 2]
    fixed, state = _least_squares(counts, times)
    if len(rows) >= 100:
        beside = times - counts @ np.array([fixed, state])
        kept = beside <= np.percentile(beside, KEPT_PERCENT)
        fixed, state = _least_squares(counts[kept], times[kept])
    return DecisionTime(max(1, _rounded(fixed)), _rounded(state))


def _least_squares(counts: FloatArray, times: FloatArray) -> tuple[float, float]:
    """Return the times of an action and of a state; where one would be below 0, it is 0 and the other fits alone."""
    if not counts[:, 1].any():
        return _alone(counts[:, 0], times), 0.0
    fixed, state = (float(each) for each in np.linalg.lstsq(counts, times, rcond=None)[0])
    if fixed < 0:
        return 0.0, _alone(counts[:, 1], times)
    return (fixed, state) if state >= 0 else (_alone(counts[:, 0], times), 0.0)


def _alone(count: FloatArray, times: FloatArray) -> float:
    return float(times.sum() / count.sum()) if count.any() else 0.0


def _rounded(time: float) -> int:
    """Return a time with three digits, as nanoseconds."""
    return int(float(f"{time:.3g}"))
