"""Nodes with the CPUs and memory for a job are found at once as they are one by one."""

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given, strategies as st

from headway.jobs.policies.placements.pick import with_host
from headway.jobs.state.pool import Pool, members

NODES = 6
amounts = st.integers(0, 40)


@given(
    st.lists(st.tuples(amounts, amounts, amounts), min_size=NODES, max_size=NODES),
    st.tuples(amounts, amounts, amounts),
    st.integers(1, 4),
    st.integers(0, 4),
    st.integers(0, 2**NODES - 1),
)
def test_it_says_of_all_what_the_pool_says_of_one(
    free: list[tuple[int, int, int]], asked: tuple[int, int, int], gpus: int, count: int, candidates: int
) -> None:
    names = ("cpu_free", "memory_free", "storage_free")
    held = {name: [row[place] for row in free] for place, name in enumerate(names)}
    pool = cast("Any", SimpleNamespace(**held, bits=[1 << node for node in range(NODES)]))
    pool.host_fits = lambda demand, node, part: Pool.host_fits(pool, demand, node, part)
    demand = cast("Any", SimpleNamespace(cpu_milli=asked[0], memory_bytes=asked[1], storage=asked[2], gpus=gpus))
    found = with_host(pool, demand, candidates, min(count, gpus))
    one_by_one = {node for node in members(candidates) if Pool.host_fits(pool, demand, node, min(count, gpus))}
    assert set(members(found)) == one_by_one
