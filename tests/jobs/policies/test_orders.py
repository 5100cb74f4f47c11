"""What holds for all orders: their names and switches, and that they serve any small workload to its end."""

import pytest
from hypothesis import given, settings, strategies as st

from headway.errors import ExperimentError
from headway.jobs.model.cluster import uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.model.rows import Kind
from headway.jobs.policies.registry import BACKFILLS, ORDERS, build, describe
from headway.units import HOUR, MINUTE, SECOND
from tests.drive import World, drive, seconds_of
from tests.jobs.policies.orders.drive import job, play

MINUTES = st.integers(1, 120)


@st.composite
def workloads(draw: st.DrawFn) -> list[Job]:
    """A few jobs of three tenants for a node of four GPUs."""
    fields = st.builds(
        job,
        submit=st.integers(0, 200),
        work=MINUTES,
        gpus=st.integers(1, 4),
        tenant=st.sampled_from("abc"),
        priority=st.integers(0, 2),
    )
    return draw(st.lists(fields, min_size=1, max_size=12))


@pytest.mark.parametrize("name", ORDERS)
@settings(max_examples=20)
@given(jobs=workloads())
def test_every_order_serves_every_job_exactly_its_work(name: str, jobs: list[Job]) -> None:
    played = play(jobs, name, 4)
    served = dict.fromkeys(range(len(jobs)), 0)
    for which, start, end in played.spans:
        served[which] += round(end * MINUTE) - round(start * MINUTE)
    assert served == {each.id: each.work for each in played.jobs}


@pytest.mark.parametrize("name", ORDERS)
@settings(max_examples=15)
@given(jobs=workloads())
def test_without_preemption_every_job_runs_in_one_stretch(name: str, jobs: list[Job]) -> None:
    assert len(play(jobs, f"{name}+no-preempt", 4).spans) == len(jobs)


@pytest.mark.parametrize("name", ORDERS)
@settings(max_examples=15)
@given(jobs=workloads())
def test_with_preemption_every_order_still_comes_to_an_end(name: str, jobs: list[Job]) -> None:
    assert len(play(jobs, f"{name}+preempt", 4).ends) == len(jobs)


@pytest.mark.parametrize("name", ["las", "drf+preempt", "tiresias", "ftf"])
@settings(max_examples=25)
@given(jobs=workloads())
def test_a_started_job_keeps_its_gpus_for_the_quantum(name: str, jobs: list[Job]) -> None:
    played = play(jobs, name, 4, quantum=15 * MINUTE)
    assert all(round(end * MINUTE) - round(start * MINUTE) >= 15 * MINUTE for _, start, end in played.preempted)


def test_preemption_is_on_for_the_orders_that_live_on_it_and_off_for_all_others() -> None:
    preemptive = {"srtf", "las", "tiresias", "ftf", "tetris"}
    assert {name for name, order in ORDERS.items() if order.preempts} == preemptive, (
        "a new order that preempts by default is named in this test, and has (preempts) in the overview of policies"
    )


def test_only_fifo_and_drf_promise_that_nobody_waits_for_ever() -> None:
    assert {name for name, order in ORDERS.items() if not order.starves} == {"fifo", "drf"}, (
        "an order under which a job may wait for ever says starves = True; one that promises otherwise is named here"
    )


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_with_all_defaults_is_written_as_its_name(name: str) -> None:
    assert describe(ORDERS[name]()) == name == build(name).name


@pytest.mark.parametrize(
    ("spec", "attribute", "value"),
    [
        ("tiresias(thresholds=1h/10h)", "thresholds", (HOUR, 10 * HOUR)),
        ("tiresias(promote=2.5)", "promote", 2.5),
        ("las(quantum=10m)", "quantum", 10 * MINUTE),
        ("drf(quantum=1h)", "quantum", HOUR),
        ("ftf(lease=5m)", "refresh", 5 * MINUTE),
        ("ftf(contention=false)", "contention", False),
        ("multifactor(period=1m)", "refresh", MINUTE),
        ("multifactor(qos=high:1000/low:0)", "qos", ("high:1000", "low:0")),
        ("multifactor(tres=gpu:100/cpu:1)", "tres", ("gpu:100", "cpu:1")),
        ("qssf(recent=0.25)", "recent", 0.25),
    ],
)
def test_options_are_read_from_the_name_of_a_policy(spec: str, attribute: str, value: object) -> None:
    assert getattr(build(spec).order, attribute) == value


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ("tiresias(thresholds=10h/1h)", "thresholds"),
        ("tiresias(thresholds=0s)", "thresholds"),
        ("tiresias(promote=-1)", "promote"),
        ("ftf(lease=0s)", "lease"),
        ("ftf(margin=-0.5)", "margin"),
        ("multifactor(half_life=0s)", "half_life"),
        ("multifactor(qos=high)", "high:1000"),
        ("multifactor(tres=gpu)", "gpu:1000"),
        ("multifactor(tres=disk:5)", "disk"),
        ("qssf(recent=0)", "recent"),
        ("las(quanta=1h)", "quantum"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_by_name(spec: str, names: str) -> None:
    with pytest.raises(ExperimentError, match=names):
        build(spec)


def test_a_job_that_loads_its_checkpoint_still_gives_way_to_a_shorter_one() -> None:
    """The first is stopped at 100 s and loads from 110 s to 170 s; who arrives meanwhile does not wait for its end."""
    arrivals = ((0, 1000), (100, 10), (120, 10))
    jobs = workload(Job(0, at * SECOND, length * SECOND, restore=60 * SECOND) for at, length in arrivals)
    made = drive("srtf", World(uniform(1, 1), jobs))
    assert [made.ends[job] // SECOND for job in (1, 2)] == [110, 130]
    assert made.ends[0] == (130 + 60 + 900) * SECOND


@pytest.mark.parametrize("backfill", BACKFILLS)
@pytest.mark.parametrize("order", ["srtf", "srtf+migrate", "las(quantum=0s)", "tetris"])
def test_a_stopped_job_that_fits_elsewhere_starts_a_second_later_and_not_at_once(order: str, backfill: str) -> None:
    """The third job wants a whole node; each node holds one long job, and has room for the other's."""
    jobs = seconds_of((0, 100, 1), (0, 10, 1), (0, 100, 1), (20, 5, 2))
    made = drive(f"{order}+{backfill}", World(uniform(2, 2), jobs))
    assert made.starts[3] == 20 * SECOND
    ((stop, *_),) = made.rows(Kind.PREEMPT)
    assert stop == 20 * SECOND
    assert [row.time // SECOND for row in made.rows(Kind.START)] == [0, 0, 0, 20, 21]
    assert sorted(made.ends.values()) == [10 * SECOND, 25 * SECOND, 100 * SECOND, 101 * SECOND]
