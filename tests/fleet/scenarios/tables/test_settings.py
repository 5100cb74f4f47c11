"""The tables of a serving experiment: what is left out means the scenario's, what is wrong is one line."""

from typing import Any

import msgspec
import pytest

from headway.errors import ExperimentError, InputError
from headway.fleet.scenarios.tables.settings import ServingExperiment, check, parse_slo, warmup_share
from headway.formats import toml
from headway.units import MILLISECOND, SECOND
from tests.docs.pages import blocks, read


def experiment(**tables: dict[str, Any]) -> ServingExperiment:
    """One with these keys, of the scenario compass."""
    document: dict[str, Any] = {"serving": {"scenario": "compass"}}
    for name, table in tables.items():
        document[name] = document.get(name, {}) | table
    return toml.typed(document, ServingExperiment, "flags")


def test_an_experiment_with_a_scenario_alone_is_whole() -> None:
    whole = check(experiment())
    assert whole.serving.fidelity == "true"
    assert whole.workload.rate is None
    assert warmup_share(whole) == 0.1


def test_what_is_written_reads_back_equal() -> None:
    whole = experiment(workload={"rate": 2.5, "mix": {"translation": 2}}, failures={"every": "30s"}, run={"seed": 7})
    text = toml.write(msgspec.to_builtins(whole))
    assert toml.typed(toml.tomllib.loads(text), ServingExperiment, "again") == whole


@pytest.mark.parametrize(
    ("tables", "line"),
    [
        ({"serving": {"scenario": ""}}, "serving.scenario is missing: name a scenario (e.g. compass) or give its file"),
        (
            {"serving": {"fidelity": "author"}},
            "unknown fidelity 'author'; did you mean 'authors'? (valid: authors, true)",
        ),
        ({"serving": {"control": "both"}}, "unknown control 'both' (valid: central, decentralised)"),
        ({"serving": {"workers": 0}}, "workers 0 must lie in 1 to 10,000"),
        ({"serving": {"push_interval": "-1ms"}}, "push interval '-1ms' must not be negative"),
        ({"workload": {"rate": -2.0}}, "rate -2: must be above 0 and at most 1,000,000 requests a second"),
        ({"workload": {"rate": 0.0}}, "rate 0: must be above 0 and at most 1,000,000 requests a second"),
        ({"workload": {"requests": 0}}, "requests 0 must lie in 1 to 10,000,000"),
        ({"workload": {"mix": {}}}, "mix is empty: no graph has a weight above 0"),
        ({"workload": {"mix": {"a": 0}}}, "mix is empty: no graph has a weight above 0"),
        ({"workload": {"mix": {"a": -1}}}, "mix: the weight -1.0 of a must be a number, at least 0"),
        ({"workload": {"slo": "0s"}}, "slo '0s' must be above 0"),
        ({"workload": {"slo": "0L"}}, "slo '0L' must be above 0"),
        ({"workload": {"slo": "-5ms"}}, "slo '-5ms' must not be negative"),
        ({"workload": {"tenants": 0}}, "tenants 0 must lie in 1 to 100,000"),
        ({"failures": {"mtbf": "1h", "every": "30s"}}, "failures have both mtbf and every: give one"),
        ({"failures": {"every": 0}}, "failures every '0' must be above 0"),
        ({"failures": {"every": "30s", "repair": ""}}, "failures repair is empty: say how long a worker is down"),
        ({"measure": {"seeds": 0}}, "seeds 0 must lie in 1 to 1,000"),
        (
            {"measure": {"confidence": 2.0}},
            "confidence 2 must be 0 (no intervals), or lie in 0.5 to 0.999: 95 % is 0.95",
        ),
    ],
)
def test_a_value_that_breaks_a_rule_is_one_line(tables: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError) as wrong:
        check(experiment(**tables))
    assert str(wrong.value) == line


def test_an_unknown_key_gets_the_nearest_valid_one() -> None:
    with pytest.raises(ExperimentError, match=r"unknown key of \[workload\] 'arivals'; did you mean 'arrivals'\?"):
        experiment(workload={"arivals": "poisson"})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", None),
        ("none", None),
        ("500ms", (500 * MILLISECOND, 0.0)),
        ("2", (2 * SECOND, 0.0)),
        ("1.2L", (0, 1.2)),
        (" .8 L ", (0, 0.8)),
    ],
)
def test_a_deadline_is_a_duration_or_a_factor(text: str, found: tuple[int, float] | None) -> None:
    assert parse_slo(text) == found


@pytest.mark.parametrize(
    ("text", "share"), [("10%", 0.1), ("0%", 0.0), ("0", 0.0), ("", 0.0), (0, 0.0), ("2.5 %", 0.025)]
)
def test_the_warm_up_is_a_share(text: str | int, share: float) -> None:
    assert warmup_share(experiment(measure={"warmup": text})) == share


@pytest.mark.parametrize("text", ["100%", "5m", "-1%", "x"])
def test_a_warm_up_that_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(ExperimentError, match="write a share of the requests"):
        warmup_share(experiment(measure={"warmup": text}))


def test_the_experiment_on_the_page_has_every_key_and_no_other() -> None:
    page = read("docs/reference/scenarios.md")
    text = next(block.text for block in blocks(page, "toml") if "[serving]" in block.text)
    document = toml.tomllib.loads(text)
    whole = check(toml.typed(document, ServingExperiment, "page"))
    assert document.pop("scale") == whole.scale == "fleet"
    plain = msgspec.to_builtins(ServingExperiment())
    tables = {table: each for table, each in msgspec.to_builtins(whole).items() if table not in ("scale", "variants")}
    keys = {(table, key) for table, each in tables.items() for key in each} - {("workload", "load")}
    assert "\n# load = 0.6 " in text, "instead of rate: the two exclude each other"
    assert keys == {(table, key) for table, each in document.items() if table != "variants" for key in each}
    shown = {(t, k) for t, k in keys if plain[t][k] != document[t][k]}
    assert shown == {("serving", "scenario"), ("serving", "workers"), ("failures", "every")} | {
        ("workload", key) for key in ("arrivals", "rate", "requests", "mix", "tenants", "classes")
    }
