"""Plans with deadlines of tokens: set by --slo or by the graphs, and what is said of them."""

import json
from pathlib import Path
from typing import Any

import pytest

import headway as hw
from headway.errors import ExperimentError, InputError
from headway.fleet.ask.planning import enough
from headway.fleet.scenarios.classes import slo_texts
from headway.fleet.scenarios.file import load
from headway.fleet.scenarios.tables.settings import ServingExperiment, split_slo
from headway.formats import toml
from headway.units import MILLISECOND
from tests.fleet.ask.test_planning import ran

CHAT: tuple[str, ...] = ("chat", "--rate", "8", "--start", "warm", "--requests", "100", "--policy", "jit")


def of(slo: str, scenario: str = "chat") -> ServingExperiment:
    workload: dict[str, Any] = {"rate": 8.0, "requests": 100, "slo": slo}
    return toml.typed({"serving": {"scenario": scenario}, "workload": workload}, ServingExperiment, "test")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ("", 0, 0)),
        ("3L", ("3L", 0, 0)),
        ("none", ("none", 0, 0)),
        ("ttft=500ms", ("", 500 * MILLISECOND, 0)),
        ("20s, ttft = 500ms,tpot=50ms", ("20s", 500 * MILLISECOND, 50 * MILLISECOND)),
    ],
)
def test_a_text_has_deadlines_of_answers_and_of_tokens(text: str, parts: tuple[str, int, int]) -> None:
    assert split_slo(text) == parts


@pytest.mark.parametrize("text", ["1s,2s", "ttft=1s,ttft=2s", "bla=3s", "ttft=", "ttft=0s", ",", "1s,"])
def test_a_text_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="slo"):
        split_slo(text)


def test_deadlines_that_an_experiment_does_not_name_stay_as_the_scenario_has_them() -> None:
    (graph,) = load(of("ttft=200ms")).catalogue.graphs
    assert (graph.ttft, graph.tpot) == (200 * MILLISECOND, 50 * MILLISECOND)
    assert slo_texts(of("ttft=200ms"), load(of("ttft=200ms"))) == [{"conversation": ""}]
    assert slo_texts(of("9s,ttft=200ms"), load(of("9s"))) == [{"conversation": "9s"}]


def test_deadlines_of_tokens_need_a_function_that_generates() -> None:
    with pytest.raises(ExperimentError, match="no function of the scenario generates"):
        load(of("ttft=200ms", "compass"))


def test_a_scenario_sets_deadlines_of_tokens_by_graph(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('base = "chat"\n[workload]\nslo = "ttft=1s"\n')
    with pytest.raises(ExperimentError, match="slo"):
        load(of("", str(tmp_path / "mine.toml")))


def test_a_plan_keeps_the_deadlines_of_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ran(capsys, *CHAT, "--slo", "ttft=2s,tpot=50ms", "--json")
    assert code == 0, err
    (row,) = json.loads(out)
    assert row["workers"] >= 1
    assert row["slo_hit_rate"] >= 0.99
    answer = hw.simulate(hw.Fleet("chat", rate=8, start="warm", slo="ttft=2s,tpot=50ms"), "jit")
    assert answer.row["deadlines_hit_rate"] > 0.99


def test_a_plan_by_the_deadlines_of_the_scenario_says_what_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ran(capsys, *CHAT, "--prompt-tokens", "300", "--output-tokens", "20")
    assert code == 0, err
    line = "enough: 99 % of the requests have their first token within 500ms and have each further token, in the mean, "
    assert f"{line}within 50ms (100 requests a trial at 8 a second)" in " ".join(out.split())
    told = enough(of("9s,ttft=200ms"), 0.9)
    assert told.startswith(
        "enough: 90 % of the requests are answered within 9s and have their first token within 200ms"
    )


def test_a_deadline_of_tokens_that_no_fleet_keeps_ends_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = ran(capsys, *CHAT, "--slo", "ttft=1ms")
    assert code == 2
    assert "0.0 % in time" in err
