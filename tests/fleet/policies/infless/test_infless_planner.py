"""INFless's choice of instances: the worked example with its numbers."""

import pytest

from headway.fleet.model.catalogue import Configuration
from headway.fleet.policies.infless.planner import CODE, PAPER, Cell, Rates, Slot, choose, fastest, rates_of, score
from headway.units import MILLISECOND
from tests.fleet.policies.infless.example import CATALOGUE, NODE, SLOS, cells, plan
from tests.fleet.policies.worked_example import A, B, C

MS = MILLISECOND


def anywhere(worker: int, configuration: Configuration) -> bool:
    return True


def test_rates_follow_from_the_batch_its_time_and_the_slo() -> None:
    assert rates_of(Cell(Configuration(4, 1, 1), 50 * MS), 200 * MS) == Rates(26.0, 80.0, 150 * MS)
    exact = rates_of(Cell(Configuration(4, 1, 1), 50 * MS), 200 * MS, whole=False)
    assert exact is not None
    assert (round(exact.low, 1), exact.up) == (26.7, 80.0)


def test_a_batch_needs_half_the_slo_and_a_single_request_all_of_it() -> None:
    assert rates_of(Cell(Configuration(2, 1, 1), 100 * MS), 200 * MS) is not None
    assert rates_of(Cell(Configuration(2, 1, 1), 100 * MS + 1), 200 * MS) is None
    assert rates_of(Cell(Configuration(1, 1, 1), 200 * MS), 200 * MS) == Rates(1.0, 5.0, 0)
    assert rates_of(Cell(Configuration(1, 1, 1), 200 * MS + 1), 200 * MS) is None


def test_what_serves_less_than_one_request_a_second_is_left_out_when_rates_are_whole() -> None:
    slow = Cell(Configuration(1, 1, 1), 1_100 * MS)
    assert rates_of(slow, 2_000 * MS) is None
    exact = rates_of(slow, 2_000 * MS, whole=False)
    assert exact is not None
    assert exact.low == exact.up == pytest.approx(1 / 1.1)


@pytest.mark.parametrize(
    ("table", "slo", "metric", "expected"),
    [
        (A, SLOS[0], CODE, [((2, 1, 2), Rates(19, 22, 104 * MS))]),
        (A, SLOS[0], PAPER, [((2, 1, 2), Rates(19, 22, 104 * MS))]),
        (B, SLOS[1], CODE, [((2, 2, 4), Rates(11, 20, 173 * MS))]),
        (B, SLOS[1], PAPER, [((2, 2, 4), Rates(11, 20, 173 * MS))]),
        (C, SLOS[2], CODE, [((1, 1, 2), Rates(1, 25, 0))]),
        (C, SLOS[2], PAPER, [((1, 1, 1), Rates(1, 16, 0))] * 2),
    ],
)
def test_the_worked_example_at_twenty_requests_a_second(
    table: dict[tuple[int, int, int], int], slo: int, metric: str, expected: list[tuple[tuple[int, int, int], Rates]]
) -> None:
    assert [(planned.cell.configuration, planned.rates) for planned in plan(table, slo, 20.0, metric)] == expected


@pytest.mark.parametrize(("metric", "expected"), [(CODE, (1, 1, 2)), (PAPER, (1, 1, 1))])
def test_at_half_the_rate_no_batch_fills_in_time(metric: str, expected: tuple[int, int, int]) -> None:
    assert [planned.cell.configuration for planned in plan(A, SLOS[0], 10.0, metric)] == [expected]


@pytest.mark.parametrize(
    ("sizes", "up", "code", "paper"),
    [
        ((1, 1, 2), 25, 34.28, 0.00832),
        ((1, 1, 1), 16, 18.55, 0.00887),
        ((1, 1, 2), 16, 21.94, 0.00532),
        ((1, 1, 1), 10, 11.59, 0.00554),
    ],
)
def test_scores_of_the_worked_example(sizes: tuple[int, int, int], up: int, code: float, paper: float) -> None:
    slot, configuration = Slot(0, *NODE, *NODE, ()), Configuration(*sizes)
    assert score(slot, configuration, up, CODE) == pytest.approx(code, abs=0.005)
    assert score(slot, configuration, up, PAPER) == pytest.approx(paper, abs=0.00001)


def test_what_does_not_fit_is_not_chosen_and_no_candidate_is_none() -> None:
    full = Slot(0, *NODE, 16, 0, cells(A))
    free = Slot(1, *NODE, 16, 7, cells(A))
    planned = choose([full, free], anywhere, SLOS[0], 20.0)
    assert planned is not None
    assert planned.worker == 1
    assert choose([full], anywhere, SLOS[0], 20.0) is None
    assert choose([free], lambda worker, configuration: False, SLOS[0], 20.0) is None


def test_the_fuller_worker_is_preferred() -> None:
    empty, fuller = Slot(0, *NODE, 16, 7, cells(A)), Slot(1, *NODE, 10, 4, cells(A))
    planned = choose([empty, fuller], anywhere, SLOS[0], 20.0)
    assert planned is not None
    assert planned.worker == 1


def test_where_nothing_keeps_the_slo_the_fastest_of_batch_one_is_taken() -> None:
    planned = fastest([Slot(0, *NODE, *NODE, cells(A))], anywhere)
    assert planned is not None
    assert planned.cell == Cell(Configuration(1, 1, 2), 60 * MS)
    assert planned.rates.timeout == 0


def test_the_budgets_of_the_worked_example() -> None:
    assert [round(slo / MS, 1) for slo in SLOS] == [194.0, 273.1, 132.9]
    assert len(CATALOGUE.functions) == 3
