"""Measurements of live serving: rows are kept and not measured again, verdicts say what was not met, OpenAPI holds."""

import math
import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.run import ROOT
from bench.serve_faults import NODE, unmet
from bench.serve_load import Seen, back_s, told
from bench.serve_process import own_bytes
from bench.serve_ray import HEADWAY, RAY_SERVE, is_met, ratios
from bench.serve_rows import Rows, read, table
from bench.serve_soak import verdict


def test_rows_are_on_disk_at_once_and_a_line_cut_short_is_left_out(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "out", "faults")
    rows.add({"fault": "none", "rate": 5.0})
    rows.add({"fault": "memory", "rate": 5.0})
    with rows.path.open("a") as file:
        file.write('{"fault": "ha')
    again = Rows(tmp_path / "out", "faults")
    assert again.found(fault="none", rate=5.0) == [{"fault": "none", "rate": 5.0}]
    assert not again.found(fault="none", rate=6.0)
    assert read(rows.path) == [{"fault": "none", "rate": 5.0}, {"fault": "memory", "rate": 5.0}]
    again.clear()
    assert not Rows(tmp_path / "out", "faults").rows


def test_a_table_has_a_line_a_row() -> None:
    rows = [{"a": 1, "b": {"late": 2}, "c": []}, {"a": 20_000, "b": {}, "c": ["x", "y"]}]
    assert table(rows, ("a", "b", "c")).splitlines() == [
        "| a | b | c |",
        "| --- | --- | --- |",
        "| 1 | 2 × late | none |",
        "| 20,000 | none | x, y |",
    ]


def test_p99_is_back_where_the_first_quick_window_begins() -> None:
    slow = {100.0 + each / 10: 3.0 for each in range(20)}
    ends = [(each / 10, slow.get(each / 10, 0.01)) for each in range(900, 1300)]
    assert back_s(Seen(ends), fault_at=100.0, usual=0.01, window_s=5.0) == 2.0
    assert back_s(Seen(ends), fault_at=100.0, usual=2.0, window_s=5.0) == 0.0
    failing = [(due, math.inf if due >= 100.0 else latency) for due, latency in ends]
    assert back_s(Seen(failing), fault_at=100.0, usual=0.01, window_s=5.0) is None


def test_what_a_fault_hit_is_not_taken_for_normal() -> None:
    ends = [(each / 10, 0.01) for each in range(100)] + [(9.95, math.inf), (9.96, 4.0)]
    row = told(Seen(ends, sent=103), began=0.0, fault_at=10.0, seconds=30.0)
    assert (row["p99_ms"], row["without_an_end"], row["answered"]) == (10.0, 1, 101)


KEPT: dict[str, Any] = {
    "fault": "none",
    "without_an_end": 0,
    "wrong": 0,
    "slowest_failure_s": 2.9,
    "failed": {},
    "back_s": 4.0,
    "left": [],
    "sound": True,
}


@pytest.mark.parametrize(
    ("change", "promise"),
    [
        ({"without_an_end": 1}, "every request ends"),
        ({"wrong": 1}, "answers are their own"),
        ({"slowest_failure_s": 3.1}, "reasons come in time"),
        ({"failed": {"TaskFailedError: task work": 1}}, "only the guilty fail"),
        ({"back_s": 5.5}, "p99 is back within 5 s"),
        ({"back_s": None}, "p99 is back within 5 s"),
        ({"fault": NODE, "back_s": 15.5}, "p99 is back within 15 s"),
        ({"left": ["process 7"]}, "nothing is left"),
        ({"sound": False}, "the run is sound"),
    ],
)
def test_each_promise_that_is_not_kept_is_named(change: dict[str, Any], promise: str) -> None:
    assert unmet(KEPT) == []
    assert unmet(KEPT | {"fault": "memory", "failed": {"TaskFailedError: task work": 1}}) == []
    assert unmet(KEPT | change) == [promise]


def soak(memory: list[int], files: list[int], pid: int = 7) -> list[dict[str, Any]]:
    return [
        {"s": 10.0 * at, "own_bytes": [each, 100], "files": [count, 5], "pids": [pid, 8]}
        for at, (each, count) in enumerate(zip(memory, files, strict=True))
    ]


def test_memory_of_a_process_is_what_it_wrote_and_not_the_files_that_it_reads(tmp_path: Path) -> None:
    size = 32 << 20
    with (tmp_path / "library").open("wb+") as file:
        file.write(bytes(size))
        os.fsync(file.fileno())
        before = own_bytes(os.getpid())
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as read_only:
            assert read_only.find(b"x") == -1
            assert own_bytes(os.getpid()) < before + size // 2
    written = bytearray(b"x" * size)
    assert own_bytes(os.getpid()) > before + size // 2
    assert len(written) == size


def test_a_soak_is_met_where_memory_and_files_stay_after_the_warm_up() -> None:
    flat = soak([10, *[1000] * 12], [3, *[9] * 12])
    assert verdict(flat, 5.0)["met"]
    assert not verdict(soak([1000 + 10 * at for at in range(13)], [9] * 13), 5.0)["met"]
    assert not verdict(soak([1000] * 13, [*[9] * 9, *[10] * 4]), 5.0)["met"]
    assert not verdict([*flat, *soak([1000], [9], pid=9)], -1.0)["met"]
    assert not verdict(flat, 1000.0)["met"]


def test_ratios_stand_beside_what_is_asked_for(tmp_path: Path) -> None:
    rows, no_op = Rows(tmp_path, "ray"), Rows(tmp_path, "no-op")
    for system, p99 in ((HEADWAY, 100.0), (RAY_SERVE, 150.0), (RAY_SERVE, 350.0)):
        rows.add({"part": "pressure", "system": system, "p50_ms": 10.0, "p99_ms": p99})
    no_op.add({"policy": "hash", "p50_ms": 0.4, "tasks_per_s": 2900})
    found = {row["what"]: (row["ratio"], is_met(row)) for row in ratios(rows, no_op)}
    assert found == {
        "no-op, hash: tasks a second": (2900, False),
        "no-op, hash: p50 in ms": (0.4, True),
        "pressure: p50 of Ray Serve over headway's": (1.0, None),
        "pressure: p99 of Ray Serve over headway's": (2.5, True),
    }


def test_drawn_requests_after_openapi_have_no_5xx_and_do_not_hang(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.serve_fuzz", "--examples", "5", "--out", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert read(tmp_path / "fuzz.jsonl")[0]["cases"] > 50
