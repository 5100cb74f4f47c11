"""Batches that wait to fill: how long, for how many, and what plans learn from those that came."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.core.named import described
from headway.errors import ExperimentError, InputError
from headway.fleet.experiment.scene import prepare
from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Profile
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.policies.central.forming import FormedBatches, Wakes
from headway.fleet.policies.esg.policy import Esg
from headway.fleet.policies.registry import build
from headway.fleet.scenarios.tables.settings import ServingExperiment
from headway.formats import toml
from headway.units import MILLISECOND, SECOND
from tests.conformance.serving import check_all
from tests.fleet.policies.esg.test_policy import TWO, answers, fleet, started
from tests.fleet.worlds import World, chain, drive, worlds

MS = MILLISECOND
POOLED = ("esg", "stagewise", "plan-once", "exact")


def arriving(count: int, every: int, allowed: int) -> tuple[Request, ...]:
    return tuple(Request(i, 0, i * every, 0, i * every + allowed if allowed else 0) for i in range(count))


@pytest.mark.parametrize("name", POOLED)
def test_a_batch_runs_when_it_is_full_or_its_first_task_has_waited_enough(name: str) -> None:
    world = World(TWO, fleet(2), arriving(5, 10 * MS, 2 * SECOND))
    at_once, held = started(drive(name, world)), started(drive(f"{name}(max_delay=60ms)", world))
    assert at_once[0][0] == 0
    assert at_once[0][3] == 1
    first = [row for row in held if row[0] <= 100 * MS]
    assert [(when, tasks) for when, _, _, tasks in first] == [(30 * MS, 4), (100 * MS, 1)], "full; 60 ms after 40 ms"


@pytest.mark.parametrize("name", POOLED)
def test_no_wait_takes_what_a_full_batch_needs_to_be_in_time(name: str) -> None:
    slowest = 92 * MS  # of a batch of 4 at most slices; then 18 ms of the next stage
    for allowed in (slowest + 18 * MS + 15 * MS, 400 * MS):
        world = World(TWO, fleet(2), (Request(0, 0, 0, 0, allowed),))
        run = drive(f"{name}(max_delay=120ms)", world)
        latest = min(120 * MS, allowed - round(100 * MS * 2.56 * 0.36) - round(50 * MS * 0.36))
        assert started(run)[0][0] == latest
        assert answers(run)[0] <= allowed


def test_with_slack_each_stage_has_its_share_of_the_wait() -> None:
    allowed = 1110 * MS
    run = drive("esg(max_delay=slack)", World(TWO, fleet(2), (Request(0, 0, 0, 0, allowed),)))
    spare = allowed - round(100 * MS * 2.56 * 0.36) - round(50 * MS * 0.36)
    assert started(run)[0][0] == spare // 2, "two stages are ahead"
    assert answers(run)[0] <= allowed


def test_without_a_deadline_slack_is_as_long_as_the_batch_runs() -> None:
    run = drive("esg(max_delay=slack)", World(TWO, fleet(2), (Request(0, 0, 0, 0, 0),)))
    assert started(run)[0][0] == round(100 * MS * 2.56 * 0.36)


@pytest.mark.parametrize("name", POOLED)
def test_a_plan_that_insists_waits_for_its_own_batch_alone(name: str) -> None:
    """Two at a time are cheapest here: who insists runs with two, who does not waits for the largest batch."""
    times = {1: 100 * MS, 2: 120 * MS, 4: 400 * MS}
    pairs = Function("pairs", (), Profile({"": {Configuration(batch, 1, 1): time for batch, time in times.items()}}))
    world = World(Catalogue((), (pairs,), (chain("one", 0),)), fleet(2), arriving(4, 10 * MS, 2 * SECOND))
    insists = started(drive(f"{name}(max_delay=100ms,insist=on)", world))
    largest = started(drive(f"{name}(max_delay=100ms)", world))
    assert [(when, tasks) for when, _, _, tasks in insists] == [(10 * MS, 2), (30 * MS, 2)]
    assert largest[0][0] == 30 * MS


@pytest.mark.parametrize("policy", ["esg", "stagewise", "plan-once", "exact"])
def test_batches_form_where_they_may_wait(policy: str) -> None:
    world = World(TWO, fleet(4), arriving(60, 15 * MS, SECOND))
    sizes = [[row[3] for row in started(drive(f"{policy}{options}", world))] for options in ("", "(max_delay=slack)")]
    means = [sum(each) / len(each) for each in sizes]
    assert means[1] > 1.5 * means[0]
    assert means[1] > 2.0


@given(
    world=worlds(),
    spec=st.sampled_from(
        [
            "esg(max_delay=50ms)",
            "esg(max_delay=slack,insist=on,feedback=on,locality=on)",
            "exact(max_delay=slack,insist=on,feedback=on)",
            "plan-once(max_delay=slack,insist=on,feedback=on)",
            "stagewise(max_delay=slack,insist=on,late=plan)",
            "orion-dag(locality=on)",
            "aquatope(rounds=2,locality=on)",
            "headway(max_delay=20ms,feedback=on)",
        ]
    ),
)
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
def test_every_variant_keeps_its_promises(world: World, spec: str) -> None:
    check_all(lambda: build(spec), replace(world, central=True))


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ("esg(max_delay=-5ms)", "policy esg: option max_delay=-5ms is negative: write a duration, or slack"),
        ("esg(max_delay=soon)", "policy esg: option max_delay 'soon' is not understood"),
        ("stagewise(insist=on)", "policy stagewise: option insist=on needs a max_delay"),
    ],
)
def test_an_option_that_makes_no_sense_is_one_line(spec: str, line: str) -> None:
    with pytest.raises(InputError) as caught:
        build(spec)
    assert str(caught.value).startswith(line)


@pytest.mark.parametrize("spec", ["esg(max_delay=10s)", "plan-once(max_delay=10s)", "headway(max_delay=9s)"])
def test_a_delay_beyond_the_deadline_is_one_line_before_the_run(spec: str) -> None:
    document = {"serving": {"scenario": "esg"}, "workload": {"requests": 5}, "policy": {"name": spec}}
    with pytest.raises(ExperimentError, match=r"option max_delay=\d+s is not shorter than the deadline of [a-z-]+, "):
        prepare(toml.typed(document, ServingExperiment, "experiment"))


def test_options_are_written_as_they_are_read() -> None:
    policy = build("esg(max_delay=slack,insist=on,feedback=on)")
    assert described(policy, "esg") == "esg(max_delay=slack,insist=on,feedback=on)"


# --- what plans learn ---------------------------------------------------------------------------------------------


def test_a_plan_that_counted_on_four_and_got_one_counts_on_one() -> None:
    graphs = TWO.graphs
    formed = FormedBatches(graphs, [(1, 2, 4), (1, 2, 4)])
    assert formed.limits(0, 0) == (4, 4)
    for _ in range(30):
        formed.on_planned(0, 0, [4])
        formed.on_formed((0, 1), 1, 1)
    assert (formed.planned[0, 1], formed.formed[0, 1]) == (4.0, 1.0)
    assert formed.limits(0, 0) == (4, 1), "the stage that is planned may take what its queue has"
    for _ in range(60):
        formed.on_formed((0, 1), 4, 4)
    assert formed.limits(0, 0) == (4, 4), "and it learns that they come again"


def test_with_feedback_the_first_stage_does_not_spend_what_later_batches_would_save() -> None:
    """Few requests come, so the second stage never runs in a batch; a plan that counts on one is too slow at first."""
    world = World(TWO, fleet(4), arriving(60, 300 * MS, 125 * MS))
    learnt = Esg(feedback=True, deviations=0.0)
    drive(learnt, world)
    assert learnt.formed is not None
    assert learnt.formed.formed[0, 1] == 1.0
    assert learnt.formed.expected((0, 1)) == 1
    assert Esg().feedback is False


def test_a_wake_up_is_asked_for_once() -> None:
    wakes: Wakes[str] = Wakes()
    assert [action.time for action in (*wakes.hold("a", 5), *wakes.hold("a", 5), *wakes.hold("b", 3))] == [5, 3]
    assert wakes.due(2) == []
    assert wakes.due(5) == ["b", "a"]
    assert [action.time for action in wakes.hold("a", 9)] == [9]


def test_a_held_batch_is_on_the_tape_as_a_wake_up() -> None:
    run = drive("esg(max_delay=60ms)", World(TWO, fleet(1), arriving(1, 1, SECOND)))
    assert next(row.value for row in run.rows(Kind.WAKE_AT)) == 60 * MS
