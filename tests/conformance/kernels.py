"""What every policy of kernels and every run promises: one check for each, which raises ``BrokenPromise``."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from unittest import mock

from headway.gpu.model import alone
from headway.gpu.model.actions import Action
from headway.gpu.model.device import Device
from headway.gpu.model.program import Client
from headway.gpu.model.rows import Kind
from headway.gpu.model.state import KernelsState
from headway.gpu.policies.parts import KernelsPolicy
from headway.gpu.replay import replay
from tests.conformance.checks import CLOCKS, BrokenPromise, promise
from tests.gpu.worlds import Run, Watched, drive

Make = Callable[[], KernelsPolicy]
World = tuple[tuple[Client, ...], Device]


class Guarded(Watched):
    """Looks at the state whenever the policy hands over, and at when it is asked."""

    asked = -1

    def _watch(self, now: int, state: KernelsState, actions: Iterator[Action]) -> Iterator[Action]:
        promise("asked once an instant", now > self.asked, f"at {now} after {self.asked}")
        self.asked = now
        while True:
            before = state.digest
            action = next(actions, None)
            promise("state untouched", state.digest == before, f"before {action} at {now}")
            if action is None:
                return
            yield action


def check_all(make: Make, world: World) -> Run:
    """Every promise, one after the other."""
    run = drive(make(), *world, watch=Guarded)
    check_delivered(run, world)
    check_ungated(run, world)
    check_repeatable(make, world, run)
    check_replay(make, world, run)
    return run


def check_delivered(run: Run, world: World) -> None:
    """Everybody leaves, and every launch got exactly its work, one after the other, no faster than alone."""
    clients, device = world
    promise("everything ends", run.state.over())
    for index, client in enumerate(clients):
        finished = run.rows(Kind.FINISHED, index)
        told = f"client {client.name}"
        wanted = [client.launch(moment.number).duration for moment in alone.moments(client, Device())]
        promise("work delivered", [row.detail for row in finished] == wanted, told)
        promise("in order", [row.lease for row in finished] == list(range(len(finished))), told)
        promise("no faster than alone", all(row.time - row.value >= row.detail for row in finished), told)
        starts, ends = [row.value for row in finished], [row.time for row in finished]
        apart = all(start >= end + device.follow for start, end in zip(starts[1:], ends, strict=False))
        promise("one after the other", apart, told)


def check_ungated(run: Run, world: World) -> None:
    """Nobody of the highest priority waits at the gate."""
    clients, _ = world
    highest = min(client.priority for client in clients)
    gated = sorted({row.subject for row in run.rows(Kind.REACHED) if clients[row.subject].priority == highest})
    promise("the highest never wait", not gated, f"clients {gated}")


def check_repeatable(make: Make, world: World, run: Run) -> None:
    """The same world gives the same tape, and no clock is read on the way."""

    def read(*_: object) -> None:
        raise BrokenPromise("reads no clock: time was asked for")

    with ExitStack() as patches:
        for clock in CLOCKS:
            patches.enter_context(mock.patch.object(time, clock, read))
        again = drive(make(), *world)
    promise("repeatable", again.tape.digest == run.tape.digest, "two runs made two tapes")


def check_replay(make: Make, world: World, run: Run) -> None:
    """A fresh policy, shown what happened, decides the same."""
    promise("replay identical", replay(*world, run.tape, make()).digest == run.tape.digest)
