"""Short names of runs."""

from headway.report.names import shortened

LONG = "multifactor(fairshare_weight=4000, size_weight=0, max_age=3d)+conservative(depth=200)+first-fit"


def test_options_go_where_the_name_is_too_long() -> None:
    assert shortened(["fifo", LONG]) == ["fifo", "multifactor(…)+conservative(…)+first-fit"]
    assert shortened(["tiresias(thresholds=1h/10h)+easy"]) == ["tiresias(thresholds=1h/10h)+easy"]


def test_they_stay_where_only_they_tell_two_runs_apart() -> None:
    other = LONG.replace("4000", "1")
    assert shortened([LONG, other]) == [LONG, other]
