"""Tests of what a server counts."""

import numpy as np
from hypothesis import given, strategies as st

from headway.live.serving.request_counts import percentile
from headway.live.serving.tally import Tally
from headway.units import MILLISECOND, SECOND


def test_a_batch_may_take_longer_where_its_function_does() -> None:
    tally = Tally()
    assert tally.patience("speak", 100 * MILLISECOND, SECOND) == 10 * SECOND  # it has not run yet
    tally.note_run("speak", 0.5)
    assert tally.patience("speak", 100 * MILLISECOND, SECOND) == SECOND
    assert tally.patience("speak", 300 * MILLISECOND, SECOND) == 3 * SECOND
    tally.note_run("speak", 2.5)
    tally.note_run("speak", 2.5)
    assert tally.patience("speak", 300 * MILLISECOND, SECOND) == round(7.5 * SECOND)


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=50), st.sampled_from((50, 90, 99)))
def test_percentiles_interpolate_linearly_as_everywhere(values: list[int], percent: int) -> None:
    assert np.isclose(percentile(sorted(values), percent), np.percentile(values, percent))
    tally = Tally()
    tally.latencies.extend(values)
    assert np.isclose(tally.shown(())["latency_s"][f"p{percent}"], np.percentile(values, percent) / SECOND)
