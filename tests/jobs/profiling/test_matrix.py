"""From points to a profile: what chance broke is repaired, and what comes out keeps the rules of profiles."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from headway.jobs.profiling.bandwidth import Storage
from headway.jobs.profiling.matrix import Found, Point, document_of, rate_at, repaired, wanted_cpus
from headway.jobs.profiling.memory import Cache
from headway.jobs.profiling.options import Options
from headway.jobs.tables import profiles as profile_file
from headway.profiling import store

GB = 10**9


def point(cpus: float, per_second: float, error: float = 0.01) -> Point:
    return Point(cpus, per_second, error, 50, 5.0)


def found(points: list[Point], cache: Cache | None = None) -> Found:
    return Found(
        points=points,
        checks=[point(1.5, 150)],
        cache=cache,
        uncached=None,
        working_bytes=2 * GB,
        means="cgroup v2 quota",
        low=points[0].cpus,
        high=points[-1].cpus,
        wall_s=30,
        cpu_s=40,
        run_s=5,
        runs=len(points),
        storage=Storage(500e6, 100_000, True, "data"),
        memory_bytes_per_second=10e9,
    )


PARTS: dict[str, Any] = {"key": "k", "program": {"command": ["train"]}, "hardware": {"gpu": ""}}
CACHE = Cache(100_000, 10 * GB, 2 * GB, 10e9, 500e6, 1.0)


def test_points_in_order_stay_and_the_fastest_are_one_plateau() -> None:
    fixed = repaired([point(0.5, 50), point(1, 100), point(2, 198), point(4, 200), point(8, 202)])
    assert [each.per_second for each in fixed[:2]] == [50, 100]
    assert len({each.per_second for each in fixed[2:]}) == 1
    assert fixed[2].per_second == pytest.approx(200, rel=0.001)
    assert fixed[2].error > 0.01


def test_points_that_fall_are_pooled_and_their_errors_wider() -> None:
    fixed = repaired([point(1, 100), point(2, 80), point(4, 200)])
    assert fixed[0].per_second == fixed[1].per_second
    assert 80 < fixed[0].per_second < 100
    assert fixed[0].error > 0.05
    assert fixed[2].per_second == 200


def test_two_measurements_of_a_point_are_joined_by_how_sure_they_are() -> None:
    both = point(1, 100, 0.01).joined(point(1, 110, 0.10))
    assert 100 < both.per_second < 102
    assert both.error > 0.04
    assert (both.runs, both.steps) == (2, 100)


def test_between_points_it_is_a_straight_line_from_nothing() -> None:
    points = [point(1, 100), point(3, 200)]
    assert [rate_at(points, cpus) for cpus in (0.5, 1, 2, 9)] == [50, 100, 150, 200]


def test_a_profile_without_data_has_one_column_at_the_memory_it_takes(tmp_path: Path) -> None:
    document = document_of(Options(("python", "dir/train.py")), found([point(1, 100), point(2, 200)]), PARTS)
    assert document["model"] == "train"
    assert document["memory"] == ["2GB"]
    assert document["throughput"] == [[0.5], [1.0]]
    assert document["measured"]["checks"][0]["off"] == 0
    assert document["reads_per_second"] == document["dataset"] == 0
    store.write(document, tmp_path / "p.toml")
    profile = profile_file.read(tmp_path / "p.toml")
    assert profile.demand.cpu_milli == 2000
    assert profile.speed(1500, 2 * GB) == 750_000


def test_the_memory_axis_follows_the_cache(tmp_path: Path) -> None:
    points = [point(1, 2_000), point(4, 8_000)]
    document = document_of(Options(("train",)), found(points, CACHE), PARTS)
    store.write(document, tmp_path / "p.toml")
    profile = profile_file.read(tmp_path / "p.toml")
    assert profile.memory_bytes[0] == 2 * GB
    assert profile.memory_bytes[-1] == 12 * GB
    assert profile.ppm[-1][0] == pytest.approx(5_000 / 8_000 * 1e6, abs=2)  # 500 MB/s of 100 KB samples
    assert profile.ppm[0] == (250_000,) * len(profile.memory_bytes)  # one CPU is slower than the disk
    assert profile.read_bytes_per_second == 800_000_000
    assert (profile.dataset_bytes, profile.working_bytes) == (10 * GB, 2 * GB)
    cost = document["measured"]["cost"]
    assert cost["exhaustive_wall_s"] == cost["exhaustive_runs"] * 5
    assert document["measured"]["bandwidth"]["overlap"] == 1


def test_memory_is_counted_for_each_gpu() -> None:
    asked = Options(("train",), gpus=2)
    document = document_of(asked, found([point(1, 2_000), point(8, 8_000)], CACHE), PARTS)
    assert document["cpus"] == [0.5, 4]
    assert document["memory"][-1] == "6GB"
    assert document["working_memory"] == GB
    assert document["reads_per_second"] == 400_000_000
    assert wanted_cpus(document) == 4


def test_the_share_that_is_kept_is_the_same_for_one_gpu_as_for_all(tmp_path: Path) -> None:
    asked = Options(("train",), gpus=2)
    document = document_of(asked, found([point(1, 2_000), point(8, 8_000)], CACHE), PARTS)
    assert document["dataset"] == 5 * GB
    assert document["measured"]["dataset"] == {"bytes": 10 * GB, "gpus": 2, "bytes_a_gpu": 5 * GB}
    store.write(document, tmp_path / "p.toml")
    profile = profile_file.read(tmp_path / "p.toml")
    for size in (GB, 2 * GB, 3 * GB, 6 * GB):
        assert profile.misses_ppm(size) == pytest.approx((1 - CACHE.share(2 * size)) * 1e6, abs=1)


def test_sizes_that_are_asked_for_are_the_columns_but_not_below_what_the_program_takes() -> None:
    asked = Options(("train",), memory=(GB, 4 * GB, 8 * GB))
    assert document_of(asked, found([point(1, 8_000)], CACHE), PARTS)["memory"] == ["4GB", "8GB"]
    asked = Options(("train",), memory=(4 * GB, 12 * GB), memory_range=True)
    sizes = document_of(asked, found([point(1, 8_000)], CACHE), PARTS)["memory"]
    assert {"4GB", "6GB", "8GB", "10GB", "12GB"} <= set(sizes)


points = st.lists(st.tuples(st.floats(1, 1e6), st.floats(0, 0.5)), min_size=1, max_size=10)


@given(points, st.floats(0, 1), st.floats(1, 20))
def test_whatever_was_measured_the_profile_is_sound(
    drawn: list[tuple[float, float]], overlap: float, slower: float
) -> None:
    measured = [point((index + 1) / 4, rate, error) for index, (rate, error) in enumerate(drawn)]
    compute = 1 / measured[-1].per_second
    for cache in (None, CACHE.calibrated(compute, compute * slower)):
        document = document_of(Options(("train",)), found(measured, cache), PARTS)  # raises where a rule is broken
        assert max(max(row) for row in document["throughput"]) == 1
