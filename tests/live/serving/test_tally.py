"""Tests of what a server counts."""

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
