"""Classes of requests: shares that are drawn, graphs, deadlines, priorities and tenants of each, and mistakes."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from headway.errors import InputError
from headway.fleet.model.request import Groups, Request
from headway.fleet.scenarios.file import load
from headway.fleet.scenarios.limits import deadlines, mix_of
from headway.fleet.scenarios.tables.settings import ServingExperiment
from headway.fleet.traces import stored as request_table
from headway.fleet.traces.draw import chosen, draw, draw_named
from headway.formats import toml
from headway.units import MILLISECOND, SECOND

SCENARIO: dict[str, Any] = {
    "functions": {"f": {"ms": 10}, "g": {"ms": 30}},
    "graphs": {"short": {"chain": ["f"]}, "long": {"chain": ["f", "g"], "slo": "3L"}},
    "fleet": {"workers": [{"count": 4, "memory": "1GB"}]},
    "workload": {"rate": 50, "requests": 1000},
}
TWO: dict[str, Any] = {
    "gold": {"share": 0.25, "slo": "200ms", "priority": 2, "tenant": "search", "mix": {"long": 1}},
    "bulk": {"share": 0.75, "slo": "none"},
}


def experiment(path: Path, asked: dict[str, Any] | None = None, **scenario: Any) -> ServingExperiment:
    document = {**SCENARIO, **scenario, "workload": {**SCENARIO["workload"], **scenario.get("workload", {})}}
    file = path / "scenario.toml"
    file.write_text(toml.write(document))
    return toml.typed({"serving": {"scenario": str(file)}, "workload": asked or {}}, ServingExperiment, "test")


def drawn(path: Path, asked: dict[str, Any] | None = None, **scenario: Any) -> tuple[tuple[Request, ...], Groups]:
    whole = experiment(path, asked, **scenario)
    return draw_named(whole, load(whole))


def refused(path: Path, asked: dict[str, Any] | None = None, **scenario: Any) -> str:
    with pytest.raises(InputError) as wrong:
        drawn(path, asked, **scenario)
    assert "\n" not in str(wrong.value)
    return str(wrong.value)


@pytest.mark.parametrize("place", ["scenario", "experiment"])
def test_each_class_has_its_own_deadline_priority_tenant_and_graphs(tmp_path: Path, place: str) -> None:
    classes = {"classes": TWO}
    given = drawn(tmp_path, classes) if place == "experiment" else drawn(tmp_path, workload=classes)
    requests, groups = given
    assert groups == Groups(("gold", "bulk"), ("0", "search"))
    gold, bulk = ([request for request in requests if request.class_id == index] for index in (0, 1))
    assert len(gold) == pytest.approx(250, abs=60)
    assert {(r.graph, r.priority, r.tenant, r.deadline - r.arrival) for r in gold} == {(1, 2, 1, 200 * MILLISECOND)}
    assert {(r.priority, r.tenant, r.deadline) for r in bulk} == {(0, 0, 0)}
    assert {r.graph for r in bulk} == {0, 1}


def test_without_classes_requests_are_as_they_were(tmp_path: Path) -> None:
    requests, groups = drawn(tmp_path)
    assert groups == Groups()
    assert {(request.class_id, request.priority) for request in requests} == {(0, 0)}
    with_classes, _ = drawn(tmp_path, {"classes": TWO})
    assert [r.arrival for r in requests] == [r.arrival for r in with_classes], "classes have a stream of their own"


def test_what_the_experiment_says_comes_first_and_in_it_the_class(tmp_path: Path) -> None:
    """Deadlines in nanoseconds by class and graph."""
    own = {"classes": {"a": {"share": 0.5, "slo": "900ms"}, "b": {"share": 0.5}}}

    def limits(asked: dict[str, Any] | None, **scenario: Any) -> Any:
        whole = experiment(tmp_path, asked, **scenario)
        return deadlines(whole, load(whole))

    graph = 3 * 40 * MILLISECOND
    assert limits(own) == ((900 * MILLISECOND,) * 2, (0, graph))
    assert limits({**own, "slo": "700ms"}) == ((900 * MILLISECOND,) * 2, (700 * MILLISECOND,) * 2)
    assert limits(None, workload=own) == ((900 * MILLISECOND,) * 2, (0, graph))
    assert limits({"slo": "700ms"}, workload=own) == ((700 * MILLISECOND,) * 2,) * 2
    assert limits({"slo": "700ms"}) == ((700 * MILLISECOND,) * 2,)
    factor = {"classes": {"a": {"share": 1.0, "slo": "2L"}}}
    assert limits(factor) == ((20 * MILLISECOND, 80 * MILLISECOND),)


def test_rates_of_classes_sum_to_the_rate_and_a_rate_of_the_experiment_keeps_their_proportion(tmp_path: Path) -> None:
    rates = {"classes": {"a": {"rate": 30}, "b": {"rate": 10, "mix": {"long": 1}}}}
    for asked, rate in (({}, 40.0), ({"rate": 8.0}, 8.0)):
        one = experiment(tmp_path, asked, workload=rates)
        built = load(one)
        assert chosen(one, built).rate == rate
        assert mix_of(one, built) == pytest.approx((0.375, 0.625))
        share = sum(request.class_id == 1 for request in draw(one, built)) / 1000
        assert share == pytest.approx(0.25, abs=0.06)
    assert "workload.rate: the classes have rates of their own" in refused(tmp_path, {**rates, "rate": 5.0})


@given(weights=st.lists(st.integers(1, 50), min_size=1, max_size=6), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_the_share_of_each_class_that_is_drawn_is_the_share_that_was_asked_for(
    tmp_path_factory: pytest.TempPathFactory, weights: list[int], seed: int
) -> None:
    """Within five standard deviations of a binomial."""
    count, shares = 4000, [weight / sum(weights) for weight in weights]
    classes = {f"c{index}": {"share": share} for index, share in enumerate(shares)}
    asked = experiment(tmp_path_factory.mktemp("s"), {"classes": classes, "requests": count})
    asked.run.seed = seed
    requests = draw(asked, load(asked))
    for index, share in enumerate(shares):
        found = sum(request.class_id == index for request in requests)
        assert abs(found - share * count) <= 5 * (count * share * (1 - share)) ** 0.5 + 1e-9


def test_a_class_that_is_never_drawn_is_told(tmp_path: Path) -> None:
    asked = experiment(tmp_path, {"classes": {"a": {"share": 0.9999}, "rare": {"share": 0.0001}}, "requests": 10})
    notes: list[str] = []
    draw(asked, load(asked), notes)
    assert notes == ["class rare: none of the 10 requests is of it (share 0.0001); ask for more"]


@pytest.mark.parametrize(
    ("classes", "line"),
    [
        ({"a": {"share": 0.0}, "b": {"share": 1.0}}, "class a: share 0 must be above 0 and at most 1, so that it has"),
        ({"a": {"share": 0.3}, "b": {"share": 0.6}}, "classes: the shares sum to 0.9 (a 0.3, b 0.6): they must sum to"),
        ({"a": {"share": 0.3}, "b": {"rate": 2}}, "classes: a has a share and b a rate: give all the same of both"),
        ({"a": {"slo": "1s"}}, "class a: needs a share of the requests or a rate, one of them"),
        ({"a": {"share": 1.0, "rate": 3}}, "class a: needs a share of the requests or a rate, one of them"),
        ({"a": {"share": 1.0, "mix": {"lnog": 1}}}, "class a, mix: unknown graph 'lnog'"),
        ({"a": {"share": 1.0, "mix": {"long": -1}}}, "class a, mix: the weight -1.0 of long must be"),
        ({"a": {"share": 1.0, "mix": {"long": 0}}}, "class a, mix: no graph has a weight above 0"),
        ({"a": {"share": 1.0, "mix": {}}}, "class a, mix: no graph has a weight above 0"),
        ({"a": {"share": 1.0, "slo": "soon"}}, "class a: slo"),
        ({"a": {"share": 1.0, "slo": "1ms"}}, "class a: slo 1ms is below the critical path: graph"),
        ({"a": {"share": 1.0, "priority": 101}}, "class a: priority 101 must lie in 0 to 100"),
        ({"a": {"share": 1.0, "priority": "high"}}, "class a: priority is 'high'"),
        ({"a": {"shar": 1.0}}, "class a: unknown"),
        ({"a": {"share": float("inf")}}, "class a: share"),
        ({" ": {"share": 1.0}}, "class ' ': give it a name"),
        ({f"c{i}": {"rate": 1} for i in range(101)}, "classes: 101 are too many; at most 100"),
    ],
)
@pytest.mark.parametrize("place", ["scenario", "experiment"])
def test_a_mistake_in_a_class_is_one_line(tmp_path: Path, place: str, classes: dict[str, Any], line: str) -> None:
    workload = {"classes": classes}
    said = refused(tmp_path, workload) if place == "experiment" else refused(tmp_path, workload=workload)
    assert line in said


def test_a_class_that_is_there_twice_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "twice.toml"
    path.write_text("[workload.classes.gold]\nshare = 0.5\n[workload.classes.gold]\nshare = 0.5\n")
    with pytest.raises(InputError, match=r"twice.toml: cannot be read .*gold.*twice") as wrong:
        toml.read(path)
    assert "\n" not in str(wrong.value)


def test_requests_are_stored_with_their_groups_and_those_of_an_earlier_version_have_none(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    requests, groups = drawn(tmp_path, {"classes": TWO, "requests": 20})
    request_table.write(requests, tmp_path / "new.parquet", groups)
    assert request_table.read(tmp_path / "new.parquet") == requests
    assert request_table.read_groups(tmp_path / "new.parquet") == groups
    table = pq.read_table(tmp_path / "new.parquet").drop_columns(["class_id", "priority"]).replace_schema_metadata({})
    pq.write_table(table, tmp_path / "old.parquet")
    plain = tuple(request._replace(class_id=0, priority=0) for request in requests)
    assert request_table.read(tmp_path / "old.parquet") == plain
    assert request_table.read_groups(tmp_path / "old.parquet") == Groups()


def test_a_load_is_of_the_mix_of_all_classes(tmp_path: Path) -> None:
    """Four workers of 10 ms and 40 ms: all long requests, 100 a second; a load of a half is 50."""
    one = experiment(tmp_path, {"load": 0.5, "classes": {"a": {"share": 1.0, "mix": {"long": 1}}}})
    assert chosen(one, load(one)).rate == pytest.approx(0.5 * 4 * SECOND / (40 * MILLISECOND))


# --- traces that have them ----------------------------------------------------------------------------------------

ROWS = "arrival_s,model,tenant,class\n0,long,b,gold\n0.5,short,a,bulk\n0.25,short,b,bulk\n"


def test_a_trace_keeps_its_models_tenants_and_classes(tmp_path: Path) -> None:
    """Sorted by arrival with their rows; deadlines and priorities are those of the classes."""
    (tmp_path / "trace.csv").write_text(ROWS)
    workload = {"arrivals": str(tmp_path / "trace.csv"), "classes": TWO}
    requests, groups = drawn(tmp_path, workload)
    assert groups == Groups(("gold", "bulk"), ("b", "a"))
    kept = [(r.arrival, r.graph, r.tenant, r.class_id, r.priority) for r in requests]
    quarter = SECOND // 4
    assert kept == [(0, 1, 0, 0, 2), (quarter, 0, 0, 1, 0), (2 * quarter, 0, 1, 1, 0)]
    assert [r.deadline for r in requests] == [200 * MILLISECOND, 0, 0]
    plain, groups = drawn(tmp_path, {"arrivals": str(tmp_path / "trace.csv")})
    assert groups.classes == ("gold", "bulk"), "classes of a trace are told apart without tables of their own"
    assert [r.class_id for r in plain] == [0, 1, 1]
    assert [r.deadline - r.arrival for r in plain] == [120 * MILLISECOND, -quarter, -2 * quarter]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (ROWS.replace("long", "lnog"), "model 'lnog' is no graph of the scenario"),
        (ROWS.replace("gold", "golden"), "class 'golden' is no class of the workload"),
        ("arrival_s,graph,model\n0,short,short\n", "has both graph and model: leave one out"),
        ("arrival_s,graph\nsoon,short\n", "arrival_s"),
        ("arrival_s,graph\n0,\n", "graph"),
    ],
)
def test_a_mistake_in_such_a_trace_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "trace.csv").write_text(text)
    said = refused(tmp_path, {"arrivals": str(tmp_path / "trace.csv"), "classes": TWO})
    assert "trace.csv" in said
    assert line in said
