"""Savings are booked when the real job has ended, losses too, and claimed only beyond the error."""

import numpy as np
import pytest

from headway.core.tape import COLUMNS, Tape
from headway.jobs.metrics.backtest.recorded import recorded_past
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.model.cluster import uniform
from headway.jobs.model.job import Job
from headway.jobs.model.rows import Kind
from headway.jobs.slurm.shadow.savings import Savings, savings
from headway.units import SECOND

NEVER = -1
FULL = 1_000_000


def found(
    waits: list[int | None],
    real: list[int],
    ran: list[int],
    *,
    at: int = 1000,
    settled: int = 1000,
    site: list[float] | None = None,
    carried: int = 0,
) -> Savings:
    """Return the savings of jobs that arrive at once, and wait so many seconds in the shadow; None: still."""
    rows = [(0, Kind.ARRIVED, job, 0, -1, 0, 0) for job in range(len(waits))]
    started = sorted((wait, job) for job, wait in enumerate(waits) if wait is not None)
    rows += [(wait * SECOND, Kind.START, job, job + 1, 0, 1 << job, FULL) for wait, job in started]
    tape = Tape(np.array([[int(cell) for cell in row] for row in rows], dtype=np.int64).reshape(-1, len(COLUMNS)))
    jobs = [Job(job, 0, SECOND, tenant="ab"[job % 2], qos="high" if job < 3 else "") for job in range(len(waits))]
    return savings(
        Ledger(tape, jobs, uniform(1, 32)),
        at * SECOND,
        settled * SECOND,
        [wait * SECOND if wait >= 0 else wait for wait in real],
        ran,
        ["Priority"] * len(waits),
        site=None if site is None else np.array(site),
        carried=carried,
    )


def test_only_jobs_that_ended_in_reality_are_booked() -> None:
    saved = found([0, 10, 20, 30], [100, 100, NEVER, 100], [NEVER, 50, NEVER, NEVER])
    assert (saved.booked, saved.open, saved.never_started) == (2, 1, 1)
    assert saved.whole.saved_mean_s == (100 + 70) / 2
    assert saved.whole.saved_total_h == pytest.approx(170 / 3600)
    assert {each.group: each.jobs for each in saved.groups["tenant"]} == {"a": 1, "b": 1}
    assert {each.group: each.saved_mean_s for each in saved.groups["qos"]} == {"high": 100, "–": 70}
    assert [each.group for each in saved.groups["cause"]] == ["Priority"]


def test_a_job_that_still_waits_in_the_shadow_counts_with_its_wait_so_far() -> None:
    saved = found([0, None], [100, 100], [NEVER, NEVER], at=1000)
    assert saved.waiting_in_shadow == 1
    assert saved.whole.saved_mean_s == (100 - 900) / 2, "a policy that starves gains nothing by it"


def test_starts_that_may_still_change_are_counted_as_such() -> None:
    saved = found([0, 500, 700], [100, 100, 100], [NEVER] * 3, settled=600)
    assert saved.provisional == 1


def test_who_was_there_before_the_first_look_is_not_counted() -> None:
    assert found([0, 5], [100, 100], [NEVER, NEVER], carried=1).booked == 1


@pytest.mark.parametrize(
    ("wait", "off", "beyond"),
    [(0, 0.0, True), (0, 105.0, False), (100, 0.0, False), (0, -105.0, False), (150, 0.0, False)],
)
def test_a_saving_is_claimed_beyond_the_error_alone(wait: int, off: float, beyond: bool) -> None:
    count = 30
    waits = [wait + job % 3 for job in range(count)]
    site = [100.0 - off + job % 2 for job in range(count)]
    saved = found(list(waits), [100] * count, [NEVER] * count, site=site)
    assert saved.whole.beyond_error is beyond
    assert (saved.whole.least_saved_s is not None) is beyond
    assert not beyond or saved.whole.least_saved_s == pytest.approx(98.5, abs=0.5), (
        "what the error reaches is taken off"
    )


def test_without_the_sites_policy_or_with_few_jobs_nothing_is_said_of_the_error() -> None:
    assert found([0] * 30, [100] * 30, [NEVER] * 30).whole.beyond_error is None
    assert found([0] * 3, [100] * 3, [NEVER] * 3, site=[100.0] * 3).whole.beyond_error is None


def test_the_recorded_past_counts_jobs_that_ended() -> None:
    jobs = [Job(number, 0, 100 * SECOND, gpus=1) for number in range(2)]
    past = recorded_past(jobs, [10 * SECOND, 20 * SECOND], 2, None, [NEVER, 5 * SECOND])
    assert (past["jobs"], past["wait_mean_s"], past["jct_mean_s"]) == (1, 10, 110)


def test_a_job_that_was_requeued_in_reality_waited_twice_and_held_gpus_in_vain() -> None:
    jobs = [Job(0, 0, 100 * SECOND, gpus=1), Job(1, 200 * SECOND, 50 * SECOND, gpus=1)]
    past = recorded_past(jobs, [10 * SECOND, 0], 1, None, (), [(60 * SECOND, 30 * SECOND), (0, 0)])
    # It waits 10 s, runs 30 s, waits 30 s, runs 100 s: until 170 s.
    assert (past["wait_mean_s"], past["jct_mean_s"]) == (20, (170 + 50) / 2)
    assert past["gpu_utilisation_while_arriving"] == pytest.approx(130 / 200)


def test_gpus_were_held_from_the_real_start_of_a_job_that_was_eligible_later() -> None:
    jobs = [Job(0, 0, 100 * SECOND, gpus=1), Job(1, 200 * SECOND, 50 * SECOND, gpus=1)]
    past = recorded_past(jobs, [10 * SECOND, 0], 1, None, (), (), [140 * SECOND, 0])
    assert past["wait_mean_s"] == 5, "until it was eligible it did not wait"
    assert past["gpu_utilisation_while_arriving"] == pytest.approx(50 / 200), "from 150 s on, and not from 10 s on"
