"""Predictions beside what was measured: of the pairs of a folder, of given ones, and told what was taken alone."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import gpu_share_predict

KEY = {"high": "vgg16", "low": "matmul", "think_ms": 0}


def predicted(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_share_predict", *map(str, words), "--seconds", "0.01"])
    gpu_share_predict.main()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text().splitlines()]


def test_given_pairs_are_predicted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.jsonl"
    for _ in range(2):
        predicted(monkeypatch, out, "shipped", "--pairs", "vgg16+matmul", "--think-ms", "0")
    (row,) = lines(out)
    assert {name: row[name] for name in KEY} == KEY
    assert set(row["modes"]) == set(gpu_share_predict.ALL_MODES)
    with pytest.raises(SystemExit, match=r"--pairs 'vgg16': a pair is HIGH\+LOW"):
        predicted(monkeypatch, out, "shipped", "--pairs", "vgg16")


def test_the_pairs_of_a_folder_are_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pairs", "slicing"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(KEY) + "\n" + json.dumps({**KEY, "low": "a,b"}) + "\n")
    predicted(monkeypatch, tmp_path, "shipped")
    (row,) = lines(tmp_path / "predict.jsonl")
    assert {name: row[name] for name in KEY} == KEY


def test_what_the_one_above_took_alone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured, told = tmp_path / "measured.jsonl", []
    measured.write_text(json.dumps({**KEY, "alone": {"p50_ms": 1.5}}))
    real = gpu_share_predict.predict
    monkeypatch.setattr(gpu_share_predict, "predict", lambda *a, **k: told.append(k["alone"]) or real(*a, **k))
    predicted(monkeypatch, tmp_path / "out.jsonl", "shipped", "--alone", measured)
    assert told == [1_500_000]
    (row,) = lines(tmp_path / "out.jsonl")
    assert set(row) == {*KEY, "slowdown", "low_share", "cpu_factor"}
    assert row["cpu_factor"] > 1.2
