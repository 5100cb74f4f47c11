"""The search as policies ask it: rounded times, remembered results, queues of any length."""

import pytest

from headway.fleet.model.catalogue import Configuration
from headway.fleet.model.fleet import Prices
from headway.fleet.policies.central.fronts import (
    NEVER,
    Option,
    cost_of,
    front_of,
    parallel,
    series,
    single_point,
    skyband,
)
from headway.fleet.policies.esg.esg_1q import Search
from headway.units import MILLISECOND, SECOND

FAST, SLOW = Configuration(1, 1, 2), Configuration(1, 1, 1)
FULL = Configuration(4, 1, 1)
STAGE = (
    Option(10 * MILLISECOND, 90, FAST),
    Option(20 * MILLISECOND, 50, SLOW),
    Option(60 * MILLISECOND, 20, FULL),
)


def test_a_queue_bounds_the_first_batch_only() -> None:
    search = Search([STAGE, STAGE], 1)
    (path,) = search.paths(SECOND, 1)
    assert [option.configuration for option in path.options] == [SLOW, FULL]
    (path,) = search.paths(SECOND, 5)
    assert [option.configuration for option in path.options] == [FULL, FULL]


def test_together_bounds_them_all() -> None:
    (path,) = Search([STAGE, STAGE], 1, together=True).paths(SECOND, 3)
    assert [option.configuration for option in path.options] == [SLOW, SLOW]


def test_where_nothing_is_in_time_the_fastest_path_is_all_there_is() -> None:
    (path,) = Search([STAGE, STAGE], 5).paths(19 * MILLISECOND, 9)
    assert path.time == 20 * MILLISECOND
    (path,) = Search([STAGE, STAGE], 5).rounded_paths(-SECOND, 9)
    assert path.time == 20 * MILLISECOND


def test_times_are_rounded_down_and_remembered() -> None:
    search = Search([STAGE, STAGE], 3, bucket=10 * MILLISECOND)
    assert search.rounded_paths(39 * MILLISECOND, 1) == search.paths(30 * MILLISECOND, 1)
    assert search.rounded_paths(31 * MILLISECOND, 1) is search.rounded_paths(39 * MILLISECOND, 1)
    assert search.rounded_paths(NEVER, 8) is search.rounded_paths(SECOND, 4)


def test_a_request_pays_its_part_of_a_batch() -> None:
    prices = Prices(cpu_hour=1.0, slice_hour=10.0)
    assert cost_of(Configuration(4, 2, 1), 3600 * SECOND, prices) == 3 * 10**15
    assert cost_of(Configuration(1, 2, 1), 1800 * SECOND, prices) == 6 * 10**15


@pytest.mark.parametrize(("ranks", "kept"), [(1, 1), (2, 2), (3, 3)])
def test_of_equal_options_as_many_stay_as_could_be_asked_for(ranks: int, kept: int) -> None:
    same = [Option(5, 5, Configuration(1, cpus, 1)) for cpus in range(1, 4)]
    assert len(skyband(same, ranks)) == kept
    assert skyband(same, ranks)[0].configuration.cpus == 1


def test_fronts_add_up_as_graphs_do() -> None:
    front = front_of(STAGE, "a")
    beside = parallel(front, front_of(STAGE[1:], "b"))
    assert beside.times.tolist() == [20 * MILLISECOND, 60 * MILLISECOND]
    assert beside.costs.tolist() == [100, 40]
    after = series(single_point(5 * MILLISECOND), beside)
    assert after.fastest == 25 * MILLISECOND
    assert after.picks(0) == {"a": STAGE[1], "b": STAGE[1]}
    assert after.within(64 * MILLISECOND) == 0
    assert after.within(24 * MILLISECOND) == -1
    assert series(front, front, horizon=30 * MILLISECOND).times.tolist() == [20 * MILLISECOND, 30 * MILLISECOND]
