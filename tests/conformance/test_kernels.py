"""Every registered policy of kernels keeps every promise of ``kernels.py`` on whatever hypothesis finds.

The tests are parametrised over the registry: a new policy is covered by being registered. Below: tests of the tests,
policies that are broken on purpose, each caught by the check that is there for it.
"""

import time
from collections.abc import Iterator, Sequence
from typing import ClassVar

import pytest
from hypothesis import given, settings

from headway.errors import InfeasibleActionError, StalledRunError
from headway.gpu.model.actions import Action, LetGo
from headway.gpu.model.program import Client
from headway.gpu.model.reflex import Reason
from headway.gpu.model.state import KernelsState
from headway.gpu.policies.parts import KernelsPolicy
from headway.gpu.policies.registry import POLICIES, build
from tests.conformance.checks import BrokenPromise
from tests.conformance.kernels import World, check_all
from tests.gpu.worlds import TINY, program, worlds


@pytest.mark.parametrize("spec", [*POLICIES, "xsched(in_flight=1)", "headway(slo=1.5,floor=20%)"])
@settings(max_examples=25)
@given(worlds())
def test_every_policy_keeps_its_promises(spec: str, world: World) -> None:
    check_all(lambda: build(spec), world)


# --- tests of the tests ---------------------------------------------------------------------------------------------

SMALL: World = (
    (
        Client("above", program((5, 2, 100), (20, 1, 30)), 0, requests=3),
        Client("below", program((1, 4, 50), (3, 2, 40)), 1, requests=2),
    ),
    TINY,
)


class Sound(KernelsPolicy):
    """Lets everybody go at once, until a subclass breaks it."""

    name = "broken"

    def decide(self, now: int, state: KernelsState) -> Iterator[Action]:
        for index in list(state.waiting):
            yield LetGo(index, state.clients[index].reached, Reason.ALONE)


def test_the_policy_that_the_broken_ones_are_made_of_is_sound() -> None:
    check_all(Sound, SMALL)


class LetsGoTwice(Sound):
    """Lets a launch go that has gone."""

    def decide(self, now: int, state: KernelsState) -> Iterator[Action]:
        for action in super().decide(now, state):
            yield action
            yield action


def test_what_cannot_be_done_is_refused() -> None:
    with pytest.raises(InfeasibleActionError, match="broken at"):
        check_all(LetsGoTwice, SMALL)


class Forgets(Sound):
    """Never lets anybody go."""

    def decide(self, now: int, state: KernelsState) -> Iterator[Action]:
        return iter(())


def test_a_client_that_is_forgotten_is_found() -> None:
    with pytest.raises(StalledRunError, match="broken"):
        check_all(Forgets, SMALL)


class Mutates(Sound):
    """Says of a client that it has waited longer."""

    def decide(self, now: int, state: KernelsState) -> Iterator[Action]:
        state.clients[0].waited += 1
        yield from super().decide(now, state)


class ReadsAClock(Sound):
    """Asks what time it is."""

    def decide(self, now: int, state: KernelsState) -> Iterator[Action]:
        time.monotonic()
        yield from super().decide(now, state)


class GatesAll(Sound):
    """Makes those above ask, too."""

    def gates(self, client: Client, clients: Sequence[Client]) -> bool:
        return True


class Remembers(Sound):
    """Counts across runs, and says so on the tape."""

    count: ClassVar = [0]

    def decide(self, now: int, state: KernelsState) -> Iterator[Action]:
        for action in super().decide(now, state):
            self.count[0] += 1
            yield action._replace(harm=self.count[0]) if isinstance(action, LetGo) else action


@pytest.mark.parametrize(
    ("policy", "broken"),
    [
        (Mutates, "state untouched"),
        (ReadsAClock, "reads no clock"),
        (GatesAll, "the highest never wait"),
        (Remembers, "repeatable"),
    ],
)
def test_a_broken_promise_is_named(policy: type[Sound], broken: str) -> None:
    with pytest.raises(BrokenPromise, match=f"^{broken}"):
        check_all(policy, SMALL)
