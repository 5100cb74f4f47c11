"""Phases of a processor are found in times that were drawn with them."""

import numpy as np
import pytest

from bench.gpu_phases import phases


def test_phases_are_found_again() -> None:
    draw = np.random.default_rng(0)
    slow = np.repeat([0, 1, 0, 1, 0, 1, 0], [100, 40, 60, 80, 100, 60, 120])
    took = 5 * np.exp(np.log(1.42) * slow + draw.normal(0, 0.06, len(slow)))
    found = phases(took, took)
    assert found.slower == pytest.approx(1.42, rel=0.03)
    assert found.mean_ms[0] == pytest.approx(5, rel=0.03)
    assert found.slow_share == pytest.approx(slow.mean(), abs=0.03)
    assert found.spread == pytest.approx((0.06, 0.06), abs=0.015)
    lengths = took[slow == 0].sum() / 4e3, took[slow == 1].sum() / 3e3
    assert found.length_s == pytest.approx(lengths, rel=0.1)
