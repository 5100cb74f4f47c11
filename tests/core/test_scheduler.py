"""The loop, with the smallest state, policy and executor there can be."""

from collections.abc import Callable, Iterable, Sequence

import pytest

from headway.core.scheduler import LOOK_UP_EVERY_STEPS, Scheduler, act, happen
from headway.core.state import State
from headway.core.tape import Row, Tape, TapeWriter
from headway.errors import InfeasibleActionError, StalledRunError


class Numbers:
    """A state of numbers that came and numbers that were taken; odd ones cannot be. Those above 100 cause more."""

    def __init__(self, to_come: int) -> None:
        self.journal: Callable[[Row], None] = lambda row: None
        self.to_come = to_come
        self.present: list[int] = []

    def apply(self, now: int, event: int) -> str | None:
        self.to_come -= 1
        self.present.append(event)
        self.journal((now, 1, event, 0, 0, 0, 0))
        return f"{event} came" if event > 100 else None

    def check(self, action: int) -> str | None:
        return f"Take({action}): is odd" if action % 2 else None

    def commit(self, now: int, action: int) -> str | None:
        self.present.remove(action)
        self.journal((now, 20, action, 0, 0, 0, 0))
        return f"{action} went" if action > 100 else None

    def refused(self, now: int, action: int) -> Row:
        return (now, 24, action, 0, 0, 0, 0)

    def over(self) -> bool:
        return not self.to_come and not self.present


class Script:
    """An executor that plays what it was given, and remembers what it was told to do."""

    def __init__(self, steps: Sequence[tuple[int, Sequence[int]]]) -> None:
        self.steps = list(reversed(steps))
        self.done: list[tuple[int, int]] = []
        self.heard: list[tuple[int, int | str]] = []
        """What was carried out and what was caused, as it came."""
        self.refusals: list[tuple[int, int]] = []

    def next(self) -> tuple[int, Sequence[int]] | None:
        return self.steps.pop() if self.steps else None

    def execute(self, now: int, action: int) -> None:
        self.done.append((now, action))
        self.heard.append((now, action))

    def follow(self, now: int, caused: str) -> None:
        self.heard.append((now, caused))

    def refused(self, now: int, action: int) -> None:
        self.refusals.append((now, action))


class Takes:
    """Takes whatever is there; remembers what it saw when it was asked."""

    name = "takes"

    def __init__(self) -> None:
        self.saw: list[tuple[int, list[int]]] = []
        self.after: Callable[[], None] = lambda: None

    def decide(self, now: int, state: State[int, int, str]) -> Iterable[int]:
        assert isinstance(state, Numbers)
        self.saw.append((now, list(state.present)))
        yield from list(state.present)
        self.after()


def run(
    steps: Sequence[tuple[int, Sequence[int]]], *, exact: bool = True, to_come: int = 0
) -> tuple[Tape, Takes, Script]:
    """One run of the loop."""
    state = Numbers(to_come or sum(len(events) for _, events in steps))
    policy, executor, tape = Takes(), Script(steps), TapeWriter()
    Scheduler[int, int](state, policy, executor, tape, exact=exact).run()
    return tape.close(), policy, executor


def test_an_instant_is_drained_and_then_decided_once() -> None:
    tape, policy, executor = run([(5, [2, 4]), (9, [6])])
    assert policy.saw == [(5, [2, 4]), (9, [6])]
    assert executor.done == [(5, 2), (5, 4), (9, 6)]
    assert tape.column("kind").tolist() == [1, 1, 20, 20, 1, 20]


HEARD = [(5, "102 came"), (5, "104 came"), (5, 102), (5, "102 went"), (5, 4), (5, 104), (5, "104 went"), (9, 6)]


@pytest.mark.parametrize("timed", [False, True])
def test_what_an_event_or_an_action_causes_is_handed_to_the_executor_at_once(timed: bool) -> None:
    executor = Script([(5, [102, 4, 104]), (9, [6])])
    scheduler = Scheduler[int, int](Numbers(4), Takes(), executor, TapeWriter())
    scheduler.decide_ns = [] if timed else None
    scheduler.run()
    assert executor.heard == HEARD


def test_a_run_that_is_led_by_hand_hands_over_what_the_loop_hands_over() -> None:
    state, executor = Numbers(4), Script([])
    for event in (102, 4, 104):
        happen(state, executor, 5, event)
    for action in (102, 4, 104):
        assert act(state, executor, 5, action) is None
    happen(state, executor, 9, 6)
    scheduler = Scheduler[int, int](state, Takes(), executor, TapeWriter(), exact=False)
    assert scheduler.act(9, 7) == act(state, executor, 9, 7) == "Take(7): is odd"
    assert scheduler.act(9, 6) is None
    assert executor.heard == HEARD, "what is refused is neither carried out nor does it cause anything"


def test_an_infeasible_action_on_an_exact_view_raises_with_its_reason() -> None:
    with pytest.raises(InfeasibleActionError, match=r"^policy takes at 5ns: Take\(3\): is odd$"):
        run([(5, [3])])


def test_on_a_view_that_may_be_stale_a_refusal_is_written_down_and_the_loop_goes_on() -> None:
    state, policy, executor, writer = Numbers(3), Takes(), Script([(5, [2, 3, 4])]), TapeWriter()
    scheduler = Scheduler[int, int](state, policy, executor, writer, exact=False)
    with pytest.raises(StalledRunError):
        scheduler.run()
    tape = writer.close()
    assert tape.column("kind").tolist() == [1, 1, 1, 20, 24, 20]
    assert tape.notes == {4: "Take(3): is odd"}
    assert executor.done == [(5, 2), (5, 4)], "what was refused is not carried out"
    assert executor.refusals == [(5, 3)], "and the executor is told, which may make an event of it"


def test_work_that_is_left_when_nothing_will_happen_is_an_error() -> None:
    with pytest.raises(StalledRunError, match="takes: work is left"):
        run([(5, [2])], to_come=2)


def test_stop_ends_after_the_step_in_progress_and_leaves_its_tape() -> None:
    state, policy, executor, writer = Numbers(3), Takes(), Script([(1, [2]), (2, [4]), (3, [6])]), TapeWriter()
    scheduler = Scheduler[int, int](state, policy, executor, writer)
    policy.after = lambda: scheduler.stop() if len(policy.saw) == 2 else None
    scheduler.run()
    assert scheduler.stopped
    assert scheduler.steps == 2
    assert writer.close().column("time").tolist() == [1, 1, 2, 2]
    assert len(executor.steps) == 1


def test_a_timed_run_makes_the_same_tape_and_one_duration_a_step() -> None:
    steps = [(5, [2, 4]), (9, [6])]
    writer, policy = TapeWriter(), Takes()
    scheduler = Scheduler[int, int](Numbers(3), policy, Script(steps), writer)
    scheduler.decide_ns = []
    scheduler.run()
    assert len(scheduler.decide_ns) == 2
    assert writer.close().digest == run(steps)[0].digest


def test_batches_are_flushed_on_the_way_and_progress_is_told() -> None:
    steps = [(time, [2]) for time in range(4 * LOOK_UP_EVERY_STEPS + 8)]
    told: list[int] = []
    writer = TapeWriter(batch_rows=64)
    Scheduler[int, int](Numbers(len(steps)), Takes(), Script(steps), writer).run(told.append)
    assert told == [times * LOOK_UP_EVERY_STEPS - 1 for times in (1, 2, 3, 4)]
    assert writer.pending < 64
    assert len(writer.close()) == 2 * len(steps)
