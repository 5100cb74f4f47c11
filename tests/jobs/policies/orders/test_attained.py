"""las and tiresias: by what jobs have had, with exact schedules on one node."""

from hypothesis import given, settings, strategies as st

from headway.jobs.model.rows import Kind
from headway.units import MINUTE
from tests.jobs.policies.orders.drive import job, play


def test_las_lets_a_newcomer_take_the_place_of_a_job_that_has_had_more() -> None:
    played = play([job(0, 100), job(30, 10)], "las(quantum=10m)")
    assert played.spans == [(0, 0, 30), (1, 30, 40), (0, 40, 110)]


def test_las_waits_until_the_newcomer_would_still_be_behind_after_its_quantum() -> None:
    # At 5 min job 0 has had 5, and job 1 will have had 10 after its quantum; the next look is a quantum later.
    played = play([job(0, 100), job(5, 10)], "las(quantum=10m)")
    assert played.spans == [(0, 0, 15), (1, 15, 25), (0, 25, 110)]


def test_las_counts_gpu_time_and_not_time() -> None:
    # Job 0 has held 2 GPUs for 20 min, job 1 one GPU for 20 min: job 0 has had more, and makes room.
    played = play([job(0, 100, gpus=2), job(0, 100), job(20, 5, gpus=1)], "las(quantum=5m)", 3)
    assert played.preempted == [(0, 0, 20)]


def test_the_quantum_of_the_command_line_is_the_one_that_las_uses() -> None:
    jobs = [job(0, 100), job(30, 10)]
    played = play(jobs, "las(quantum=10m)", quantum=40 * MINUTE)
    assert played.spans == [(0, 0, 70), (1, 70, 80), (0, 80, 110)]
    assert played.policy.order.quantum == played.policy.quantum == 40 * MINUTE


def test_las_spares_whom_the_newcomer_does_not_need() -> None:
    played = play([job(0, 100), job(0, 100), job(50, 10)], "las(quantum=10m)", 2)
    assert [which for which, *_ in played.preempted] == [1]


@settings(max_examples=30)
@given(works=st.lists(st.integers(20, 200), min_size=2, max_size=5), quantum=st.integers(5, 30))
def test_las_keeps_what_jobs_have_had_within_a_few_quanta(works: list[int], quantum: int) -> None:
    played = play([job(0, work) for work in works], f"las(quantum={quantum}m)")
    for now in range(0, sum(works), quantum):
        had = [
            sum(min(end, now) - start for which, start, end in played.spans if which == each.id and start < now)
            for each in played.jobs
            if played.ends[each.id] > now
        ]
        assert not had or max(had) - min(had) <= 3 * quantum


def test_tiresias_demotes_at_the_threshold_exactly() -> None:
    played = play([job(0, 300), job(10, 20)], "tiresias(thresholds=1h)")
    assert played.spans == [(0, 0, 60), (1, 60, 80), (0, 80, 320)]


def test_tiresias_thresholds_are_gpu_time() -> None:
    played = play([job(0, 300, gpus=2), job(10, 20)], "tiresias(thresholds=1h)", 2)
    assert played.spans == [(0, 0, 30), (1, 30, 50), (0, 50, 320)]


def test_a_job_that_ends_at_the_threshold_is_not_preempted() -> None:
    played = play([job(0, 60), job(10, 20)], "tiresias(thresholds=1h)")
    assert played.spans == [(0, 0, 60), (1, 60, 80)]


def test_tiresias_never_preempts_within_a_queue_but_who_has_just_fallen_stands_behind_who_waits_there() -> None:
    # Job 1 falls at 120, behind job 0, and loses its GPU; then job 0 runs to its end though it has had more.
    played = play([job(0, 300), job(10, 100)], "tiresias(thresholds=1h)")
    assert played.spans == [(0, 0, 60), (1, 60, 120), (0, 120, 360), (1, 360, 400)]


def test_tiresias_takes_the_latest_submission_of_the_last_queue() -> None:
    jobs = [job(0, 500), job(1, 500), job(2, 500), job(200, 10)]
    assert [which for which, *_ in play(jobs, "tiresias(thresholds=1h)", 3).preempted] == [2]


def test_of_three_queues_the_last_gives_way_first() -> None:
    # At 150 min job 0 has had 150 (third queue) and job 1 90 (second), and job 1 was submitted later.
    jobs = [job(0, 500), job(60, 500), job(150, 10)]
    assert [which for which, *_ in play(jobs, "tiresias(thresholds=1h/2h)", 2).preempted][:1] == [0]


def test_promotion_takes_a_starving_job_back_to_the_first_queue() -> None:
    jobs = [job(0, 300), job(10, 59), job(100, 59), job(150, 59)]
    assert play(jobs, "tiresias(thresholds=1h)").spans[:4] == [(0, 0, 60), (1, 60, 119), (2, 119, 178), (3, 178, 237)]
    # It has run 60 min and has waited for 118 at 178: from there it has another hour in the first queue.
    promoted = play(jobs, "tiresias(thresholds=1h, promote=1)")
    assert promoted.spans[:5] == [(0, 0, 60), (1, 60, 119), (2, 119, 178), (0, 178, 238), (3, 238, 297)]


def test_tiresias_does_not_wake_when_nobody_could_gain() -> None:
    # With one GPU job 1 gains when job 0 falls, and then job 0 would when job 1 does; with two nobody waits.
    for gpus in (1, 2):
        played = play([job(0, 300), job(0, 20)], "tiresias(thresholds=1h)", gpus)
        woken = [time / MINUTE for time, kind, *_ in played.rows if kind == Kind.WOKE]
        assert woken == ([60, 120] if gpus == 1 else [])
