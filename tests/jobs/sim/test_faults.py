"""Nodes that fail, are repaired and are drained: seeded, exact in what is lost, and over when the run is."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from headway.errors import ExperimentError
from headway.jobs.model.cluster import uniform
from headway.jobs.model.events import NodeDrained, NodeFailed, NodeRecovered
from headway.jobs.model.job import Job, workload
from headway.jobs.model.rows import Kind
from headway.jobs.sim import cluster as training
from headway.jobs.sim.faults import FailureModel, Faults, Maintenance
from headway.units import DAY, HOUR, MINUTE, SECOND
from tests.conformance.checks import check_delivered, check_drained, check_ends
from tests.drive import Run, World, drive, seconds_of


def world(jobs: tuple[Job, ...], *maintenance: Maintenance, nodes: int = 2) -> World:
    """Nodes of four GPUs that are worked on."""
    return World(uniform(nodes, 4), jobs, lambda: Faults(nodes, 0, None, maintenance))


class FailsOnce(Faults):
    """Node 0 fails at one time and is repaired at another."""

    def __init__(self, at: int, until: int) -> None:
        super().__init__(1, 0)
        self.at, self.until = at, until

    def first(self) -> Iterator[tuple[int, NodeFailed | NodeRecovered | NodeDrained]]:
        """The failure."""
        yield self.at, NodeFailed(0)

    def after(
        self, now: int, event: NodeFailed | NodeRecovered | NodeDrained
    ) -> tuple[int, NodeFailed | NodeRecovered] | None:
        """The repair."""
        return (self.until, NodeRecovered(0)) if isinstance(event, NodeFailed) else None


def fails_once(job: Job, at: int, until: int) -> Run:
    """One job on one node that fails once."""
    return drive("fifo", World(uniform(1, 4), workload([job]), lambda: FailsOnce(at, until)))


@pytest.mark.parametrize(
    ("every_s", "kept_s"), [(0, 47), (10, 40), (47, 47), (50, 0), (1, 47)], ids=lambda value: f"{value}s"
)
def test_a_failure_costs_what_was_done_since_the_last_checkpoint(every_s: int, kept_s: int) -> None:
    job = Job(0, 0, 100 * SECOND, 4, checkpoint_every=every_s * SECOND, restore=7 * SECOND)
    made = fails_once(job, 47 * SECOND, 60 * SECOND)
    (evicted,) = made.rows(Kind.EVICTED)
    assert (evicted.value, evicted.detail) == (kept_s * SECOND, (47 - kept_s) * SECOND)
    restore = 7 * SECOND if kept_s else 0
    assert made.ends[0] == 60 * SECOND + restore + (100 - kept_s) * SECOND
    check_delivered(made)


@pytest.mark.parametrize("every_s", [1, 1800])
def test_a_run_ends_in_one_line_where_failures_let_no_job_keep_any_work(
    every_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "MOST_FAILURES", 50)
    monkeypatch.setattr(training, "MOST_FAILURES_A_NODE", 1)
    job = Job(0, 0, 2 * HOUR, 4, checkpoint_every=every_s * SECOND)
    failing = World(uniform(1, 4), workload([job]), lambda: Faults(1, 0, FailureModel(20 * SECOND, SECOND)))
    if every_s == 1:  # far more failures, and work is kept
        assert len(drive("fifo", failing).rows(Kind.NODE_FAILED)) > 200
        return
    with pytest.raises(ExperimentError, match="nodes failed 50 times since a job last arrived or ended, and no work"):
        drive("fifo", failing)


def test_a_drain_lets_jobs_finish_and_takes_no_new_ones() -> None:
    made = drive(
        "fifo",
        world(seconds_of((0, 30, 4), (10, 5, 4), (11, 5, 4)), Maintenance((0,), 55 * SECOND, 60 * SECOND, 50 * SECOND)),
    )
    assert made.ends[0] == 30 * SECOND
    assert {row.subject: row.place for row in made.rows(Kind.START)} == {0: 0, 1: 1, 2: 1}
    assert made.rows(Kind.EVICTED) == []


def test_what_still_runs_when_maintenance_begins_is_checkpointed_and_queued_again() -> None:
    jobs = tuple(replace(job, checkpoint=SECOND, restore=2 * SECOND) for job in seconds_of((0, 30, 4)))
    made = drive("fifo", world(jobs, Maintenance((0,), 10 * SECOND, 20 * SECOND), nodes=1))
    (evicted,) = made.rows(Kind.EVICTED)
    assert (evicted.time, evicted.value, evicted.detail) == (10 * SECOND, 10 * SECOND, 0)
    assert made.ends[0] == (30 + 3 + 20) * SECOND
    check_delivered(made)


def test_failures_are_seeded_and_the_run_ends() -> None:
    jobs = seconds_of(*((i * 60, 3000 + i, 1 + i % 4) for i in range(40)))

    def run(seed: int) -> Run:
        faults = FailureModel(2 * HOUR, 10 * MINUTE)
        return drive("fifo+fit", World(uniform(4, 4), jobs, lambda: Faults(4, seed, faults)))

    first = run(1)
    assert first.rows(Kind.EVICTED)
    assert first.tape.digest == run(1).tape.digest != run(2).tape.digest
    check_ends(first)
    check_delivered(first)
    check_drained(first)


def test_failures_come_as_often_as_they_were_asked_for() -> None:
    """With maintenance beside them, too: its end begins no second series of failures."""
    model, days = FailureModel(2 * DAY, HOUR), 400
    work = tuple(Maintenance((0,), day * DAY, HOUR) for day in range(1, days, 4))
    for maintenance in ((), work):
        jobs = (Job(0, 0, SECOND, cpu_milli=1), Job(1, days * DAY, SECOND, cpu_milli=1))
        faults = partial(Faults, 2, 3, model, maintenance)
        made = drive("fifo", World(uniform(2, 4), jobs, faults), bounded=False)
        failures = len(made.rows(Kind.NODE_FAILED))
        expected = 2 * days * DAY / (model.mtbf + model.repair)
        assert abs(failures - expected) < 4 * expected**0.5, f"{failures} failures, not about {expected:.0f}"


@pytest.mark.parametrize("seed", range(6))
def test_nothing_starts_on_a_node_under_maintenance_even_if_it_fails_before_or_after(seed: int) -> None:
    jobs = seconds_of(*((i * 40, 60, 4) for i in range(60)))
    work = [Maintenance((0,), start * MINUTE, 5 * MINUTE, MINUTE) for start in (3, 15, 27)]
    model = FailureModel(6 * MINUTE, 4 * MINUTE)
    made = drive("fifo", World(uniform(2, 4), jobs, lambda: Faults(2, seed, model, work)))
    assert made.rows(Kind.NODE_FAILED)
    closed = [(max(0, one.start - one.lead), one.start + one.length) for one in work]
    inside = [row.time for row in made.rows(Kind.START) if row.place == 0]
    assert not [time for time in inside for start, end in closed if start <= time < end]
    check_ends(made)
    check_delivered(made)


@pytest.mark.parametrize("order", [1, -1])
def test_a_node_whose_times_of_maintenance_overlap_is_back_at_the_end_of_the_last(order: int) -> None:
    """Closed from 10 s to 50 s and from 30 s (emptied at 40 s) to 90 s, and again from 90 s to 95 s."""
    work = [
        Maintenance((0,), 10 * SECOND, 40 * SECOND),
        Maintenance((0,), 40 * SECOND, 50 * SECOND, 10 * SECOND),
        Maintenance((0,), 90 * SECOND, 5 * SECOND),
    ]
    made = drive("fifo", world(seconds_of((0, 30, 4)), *work[::order], nodes=1))
    assert [row.time for row in made.rows(Kind.NODE_RECOVERED)] == [90 * SECOND, 95 * SECOND]
    assert [row.time for row in made.rows(Kind.EVICTED)] == [10 * SECOND]
    assert [row.time for row in made.rows(Kind.START)] == [0, 95 * SECOND]
    assert made.ends[0] == 115 * SECOND


def test_maintenance_that_needs_the_node_empty_first_sets_the_time_for_all() -> None:
    work = [Maintenance((0,), 70 * SECOND, SECOND, 60 * SECOND), Maintenance((0, 0), 20 * SECOND, 5 * SECOND)]
    made = drive("fifo", world(seconds_of((0, 30, 4)), *work, nodes=1))
    assert [row.time for row in made.rows(Kind.EVICTED)] == [20 * SECOND]
    assert [row.time for row in made.rows(Kind.NODE_RECOVERED)] == [71 * SECOND]
    assert made.ends[0] == 81 * SECOND
