"""Simulated executor of one GPU: each client is a thread that launches, waits and thinks, above a model of the GPU.

A gated launch blocks its thread until the policy lets it go, as in the shim, and delays everything after it. Live, the
shim does the same with real threads.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from headway.errors import InfeasibleActionError
from headway.gpu.model.actions import Action, WakeAt
from headway.gpu.model.alone import NEVER
from headway.gpu.model.device import Sharing
from headway.gpu.model.events import (
    RANKS,
    ClientLeft,
    Event,
    KernelFinished,
    KernelLaunched,
    KernelReached,
    RequestEnded,
    Woke,
)
from headway.gpu.model.reflex import Reason
from headway.gpu.model.state import KernelsState
from headway.gpu.sim.gpu import Running, Shared, Sliced

_LAUNCH, _WAITED, _GPU, _WAKE, _END = range(5)
Queued = tuple[int, int, int, int, Running | int]


class _Thread:
    """The CPU side of one client."""

    __slots__ = ("asleep", "began", "ended", "inside", "left", "next", "requests")

    def __init__(self, start: int) -> None:
        self.next = 0
        """The number of its next launch."""
        self.inside = 0
        self.requests = 0
        self.began = start
        self.left = False
        self.ended = False
        """Whether a limit of requests has been reached."""
        self.asleep = False
        """Its stream is full: it sleeps until one of its kernels ends."""


class SimulatedGpu:
    """The executor of a simulated run of kernels, and its source of events."""

    def __init__(self, state: KernelsState, sharing: Sharing, *, raised: bool = False, horizon: int = NEVER) -> None:
        """Schedule the first launches. ``raised``: the GPU uses priorities. No launch comes at or after ``horizon``."""
        self._clients = [client.client for client in state.clients]
        self._gated = [client.gated for client in state.clients]
        self._launches = [client.rotated for client in self._clients]
        self._ends = [client.ends for client in self._clients]
        self._device = state.device
        self._state = state
        self._gone = 0
        self._heap: list[Queued] = []
        self._number = 0
        self._wakes: set[int] = set()
        self._horizon = horizon
        self._now = -1
        self._events: list[Event] = []
        kernels = [client.program.kernels for client in self._clients]
        kind = Shared if sharing is Sharing.MPS else Sliced
        priorities = [client.priority for client in self._clients] if raised else None
        self.gpu = kind(state.device, kernels, self._schedule_gpu, priorities)
        self._threads = [_Thread(client.start) for client in self._clients]
        if horizon < NEVER:
            self._push(horizon, _END)  # first, so that it comes before all else at its instant
        for index, client in enumerate(self._clients):
            self._push(client.start + client.launch(0).gap, _LAUNCH, index)

    def _schedule_gpu(self, at: int, token: Running | int) -> None:
        self._number += 1
        heappush(self._heap, (at, self._number, _GPU, 0, token))

    def _push(self, at: int, what: int, client: int = 0, token: Running | int = 0) -> None:
        self._number += 1
        heappush(self._heap, (at, self._number, what, client, token))

    def next(self) -> tuple[int, Sequence[Event]] | None:
        """Return the next instant with events, in rank order; None when nothing will happen any more."""
        heap, events, ring, reports = self._heap, self._events, self.gpu.ring, self.gpu.reports
        events.clear()
        while heap:
            if self._gone and self._gone == len(self._threads) and self._state.over():
                return None
            now = heap[0][0]
            while heap and heap[0][0] == now:
                _, _, what, client, token = heappop(heap)
                if what == _GPU:
                    ring(now, token)
                    if reports:
                        self._report(now)
                elif what == _LAUNCH:
                    self._on_launch_reached(now, client)
                else:
                    self._handle(now, what, client)
            if events:
                if len(events) > 1:
                    events.sort(key=_rank)
                return now, events
        return None

    def _handle(self, now: int, what: int, client: int) -> None:
        if what == _WAITED:
            self._on_wait_over(now, client)
        elif what == _WAKE:
            self._wakes.discard(now)
            self._events.append(Woke())
        else:
            for index, thread in enumerate(self._threads):
                self._leave(index, thread)

    def _leave(self, index: int, thread: _Thread) -> None:
        if not thread.left:
            thread.left = True
            self._gone += 1
            self._events.append(ClientLeft(index))

    def _report(self, now: int) -> None:
        reports = self.gpu.reports
        self._events += reports
        for report in reports:
            if isinstance(report, KernelFinished):
                self._on_kernel_ended(now, report.client, report.launch)
        reports.clear()

    def _on_kernel_ended(self, now: int, index: int, number: int) -> None:
        """Continue a client's thread after one of its kernels ended."""
        thread = self._threads[index]
        thread.inside -= 1
        launches = self._launches[index]
        if launches[number % len(launches)].waits:
            self._push(now + self._device.wait, _WAITED, index)
        elif thread.asleep:
            thread.asleep = False
            self._on_launch_reached(now, index)

    def _on_launch_reached(self, now: int, index: int) -> None:
        """Handle a thread that reaches its next launch: it sleeps, waits at the gate, or launches."""
        thread = self._threads[index]
        if thread.left:
            return
        if thread.inside >= self._device.queue:
            thread.asleep = True
        elif self._gated[index]:
            self._events.append(KernelReached(index, thread.next))
        else:
            self._events.append(KernelLaunched(index, thread.next))
            self._launch(now, index)

    def _launch(self, now: int, index: int, asked: int = 0) -> None:
        """Submit a client's next launch to the GPU, and schedule what its thread does next.

        ``asked``: the time that the gate took of its thread.
        """
        thread, launches = self._threads[index], self._launches[index]
        number = thread.next
        at = number % len(launches)
        launch = launches[at]
        self.gpu.submit(now, index, number, launch.kernel, launch.duration)
        thread.inside += 1
        thread.next = number + 1
        if self._ends[index][at]:
            thread.requests += 1
            thread.ended = thread.requests == self._clients[index].requests
        if not launch.waits:
            if thread.ended:
                self._push(now + 1, _WAITED, index)
            else:
                self._number += 1
                due = now + asked + launches[(at + 1) % len(launches)].gap
                heappush(self._heap, (due, self._number, _LAUNCH, index, 0))

    def _on_wait_over(self, now: int, index: int) -> None:
        """Handle the end of the wait after a request; a client that has done its requests leaves."""
        thread, client = self._threads[index], self._clients[index]
        last = client.launch(thread.next - 1)
        if thread.left:
            return
        if last.waits:
            self._events.append(RequestEnded(index, client.request(thread.next - 1), thread.began))
            thread.began = now + last.think + client.think
        if thread.ended:
            self._leave(index, thread)
        else:
            self._push(thread.began + client.launch(thread.next).gap, _LAUNCH, index)

    def execute(self, now: int, action: Action) -> None:
        """Launch a gated kernel, or schedule a wake-up."""
        if isinstance(action, WakeAt):
            at = action.time
            if at <= now:  # would go on one nanosecond at a time
                raise InfeasibleActionError(f"WakeAt(time={at}) at {now} ns: must be later than now")
            if at not in self._wakes and not self._state.over():
                self._wakes.add(at)
                self._push(at, _WAKE)
        else:
            # While nobody above is at work a launch goes on an earlier answer.
            self._launch(now, action.client, 0 if action.reason == Reason.ALONE else self._device.gate)

    def follow(self, now: int, caused: None) -> None:
        """Do nothing: a state of kernels returns no consequences, they follow from the model of the GPU."""

    def refused(self, now: int, action: Action) -> None:
        """Do nothing: the gate is asked again at the next launch anyway."""


def _rank(event: Event) -> int:
    return RANKS[type(event)]
