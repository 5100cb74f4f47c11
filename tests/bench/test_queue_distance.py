"""The workload that engines are compared with their simulation on."""

from bench.queue_distance import GPUS, LONGEST_S, SHORTEST_S, plan


def test_a_workload_is_fixed_and_fits() -> None:
    jobs = plan(60, 0, 4)
    assert jobs == plan(60, 0, 4)
    assert jobs != plan(60, 1, 4)
    assert sum(job.torch for job in jobs) == 4
    assert [job.at_s for job in jobs] == sorted(job.at_s for job in jobs)
    assert all(SHORTEST_S <= job.length_s <= LONGEST_S and 1 <= job.gpus <= GPUS for job in jobs)
