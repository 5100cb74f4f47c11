"""The measurement of models in GPU memory runs on CPU memory too, and finds what it looks for."""

import json
from argparse import Namespace
from pathlib import Path

import pytest

from bench import gpu_serve_memory as bench


@pytest.mark.parametrize("step", ["open", "sizes", "graph", "capture", "overlap", "room", "budget"])
def test_a_step_leaves_its_lines(tmp_path: Path, step: str) -> None:
    options = Namespace(dry=True, out=tmp_path / "out.jsonl", folder=str(tmp_path / "host"))
    getattr(bench, f"step_{step}")(bench.Bench(options, step))
    rows = [json.loads(line) for line in options.out.read_text().splitlines()]
    assert {row["step"] for row in rows} == {step}
    match step:
        case "sizes":
            assert len(rows) == 5
        case "graph":
            assert (rows[0]["same"], rows[0]["result_is_not_zero"]) == (10, True)
        case "capture":
            assert (rows[0]["same"], rows[0]["problems"]) == (20, [])
        case "room":
            assert (rows[0]["evicted"], rows[0]["had_room"]) == (2, True)
