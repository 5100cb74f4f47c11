"""Checks around a serving policy from outside the package: each mistake becomes one clear line.

Its methods are checked before the first run, then each action that it yields. The policies of the package are checked
by the tests instead.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from numbers import Integral
from typing import Any, TypeVar, get_args

from headway.core.outside import check_method, is_outside, line_of, own_end
from headway.errors import ExperimentError
from headway.fleet.model.actions import Action, WakeAt
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.state.state import ServingState
from headway.units import format_duration

MOST_ACTIONS = 1_000_000
"""In one instant: each task of each open request may be placed, moved and run in it."""
LATEST = 2**62
_METHODS = {"decide": ("now", "state"), "bind": ("state",)}
_ACTIONS = get_args(Action)
_NAMES = ", ".join(kind.__name__ for kind in _ACTIONS)
Chosen = TypeVar("Chosen", bound=type[ServingPolicy])


def checked(policy: Chosen) -> Chosen:
    """Return a policy class with checks around ``decide``; one of the package unchanged."""
    return _checked(policy) if is_outside(policy) else policy


@cache
def _checked(policy: Any) -> Any:
    for method, arguments in _METHODS.items():
        check_method(policy, method, arguments)
    return type(policy)(policy.__name__, (_Checked, policy), {"__module__": policy.__module__})


class _Checked(ServingPolicy):
    """Wraps a policy class with checks."""

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """Yield the actions of the policy, each checked."""
        inner = super().decide  # type: ignore[safe-super]
        try:
            actions: Any = inner(now, state)
            if not isinstance(actions, Iterable) or isinstance(actions, (str, bytes, *_ACTIONS)):
                wrong = f"decide returned {actions!r}; it must yield actions, or return a list of them"
                raise ExperimentError(f"policy {self.name} at {format_duration(now)}: {wrong}")
            for count, action in enumerate(actions, 1):
                problem_text = _wrong(now, action)
                if problem_text is None and not getattr(state, "delayed", False):
                    problem_text = state.check(action)  # else the loop refuses it, if it is stale by then
                if problem_text is None and count > MOST_ACTIONS:
                    problem_text = f"decide yields without end: more than {MOST_ACTIONS:,} actions in this instant"
                if problem_text is not None:
                    raise ExperimentError(
                        f"policy {self.name} at {format_duration(now)}{line_of(actions)}: {problem_text}"
                    )
                yield action
        except (SystemExit, RuntimeError) as problem:
            if said := own_end(problem, inner):
                raise ExperimentError(f"policy {self.name} at {format_duration(now)}: {said}") from problem
            raise


def _wrong(now: int, action: object) -> str | None:
    """Return what is wrong with an action, whatever the state is."""
    if not isinstance(action, _ACTIONS):
        return f"decide yields {action!r}; it must yield actions: {_NAMES}"
    for key in action.__struct_fields__:
        value = getattr(action, key)
        rule, holds = _RULES.get(key, ("a whole number", _is_whole))
        if not holds(value):
            return f"{type(action).__name__}({key}={value!r}): must be {rule}"
    if isinstance(action, WakeAt) and not now < action.time < LATEST:
        return f"WakeAt(time={action.time}): must be later than now, {now}, and below {LATEST}"
    return None


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral)


def _are_whole(value: object) -> bool:
    return isinstance(value, tuple | list) and all(map(_is_whole, value))


def _are_tasks(value: object) -> bool:
    return isinstance(value, tuple | list) and all(
        isinstance(pair, tuple) and len(pair) == 2 and _are_whole(pair) for pair in value
    )


_RULES: dict[str, tuple[str, Callable[[object], bool]]] = {
    "workers": ("whole numbers in a tuple", _are_whole),
    "evict": ("whole numbers in a tuple", _are_whole),
    "tasks": ("pairs (request, task) of whole numbers in a tuple", _are_tasks),
}
"""What the fields of actions hold that are not one number."""
