"""The summary of a trace: against plain counting, and by hand."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from headway.gpu.profiling.summary import EDGES_NS, gaps_of, histogram, readable, summarise
from headway.gpu.programs.trace import KernelTrace

Span = tuple[int, int]


def trace_from(
    spans: list[Span], kind: int = 1, names: list[str] | None = None, waits: list[int] | None = None
) -> KernelTrace:
    start, end = (np.array(column, np.int64) for column in zip(*spans, strict=True))
    count = len(spans)
    return KernelTrace(
        launch_ns=np.minimum.accumulate(start[::-1])[::-1],
        start_ns=start,
        end_ns=end,
        kernel=np.array(names or ["k"] * count, np.str_),
        blocks=np.full(count, 64, np.int32),
        per_sm=np.full(count, 2, np.int32),
        kind=np.full(count, kind, np.int8),
        wait_ns=np.array(waits or [0] * count, np.int64),
    )


spans = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 40)).map(lambda each: (each[0], each[0] + each[1])),
    min_size=1,
    max_size=30,
)


@given(spans)
def test_busy_and_idle_are_what_counting_every_nanosecond_gives(made: list[Span]) -> None:
    begin, finish = min(start for start, _ in made), max(end for _, end in made)
    busy = sum(any(start <= moment < end for start, end in made) for moment in range(begin, finish))
    found = summarise(trace_from(made), threshold_ns=0)
    assert found.span_ns == finish - begin
    whole = max(1, found.span_ns)
    assert found.busy_share == pytest.approx(busy / whole, abs=1e-6)
    assert found.busy_share + found.idle_share == pytest.approx(1 if found.span_ns else 0, abs=2e-6)
    assert found.harvestable_share == found.idle_share


@given(spans, st.integers(1, 60))
def test_what_can_be_harvested_lies_in_gaps_that_are_long_enough(made: list[Span], threshold: int) -> None:
    found = summarise(trace_from(made), threshold)
    gaps = gaps_of(*(np.array(column, np.int64) for column in zip(*made, strict=True)))
    long = sum(gap for gap in gaps.tolist() if gap >= threshold)
    assert found.harvestable_share == pytest.approx(long / max(1, found.span_ns), abs=1e-6)


@given(st.lists(st.integers(1, 10**9), max_size=50))
def test_every_gap_is_in_one_bin(gaps: list[int]) -> None:
    bins = histogram(np.array(gaps, np.int64))
    assert sum(each.gaps for each in bins) == len(gaps)
    assert sum(each.idle_ns for each in bins) == sum(gaps)
    assert [each.from_ns for each in bins] == list(EDGES_NS)
    for each in bins:
        held = [gap for gap in gaps if gap >= each.from_ns and (not each.to_ns or gap < each.to_ns)]
        assert (each.gaps, each.idle_ns) == (len(held), sum(held))


def test_kernels_that_matter_come_first_and_copies_are_not_the_gpu_at_work() -> None:
    names = ["short", "long", "short", "long"]
    found = summarise(trace_from([(0, 10), (20, 120), (130, 150), (160, 360)], names=names, waits=[0, 140, 0, 400]))
    assert [(use.name, use.count, use.total_ns, use.mean_ns, use.longest_ns) for use in found.kernels] == [
        ("long", 2, 300, 150, 200),
        ("short", 2, 30, 15, 20),
    ]
    assert [use.share for use in found.kernels] == [pytest.approx(10 / 11, abs=1e-6), pytest.approx(1 / 11, abs=1e-6)]
    assert (found.waits, found.launches) == (2, 4)
    copies = summarise(trace_from([(0, 10), (20, 120)], kind=3))
    assert (copies.span_ns, copies.busy_share, copies.launches_per_s) == (0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("mangled", "shown"),
    [
        ("gemm (1,1,1)x(32,1,1)+0", "gemm (1,1,1)x(32,1,1)+0"),
        ("_Z4axpyfPfS_ (9,1,1)x(32,1,1)+0", "axpy (9,1,1)x(32,1,1)+0"),
        ("_ZN2at6native6kernelILi4ENS0_15CUDAFunctorOn (1,1,1)x(1,1,1)+0", "at::native::kernel (1,1,1)x(1,1,1)+0"),
        ("_ZN2at6native53_GLOBAL__N_12345", "at::native"),
        ("_Zx", "_Zx"),
    ],
)
def test_mangled_names_are_shown_so_that_people_can_read_them(mangled: str, shown: str) -> None:
    assert readable(mangled) == shown
