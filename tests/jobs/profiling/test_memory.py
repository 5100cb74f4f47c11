"""The cache of fixed hit rate: Synergy's formula, and what a run without a cache says about the loader."""

import pytest
from hypothesis import given, strategies as st

from headway.jobs.profiling.memory import Cache, columns

GB = 10**9
PAPER = Cache(
    bytes_per_sample=100_000,
    dataset_bytes=100 * GB,
    working_bytes=10 * GB,
    memory_bytes_per_second=10e9,
    disk_bytes_per_second=500e6,
)


def test_the_formula_of_the_paper() -> None:
    samples = PAPER.dataset_bytes / PAPER.bytes_per_sample
    for share, compute_s in ((0.0, 1e-4), (0.3, 1e-4), (0.7, 1e-4), (0.3, 1e-3)):
        epoch = max(samples * compute_s, share * 100e9 / 10e9 + (1 - share) * 100e9 / 500e6)
        assert samples * PAPER.seconds(compute_s, share) == pytest.approx(epoch)


def test_the_share_that_is_kept() -> None:
    assert PAPER.share(5 * GB) == 0
    assert PAPER.share(60 * GB) == 0.5
    assert PAPER.share(500 * GB) == 1


def test_with_everything_kept_it_is_as_fast_as_measured_whatever_the_overlap() -> None:
    for overlap in (0.0, 0.4, 1.0):
        cache = PAPER.calibrated(1e-3, 1.1e-3)
        assert cache.seconds(1e-3, 1.0) == pytest.approx(1e-3), overlap


@pytest.mark.parametrize("overlap", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("compute_s", [1e-4, 1.5e-4, 1e-3])
def test_a_run_without_a_cache_gives_the_overlap_back(overlap: float, compute_s: float) -> None:
    true = Cache(100_000, 100 * GB, 10 * GB, 10e9, 500e6, overlap)
    found = PAPER.calibrated(compute_s, true.seconds(compute_s, 0.0))
    for share in (0.0, 0.3, 0.7, 1.0):
        assert found.seconds(compute_s, share) == pytest.approx(true.seconds(compute_s, share))


def test_a_loader_with_several_readers_is_faster_than_the_disk_was_measured() -> None:
    found = PAPER.calibrated(5e-5, 1e-4)
    assert found.overlap == 1
    assert found.seconds(5e-5, 0.0) == pytest.approx(1e-4)
    assert found.seconds(5e-5, 0.7) == pytest.approx(5e-5, rel=0.01)


def test_a_loader_that_waits_longer_than_the_disk_takes_does_not_overlap() -> None:
    found = PAPER.calibrated(1e-4, 5e-4)
    assert found.overlap == 0
    assert found.seconds(1e-4, 0.0) == pytest.approx(5e-4)
    assert found.seconds(1e-4, 0.5) == pytest.approx(3e-4)


def test_a_program_that_is_not_slowed_without_a_cache_never_is() -> None:
    found = PAPER.calibrated(1e-4, 1e-4)
    assert found.seconds(1e-4, 0.0) == pytest.approx(1e-4)


@given(st.floats(1e-6, 1), st.floats(0.5, 50), st.floats(0, 1), st.floats(0, 1))
def test_more_memory_and_faster_computing_never_slow_it(compute: float, slower: float, a: float, b: float) -> None:
    cache = PAPER.calibrated(compute, compute * slower)
    low, high = sorted((a, b))
    assert cache.seconds(compute, high) <= cache.seconds(compute, low) * (1 + 1e-9)
    assert cache.seconds(compute, low) <= cache.seconds(compute * 2, low) * (1 + 1e-9)


def test_columns_go_from_none_of_the_data_to_all_of_it_and_mark_where_it_is_enough() -> None:
    found = columns(PAPER, [1.5e-4], gpus=1)
    assert found[0] == 10 * GB
    assert found[-1] == 110 * GB
    assert found == sorted(found)
    enough = 10 * GB + PAPER.enough(1.5e-4) * 100 * GB
    assert min(abs(size - enough) for size in found) <= 5 * GB
    assert columns(PAPER, [1.5e-4], gpus=2)[-1] == 55 * GB
