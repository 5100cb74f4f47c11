"""Checks around a policy of kernels from outside the package: each mistake becomes one clear line.

Its methods are checked before the first run, then each action that it yields, and that it does not change the state.
The policies of the package are checked by the tests instead.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from numbers import Integral
from operator import attrgetter
from typing import Any, TypeVar

from headway.core.outside import check_method, is_outside, line_of, own_end
from headway.errors import ExperimentError
from headway.gpu.model.actions import Action, LetGo, WakeAt
from headway.gpu.model.device import Sharing
from headway.gpu.model.reflex import Reason
from headway.gpu.model.state import ClientState, KernelsState
from headway.gpu.policies.parts import KernelsPolicy
from headway.units import format_duration

MOST_ACTIONS = 1_000
"""In one instant: each client has one launch at the gate, and one wake-up is enough."""
LATEST = 2**62
_METHODS = {"decide": ("now", "state"), "gates": ("client", "clients"), "bind": ("state",)}
_SLOTS = tuple(slot for slot in ClientState.__slots__ if slot not in ("client", "expected"))
_slots = attrgetter(*_SLOTS)
_REASONS = frozenset(int(reason) for reason in Reason)
Chosen = TypeVar("Chosen", bound=type[KernelsPolicy])
Seen = list[tuple[Any, ...]]


def checked(policy: Chosen) -> Chosen:
    """Return a policy class with checks around ``decide``; one of the package unchanged."""
    return _checked(policy) if is_outside(policy) else policy


@cache
def _checked(policy: Any) -> Any:
    for method, arguments in _METHODS.items():
        check_method(policy, method, arguments)
    if not isinstance(policy.sharing, Sharing):
        modes = " or ".join(f"Sharing.{mode.name}" for mode in Sharing)
        raise ExperimentError(f"policy {policy.name}: sharing = {policy.sharing!r} must be {modes}")
    if policy.gating and policy.decide is KernelsPolicy.decide and policy.gates is KernelsPolicy.gates:
        raise ExperimentError(
            f"policy {policy.name}: defines no decide(self, now, state), so that no gated launch would ever go; "
            "define it, or set gating = False"
        )
    return type(policy)(policy.__name__, (_Checked, policy), {"__module__": policy.__module__})


class _Checked(KernelsPolicy):
    """Wraps a policy class with checks."""

    def decide(self, now: int, state: KernelsState) -> Iterator[Action]:
        """Yield the actions of the policy, each checked."""
        before = _seen(state)
        try:
            actions: Any = super().decide(now, state)
            if not isinstance(actions, Iterable) or isinstance(actions, str | bytes | LetGo | WakeAt):
                wrong = f"decide returned {actions!r}; it must yield actions, or return a list of them"
                raise ExperimentError(f"policy {self.name} at {format_duration(now)}: {wrong}")
            for count, action in enumerate(actions, 1):
                mistake = _changed(before, state) or _wrong(now, action) or state.check(action)
                if mistake is None and count > MOST_ACTIONS:
                    mistake = f"decide yields without end: more than {MOST_ACTIONS} actions in this instant"
                if mistake is not None:
                    raise ExperimentError(f"policy {self.name} at {format_duration(now)}{line_of(actions)}: {mistake}")
                yield action
                before = _seen(state)
        except (SystemExit, RuntimeError) as problem:
            if said := own_end(problem, super().decide):
                raise ExperimentError(f"policy {self.name} at {format_duration(now)}: {said}") from problem
            raise
        if (mistake := _changed(before, state)) is not None:
            raise ExperimentError(f"policy {self.name} at {format_duration(now)}: {mistake}")


def _wrong(now: int, action: object) -> str | None:
    """Return what is wrong with an action, whatever the state is."""
    if isinstance(action, WakeAt):
        if not isinstance(action.time, Integral):
            return f"WakeAt(time={action.time!r}): a time is a whole number of nanoseconds"
        if action.time <= now:
            return f"WakeAt(time={action.time}): must be later than now, {now}"
        return None if action.time < LATEST else f"WakeAt(time={action.time}): must be below {LATEST}"
    if not isinstance(action, LetGo):
        return f"decide yields {action!r}; it must yield LetGo(client, launch, reason) or WakeAt(time)"
    for key, value in zip(action._fields, action, strict=True):
        if not isinstance(value, Integral):
            return f"LetGo({key}={value!r}): must be a whole number{_HINTS.get(key, '')}"
    if action.reason not in _REASONS:
        return f"LetGo(reason={action.reason}): is no Reason of headway.gpu"
    return None if abs(action.harm) < LATEST else f"LetGo(harm={action.harm}): must be below {LATEST}"


_HINTS = {"client": ", the client's id", "launch": ", the client's reached", "reason": ", a Reason"}


def _seen(state: KernelsState) -> Seen:
    return [(state.changes, *state.waiting), *map(_slots, state.clients)]


def _changed(before: Seen, state: KernelsState) -> str | None:
    """Return what a policy changed in the state, which it may only read; None: nothing."""
    after = _seen(state)
    if after == before:
        return None
    what = "who waits, or how many clients there are"
    for index, (old, new) in enumerate(zip(before[1:], after[1:], strict=False)):
        for slot, was, now in zip(_SLOTS, old, new, strict=True):
            if was != now:
                what = f"{slot} of client {index} from {was!r} to {now!r}"
    return f"decide changed the state that it is shown ({what}); it may only read it"
