"""Pictures of characters: a column a number, whatever the numbers are."""

from hypothesis import given, strategies as st

from headway.show.sparks import AIM, INTERVAL, VALUE, Point, band, spark

numbers = st.floats(0, 1e6, allow_nan=False)
points = st.lists(
    st.none() | st.tuples(numbers, numbers, numbers).map(lambda three: tuple(sorted(three))), min_size=1, max_size=40
)


def test_bars_are_as_high_as_their_share_of_the_top_and_what_is_unknown_is_blank() -> None:
    assert spark([0.0, 0.5, 1.0, None, 0.25], 1.0) == "▁▄█ ▂"
    assert spark([0.0, 0.0], 0.0) == "▁▁"
    assert spark([3.0], 1.0) == "█"


def test_a_value_its_interval_and_the_aim_stand_at_their_heights() -> None:
    lines = band([(1.0, 1.1, 1.2), None], 1.3, 5)
    assert len(lines) == 5
    heights = {float(line[:6]): line.partition("┤")[2] for line in lines}
    assert list(heights) == sorted(heights, reverse=True)
    at = {mark: [level for level, cells in heights.items() if cells[0] == mark] for mark in (VALUE, INTERVAL, AIM)}
    assert min(at[VALUE], key=lambda level: abs(level - 1.1)) == at[VALUE][0]
    assert min(at[INTERVAL]) < 1.1 < max(at[INTERVAL])
    assert abs(at[AIM][0] - 1.3) < 0.05
    assert [cells[1] for cells in heights.values()].count(AIM) == 1


@given(points=points, aim=st.floats(1, 100), height=st.integers(2, 12))
def test_any_numbers_give_lines_of_one_length_and_each_known_value_is_drawn(
    points: list[Point], aim: float, height: int
) -> None:
    lines = [line.partition("┤")[2] for line in band(points, aim, height)]
    assert {len(line) for line in lines} == {len(points)}
    for column, point in enumerate(points):
        drawn = [line[column] for line in lines]
        assert (VALUE in drawn) == (point is not None)
        assert set(drawn) <= {VALUE, INTERVAL, AIM, " "}
