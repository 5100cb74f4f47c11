"""The table of pairs: what it holds is found, what it does not follows the written rule, what is wrong is named."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from headway.errors import ProfileError
from headway.profiling.interference import MOST_SLOWDOWN_PPM, PairTable, Slowdown, expanded

HALF = 500_000


def row(program: str = "a", co_runner: str = "b", share: int = HALF, slower: float = 1.25, **keys: Any) -> Any:
    """One row of a pairs.json."""
    plain = {"program": program, "co_runner": co_runner, "sm_share_ppm": share, "slowdown_ppm": round(slower * 1e6)}
    return plain | {"harvest_ppm": 0, "measured": True} | keys


def table(*rows: Any, **names: str) -> PairTable:
    """A table of such rows."""
    return PairTable.from_rows(rows, "pairs", names)


def test_a_pair_is_found() -> None:
    assert table(row()).lookup("a", ["b"], HALF) == Slowdown(1_250_000, ())


def test_a_program_alone_is_not_slowed_down() -> None:
    assert table(row()).lookup("a", [], HALF) == Slowdown(1_000_000, ())


def test_the_nearest_share_counts_and_of_two_as_near_the_measured_one() -> None:
    pairs = table(row(share=200_000, slower=1.2), row(share=600_000, slower=1.6, measured=False), row("c", "d"))
    assert [pairs.slowdown_ppm("a", ["b"], share) for share in (1, 399_999, 400_001, 1_000_000)] == [
        1_200_000,
        1_200_000,
        1_600_000,
        1_600_000,
    ]
    assert pairs.slowdown_ppm("a", ["b"], 400_000) == 1_200_000


def test_of_two_rows_for_one_share_the_measured_one_counts_then_the_later() -> None:
    assert table(row(slower=1.2), row(slower=1.4, measured=False)).slowdown_ppm("a", ["b"], HALF) == 1_200_000
    assert table(row(slower=1.4, measured=False), row(slower=1.2)).slowdown_ppm("a", ["b"], HALF) == 1_200_000
    assert table(row(slower=1.2), row(slower=1.4)).slowdown_ppm("a", ["b"], HALF) == 1_400_000


def test_a_pair_the_other_way_round_says_what_the_co_runner_got_done() -> None:
    assert table(row(harvest_ppm=400_000)).lookup("b", ["a"], HALF) == Slowdown(2_500_000, ())


def test_where_that_is_not_known_the_two_slow_each_other_down_alike() -> None:
    assert table(row()).lookup("b", ["a"], HALF) == Slowdown(1_250_000, ())


def test_an_unknown_pair_counts_with_the_median_and_is_reported() -> None:
    pairs = table(row(slower=1.1), row("a", "c", slower=1.2), row("c", "d", slower=9))
    assert pairs.lookup("a", ["d", "b", "x"], HALF) == Slowdown(1_584_000, ("d", "x"))
    assert pairs.default_ppm == 1_200_000


def test_a_program_may_be_called_otherwise_elsewhere() -> None:
    pairs = table(row(), **{"resnet*": "a", "*": "b"})
    assert pairs.lookup("resnet50", ["whatever"], HALF) == Slowdown(1_250_000, ())
    assert pairs.knows("resnet50")
    assert not table(row()).knows("resnet50")


def test_a_name_for_a_program_that_is_not_there_is_refused() -> None:
    with pytest.raises(ProfileError, match=r"^pairs, programs 'x\*': unknown program 'aa'; did you mean 'a'\?"):
        table(row(), **{"x*": "aa"})


@given(st.lists(st.integers(100_000, MOST_SLOWDOWN_PPM), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_several_neighbours_multiply_whatever_their_order(slower: list[int], random: Any) -> None:
    rows = [row("p", f"n{index}", slowdown_ppm=ppm) for index, ppm in enumerate(slower)]
    names = [f"n{index}" for index in range(len(slower))]
    product = 1.0
    for ppm in slower:
        product *= ppm / 1e6
    found = table(*rows).slowdown_ppm("p", names, HALF)
    assert found == pytest.approx(min(max(product * 1e6, 1), MOST_SLOWDOWN_PPM), abs=1, rel=1e-9)
    random.shuffle(names)
    assert table(*rows).slowdown_ppm("p", names, HALF) == found


def test_all_pairs_of_some_programs_are_laid_out_by_position() -> None:
    found, unknown = expanded(table(row(), row("b", "b", slower=2)), ["b", "a"], [HALF])
    assert found == {(0, 0, HALF): 2_000_000, (0, 1, HALF): 1_250_000, (1, 0, HALF): 1_250_000, (1, 1, HALF): 1_625_000}
    assert unknown == [("a", "a")]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([], "pairs: holds no pairs"),
        ([7], "pairs, row 0: is no object with the keys program, co_runner"),
        ([row(), {"program": "a"}], "pairs, row 1: 5 keys missing: co_runner, sm_share_ppm"),
        ([row(program="")], "row 0: program is '': must be a name"),
        ([row(share=0)], "row 0: sm_share_ppm is 0: must lie in 1 to 1,000,000"),
        ([row(share=1_000_001)], "row 0: sm_share_ppm is 1000001: must lie in 1 to 1,000,000"),
        ([row(slowdown_ppm=True)], "row 0: slowdown_ppm is True: must lie in"),
        ([row(slowdown_ppm=1.25)], r"row 0: slowdown_ppm is 1.25: must lie in 100,000 to 1,000,000,000"),
        ([row(harvest_ppm=-1)], "row 0: harvest_ppm is -1: must lie in 0 to 10,000,000"),
        ([row(measured="yes")], "row 0: measured is 'yes': must be true or false"),
    ],
)
def test_a_bad_table_is_refused_in_one_line(rows: list[Any], told: str) -> None:
    with pytest.raises(ProfileError, match=told) as raised:
        table(*rows)
    assert "\n" not in str(raised.value)
