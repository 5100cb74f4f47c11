"""bench/esg.py: from the cells of sweeps to CSV files and tables."""

import csv
import json
from pathlib import Path

import pytest

from bench import esg


def cell(folder: Path, policy: str, hits: float, seed: int, **values: str) -> None:
    """A cell of a sweep, as its folder keeps it."""
    given = {f"serving.{key}" if key == "start" else f"workload.{key}": value for key, value in values.items()}
    row = {
        "policy": policy,
        "slo_hit_rate": hits,
        "cost_per_request_usd": 6e-5,
        "dropped": 0,
        "wall_s": 1.0,
        "requests": 100,
    }
    named = {} if policy == "headway" else {"policy.name": policy}  # a grid of one policy does not vary it
    record = {"values": {**given, **named}, "seed": seed, "row": row}
    path = folder / "cells" / f"{policy}{seed}{len(given)}{''.join(values.values())}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))


def test_cells_of_several_folders_become_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heavy = {"start": "warm", "slo": "0.8L", "arrivals": "uniform:10ms,16.8ms"}
    light = {"start": "warm", "slo": "0.8L", "arrivals": "uniform:40ms,67.2ms"}
    for seed, hits in ((0, 0.8), (1, 0.9)):
        cell(tmp_path / "a", "esg", hits, seed, **heavy)
        cell(tmp_path / "b", "headway", hits + 0.05, seed, **heavy)
    cell(tmp_path / "a", "esg", 0.1, 2, **heavy)  # the other policy has no such seed
    cell(tmp_path / "a", "esg", 1.0, 0, **light)
    (tmp_path / "a" / "cells" / "failed.json").write_text(json.dumps({"row": None, "values": {}, "seed": 1}))
    cell(tmp_path / "c", "esg", 0.7, 0, start="warm")
    cell(tmp_path / "c", "esg(late=plan)", 0.6, 0, start="warm")
    out = tmp_path / "out"
    esg.main([str(tmp_path / "a"), str(tmp_path / "b"), "--changed", str(tmp_path / "c"), "--out", str(out)])
    said = capsys.readouterr().out
    assert "| policy | strict-light | strict-heavy |" in said
    assert "| `headway` |  | **90.00 ± 36.77 % at 0.0600 ± 0.0000** |" in said
    assert "Best of 2 cells: esg in 1, headway in 1." in said
    assert "| warm | `esg` | `late=plan` | 60.00 % at 0.0600 | -10.00 |" in said
    rows = list(csv.DictReader((out / "cells.csv").read_text().splitlines()))
    assert [(row["arrivals"], row["policy"], row["seeds"], row["slo_hit_rate"]) for row in rows] == [
        ("light", "esg", "1", "1"),
        ("heavy", "esg", "2", "0.85"),
        ("heavy", "headway", "2", "0.9"),
    ]
    assert len((out / "assumptions.csv").read_text().splitlines()) == 3


def test_no_cells_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        esg.main([str(tmp_path), "--out", str(tmp_path / "out")])
    assert ended.value.code == 2
    assert "was run" in capsys.readouterr().err
