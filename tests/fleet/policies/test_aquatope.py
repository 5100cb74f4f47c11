"""``aquatope``: its worked examples, its plan, its batches, its pool."""

from collections.abc import Iterable
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.errors import ExperimentError, InputError
from headway.fleet.model.actions import Action
from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Profile
from headway.fleet.model.fleet import Prices
from headway.fleet.model.graph import Graph, Task
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind, unpack
from headway.fleet.policies.aquatope import Aquatope
from headway.fleet.policies.aquatope.optimise import Effort, Plan, Sample, Workflow, chosen, optimise
from headway.fleet.policies.aquatope.plans import parsed, written
from headway.fleet.policies.aquatope.policy import TARGETS, fill_waits
from headway.fleet.policies.aquatope.pool import PAST, Forecast
from headway.fleet.policies.aquatope.space import value_at
from headway.fleet.policies.central.fronts import NEVER, Option, options_of
from headway.fleet.policies.registry import build, describe
from headway.fleet.state.state import ServingState
from headway.units import MILLISECOND, SECOND
from tests.conformance.serving import check_all
from tests.fleet.policies.worked_example import A, B, C
from tests.fleet.worlds import Run, Watched, World, chain, drive, workers, worlds

MS = MILLISECOND
CELLS = tuple({Configuration(*cell): ms * MS for cell, ms in table.items()} for table in (A, B, C))
STAGES = tuple(options_of(cells, Prices()) for cells in CELLS)
ABC = Workflow(chain("abc", 0, 1, 2), STAGES, (0.0, 0.0, 0.0))


def micro_usd(plan: Plan) -> float:
    return sum(option.cost for option in plan.options) / 1e9


def milliseconds(plan: Plan) -> int:
    return sum(option.time for option in plan.options) // MS


# --- worked examples ----------------------------------------------------------------------------------------------


def test_a_coordinate_is_a_size_of_the_published_ranges() -> None:
    cpus = [round(0.1 * step, 1) for step in range(1, 61)]
    megabytes = range(128, 10241)
    assert (value_at(cpus, 0.0), value_at(megabytes, 0.0)) == (0.1, 128)
    assert (value_at(cpus, 1.0), value_at(megabytes, 0.5)) == (6.0, 5184)


def test_seventy_samples_are_taken_each_of_another_configuration() -> None:
    cells = {Configuration(b, c, s): (9 + b) * MS // (c + s) for b in (1, 2) for c in (1, 2, 3) for s in (1, 2, 3)}
    stages = (options_of(cells, Prices()),) * 3
    samples = optimise(Workflow(chain("c", 0, 1, 2), stages, (0.05,) * 3), 12 * MS, 3, Effort()).samples
    assert 10 + 20 * 3 - 2 <= len(samples) <= 70  # two of the first ten may coincide
    assert len({sample.point for sample in samples}) == len(samples)


@pytest.mark.parametrize(("cost", "literal"), [(30.0, 0), (150.0, 1)])
def test_a_cheap_late_sample_wins_under_the_published_penalty_alone(cost: float, literal: int) -> None:
    samples = [Sample((0,), cost, 90.0), Sample((1,), 20.0, 110.0)]
    assert chosen(samples, 100.0, penalty=100.0) == samples[literal]
    assert chosen(samples, 100.0) == samples[0]


@pytest.mark.parametrize(
    ("deadline", "optimum", "taken"),
    [(300, 60.113, 290), (250, 67.075, 250), (600, 50.089, 420)],
)
def test_the_search_comes_within_five_percent_of_the_optimum_for_most_seeds(
    deadline: int, optimum: float, taken: int
) -> None:
    plans = [optimise(ABC, deadline * MS, seed, Effort()) for seed in range(5)]
    assert all(milliseconds(plan) <= deadline for plan in plans)
    assert all(micro_usd(plan) >= optimum - 1e-3 for plan in plans)
    assert sum(micro_usd(plan) <= 1.05 * optimum for plan in plans) >= 4
    assert taken in [milliseconds(plan) for plan in plans if micro_usd(plan) < optimum + 1e-3]


def test_with_batches_of_one_the_cheapest_plan_in_time_is_found() -> None:
    single = tuple(tuple(o for o in options if o.configuration.batch == 1) for options in STAGES)
    plan = optimise(ABC._replace(tasks=single), 300 * MS, 0, Effort())
    assert [option.configuration.slices for option in plan.options] == [1, 2, 1]
    assert micro_usd(plan) == pytest.approx(77.089, abs=1e-3)
    assert len(plan.samples) == 8  # all there are


# --- the plan -----------------------------------------------------------------------------------------------------


def test_where_no_sample_is_in_time_the_fastest_is_taken() -> None:
    plan = optimise(ABC, 10 * MS, 0, Effort())
    assert milliseconds(plan) == min(sample.latency for sample in plan.samples)


def test_noise_makes_a_plan_that_is_late_on_average_for_some_seeds() -> None:
    noisy = ABC._replace(spreads=(0.1, 0.1, 0.1))
    late = [seed for seed in range(6) if milliseconds(optimise(noisy, 300 * MS, seed, Effort())) > 300]
    assert late


def test_the_search_depends_on_its_arguments_alone() -> None:
    noisy = ABC._replace(spreads=(0.1, 0.1, 0.1))
    plans = []
    for _ in range(2):
        plans.append(optimise(noisy, 300 * MS, 1, Effort()))
        optimise.cache_clear()
    assert plans[0] == plans[1]
    assert plans[0].samples != optimise(noisy, 300 * MS, 2, Effort()).samples


def world(requests: Iterable[Request], **functions: int) -> World:
    """The chain of the worked example on two workers of four CPUs and seven slices."""
    made = tuple(
        Function(name, (), Profile({"": cells}), **functions) for name, cells in zip("abc", CELLS, strict=True)
    )
    return World(Catalogue((), made, (ABC.graph,)), workers(2, slices=7), tuple(requests))


def steady(count: int, gap_ms: int, deadline_ms: int) -> list[Request]:
    return [Request(i, 0, i * gap_ms * MS, 0, (i * gap_ms + deadline_ms) * MS) for i in range(count)]


def configurations(run: Run) -> set[tuple[int, int, int]]:
    """(function, CPUs, slices) of all batches."""
    return {(row.detail, *unpack(row.value)[:2]) for row in run.rows(Kind.RUN)}


def test_every_request_runs_with_the_sizes_of_the_one_plan_whatever_the_load() -> None:
    for gap in (400, 20):
        run = drive("aquatope", world(steady(12, gap, 300)))
        assert configurations(run) == {(0, 1, 1), (1, 1, 2), (2, 1, 1)}
        assert len(run.rows(Kind.RUN)) == 36  # no batches


def test_after_four_targets_a_request_gets_the_plan_of_the_next_shorter() -> None:
    policy = Aquatope(rounds=2)
    policy.bind(world([]).state(central=True))
    made = {target: policy.sizes(Request(0, 0, 0, 0, target * MS)) for target in (300, 600, 250, 400)}
    assert len(made) == TARGETS
    for target, like in ((500, 400), (299, 250), (100, 250), (10_000, 600)):
        assert policy.sizes(Request(0, 0, 5, 0, target * MS + 5)) is made[like]
    assert policy.sizes(Request(0, 0, 0, 0, 0)) is made[600]  # no deadline


# --- plans that were searched before ------------------------------------------------------------------------------


@given(
    plans=st.dictionaries(
        st.tuples(st.integers(0, 9), st.integers(1, 10**15) | st.just(NEVER)),
        st.lists(st.builds(Configuration, *[st.integers(0, 99)] * 3), min_size=1, max_size=4),
    )
)
def test_plans_are_read_back_as_they_were_written(plans: dict[tuple[int, int], list[Configuration]]) -> None:
    assert parsed(written(plans)) == plans


def searched(requests: Iterable[Request]) -> str:
    return Aquatope().plans_for(world([]).state(central=True), list(requests))


def test_with_the_plans_of_its_requests_nothing_is_searched_and_the_tape_is_the_same() -> None:
    requests = [*steady(6, 20, 300), *(r._replace(id=6 + r.id, deadline=0) for r in steady(6, 400, 600))]
    requests.sort(key=lambda request: request.arrival)
    plans = searched(requests)
    assert plans.startswith("0@300ms:1/1/1+1/1/2+1/1/1;0@none:")
    before = drive("aquatope", world(requests))
    with mock.patch("headway.fleet.policies.aquatope.policy.optimise", side_effect=AssertionError("searched")):
        after = drive(f"aquatope(plans={plans})", world(requests))
    assert after.tape.digest == before.tape.digest


def test_name_and_options_describe_the_policy_with_its_plans() -> None:
    plans = searched(steady(1, 1, 300))
    assert describe(build(f"aquatope(plans={plans})")) == f"aquatope(plans={plans})"
    assert build(f"aquatope(plans={plans})").plans_for(world([]).state(central=True), steady(1, 1, 250)) == ""


def test_a_target_that_was_not_foreseen_is_searched_and_is_no_state_of_a_decision() -> None:
    policy = Aquatope(plans=searched(steady(1, 1, 300)))
    run = drive(policy, world(steady(3, 400, 600)))
    assert configurations(run) == configurations(drive("aquatope", world(steady(3, 400, 600))))
    assert policy.states_evaluated == 0


def test_plans_are_of_the_first_four_targets() -> None:
    targets = (300, 600, 250, 400, 500, 300)
    plans = searched(Request(at, 0, at, 0, at + target * MS) for at, target in enumerate(targets))
    assert [target for _, target in parsed(plans)] == [target * MS for target in targets[:TARGETS]]


@pytest.mark.parametrize(
    ("plans", "line"),
    [
        ("0@300ms", "option plans: '0@300ms' is not understood; write graph@target:batch/cpus/slices+..., or leave"),
        ("0@soon:1/1/1", "option plans: target of graph 0 'soon' is not understood"),
        ("1@300ms:1/1/1+1/1/2+1/1/1", "option plans: those of graph 1 were made for other graphs or profiles; leave"),
        ("0@300ms:1/1/1+1/1/2", "option plans: those of graph 0 were made for other graphs or profiles; leave plans"),
        ("0@300ms:1/1/1+1/1/2+1/1/9", "option plans: those of graph 0 were made for other graphs or profiles"),
    ],
)
def test_plans_that_are_of_something_else_are_refused(plans: str, line: str) -> None:
    with pytest.raises(InputError) as raised:
        build(f"aquatope(plans={plans})").bind(world([]).state(central=True))
    assert str(raised.value).startswith(f"policy aquatope: {line}")


# --- batches ------------------------------------------------------------------------------------------------------


def test_a_batch_may_wait_for_its_share_of_what_the_plan_leaves() -> None:
    options = [Option(time * MS, 1, Configuration(2, 1, 1)) for time in (10, 30, 20, 5)]
    diamond = Graph("d", tuple(Task(f"t{i}", 0) for i in range(4)), ((0, 1), (0, 2), (1, 3), (2, 3)))
    assert fill_waits(diamond, options, 60 * MS) == (5 * MS,) * 4
    assert fill_waits(diamond, options, 40 * MS) == (0,) * 4
    assert fill_waits(diamond, options, NEVER) == (10 * MS, 30 * MS, 20 * MS, 5 * MS)


def test_batches_fill_up_where_they_are_searched_for() -> None:
    run = drive("aquatope(batch=on)", world(steady(16, 10, 600)))
    sizes = [len(tasks) for tasks in _batches(run)]
    assert max(sizes) == 4
    assert sum(sizes) == 48


@pytest.mark.parametrize("gap", [5, 30, 70, 300])
def test_a_batch_waits_no_longer_than_its_share_while_there_is_room(gap: int) -> None:
    requests = steady(6, gap, 600)
    policy = Aquatope(batch=True)
    run = drive(policy, world(requests))
    (wait,) = set(policy.sizes(requests[0]).waits)
    began = {(row.subject, row.detail): row.time for row in run.rows(Kind.TASK)}
    ready = {(row.subject, row.detail): row.time for row in run.rows(Kind.READY)}
    ready |= {(request.id, 0): request.arrival for request in requests}
    waits = [began[task] - ready[task] for task in began]
    assert max(waits) <= wait
    assert (max(waits) > 0) == (wait > 0)
    eager = drive("aquatope(batch=on,wait=off)", world(requests))
    assert {row.time for row in eager.rows(Kind.TASK) if row.detail == 0} == {r.arrival for r in requests}


def _batches(run: Run) -> list[list[int]]:
    """The requests of each batch."""
    by_lease: dict[int, list[int]] = {}
    for row in run.rows(Kind.TASK):
        by_lease.setdefault(row.lease, []).append(row.subject)
    return list(by_lease.values())


# --- processes ----------------------------------------------------------------------------------------------------


def test_a_task_without_an_idle_process_holds_its_slices_during_the_cold_start() -> None:
    run = drive("aquatope(prewarm=off)", world(steady(1, 1, 300), cold_start=2 * SECOND))
    assert len(run.rows(Kind.COLD)) == 3
    assert [row.time for row in run.rows(Kind.DONE)] == [6 * SECOND + 280 * MS]


def test_hold_off_starts_processes_beside_and_the_task_waits() -> None:
    run = drive("aquatope(prewarm=off,hold=off)", world(steady(3, 1, 300), cold_start=2 * SECOND))
    assert len(run.rows(Kind.COLD)) == 1  # nothing ran or started yet: nobody else would have woken the queue
    assert len(run.rows(Kind.START_INSTANCE)) >= 3


def test_an_idle_process_is_used_before_a_nearer_worker_without_one() -> None:
    requests = [Request(0, 0, 0, 0, 0), Request(1, 0, 20 * SECOND, 0, 0)]
    run = drive("aquatope(prewarm=off)", world(requests, cold_start=2 * SECOND))
    assert len(run.rows(Kind.COLD)) == 3
    places = [{row.place for row in run.rows(Kind.RUN) if row.detail == function} for function in range(3)]
    assert [len(place) for place in places] == [1, 1, 1]


def test_the_pool_follows_use_and_is_given_up_after_48_idle_steps() -> None:
    forecast = Forecast()
    assert forecast.wanted(2.0) == 0
    for _ in range(100):
        forecast.observe(5)
    assert forecast.wanted(0.0) == 5
    for _ in range(PAST - 1):
        forecast.observe(0)
    assert any(forecast.past)
    forecast.observe(0)
    assert forecast.wanted(2.0) == 0


def test_more_deviations_never_make_a_smaller_pool() -> None:
    forecast = Forecast()
    for count in (0, 3, 1, 7, 2, 2, 9):
        forecast.observe(count)
        pools = [forecast.wanted(deviations) for deviations in (0.0, 1.0, 2.0, 5.0)]
        assert pools == sorted(pools)


class Counted(Watched):
    """Counts how often the policy is asked."""

    asked = 0

    def decide(self, now: int, state: ServingState) -> Iterable[Action]:
        Counted.asked += 1
        return super().decide(now, state)


def test_the_pool_sleeps_while_nothing_is_used() -> None:
    Counted.asked = 0
    requests = [Request(0, 0, 0, 0, 0), Request(1, 0, 3600 * SECOND, 0, 0)]
    drive("aquatope", world(requests, cold_start=2 * SECOND), watch=Counted)
    assert Counted.asked < 300


def test_the_pool_starts_processes_and_shrink_stops_them() -> None:
    calm = [*steady(40, 50, 300), Request(40, 0, 30 * SECOND, 0, 0)]
    kept = drive("aquatope(shrink=off)", world(calm, cold_start=100 * MS))
    assert kept.rows(Kind.START_INSTANCE)
    assert not kept.rows(Kind.STOP_INSTANCE)
    assert drive("aquatope", world(calm, cold_start=100 * MS)).rows(Kind.STOP_INSTANCE)
    assert not drive("aquatope(prewarm=off,hold=on)", world(calm, cold_start=100 * MS)).rows(Kind.START_INSTANCE)


@given(
    world=worlds(),
    spec=st.sampled_from(
        [
            "batch=on",
            "batch=on,wait=off",
            "hold=on",
            "hold=on,batch=on",
            "shrink=off",
            "prewarm=off",
            "outliers=off",
            "anew=off",
        ]
    ),
)
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
def test_every_variant_keeps_its_promises(world: World, spec: str) -> None:
    check_all(lambda: build(f"aquatope(rounds=4,{spec})"), world)


# --- options ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ("aquatope(initial=1)", "policy aquatope: option initial=1 is not a number of 2 or more"),
        ("aquatope(rounds=-1)", "policy aquatope: option rounds=-1 is not a number of 0 or more"),
        ("aquatope(proposals=0)", "policy aquatope: option proposals=0 is not a number of 1 or more"),
        ("aquatope(deviations=nan)", "policy aquatope: option deviations=nan is not a number of 0 or more"),
        ("aquatope(penalty=-2)", "policy aquatope: option penalty=-2.0 is not a number of 0 or more, nor inf"),
        ("aquatope(rounds=400)", "policy aquatope: 1210 samples of a workflow; at most 1000 are allowed"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(spec: str, line: str) -> None:
    with pytest.raises(ExperimentError) as raised:
        build(spec)
    assert str(raised.value).startswith(line)


def test_the_authors_program_has_a_finite_penalty_and_no_reserve() -> None:
    assert describe(build("aquatope", authors=True)) == "aquatope(anew=off,penalty=100.0,deviations=0.0)"
