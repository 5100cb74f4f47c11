"""The noise of recorded steps: which stretches count, and what is compared with what."""

from pathlib import Path

import numpy as np
import pytest

from bench import gpu_steps


def recorded(folder: Path, name: str, took_ms: np.ndarray, pause_ms: float = 0.0) -> None:
    """Write a recording whose steps take so long and begin as soon as the last is over, or that much later."""
    took = (took_ms * 1e6).astype(np.int64)
    began = np.cumsum(took + int(pause_ms * 1e6)) - took
    np.savez_compressed(folder / f"{name}.npz", began=began, took=took)


def test_short_stretches_count_with_one_step_and_long_ones_with_three() -> None:
    began = np.array([0, 1, 2, 11, 60, 110, 111, 112, 113]) * 1_000_000
    took = np.arange(1, 10)
    assert [each.took.tolist() for each in gpu_steps.stretches_of(began, took, 10)] == [
        [1, 2, 3],
        [4],
        [5],
        [6, 7, 8, 9],
    ]
    assert [each.took.tolist() for each in gpu_steps.stretches_of(began, took, 50)] == [[1, 2, 3, 4], [6, 7, 8, 9]]
    assert [each.median for each in gpu_steps.stretches_of(began, took, 50)] == [2.5, 7.5]


def test_noise_has_rows_of_10_and_20_ms_also_where_steps_are_rarer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_steps, "DRAWS", 5)
    monkeypatch.setattr(gpu_steps, "SECONDS", (2, 20))
    recorded(tmp_path, "rare", np.full(120, 15.4), pause_ms=10.0)
    rows = [dict(zip(gpu_steps.COLUMNS, row, strict=True)) for row in gpu_steps.noise(tmp_path)]
    assert {row["stretch_ms"] for row in rows} == {10, 20, 100, 250, 500}  # three steps take more than 50 ms
    assert {row["over_s"] for row in rows} == {2}  # it was recorded for three seconds
    assert {row["half_width_95"] for row in rows} == {0.0}
    assert {row["recording"] for row in rows} == {tmp_path.name}
    # 120 steps at 25.4 ms: each is alone in its stretch of 10 ms, so 79 of them count in 2 s
    held = {row["held_share"]: row["held_per_s"] for row in rows if row["stretch_ms"] == 10}
    assert held == {0.05: 2.0, 0.1: 4.0, 0.5: 20.0}


def test_pairs_next_to_each_other_do_not_see_a_drift_that_pooled_medians_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_steps, "DRAWS", 20)
    monkeypatch.setattr(gpu_steps, "SECONDS", (5,))
    recorded(tmp_path, "drifts", 2 + np.sin(np.arange(5000) / 500))
    rows = [dict(zip(gpu_steps.COLUMNS, row, strict=True)) for row in gpu_steps.noise(tmp_path)]
    found = {(row["stretch_ms"], row["held_share"], row["estimator"]): row["half_width_95"] for row in rows}
    for stretch in (10, 20):
        for share in (0.05, 0.1):  # both compare neighbours
            assert found[stretch, share, "median of pairs"] < found[stretch, share, "ratio of medians"]
