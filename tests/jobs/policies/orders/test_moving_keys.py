"""Orders of one's own whose keys move with time: they say so, and are ranked anew at every decision."""

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from headway.cli import main
from headway.errors import ExperimentError
from headway.jobs.model.cluster import uniform
from headway.jobs.model.rows import Kind
from headway.jobs.policies.backfills.fit import Fit
from headway.jobs.policies.backfills.none import NoBackfill
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.orders.las import Las
from headway.jobs.policies.parts import Order
from headway.jobs.policies.placements.best_fit import BestFit
from headway.jobs.policies.registry import ORDERS, build
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.queue import Key
from headway.units import HOUR, SECOND, Duration
from tests.conformance.checks import check_all
from tests.drive import Run, World, drive, seconds_of
from tests.strategies import worlds


class Attained(Order):
    """Least GPU time first."""

    name = "attained"
    preempts = True
    starves = True
    key_moves_with_time = True

    def key(self, now: int, js: JobState) -> Key:
        return js.attained_at(now), js.id


class Silent(Attained):
    """The same, without saying that its key moves."""

    key_moves_with_time = False


class Ageing(Order):
    """Widest first, but every second of waiting is worth a GPU; nobody is preempted."""

    name = "ageing"
    key_moves_with_time = True

    def key(self, now: int, js: JobState) -> Key:
        return -js.gpus * SECOND - (now - js.job.submit)


def made(order: Order, *, round_s: int = 0, strict: bool = False) -> ComposedPolicy:
    """A policy of this order."""
    return ComposedPolicy("own", order, NoBackfill() if strict else Fit(), BestFit(), round_length=round_s * SECOND)


def spans(run: Run) -> list[tuple[int, int]]:
    """(second, job) of all starts."""
    return [(row.time // SECOND, row.subject) for row in run.rows(Kind.START)]


TWO = World(uniform(1, 1), seconds_of((0, 100, 1), (30, 10, 1)))


def test_a_running_job_gives_way_to_one_that_has_had_less() -> None:
    assert spans(drive(made(Attained()), TWO)) == [(0, 0), (30, 1), (40, 0)]


def test_equal_jobs_change_places_as_often_as_the_class_says_and_not_between_events_otherwise() -> None:
    equal = World(uniform(1, 1), seconds_of((0, 30, 1), (0, 30, 1)))
    assert spans(drive(made(Attained()), equal)) == [(0, 0), (30, 1)]
    often = type("Often", (Attained,), {"refresh": 10 * SECOND})
    assert spans(drive(made(often()), equal)) == [(0, 0), (10, 1), (20, 0), (30, 1), (40, 0), (50, 1)]
    assert spans(drive(made(Attained(), round_s=10), equal)) == spans(drive(made(often()), equal))


def test_a_key_that_moves_and_does_not_say_so_is_refused_with_the_remedy() -> None:
    line = r"order attained: its key moves with time \(job 0: .*\), and it preempts; write key_moves_with_time = True"
    with pytest.raises(ExperimentError, match=line):
        drive(made(Silent()), TWO)


def test_so_is_one_that_moves_in_large_steps() -> None:
    step = type("Step", (Silent,), {"key": lambda self, now, js: (js.attained_at(now) > 10**6 * HOUR, js.id)})
    with pytest.raises(ExperimentError, match=r"400 days later\), and it preempts; write key_moves_with_time = True"):
        drive(made(step()), TWO)


def test_the_refusal_is_one_line_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(
        "from headway.jobs.policies.parts import Order\n\n\nclass Mine(Order):\n    name = 'mine'\n"
        "    preempts = True\n\n    def key(self, now, js):\n        return js.attained_at(now)\n"
    )
    (tmp_path / "jobs.csv").write_text("submit_s,work_s,gpus,name\n0,100,1,a\n30,10,1,b\n")
    flags = ("--nodes", "1", "--gpus-per-node", "1", "--policy", f"{tmp_path / 'mine.py'}:Mine")
    with pytest.raises(SystemExit) as ended:
        main(["jobs", "simulate", str(tmp_path / "jobs.csv"), *flags])
    ORDERS.pop("mine", None)  # of this process, for the tests after this one
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("headway: order mine: its key moves with time")
    assert "key_moves_with_time = True" in line


def test_a_fixed_key_is_not_refused_and_not_ranked_anew() -> None:
    for name in ORDERS:
        assert drive(f"{name}+preempt", TWO).ends
    assert {name for name in ORDERS if build(name).rekeys} == {"ftf", "multifactor"}, (
        "a new order whose keys are computed anew (key_moves_with_time or refresh) is named in this test"
    )
    assert build("tiresias(promote=1)").rekeys


def test_waiting_jobs_are_put_in_order_anew_without_preemption_too() -> None:
    # When job 0 ends, job 1 (1 GPU) has waited for 20 s and job 2 (4 GPUs) for 1 s: 21 against 5.
    world = World(uniform(1, 4), seconds_of((0, 21, 4), (1, 5, 1), (20, 5, 4)))
    assert [job for _, job in spans(drive(made(Ageing(), strict=True), world))] == [0, 1, 2]


@settings(max_examples=25)
@given(
    jobs=st.lists(st.tuples(st.integers(0, 60), st.integers(5, 80), st.integers(1, 4)), min_size=2, max_size=10),
    round_s=st.sampled_from([5, 10, 30]),
)
def test_in_rounds_it_is_las(jobs: list[tuple[int, int, int]], round_s: int) -> None:
    world = World(uniform(1, 4), seconds_of(*jobs))
    own, theirs = (drive(made(order, round_s=round_s), world) for order in (Attained(), Las(Duration(0))))
    assert own.tape.digest == theirs.tape.digest


@settings(max_examples=15, deadline=None)
@given(world=worlds(), round_s=st.sampled_from([0, 7]))
def test_it_keeps_the_promises_of_every_policy(world: World, round_s: int) -> None:
    check_all(lambda: made(Attained(), round_s=round_s), world)
