"""What the options of a policy's parts may be: one line for each that cannot be."""

from math import inf

from headway.errors import ExperimentError


def from_zero(part: str, **options: float) -> None:
    """Refuse what is negative, endless or no number."""
    for name, value in options.items():
        if not 0 <= value < inf:
            raise ExperimentError(f"{part}({name}={value}): must be a number from 0 on")


def shares(part: str, **options: float) -> None:
    """Refuse what is no part of a whole."""
    for name, value in options.items():
        if not 0 <= value <= 1:
            raise ExperimentError(f"{part}({name}={value}): must lie between 0 and 1")
