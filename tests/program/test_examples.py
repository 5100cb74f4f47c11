"""The two training programs that come as examples: they train, say their steps, and describe their cache."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "profiling"
SMALL = {
    "images.py": ["--images", "24", "--width", "64", "--height", "48", "--side", "32", "--batch", "4"],
    "language.py": ["--blocks", "24", "--length", "16", "--batch", "4", "--step-ms", "1"],
}


def run(tmp_path: Path, program: str, *more: str, **told: str) -> subprocess.CompletedProcess[str]:
    """One of them, over a few steps."""
    command = [sys.executable, str(EXAMPLES / program), "--folder", str(tmp_path / "made"), *SMALL[program], *more]
    env = {**os.environ, "HEADWAY_STEPS": str(tmp_path / "steps"), "HEADWAY_CACHE": str(tmp_path / "cache"), **told}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("program", SMALL)
def test_a_program_trains_and_says_its_steps(tmp_path: Path, program: str) -> None:
    done = run(tmp_path, program, "--steps", "9", "--device", "stand-in", "--cache", "0", HEADWAY_CPUS="0.5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "device: stand-in" in done.stdout
    records = list(struct.iter_unpack("<qq", (tmp_path / "steps").read_bytes()))
    assert [samples for _, samples in records] == [4] * 9
    last = json.loads((tmp_path / "cache").read_text().splitlines()[-1])
    assert (last["items"], last["cached_bytes"], last["hits"]) == (24, 0, 0)
    assert last["misses"] >= 4 * 9


@pytest.mark.parametrize("program", SMALL)
def test_a_program_keeps_what_its_profiler_says(tmp_path: Path, program: str) -> None:
    done = run(tmp_path, program, "--steps", "12", "--workers", "0", "--device", "cpu", HEADWAY_CACHE_BYTES="1GB")
    assert done.returncode == 0, done.stdout + done.stderr
    last = json.loads((tmp_path / "cache").read_text().splitlines()[-1])
    assert last["cached_bytes"] == last["dataset_bytes"] > 0
    assert (last["hits"], last["misses"]) == (48, 0)
