"""Small cases against brute force: every order of the jobs, every preemptive schedule on a grid, a plain loop."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import permutations

import pytest
from hypothesis import given, settings, strategies as st

from headway.jobs.model.cluster import uniform
from headway.jobs.policies.registry import BACKFILLS, ORDERS, build
from headway.units import SECOND
from tests.drive import Run, World, drive, seconds_of

Asked = tuple[int, int, int]
"""(submit, work, GPUs), times in seconds."""


def run(policy: str, asked: Sequence[Asked], gpus: int) -> Run:
    """A policy on one node, where nothing but the number of GPUs matters."""
    return drive(policy, World(uniform(1, gpus), seconds_of(*asked)))


def total_jct(made: Run) -> int:
    """The sum of all completion times, in whole seconds."""
    total = sum(made.ends[job.id] - job.submit for job in made.jobs)
    assert total % SECOND == 0
    return total // SECOND


def in_turn(asked: Sequence[Asked], order: Sequence[int], gpus: int) -> int:
    """The summed completion times when jobs start in this order, each as early as it can after the one before."""
    busy: list[tuple[int, int]] = []
    now = total = 0
    for index in order:
        submit, work, need = asked[index]
        now = max(now, submit)
        while gpus - sum(width for end, width in busy if end > now) < need:
            now = min(end for end, _ in busy if end > now)
        busy.append((now + work, need))
        total += now + work - submit
    return total


def best_without_preemption(asked: Sequence[Asked], gpus: int) -> int:
    """Over all schedules: any schedule, pushed to the left, is ``in_turn`` by its starts."""
    return min(in_turn(asked, order, gpus) for order in permutations(range(len(asked))))


def best_with_preemption(asked: Sequence[Asked]) -> int:
    """One GPU, any job stopped and taken up again at any second: exhaustive, by what is left of each job."""

    @cache
    def least(now: int, left: tuple[int, ...]) -> int:
        """Job-seconds still to be spent in the system."""
        if not any(left):
            return 0
        present = [i for i, rest in enumerate(left) if rest and asked[i][0] <= now]
        if not present:
            return least(min(asked[i][0] for i, rest in enumerate(left) if rest), left)
        return len(present) + min(least(now + 1, (*left[:i], left[i] - 1, *left[i + 1 :])) for i in present)

    return least(0, tuple(work for _, work, _ in asked))


singles = st.tuples(st.integers(0, 6), st.integers(1, 5), st.just(1))
wide = st.tuples(st.integers(0, 8), st.integers(1, 9), st.integers(1, 4))


@given(works=st.lists(st.integers(1, 50), min_size=1, max_size=6))
@settings(max_examples=25)
def test_sjf_is_optimal_on_one_gpu_when_all_jobs_are_there(works: list[int]) -> None:
    asked = [(0, work, 1) for work in works]
    assert total_jct(run("sjf", asked, 1)) == best_without_preemption(asked, 1)


@given(asked=st.lists(singles, min_size=1, max_size=5))
@settings(max_examples=40)
def test_srtf_is_optimal_on_one_gpu(asked: list[Asked]) -> None:
    assert total_jct(run("srtf", asked, 1)) == best_with_preemption(sorted(asked))


def test_the_exhaustive_search_finds_what_preemption_gains() -> None:
    asked = [(0, 4, 1), (1, 1, 1)]
    assert best_with_preemption(asked) == 6
    assert best_without_preemption(asked, 1) == 7, "even when it may leave the GPU idle for a second"


@pytest.mark.parametrize("backfill", sorted(BACKFILLS))
@pytest.mark.parametrize("order", sorted(ORDERS))
@given(asked=st.lists(wide, min_size=1, max_size=5))
@settings(max_examples=4)
def test_nothing_without_preemption_beats_the_best_schedule(order: str, backfill: str, asked: list[Asked]) -> None:
    made = drive(build(f"{order}+{backfill}+no-preempt"), World(uniform(1, 4), seconds_of(*asked)))
    spent = sum(made.ends[job.id] - job.submit for job in made.jobs)
    assert spent >= best_without_preemption(sorted(asked, key=lambda job: job[0]), 4) * SECOND


def plain(asked: Sequence[Asked], gpus: int, key: Callable[[int], object], *, strict: bool) -> list[int]:
    """When each job starts, by a loop over whole seconds that looks at everything each time."""
    starts = [-1] * len(asked)
    now = 0
    while min(starts) < 0:
        waiting = sorted(
            (i for i, job in enumerate(asked) if starts[i] < 0 and job[0] <= now), key=lambda i: (key(i), i)
        )
        for i in waiting:
            held = sum(job[2] for j, job in enumerate(asked) if 0 <= starts[j] <= now < starts[j] + job[1])
            if held + asked[i][2] <= gpus:
                starts[i] = now
            elif strict:
                break
        now += 1
    return starts


@pytest.mark.parametrize(("order", "column"), [("fifo", 0), ("sjf", 1)])
@pytest.mark.parametrize(("backfill", "strict"), [("none", True), ("fit", False)])
@given(asked=st.lists(wide, min_size=1, max_size=9))
@settings(max_examples=25)
def test_a_discipline_starts_every_job_when_a_plain_loop_does(
    order: str, column: int, backfill: str, strict: bool, asked: list[Asked]
) -> None:
    given_in_order = sorted(asked, key=lambda job: job[0])
    expected = plain(given_in_order, 4, lambda i: given_in_order[i][column], strict=strict)
    starts = run(f"{order}+{backfill}", given_in_order, 4).starts
    assert [starts[i] // SECOND for i in range(len(asked))] == expected
