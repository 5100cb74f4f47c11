"""What a server says of requests that came to nothing."""

import headway as hw
from headway.fleet.live.tally import too_short
from headway.fleet.model.request import Request
from headway.units import MILLISECOND


def test_a_deadline_that_guessed_times_do_not_allow_is_refused_with_what_measures_them() -> None:
    state, _ = hw.simulate(hw.Fleet("compass", requests=5, workers=1), "hash").stored.scene.bound()
    request = Request(0, 0, 0, 0, MILLISECOND)
    known = too_short(state, request)
    assert known.startswith("late: its deadline of 1ms cannot be kept: translation takes ")
    guess = "times of task opt are a guess: headway profile model app.py measures them"
    assert too_short(state, request, guess) == f"{known} ({guess})"
