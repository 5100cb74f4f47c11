"""Requests of serving runs: rates and variations as asked, streams that do not disturb each other, traces stretched."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from headway.errors import InputError
from headway.fleet.model.request import NUMBERS, Request
from headway.fleet.scenarios.file import load
from headway.fleet.scenarios.tables.settings import ServingExperiment, ServingTable, WorkloadTable
from headway.fleet.traces.draw import chosen, draw
from headway.runs.settings.tables import RunTable
from headway.units import MILLISECOND, SECOND

COMPASS = load(ServingExperiment(serving=ServingTable(scenario="compass")))
ARRIVALS = (
    *("poisson", "gamma:0.5", "gamma:2", "onoff", "onoff:2s,1s", "uniform:40ms,67.2ms"),
    *("diurnal(peak=1.5,period=10m)", "diurnal:peak=4,period=3m"),
)


def of(seed: int = 1, scenario: str = "compass", setting: str = "", **workload: Any) -> ServingExperiment:
    return ServingExperiment(
        serving=ServingTable(scenario=scenario, setting=setting, profile="law" if scenario == "esg" else ""),
        workload=WorkloadTable(**workload),
        run=RunTable(seed=seed),
    )


def drawn(seed: int = 1, **workload: Any) -> tuple[Request, ...]:
    return draw(of(seed, **workload), COMPASS)


def gaps(requests: tuple[Request, ...]) -> "np.ndarray[Any, np.dtype[np.float64]]":
    return np.diff([0, *(request.arrival for request in requests)]).astype(np.float64)


@given(
    st.sampled_from(ARRIVALS),
    st.integers(0, 2**32),
    st.floats(0.01, 5.0),
    st.integers(1, 300),
    st.integers(1, 5),
)
@settings(max_examples=60, deadline=None)
def test_requests_come_in_order_to_workers_graphs_and_tenants_that_exist(
    arrivals: str, seed: int, rate: float, count: int, tenants: int
) -> None:
    requests = drawn(seed, arrivals=arrivals, rate=rate, requests=count, tenants=tenants, slo="2L")
    assert requests == drawn(seed, arrivals=arrivals, rate=rate, requests=count, tenants=tenants, slo="2L")
    assert [request.id for request in requests] == list(range(count))
    assert all(a.arrival <= b.arrival for a, b in pairwise(requests))
    assert requests[0].arrival >= 0
    assert {request.ingress for request in requests} <= set(range(5))
    assert {request.graph for request in requests} <= set(range(4))
    assert {request.tenant for request in requests} <= set(range(tenants))
    assert all(isinstance(getattr(request, name), int) for request in requests[:3] for name in NUMBERS)
    assert all(request.deadline > request.arrival for request in requests)


@pytest.mark.parametrize("arrivals", ARRIVALS)
@pytest.mark.parametrize("rate", [0.5, 4.0])
def test_the_mean_rate_is_as_asked(arrivals: str, rate: float) -> None:
    requests = drawn(3, arrivals=arrivals, rate=rate, requests=50_000)
    assert len(requests) * SECOND / requests[-1].arrival == pytest.approx(rate, rel=0.08)


@pytest.mark.parametrize(
    ("arrivals", "variation"), [("poisson", 1.0), ("gamma:0.3", 0.3), ("gamma:1", 1), ("gamma:3", 3)]
)
def test_the_variation_of_gaps_is_as_asked(arrivals: str, variation: float) -> None:
    between = gaps(drawn(5, arrivals=arrivals, requests=100_000))
    assert between.std() / between.mean() == pytest.approx(variation, rel=0.05)


def test_bursts_vary_more_than_poisson_and_have_their_lengths() -> None:
    between = gaps(drawn(5, arrivals="onoff:10s,30s", rate=5.0, requests=100_000))
    assert between.std() / between.mean() > 3
    pauses = between[between > 5 * SECOND]
    assert (pauses - 5 * SECOND).mean() == pytest.approx(30 * SECOND, rel=0.1), "exponential: what is left is as long"
    inside = between[between < SECOND]
    assert inside.mean() == pytest.approx(SECOND / 20, rel=0.05), "four times the rate, a quarter of the time"


def test_uniform_gaps_lie_between_their_bounds() -> None:
    between = gaps(drawn(1, arrivals="uniform:220ms,360ms", requests=20_000))
    assert between.min() >= 220 * MILLISECOND - 1
    assert between.max() <= 360 * MILLISECOND + 1
    assert between.mean() == pytest.approx(290 * MILLISECOND, rel=0.01)


@pytest.mark.parametrize("arrivals", ARRIVALS)
def test_more_requests_begin_with_the_same_ones(arrivals: str) -> None:
    assert drawn(arrivals=arrivals, rate=2.0, requests=500)[:200] == drawn(arrivals=arrivals, rate=2.0, requests=200)


def column(requests: tuple[Request, ...], name: str) -> list[int]:
    return [getattr(request, name) for request in requests]


def test_changing_one_thing_leaves_the_others_as_they_were() -> None:
    plain = drawn()
    faster = drawn(rate=4.0)
    assert [2 * time for time in column(faster, "arrival")] == pytest.approx(column(plain, "arrival"), abs=2)
    for name in ("graph", "ingress"):
        assert column(faster, name) == column(plain, name)
        assert column(drawn(arrivals="gamma:2"), name) == column(plain, name)
    mixed = drawn(mix={"perception-3d": 1})
    assert set(column(mixed, "graph")) == {3}
    assert column(mixed, "arrival") == column(plain, "arrival")
    assert column(mixed, "ingress") == column(plain, "ingress")
    shared = drawn(tenants=3)
    assert [request._replace(tenant=0) for request in shared] == list(plain)
    assert set(column(shared, "tenant")) == {0, 1, 2}
    assert column(drawn(2), "arrival") != column(plain, "arrival")


def test_times_and_workers_are_drawn_independently() -> None:
    requests = drawn(requests=40_000)
    between, ingress, graph = gaps(requests), column(requests, "ingress"), column(requests, "graph")
    assert abs(np.corrcoef(between, ingress)[0, 1]) < 0.02
    assert abs(np.corrcoef(graph, ingress)[0, 1]) < 0.02
    shares = np.bincount(graph, minlength=4) / len(requests)
    assert shares == pytest.approx([0.25] * 4, abs=0.01)


def test_a_mix_weighs_graphs() -> None:
    graph = column(drawn(requests=40_000, mix={"translation": 3, "perception-3d": 1}), "graph")
    assert np.bincount(graph) / len(graph) == pytest.approx([0.75, 0, 0, 0.25], abs=0.01)


@pytest.mark.parametrize(
    ("setting", "factor", "low", "high"),
    [("strict-light", 0.8, 40, 67.2), ("moderate-normal", 1.0, 20, 33.6), ("relaxed-heavy", 1.2, 10, 16.8)],
)
def test_the_settings_of_esg_have_its_arrivals_and_deadlines(
    setting: str, factor: float, low: float, high: float
) -> None:
    experiment = of(scenario="esg", setting=setting, requests=2000)
    requests = draw(experiment, load(experiment))
    between = gaps(requests) / MILLISECOND
    assert low - 0.001 <= between.min()
    assert between.max() <= high + 0.001
    times = (526, 1233, 1452, 1892)
    assert all(
        request.deadline - request.arrival == round(factor * times[request.graph] * MILLISECOND) for request in requests
    )


def test_other_arrivals_keep_the_pace_of_a_setting() -> None:
    experiment = of(scenario="esg", setting="relaxed-heavy", arrivals="gamma:2")
    assert chosen(experiment, load(experiment)).rate == pytest.approx(1000 / 13.4)


# --- traces -----------------------------------------------------------------------------------------------------


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "requests.jsonl"
    times = [0, 1000, 1500, 4000, 10000]
    path.write_text(
        "".join(
            json.dumps({"timestamp": t, "input_length": 5, "output_length": 5, "hash_ids": [1]}) + "\n" for t in times
        )
    )
    return path


def test_a_trace_comes_at_its_own_pace_or_at_a_rate(trace: Path) -> None:
    assert [time / SECOND for time in column(drawn(arrivals=str(trace)), "arrival")] == [0, 1, 1.5, 4, 10]
    stretched = column(drawn(arrivals=str(trace), rate=4.0), "arrival")
    assert [time / SECOND for time in stretched] == pytest.approx([0, 0.1, 0.15, 0.4, 1])
    assert len(drawn(arrivals=str(trace), requests=3)) == 3
    assert len(drawn(arrivals=str(trace), requests=1, rate=1.0)) == 1


def test_an_azure_trace_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:00:00.0000000,10,5\n2023-11-16 18:00:00.5000000,10,5\n2023-11-16 18:00:02.0000000,9,5\n"
    )
    assert column(drawn(arrivals=str(path)), "arrival") == [0, SECOND // 2, 2 * SECOND]


def test_the_graphs_of_a_trace_are_drawn_as_for_any_arrivals(trace: Path) -> None:
    assert column(drawn(arrivals=str(trace)), "graph") == column(drawn(requests=5), "graph")


@pytest.mark.parametrize(
    ("workload", "line"),
    [
        (
            {"arrivals": "poissn"},
            (
                "arrivals 'poissn': neither poisson, gamma:CV, onoff, onoff:ON,OFF, uniform:A,B, "
                "diurnal(peak=P,period=T), rates:FILE.csv nor a"
            ),
        ),
        ({"arrivals": "poisson:3"}, "poisson takes no options"),
        ({"arrivals": "gamma"}, "arrivals 'gamma:': write a coefficient of variation above 0"),
        ({"arrivals": "gamma:0"}, "arrivals 'gamma:0': write a coefficient of variation above 0"),
        ({"arrivals": "gamma:nan"}, "arrivals 'gamma:nan': write a coefficient of variation above 0"),
        ({"arrivals": "onoff:5s"}, "arrivals 'onoff:5s' is not understood: write two times, like onoff:10s,30s"),
        ({"arrivals": "onoff:0s,5s"}, "must be above 0"),
        ({"arrivals": "onoff:1ns,1ns"}, "over 1,000,000 bursts; make them longer"),
        ({"arrivals": "uniform:9ms,3ms"}, "the first bound must not be above the second"),
        ({"arrivals": "uniform"}, "is not understood: write two times, like uniform:40ms,67.2ms"),
        ({"arrivals": "uniform:0,0"}, "arrivals 'uniform:0,0'"),
        ({"rate": -1.0}, "rate -1: must be above 0"),
        ({"rate": 70.0}, "rate 70 is more than the fleet can carry: 5 workers, at most 5.02 requests a second"),
        ({"arrivals": "uniform:1ms,2ms"}, "rate 666.667 is more than the fleet can carry: 5 workers"),
        ({"rate": 1e-9, "requests": 100_000}, "span over 100 years"),
        ({"requests": 0}, "requests 0 must lie in"),
        ({"slo": "100ms"}, "is below the critical path"),
        ({"mix": {"none": 1.0}}, "mix: unknown graph 'none'"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(workload: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError) as wrong:
        drawn(**workload)
    assert line in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_more_requests_than_a_trace_holds_are_refused(trace: Path) -> None:
    with pytest.raises(InputError, match="holds 5 requests, 6 were asked for"):
        drawn(arrivals=str(trace), requests=6)


def test_a_trace_whose_requests_come_at_once_has_no_rate(tmp_path: Path) -> None:
    path = tmp_path / "once.jsonl"
    path.write_text('{"timestamp": 7, "input_length": 5, "output_length": 5}\n' * 3)
    with pytest.raises(InputError, match="come at once"):
        drawn(arrivals=str(path), rate=1.0)


def test_overload_may_be_meant() -> None:
    assert len(drawn(rate=40.0, overload=True)) == 1000
