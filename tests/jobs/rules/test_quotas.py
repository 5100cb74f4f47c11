"""Tenants get nodes or quotas in proportion, everybody something, and all is given away."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from headway.errors import ExperimentError
from headway.jobs.model.cluster import uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.rules.quotas import apportion, divide, gpu_time
from headway.units import SECOND

WEIGHTS = st.dictionaries(st.text(max_size=3), st.integers(0, 10**18), min_size=1, max_size=20)


@given(
    weights=st.dictionaries(st.text(max_size=3), st.integers(0, 10**18), min_size=1, max_size=20),
    more=st.integers(0, 99),
)
def test_apportioning_gives_everybody_one_and_all_away(weights: dict[str, int], more: int) -> None:
    count = len(weights) + more
    shares = apportion(count, weights)
    assert sum(shares.values()) == count
    assert min(shares.values()) >= 1
    ordered = sorted(weights, key=lambda name: weights[name])
    for less, larger in pairwise(ordered):
        assert shares[less] <= shares[larger] + (weights[less] == weights[larger])


def test_tenants_get_nodes_or_quotas_in_proportion_to_their_gpu_time() -> None:
    jobs = workload(
        [Job(0, 0, 60 * SECOND, 8, tenant="b"), Job(0, 0, 10 * SECOND, 8, tenant="a"), Job(0, 0, SECOND, 1, tenant="c")]
    )
    assert list(gpu_time(jobs)) == ["a", "b", "c"]
    cluster = uniform(8, 8)
    walled, moved = divide(cluster, jobs, "walls")
    assert [(p.name, p.nodes) for p in walled.partitions] == [("a", (0,)), ("b", tuple(range(1, 7))), ("c", (7,))]
    assert {(job.tenant, job.partition) for job in moved} == {("a", "a"), ("b", "b"), ("c", "c")}
    quotas, same = divide(cluster, jobs, "quotas")
    assert same == jobs
    assert {t.name: t.guaranteed_gpus for t in quotas.tenants} == {"a": 9, "b": 54, "c": 1}
    assert not any(t.borrow for t in quotas.tenants)
    assert all(t.borrow for t in divide(cluster, jobs, "borrow")[0].tenants)
    assert {t.guaranteed_gpus for t in divide(uniform(3, 8), jobs, "quotas", "equal")[0].tenants} == {8}
    with pytest.raises(ExperimentError, match="2 cannot be divided among 3"):
        divide(uniform(2, 8), jobs, "walls")
