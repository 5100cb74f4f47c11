"""Short names of runs."""

from hypothesis import given, strategies as st

from headway.show.names import cut_distinct, shortened

LONG = "multifactor(fairshare_weight=4000, size_weight=0, max_age=3d)+conservative(depth=200)+first-fit"


def test_options_go_where_the_name_is_too_long() -> None:
    assert shortened(["fifo", LONG]) == ["fifo", "multifactor(…)+conservative(…)+first-fit"]
    assert shortened(["tiresias(thresholds=1h/10h)+easy"]) == ["tiresias(thresholds=1h/10h)+easy"]


def test_those_stay_that_tell_two_runs_apart() -> None:
    other = LONG.replace("4000", "1")
    assert shortened([LONG, "fifo", other]) == [
        "multifactor(fairshare_weight=4000, …)+conservative(…)+first-fit",
        "fifo",
        "multifactor(fairshare_weight=1, …)+conservative(…)+first-fit",
    ]
    third = LONG.replace("max_age=3d", "max_age=1d")
    assert shortened([LONG, other, third])[2] == (
        "multifactor(fairshare_weight=4000, max_age=1d, …)+conservative(…)+first-fit"
    )
    assert shortened([LONG, LONG]) == ["multifactor(…)+conservative(…)+first-fit"] * 2


def test_an_option_that_only_one_has_tells_it_apart() -> None:
    more = LONG.replace("depth=200", "depth=200, interval=30s")
    assert shortened([LONG, more]) == [
        "multifactor(…)+conservative(…)+first-fit",
        "multifactor(…)+conservative(interval=30s, …)+first-fit",
    ]


OPTIONS = st.lists(st.sampled_from(["a=1", "a=2", "bcd=300", "efghij=4000"]), max_size=4, unique=True)


@given(st.lists(st.tuples(OPTIONS, OPTIONS), min_size=1, max_size=5, unique_by=str))
def test_different_policies_keep_different_names(policies: list[tuple[list[str], list[str]]]) -> None:
    names = [f"multifactor({', '.join(a)})+conservative({', '.join(b)})+first-fit" for a, b in policies]
    same_sets = len({(frozenset(a), frozenset(b)) for a, b in policies}) == len(policies)
    short = shortened(names)
    assert all(len(each) <= max(len(name), 40) for name, each in zip(names, short, strict=True))
    if same_sets:
        assert len(set(short)) == len(short)


@given(st.lists(st.text(alphabet="abc", max_size=12), max_size=8, unique=True), st.integers(5, 9))
def test_names_that_are_cut_stay_apart(names: list[str], most: int) -> None:
    cut = cut_distinct(names, most)
    assert all(len(each) <= most for each in cut)
    assert len(set(cut)) == len(cut)
    assert all(each == name for name, each in zip(names, cut, strict=True) if len(name) <= most)
