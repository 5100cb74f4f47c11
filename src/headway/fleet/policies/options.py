"""Checks of the options of serving policies: each says the option, its value and the rule in one line."""

from collections.abc import Mapping
from math import inf

from headway.errors import ExperimentError
from headway.fleet.policies.parts import ServingPolicy
from headway.units import MILLISECOND, exact_duration


def check_least(policy: ServingPolicy, least: Mapping[str, float]) -> None:
    """Raise where an option is not a finite number, or is below its least value."""
    for option, low in least.items():
        if not low <= (value := getattr(policy, option)) < inf:
            raise ExperimentError(f"policy {policy.name}: option {option}={value} is not a number of {low} or more")


def check_choice(policy: ServingPolicy, option: str, first: str, second: str) -> None:
    """Raise where an option is neither of the two words that it may be."""
    if (value := getattr(policy, option)) not in (first, second):
        raise ExperimentError(f"policy {policy.name}: option {option}={value} is neither {first} nor {second}")


def check_durations(policy: ServingPolicy, *options: str, least: int = MILLISECOND) -> None:
    """Raise where an option is shorter than the least duration."""
    for option in options:
        if (duration := getattr(policy, option)) < least:
            told = f"option {option}={exact_duration(duration)} is not {exact_duration(least)} or more"
            raise ExperimentError(f"policy {policy.name}: {told}")
