"""Checks the ranges of options of policy parts; raises one clear line for a value out of range."""

from math import inf

from headway.errors import ExperimentError


def from_zero(part: str, **options: float) -> None:
    """Refuse options that are negative, infinite or not a number."""
    for name, value in options.items():
        if not 0 <= value < inf:
            raise ExperimentError(f"{part}({name}={value}): must be a number from 0 on")


def shares(part: str, **options: float) -> None:
    """Refuse options that are not between 0 and 1."""
    for name, value in options.items():
        if not 0 <= value <= 1:
            raise ExperimentError(f"{part}({name}={value}): must lie between 0 and 1")
