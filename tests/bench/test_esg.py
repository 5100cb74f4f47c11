"""bench/esg.py: from the cells of sweeps to CSV files and tables."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from bench import esg, esg_cells

HEAVY: dict[str, Any] = {"start": "warm", "slo": "0.8L", "arrivals": "uniform:10ms,16.8ms"}
LIGHT: dict[str, Any] = {"start": "warm", "slo": "0.8L", "arrivals": "uniform:40ms,67.2ms"}
ONE: dict[str, Any] = {"start": "warm", "slo": "1.0L", "arrivals": "uniform:20ms,33.6ms"}
TABLES = {"start": "serving", "controller": "serving", "slo": "workload", "arrivals": "workload"}


def cell(folder: Path, policy: str, hits: float, seed: int, usd: float = 6e-5, law: str = "", **values: Any) -> None:
    """A cell of a sweep, as its folder keeps it."""
    given = {f"{TABLES[key]}.{key}": value for key, value in values.items()}
    numbers = {"slo_hit_rate": hits, "cost_per_request_usd": usd, "dropped": 0, "requests": 100}
    timed = {"controller": law, "controller_utilisation": 0.5, "decision_wait_mean_s": 2e-6} if law else {}
    named = {} if policy == "headway" else {"policy.name": policy}  # a grid of one policy does not vary it
    record = {"values": {**given, **named}, "seed": seed, "row": {"policy": policy, **numbers, **timed}}
    path = folder / "cells" / f"{policy}{seed}{len(given)}{''.join(values.values())}{law}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))


def row(policy: str, hits: float, usd: float, **values: str) -> dict[str, Any]:
    named = {"controller": "none", "start": "warm", "slo": "strict", "arrivals": "light", **values}
    return {**named, "policy": policy, "slo_hit_rate": hits, "cost_per_request_usd": usd}


def test_cells_of_several_folders_become_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, hits in ((0, 0.8), (1, 0.9)):
        cell(tmp_path / "a", "esg", hits, seed, **HEAVY)
        cell(tmp_path / "b", "headway", hits + 0.05, seed, **HEAVY)
    cell(tmp_path / "a", "esg", 0.1, 2, **HEAVY)  # the other policy has no such seed
    cell(tmp_path / "a", "esg", 1.0, 0, **LIGHT)
    (tmp_path / "a" / "cells" / "failed.json").write_text(json.dumps({"row": None, "values": {}, "seed": 1}))
    out = tmp_path / "out"
    esg.main([str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(out)])
    said = capsys.readouterr().out
    assert "| policy | strict-light | strict-heavy | ± |" in said
    assert "| `headway` |  /  | **90.00** /  | 36.77 |" in said
    assert "| `esg` | **60.0** /  | 60.0 /  | 0.0 |" in said
    assert "| none | warm | 1 of 1 |  |  |" in said  # in the other cell only one was run
    rows = list(csv.DictReader((out / "cells.csv").read_text().splitlines()))
    assert [(row["arrivals"], row["policy"], row["seeds"], row["slo_hit_rate"]) for row in rows] == [
        ("light", "esg", "1", "1"),
        ("heavy", "esg", "2", "0.85"),
        ("heavy", "headway", "2", "0.9"),
    ]
    assert [row["slo_hit_rate"] for row in esg_cells.load(out / "cells.csv")] == [1.0, 0.85, 0.9]


def test_who_is_best_has_most_in_time_within_a_fifth_of_a_point_and_costs_at_most_two_percent_more() -> None:
    near = [row("a", 0.998, 100.0), row("headway", 1.0, 101.9)]
    more = [row("b", 0.9979, 50.0), row("c", 1.0, 102.1)]
    assert esg.best_of(esg.grouped([*near, *more])["none", "warm", "strict", "light"]) == ["a", "headway"]
    dear = [row("a", 1.0, 100.0, slo="moderate"), row("headway", 1.0, 103.0, slo="moderate")]
    late = [row("a", 0.95, 100.0, slo="relaxed"), row("headway", 0.94, 50.0, slo="relaxed")]
    (said,) = esg.verdicts([*near, *dear, *late])[2:]
    assert said.startswith(
        "| none | warm | 1 of 3 | `a` 3 | moderate-light: 0.00 points fewer, +3.0 % cost against `a`;"
    )
    assert said.endswith("; relaxed-light: 1.00 points fewer, -50.0 % cost against `a` |")


def test_claims_are_over_deadlines_and_decision_times_over_cells() -> None:
    rows = [
        row(policy, hits, usd, slo=slo)
        for slo, hits, usd in (("strict", 0.5, 2.0), ("moderate", 0.8, 1.1))
        for policy, hits, usd in (("esg", 1.0, 1.0), ("infless", hits, usd))
    ]
    assert "| `infless` | light | 20 to 50 |  | 10 to 100 % |  |" in esg.claims(rows)
    extra: dict[str, Any] = {"law": "fixed=1ms", "controller_utilisation": 0.25, "decision_wait_mean_s": 3e-6}
    extra |= {"points": -10.0, "cost_percent": 50.0}
    timed = {**row("esg", 0.9, 1.5, controller="calibrated"), **extra}
    assert esg.decision_times([*rows, timed])[2:] == [
        "| `esg` | `fixed=1ms` | 25.0 % | 3.0 µs | -10.00, -10.00 | +50.00 % |"
    ]


def test_changes_are_seed_by_seed_and_the_costliest_assumption_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start: dict[str, Any] = {"start": "warm"}
    for seed, hits in ((0, 0.5), (1, 0.7)):
        cell(tmp_path / "nine", "infless", hits, seed, **ONE)
        cell(tmp_path / "timed", "infless", hits - 0.02, seed, law="fixed=1us", **ONE)
        cell(tmp_path / "changed", "infless", hits, seed, **start)
        cell(tmp_path / "changed", "infless(wait=off)", hits + 0.1, seed, 9e-5, **start)
        cell(tmp_path / "changed", "infless(grid=off)", hits + 0.3, seed, **start)
        cell(tmp_path / "changed", "infless(histogram=off)", hits, seed, **start)
    cell(tmp_path / "changed", "infless(wait=off)", 0.0, 2, **start)  # without a run to compare with
    folders = [str(tmp_path / name) for name in ("nine", "timed")]
    esg.main([*folders, "--changed", str(tmp_path / "changed"), "--out", str(tmp_path / "out")])
    said = capsys.readouterr().out
    assert "| `infless` | batch wait | `wait=off` | +10.00 ± 0.00 | +50.0 % |  |  |" in said
    assert "histogram" not in said  # changes nothing
    assert "| `infless` | warm | batch wait (`wait=off`), 10.00 | plan (`grid=off`), 30.00 |" in said
    assert "| `infless` | `fixed=1us` | 50.0 % | 2.0 µs | -2.00, -2.00 | +0.00 % |" in said
    rows = esg_cells.load(tmp_path / "out" / "assumptions.csv")
    assert [(row["changed"], row["seeds"]) for row in rows] == [
        ("wait=off", 2),
        ("controller=calibrated", 2),
        ("grid=off", 2),
        ("histogram=off", 2),
    ]


def test_an_axis_that_tables_do_not_have_is_one_line(tmp_path: Path) -> None:
    cell(tmp_path, "esg", 1.0, 0, **ONE)
    (path,) = (tmp_path / "cells").iterdir()
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "values": {**record["values"], "serving.workers": 8}}))
    with pytest.raises(SystemExit, match="cell of esg: varies workers; tables are by controller"):
        esg.main([str(tmp_path), "--out", str(tmp_path / "out")])


def test_no_cells_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        esg.main([str(tmp_path), "--out", str(tmp_path / "out")])
    assert ended.value.code == 2
    assert "was run" in capsys.readouterr().err
