"""The search for CPU counts: few points, and straight lines between them that are nowhere far off."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st

from headway.jobs.profiling.search import MOST_POINTS, points


def searched(
    curve: Callable[[float], float], low: float, high: float, gpus: int = 1, whole: bool = False
) -> dict[float, float]:
    asking = points(low, high, gpus=gpus, whole=whole)
    seen: dict[float, float] = {}
    cpus = next(asking)
    while True:
        assert cpus not in seen
        seen[cpus] = curve(cpus)
        try:
            cpus = asking.send(seen[cpus])
        except StopIteration:
            return seen


def worst(curve: Callable[[float], float], seen: dict[float, float]) -> float:
    """How far straight lines between the points are off, as a share."""
    cpus = sorted(seen)
    at = np.linspace(cpus[0], cpus[-1], 400)
    line = np.interp(at, cpus, [seen[each] for each in cpus])
    return float(max(abs(line / [curve(each) for each in at] - 1)))


def test_a_program_that_wants_no_cpu_is_halved_down_to_the_lower_end() -> None:
    assert list(searched(lambda cpus: 100, 1, 16)) == [16, 8, 4, 2, 1]


def test_a_program_in_proportion_takes_three_points() -> None:
    assert list(searched(lambda cpus: 10 * cpus, 0.5, 16)) == [16, 8, 0.5]


def test_where_it_falls_steps_are_as_large_as_the_gpus_and_the_knee_is_found() -> None:
    found = searched(lambda cpus: min(1000, 200 * cpus), 1, 16)
    assert list(found) == [16, 8, 4, 3, 1, 5]
    curve = [0.3, 0.66, 1, 1.25, 1.53, 1.75, 1.85, 1.95, 2, 2, 2, 2]  # nothing like a line
    assert worst(lambda cpus: float(np.interp(cpus, range(1, 13), curve)), searched_alike(curve)) < 0.1


def searched_alike(curve: list[float]) -> dict[float, float]:
    return searched(lambda cpus: float(np.interp(cpus, range(1, 13), curve)), 1, 12)


def test_a_small_machine_has_steps_of_less_than_a_cpu() -> None:
    found = searched(lambda cpus: min(150, 100 * cpus), 0.25, 2)
    assert worst(lambda cpus: min(150, 100 * cpus), found) < 0.03
    assert len(found) <= 7


def test_a_step_where_another_worker_starts_is_found() -> None:
    def curve(cpus: float) -> float:
        return min(2500, 1900 * cpus if cpus > 1 or cpus < 0.9 else 1710)

    found = searched(curve, 0.25, 2)
    assert any(1 < cpus < 1.5 for cpus in found)


def test_without_fractions_only_whole_cpus_are_asked_for() -> None:
    found = searched(lambda cpus: min(1000, 200 * cpus), 1, 16, whole=True)
    assert all(cpus == int(cpus) for cpus in found)
    assert list(searched(lambda cpus: 100 * cpus, 1, 2, whole=True)) == [2, 1]
    assert list(searched(lambda cpus: 100 * cpus, 1, 1, whole=True)) == [1]


@pytest.mark.parametrize("gpus", [1, 4, 8])
def test_a_large_machine_does_not_take_more_points(gpus: int) -> None:
    assert len(searched(lambda cpus: cpus**0.5, 1, 256, gpus=gpus)) <= MOST_POINTS + 10


@given(knee=st.floats(0.3, 20), slope=st.floats(1, 1000), whole=st.booleans(), high=st.sampled_from([1, 2, 8, 16, 64]))
def test_it_ends_reaches_both_ends_and_is_nowhere_far_off(knee: float, slope: float, whole: bool, high: int) -> None:
    low = 1.0 if whole else 0.25

    def curve(cpus: float) -> float:
        return slope * min(cpus, knee)

    found = searched(curve, low, high, whole=whole)
    assert min(found) == low
    assert max(found) == high
    assert len(found) <= MOST_POINTS + 10
    if not whole:
        assert worst(curve, found) <= 0.15
