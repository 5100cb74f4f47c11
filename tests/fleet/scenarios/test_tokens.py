"""Loads and limits of a fleet that generates, with the tokens that its requests have."""

from pathlib import Path
from typing import Any

import pytest

from headway.fleet.experiment.scene import prepare
from headway.fleet.scenarios.file import load
from headway.fleet.scenarios.limits import capacity_per_second, check_rate
from headway.fleet.scenarios.tables.settings import ServingExperiment, ServingTable, WorkloadTable
from headway.fleet.scenarios.tables.tokens import Drawn
from headway.fleet.scenarios.tokens import with_run_tokens
from headway.fleet.traces.draw import chosen, draw
from headway.units import SECOND
from tests.jobs.traces.files import SAMPLES

CHAT = load(ServingExperiment(serving=ServingTable(scenario="chat")))


def of(**workload: Any) -> ServingExperiment:
    return ServingExperiment(serving=ServingTable(scenario="chat"), workload=WorkloadTable(**workload))


def rate(**workload: Any) -> float:
    found = chosen(of(load=0.6, **workload), CHAT).rate
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("given", "mean"),
    [
        (Drawn("", 512), 512),
        (Drawn("uniform", 100, 900), 500),
        (Drawn("exponential", 200), 200),
        (Drawn("lognormal", 660, 1.05), 1145),
        (Drawn("lognormal", 660, 10), 10_000_000),
    ],
)
def test_the_mean_of_tokens_is_that_of_what_is_drawn(given: Drawn, mean: int) -> None:
    assert given.mean() == mean


def test_a_load_is_of_what_the_fleet_serves_with_the_tokens_that_are_asked_for() -> None:
    usual, long, short = rate(), rate(prompt_tokens=4000, output_tokens=1000), rate(prompt_tokens=100, output_tokens=10)
    assert long < usual / 4
    assert short > usual * 10
    assert rate(prompt_tokens=4000) < usual


def test_tokens_that_vary_serve_fewer_requests_at_a_rate_that_is_the_same_for_every_seed() -> None:
    fixed = rate(prompt_tokens=500, output_tokens=200)
    assert rate(prompt_tokens="uniform:500,500", output_tokens="lognormal:200,0") == fixed
    spread = rate(prompt_tokens="lognormal:303.27,1", output_tokens="exponential:200")
    assert fixed / 2 < spread < fixed * 0.9, "an iteration waits for its longest context"
    ran = prepare(of(load=0.6, requests=50))
    assert chosen(ran.experiment, ran.built, ran.requests).rate == rate()


@pytest.mark.parametrize("given", [Drawn("uniform", 100, 900), Drawn("exponential", 500), Drawn("lognormal", 400, 0.5)])
def test_quantiles_have_the_mean_of_what_is_drawn(given: Drawn) -> None:
    assert sum(given.spread(400)) / 400 == pytest.approx(given.mean(), rel=0.02)


def test_a_request_holds_a_place_so_that_no_more_share_an_engine_than_there_are_places() -> None:
    """128 slices: 128 rows at 100 + 2,000 tokens, where max_batch allows 256 and the cache 431."""
    experiment = of(prompt_tokens=100, output_tokens=2000)
    built = with_run_tokens(experiment, CHAT)
    kind = built.catalogue.functions[0].generate
    assert kind is not None
    assert kind.saturated(128) > kind.saturated(256)
    assert capacity_per_second(built, [1.0]) == pytest.approx(4 * SECOND / kind.saturated(128))


def test_policies_still_expect_what_the_function_says() -> None:
    scene = prepare(of(load=0.6, requests=20, prompt_tokens=4000))
    kind = scene.built.catalogue.functions[0].generate
    assert kind is not None
    assert kind.expected_prompt == 1155


def test_the_tokens_of_a_trace_count_and_its_rate_is_known_without_it(tmp_path: Path) -> None:
    """Three requests of 1,000 prompt tokens and 107 of output in the mean; the long prompts have the long outputs."""
    trace = tmp_path / "mooncake.jsonl"
    trace.write_bytes((SAMPLES / "mooncake.jsonl").read_bytes())
    experiment = of(load=0.6, arrivals=str(trace))
    wanted = chosen(experiment, CHAT).rate
    assert wanted is not None
    assert 0.75 < wanted / rate(prompt_tokens=1000, output_tokens=107) < 1
    requests = draw(experiment, CHAT)
    trace.unlink()
    assert chosen(experiment, CHAT, requests).rate == pytest.approx(wanted)


def test_what_a_fleet_can_carry_is_judged_by_the_tokens_that_come() -> None:
    assert not check_rate(of(), CHAT, 40.0)
    assert "at most" in check_rate(of(prompt_tokens=4000, output_tokens=1000), CHAT, 20.0)
    assert not check_rate(of(prompt_tokens=100, output_tokens=10), CHAT, 400.0)
