"""State of one GPU as policies can know it: what each client launched, which clients wait, what is predicted of them.

What happens inside the GPU belongs to the executor; the state holds what launches and ends tell. Beside these facts it
holds for each client the predictions that its shim would publish: when its launched work will end, when it will next
launch, and how much delay it would not notice.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headway.core.tape import Row
from headway.gpu.model.actions import Action, WakeAt
from headway.gpu.model.device import Device
from headway.gpu.model.events import (
    ClientLeft,
    Event,
    KernelFinished,
    KernelHeldUp,
    KernelLaunched,
    KernelReached,
    RequestEnded,
)
from headway.gpu.model.expected import FIRST, UNKNOWN, Expected, learn
from headway.gpu.model.program import Client
from headway.gpu.model.rows import Kind

NOTHING = -1
WHOLE_STEPS = 4096
"""Whole steps that are kept of a client: those of at least 50 ms, however short they are."""


class WholeStep(NamedTuple):
    """What is known of a step that has ended."""

    began: int
    """Its first launch."""
    ended: int
    """The end of the wait that closes it."""
    request: int
    cpu: int
    """The time of its processor."""


class ClientState:
    """One client: facts first, then predictions."""

    __slots__ = (
        *("id", "client", "priority", "expected", "gated", "reached", "reached_at", "launched", "finished", "left"),
        *("launches", "epoch", "waited", "served_at", "held_up", "whole", "fill"),
        *("kernel", "place", "pace", "step", "began", "launched_at", "finished_at", "busy", "next", "slack", "waits"),
    )

    def __init__(self, index: int, client: Client, expected: Expected, gated: bool) -> None:
        self.id = index
        self.client = client
        self.launches = client.rotated
        self.priority = client.priority
        self.expected = expected
        self.gated = gated
        self.reached = NOTHING
        """The launch that its thread waits with at the gate."""
        self.reached_at = 0
        self.launched = 0
        self.finished = 0
        self.left = False
        self.epoch = 0
        """How often it has waited for the GPU."""
        self.waited = 0
        """Time spent at the gate."""
        self.served_at = 0
        self.held_up = 0
        self.whole: list[WholeStep] = []
        """Its last whole steps, ``WHOLE_STEPS`` of them at least; ``epoch`` counts all."""
        self.fill = 0
        """How long the kernel that its thread waits with is expected to take; valid only while it waits."""
        self.kernel = FIRST
        """The kernel that was launched last."""
        self.step = UNKNOWN
        """What is expected to follow it."""
        self.place = 0
        """How many launches it has made since it last waited."""
        self.pace = client.program.pace(client.first)
        """The phase of its processor, where that has any."""
        self.began = 0
        """When it made the first of them."""
        self.launched_at = NOTHING
        self.finished_at = NOTHING
        self.busy = 0
        """Predicted end of all that was launched."""
        self.next = 0
        """Predicted next launch."""
        self.slack = 0
        self.waits = False
        """Whether its thread waits for the GPU: its work is not over, whatever was predicted."""

    @property
    def outstanding(self) -> int:
        """Return how many launches have not ended."""
        return self.launched - self.finished

    @property
    def wants(self) -> int:
        """Return the kernel that its thread waits with; valid only while it waits."""
        return self.launches[self.reached % len(self.launches)].kernel


class KernelsState:
    """All clients of one GPU."""

    def __init__(self, clients: Sequence[Client], device: Device, gated: Callable[[Client], bool]) -> None:
        self.device = device
        self.clients = [
            ClientState(i, client, learn(client, device), gated(client)) for i, client in enumerate(clients)
        ]
        self.waiting: dict[int, None] = {}
        """Clients at the gate, in order of arrival."""
        self.changes = 0
        """Grows with every change that waiting clients can see."""
        self.journal: Callable[[Row], None] = lambda row: None
        """Called with each row of the tape; does nothing where the run is not recorded."""

    # --- what happened --------------------------------------------------------------------------------------------

    def apply(self, now: int, event: Event) -> None:
        """Apply an event."""
        if isinstance(event, KernelFinished):
            client = self.clients[event.client]
            launch = client.launches[event.launch % len(client.launches)]
            client.finished += 1
            client.finished_at = now
            if client.gated and client.launched == client.finished:
                self.changes += 1
                client.busy = min(client.busy, now)  # a gated client learns when its own work has ended
            row = (now, 1, event.client, event.launch, launch.kernel, launch.duration, event.started)
        elif isinstance(event, KernelLaunched):
            client = self.clients[event.client]
            row = (now, 5, event.client, event.launch, self._launch(now, client), 0, 0)
        elif isinstance(event, KernelReached):
            client = self.clients[event.client]
            self.changes += 1
            client.reached, client.reached_at = event.launch, now
            kernel = client.wants
            client.fill = client.expected.lasts_at(client.place, client.kernel, kernel)
            self.waiting[event.client] = None
            row = (now, 6, event.client, event.launch, kernel, 0, 0)
        else:
            row = self._apply_rare(now, event)
        self.journal(row)

    def _apply_rare(self, now: int, event: Event) -> Row:
        if isinstance(event, KernelHeldUp):
            self.clients[event.client].held_up += event.delay
            return (now, Kind.HELD_UP, event.client, event.launch, event.kernel, event.by, event.delay)
        if isinstance(event, RequestEnded):
            client = self.clients[event.client]
            self.changes += 1
            client.epoch += 1
            if len(client.whole) == 2 * WHOLE_STEPS:
                del client.whole[:WHOLE_STEPS]
            cpu = client.client.program.request_cpu[event.request]
            client.whole.append(WholeStep(client.began, now, event.request, cpu))
            client.next = now + client.step.think
            following = client.client.launch(client.launched).kernel
            client.pace = client.client.program.pace(event.request + 1)
            client.slack = client.expected.step(0, client.kernel, following, client.pace).slack  # of the one to come
            client.busy, client.waits = min(client.busy, now), False
            return (now, Kind.REQUEST_ENDED, event.client, event.request, 0, 0, event.began)
        if isinstance(event, ClientLeft):
            client = self.clients[event.client]
            self.changes += 1
            client.left, client.reached = True, NOTHING
            self.waiting.pop(event.client, None)
            return (now, Kind.LEFT, event.client, client.launched, 0, 0, 0)
        return (now, Kind.WOKE, -1, 0, 0, 0, 0)

    def _launch(self, now: int, client: ClientState) -> int:
        """Launch a client's next kernel and update its predictions; return the kernel."""
        self.changes += 1
        device, expected = self.device, client.expected
        launch = client.launches[client.launched % len(client.launches)]
        kernel, client.waits = launch.kernel, launch.waits
        if not client.place:
            client.began = now
        step = expected.step(client.place, client.kernel, kernel, client.pace)
        work = expected.lasts_at(client.place, client.kernel, kernel)
        client.busy = max(now + device.latency, client.busy + device.follow) + work
        client.next = client.busy + device.wait + step.think if step.waits else now + step.gap
        client.slack, client.step, client.kernel = step.slack, step, kernel
        client.place = 0 if launch.waits or client.place == len(client.launches) - 1 else client.place + 1
        client.launched_at = client.served_at = now
        client.launched += 1
        return kernel

    # --- what was decided -----------------------------------------------------------------------------------------

    def check(self, action: Action) -> str | None:
        """Return why this action cannot be committed now; None when it can."""
        if isinstance(action, WakeAt):
            return None
        if not 0 <= action.client < len(self.clients):
            return f"LetGo(client={action.client}): there are {len(self.clients)} clients"
        client = self.clients[action.client]
        if client.reached == NOTHING or client.reached != action.launch:
            waits = "nothing" if client.reached == NOTHING else f"launch {client.reached}"
            return f"LetGo(client={action.client}, launch={action.launch}): that client waits with {waits}"
        return None

    def commit(self, now: int, action: Action) -> None:
        """Commit an action that ``check`` allowed."""
        if isinstance(action, WakeAt):
            self.journal((now, Kind.WAKE_AT, -1, 0, 0, 0, action.time))
            return
        client = self.clients[action.client]
        client.reached = NOTHING
        client.waited += now - client.reached_at
        del self.waiting[action.client]
        kernel = self._launch(now, client)
        self.journal((now, 20, action.client, action.launch, kernel, action.reason, action.harm))

    def refused(self, now: int, action: Action) -> Row:
        """Return the row that records a refusal of this action."""
        kind = Kind.WAKE_AT if isinstance(action, WakeAt) else Kind.LET_GO
        client, launch = (-1, 0) if isinstance(action, WakeAt) else (action.client, action.launch)
        return (now, Kind.REFUSED, client, launch, 0, 0, int(kind))

    # --- what others ask --------------------------------------------------------------------------------------------

    def above(self, client: ClientState) -> list[ClientState]:
        """Return the clients of higher priority that have not left."""
        return [other for other in self.clients if other.priority < client.priority and not other.left]

    def over(self) -> bool:
        """Return whether all clients have left, and no kernel runs any more."""
        return all(client.left and client.launched == client.finished for client in self.clients)

    @property
    def digest(self) -> str:
        """Return a digest of everything that a policy is shown and must leave as it is."""
        slots = [slot for slot in ClientState.__slots__ if slot not in ("client", "launches", "expected", "whole")]
        seen = [[getattr(client, slot) for slot in slots] for client in self.clients]
        return hashlib.sha256(repr((seen, list(self.waiting))).encode()).hexdigest()
