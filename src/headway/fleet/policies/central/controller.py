"""A controller: decisions take time, and each controller takes them one after the other.

``Controller`` wraps a policy and is a policy itself. A decision is one action. The policy computes it with the state as
it is; the controller is busy for its decision time; then the action is handed to the loop. By then it may no
longer be possible: it is refused, and decided again. What happens while a controller is busy waits for it.

With central control there is one controller. Else each worker has its own, which is shown what concerns that worker:
the requests that reached it, the tasks that ended there, and its own changes.
docs/reference/scenarios.md, "Controller", says what that is.
"""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import cast

from headway.errors import ExperimentError, InfeasibleActionError
from headway.fleet.model.actions import (
    NOWHERE,
    Action,
    DecideUntil,
    DropRequest,
    MoveTask,
    PlaceRequest,
    RunBatch,
    WakeAt,
)
from headway.fleet.model.decision_time import DecisionTime
from headway.fleet.policies.central.controller_view import News, View, requests_of
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.state.state import CENTRAL, ServingState
from headway.units import exact_duration

MOST_REFUSALS = 1000
"""After so many refusals with no action in between a policy is taken never to find one that is possible."""
MOST_IDLE = 20_000
"""After so many decisions in a row that move no request, while some wait, only processes will ever be started."""
_MOVING = (PlaceRequest, MoveTask, RunBatch, DropRequest)


class _Desk:
    """One controller: what it has to look at, the answer of the policy that it is at, and until when it is busy."""

    __slots__ = ("action", "actions", "asked", "busy", "index", "news", "searched", "until", "view", "worker")

    def __init__(self, index: int, worker: int) -> None:
        self.index = index
        self.worker = worker
        self.news = News()
        """What the policy has not been shown yet."""
        self.asked = False
        """Whether something happened since the policy was asked last."""
        self.view: View | None = None
        self.actions: Iterator[Action] | None = None
        """The rest of the policy's answer to its last question."""
        self.busy = False
        self.action: Action | None = None
        """What is committed when it is no longer busy; None: a search that found nothing."""
        self.until = 0
        self.searched = 0
        """States evaluated for the action that comes next."""


class Controller(ServingPolicy):
    """Asks a policy for each controller, and hands on one action at a time, each after its service time."""

    name = "controller"

    def __init__(self, policy: ServingPolicy, decision_time: DecisionTime) -> None:
        self.inner = policy
        self.decision_time = decision_time
        self.name = policy.name  # type: ignore[misc]
        self.central = policy.central  # type: ignore[misc]

    def bind(self, state: ServingState) -> None:
        """Bind the policy; all controllers are idle."""
        self.inner.bind(state)
        self._alone = self.inner.central or state.central
        workers = [CENTRAL] if self._alone else range(len(state.workers))
        self._desks = [_Desk(index, worker) for index, worker in enumerate(workers)]
        self._alarms: list[tuple[int, int, bool]] = []
        """(when, controller, whether the policy asked to be woken; else a decision is over): a heap."""
        self._refusals = 0
        """In a row."""
        self._idle = 0
        """Decisions in a row that moved no request."""

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """Yield the actions whose decisions are over, and begin the next ones."""
        to_look = self._on_alarms(now)
        self._give_news(now, state, to_look)
        while to_look:
            desk = next(iter(to_look))
            del to_look[desk]
            for action in self._work(now, state, desk):
                yield action
                for index in _placed_on(action):
                    if index in state.touched:
                        self._touch(now, desk, index, to_look)

    # --- what is new ------------------------------------------------------------------------------------------

    def _on_alarms(self, now: int) -> dict[_Desk, None]:
        """Return the controllers whose decision is over or whose policy wanted to be woken, in order."""
        to_look: dict[_Desk, None] = {}
        over = False
        while self._alarms and self._alarms[0][0] <= now:
            _, index, wakes = heappop(self._alarms)
            to_look[desk := self._desks[index]] = None
            desk.asked |= wakes
            over |= not wakes
        if self._alone and not over:  # at the end of a decision nothing need have happened
            to_look[self._desks[0]] = None
            self._desks[0].asked = True
        return to_look

    def _give_news(self, now: int, state: ServingState, to_look: dict[_Desk, None]) -> None:
        """Note what is new in this instant with the controller that it concerns."""
        for request in state.landed:
            self._desk(self._entry(state, request), to_look).news.land(now, request)
        for task in state.ended:
            rs = state.requests.get(task[0])
            here = rs.worker[task[1]] if rs is not None else next(iter(state.touched), 0)
            self._desk(here if here != NOWHERE else self._entry(state, task[0]), to_look).news.end(now, task)
        for request in state.displaced:
            if request in state.requests:
                self._desk(self._entry(state, request), to_look).news.displace(now, request)
        for index in state.touched:
            self._desk(index, to_look).news.touch(now, index)

    def _desk(self, worker: int, to_look: dict[_Desk, None]) -> _Desk:
        """Return the controller of a worker, which is to look at something."""
        desk = self._desks[0 if self._alone else worker]
        desk.asked = True
        to_look[desk] = None
        return desk

    def _entry(self, state: ServingState, request: int) -> int:
        """Return the worker that decides about a request as a whole: the one that it reached, or the next one up."""
        ingress = state.requests[request].request.ingress
        worker = state.entry_worker(ingress)
        return worker if worker != NOWHERE else ingress

    def _touch(self, now: int, desk: _Desk, index: int, to_look: dict[_Desk, None]) -> None:
        """Note that an action of a controller put tasks into the queue of a worker."""
        if (self._alone or index == desk.worker) and desk.view is not None:
            desk.view.news.touch(now, index)  # the policy sees it as it goes on
        else:
            self._desk(index, to_look).news.touch(now, index)

    # --- decisions --------------------------------------------------------------------------------------------

    def _work(self, now: int, state: ServingState, desk: _Desk) -> Iterator[Action]:
        """Yield what a controller has decided by now; then let the policy go on until it is busy or done."""
        if desk.busy:
            if desk.until > now:
                return
            desk.busy = False
            if desk.action is not None:
                yield from self._hand_over(now, state, desk, desk.action)
        while desk.actions is not None or desk.asked:
            if desk.actions is None:
                self._ask(now, state, desk)
            assert desk.actions is not None
            assert desk.view is not None
            before = self.inner.states_evaluated
            action = next(desk.actions, None)
            desk.searched += self.inner.states_evaluated - before
            if isinstance(action, WakeAt):
                heappush(self._alarms, (max(action.time, now + 1), desk.index, True))
                yield action
                continue
            states, desk.searched = desk.searched, 0
            takes = self.decision_time.state * states + (self.decision_time.fixed if action is not None else 0)
            if takes:
                desk.busy, desk.action, desk.until = True, action, now + takes
                heappush(self._alarms, (desk.until, desk.index, False))
                waited = desk.view.news.waited(now, action) if action is not None else 0
                yield DecideUntil(desk.until, desk.worker, states, waited)
            elif action is not None:
                yield from self._hand_over(now, state, desk, action)
            if action is None:
                desk.actions = desk.view = None
            if takes:
                return

    def _ask(self, now: int, state: ServingState, desk: _Desk) -> None:
        """Ask the policy with all that is new."""
        deciding = state.deciding if self._alone else [state.workers[desk.worker]]
        desk.view, desk.news, desk.asked = View(state, desk.news, deciding), News(), False
        before = self.inner.states_evaluated
        desk.actions = iter(self.inner.decide(now, cast(ServingState, desk.view)))
        desk.searched += self.inner.states_evaluated - before

    def _hand_over(self, now: int, state: ServingState, desk: _Desk, action: Action) -> Iterator[Action]:
        """Yield an action to the loop. Where it is refused, break off the policy's answer, and ask again."""
        assert desk.view is not None
        reason = state.check(action)
        yield action
        if reason is None:
            desk.view.news.settle(now, action)
            self._refusals = 0
            self._idle = 0 if isinstance(action, _MOVING) else self._idle + 1
            if self._idle > MOST_IDLE and state.requests:
                told = f"{self._idle:,} decisions in a row moved no request, with {self.decision_time} each"
                rule = "processes stop before they are used: overload of the controller; shorten --controller"
                raise ExperimentError(f"policy {self.name} at {exact_duration(now)}: {told}; {rule}")
            return
        self._refusals += 1
        if self._refusals > MOST_REFUSALS:
            told = f"{self._refusals:,} actions in a row are refused, the last: {reason}"
            raise InfeasibleActionError(f"policy {self.name} at {exact_duration(now)}: {told}")
        if (close := getattr(desk.actions, "close", None)) is not None:
            close()
        ready = (request for waiting in state.ready.values() for request in waiting) if self._alone else ()
        desk.news.take_over(now, state, desk.view.news, (*requests_of(action), *ready))
        if (worker := getattr(action, "worker", NOWHERE)) != NOWHERE and (self._alone or worker == desk.worker):
            desk.news.touch(now, worker)
        desk.actions = desk.view = None
        desk.asked = True


def _placed_on(action: Action) -> Iterable[int]:
    """Return the workers that may get tasks into their queue when an action is committed."""
    if isinstance(action, PlaceRequest):
        return action.workers
    return (action.worker,) if isinstance(action, MoveTask) else ()
