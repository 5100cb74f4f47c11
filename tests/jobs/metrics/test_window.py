"""What a window measures, by hand: its jobs, its time, and whether the queue grew in it."""

import numpy as np
import pytest

from headway.core.scheduler import Scheduler
from headway.core.tape import Tape, TapeWriter
from headway.errors import InputError
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.summary import as_json, from_json, of_ledger
from headway.jobs.metrics.window import Window, arrivals_of, span_of, still_growing, window_of
from headway.jobs.model.cluster import Cluster, uniform
from headway.jobs.model.job import Job, Outcome, workload
from headway.jobs.model.submission import Terms
from headway.jobs.policies.registry import build
from headway.jobs.sim.cluster import SimulatedCluster
from headway.jobs.state.state import TrainingState
from headway.units import HOUR


def taped(jobs: tuple[Job, ...], cluster: Cluster) -> Tape:
    policy = build("fifo")
    state = TrainingState(cluster, to_come=len(jobs), arrangement=policy)
    policy.bind(state)
    writer = TapeWriter()
    Scheduler(state, policy, SimulatedCluster(jobs, state, None), writer).run()
    return writer.close()


def played(jobs: tuple[Job, ...], cluster: Cluster) -> Ledger:
    return Ledger(taped(jobs, cluster), jobs, cluster)


LINE = workload(Job(0, hour * HOUR, 2 * HOUR, gpus=1, tenant="ab"[hour % 2]) for hour in range(10))
"""Ten jobs of two hours, one an hour, on one GPU: job k waits k hours and ends at 2k + 2."""


def test_jobs_are_numbered_from_0_in_submission_order() -> None:
    assert window_of(LINE, "", "") is None
    assert window_of(LINE, "4:6", "") == Window(4, 6)
    assert window_of(LINE, "4:", "") == Window(4, 10)
    assert window_of(LINE, ":3", "") == Window(0, 3)
    assert window_of(LINE, "", "25%") == Window(3, 10)
    assert window_of(LINE, "", "4h") == Window(4, 10)
    assert window_of(LINE, "", 3600) == Window(1, 10)
    assert window_of(LINE, "", "0%") == Window(0, 10)


@pytest.mark.parametrize(
    ("jobs", "warmup", "line"),
    [
        ("4000:5000", "", "the workload has 10 jobs"),
        ("6:4", "", "no job from 6"),
        ("4-6", "", "not understood"),
        (":", "", "not understood"),
        ("", "100%", "leaves none of the 10 jobs"),
        ("", "2d", "leaves none of the 10 jobs"),
        ("", "-2d", "must not be negative"),
        ("", "soon", "not understood"),
        ("2:3", "10%", "both given"),
    ],
)
def test_a_window_that_is_none_is_one_line(jobs: str, warmup: str, line: str) -> None:
    with pytest.raises(InputError, match=line):
        window_of(LINE, jobs, warmup)


def test_a_window_measures_its_jobs_and_the_time_from_its_first_submission_to_its_last_end() -> None:
    ledger = played(LINE, uniform(2, 1))  # on two GPUs nobody waits
    whole, part = of_ledger(ledger), of_ledger(ledger, Window(4, 6))
    assert (whole.jobs, whole.measured_jobs, part.jobs, part.measured_jobs, part.completed) == (10, 10, 10, 2, 2)
    assert span_of(ledger, Window(4, 6)) == (4 * HOUR, 7 * HOUR)
    assert part.makespan_s == 3 * 3600
    assert part.gpu_utilisation == pytest.approx(1.0)  # both are busy all through, with jobs of the window or not
    assert whole.gpu_utilisation == pytest.approx(20 / 22)
    assert part.gpu_hours == 4
    assert part.jain_tenants == 1.0
    busy = played(LINE, uniform(1, 1))
    assert of_ledger(busy, Window(4, 6)).wait_s.mean == pytest.approx(4.5 * 3600)
    assert of_ledger(busy, Window(4, 6)).jct_s.max == pytest.approx(7 * 3600)
    assert span_of(busy, Window(4, 6)) == (4 * HOUR, 12 * HOUR)


def test_what_is_counted_by_job_is_of_measured_jobs_and_what_happens_in_time_is_of_the_window() -> None:
    ends = [(Outcome.CANCELLED, HOUR // 2) if hour == 4 else (Outcome.FINISHES, 0) for hour in range(10)]
    jobs = workload(
        Job(0, hour * HOUR, HOUR, gpus=1, outcome=outcome, outcome_after=after)
        for hour, (outcome, after) in enumerate(ends)
    )
    whole = played(jobs, uniform(1, 1))
    part, all_of_it = of_ledger(whole, Window(4, 6)), of_ledger(whole)
    assert (all_of_it.finished, all_of_it.cancelled, all_of_it.unfinished) == (9, 1, 0)
    assert (part.finished, part.cancelled, part.unfinished) == (1, 1, 0)
    assert part.finished + part.failed + part.cancelled + part.unfinished == part.measured_jobs
    rows = np.array([(h * HOUR, kind, 0, 0, 0, 0, 0) for kind in (5, 24) for h in (1, 5, 9)])
    columns = (whole.time, whole.kind, whole.subject, whole.lease, whole.place, whole.detail, whole.value)
    together = np.concatenate((np.column_stack(columns), rows))
    told = Ledger(Tape(together[np.argsort(together[:, 0], kind="stable")]), jobs, whole.cluster)
    part, all_of_it = of_ledger(told, Window(4, 6)), of_ledger(told)
    assert (all_of_it.node_failures, all_of_it.refusals) == (3, 3)
    assert (part.node_failures, part.refusals) == (1, 1)
    assert (part.jobs, part.events, part.actions) == (all_of_it.jobs, all_of_it.events, all_of_it.actions)


def test_a_window_of_all_jobs_gives_the_numbers_of_no_window() -> None:
    ledger = played(LINE, uniform(1, 1))
    whole, same = of_ledger(ledger), of_ledger(ledger, Window(0, 10))
    assert all(
        getattr(whole, name) == getattr(same, name) for name in whole.__slots__ if name not in ("growing", "overload")
    )


def test_a_queue_that_grows_all_through_a_window_is_said() -> None:
    many = workload(Job(0, minute * HOUR // 60, HOUR // 30, gpus=1) for minute in range(400))
    growing = played(many, uniform(1, 1))
    told = still_growing(growing, Window(100, 400))
    assert told is not None
    assert told.startswith("no steady state: while measured jobs arrived the queue grew from ")
    assert still_growing(growing, None) is None
    assert still_growing(played(many, uniform(2, 1)), Window(100, 400)) is None


def test_measured_jobs_that_have_not_ended_are_measured_to_the_last_row() -> None:
    ledger = played(LINE, uniform(1, 1))
    cut = Ledger(_until(ledger, 9 * HOUR), LINE, ledger.cluster)
    assert span_of(cut, Window(4, 6)) == (4 * HOUR, cut.horizon)
    assert of_ledger(cut, Window(4, 6)).jct_s.mean is None
    assert span_of(cut, Window(9, 10)) == (9 * HOUR, cut.horizon)


def _until(ledger: Ledger, time: int) -> Tape:
    columns = (ledger.time, ledger.kind, ledger.subject, ledger.lease, ledger.place, ledger.detail, ledger.value)
    rows = np.column_stack(columns)
    return Tape(rows[rows[:, 0] <= time])


LONG_TAIL = workload(
    Job(0, hour * HOUR, (100 if hour == 9 else 1) * HOUR, gpus=2 if hour < 9 else 1) for hour in range(10)
)
"""One job an hour on both of two GPUs, and at the end one on one GPU that runs for a hundred hours."""


def test_use_while_jobs_arrive_does_not_count_the_tail() -> None:
    summary = of_ledger(played(LONG_TAIL, uniform(1, 2)))
    assert summary.gpu_utilisation == pytest.approx((9 * 2 + 100) / (109 * 2))
    assert summary.gpu_utilisation_while_arriving == pytest.approx(1.0)
    assert summary.effective_gpu_utilisation_while_arriving == pytest.approx(1.0)
    assert (summary.makespan_s, summary.tail_s) == (109 * 3600, 100 * 3600)
    assert summary.queue_mean_while_arriving == 0
    flat = as_json(summary, "fifo")
    assert flat["gpu_utilisation_over_makespan"] == flat["gpu_utilisation"] == summary.gpu_utilisation
    assert flat["gpu_utilisation_while_arriving"] == 1.0
    assert from_json(flat) == summary


def test_with_a_window_use_is_counted_while_its_jobs_arrive() -> None:
    ledger = played(LINE, uniform(4, 1))  # from the second hour on two of four GPUs are busy, one in the first
    assert arrivals_of(ledger, Window(0, 3)) == (0, 2 * HOUR)
    part, late = of_ledger(ledger, Window(0, 3)), of_ledger(ledger, Window(4, 10))
    assert part.gpu_utilisation_while_arriving == pytest.approx((1 / 4 + 2 / 4) / 2)
    assert (part.makespan_s, part.tail_s) == (4 * 3600, 2 * 3600)
    assert late.gpu_utilisation_while_arriving == pytest.approx(2 / 4)
    assert late.tail_s == 2 * 3600


def test_jobs_that_arrive_at_once_are_counted_over_the_makespan() -> None:
    batch = workload(Job(0, 0, hours * HOUR, gpus=1) for hours in (1, 3))
    summary = of_ledger(played(batch, uniform(2, 1)))
    assert summary.gpu_utilisation_while_arriving == summary.gpu_utilisation == pytest.approx(4 / 6)
    assert summary.tail_s == summary.makespan_s == 3 * 3600
    one = of_ledger(played(LINE, uniform(2, 1)), Window(4, 5))
    assert one.gpu_utilisation_while_arriving == one.gpu_utilisation
    assert one.tail_s == one.makespan_s


def test_a_tape_that_ends_while_jobs_arrive_has_no_tail() -> None:
    cut = Ledger(taped(LINE, uniform(1, 1)).until(5 * HOUR), LINE, uniform(1, 1))
    assert arrivals_of(cut, None) == cut.span
    assert of_ledger(cut).tail_s == 0
    assert of_ledger(cut).gpu_utilisation_while_arriving == 1.0


def test_arrivals_end_with_the_last_submission_however_late_a_job_becomes_eligible() -> None:
    late = workload(
        [Job(0, 0, 10 * HOUR, 1), Job(0, 10 * HOUR, HOUR, 1), Job(0, HOUR, HOUR, 1, terms=Terms(begin=90 * HOUR))]
    )
    ledger = played(late, uniform(1, 1))
    assert arrivals_of(ledger, None) == (0, 10 * HOUR)
    assert of_ledger(ledger).gpu_utilisation_while_arriving == 1.0
