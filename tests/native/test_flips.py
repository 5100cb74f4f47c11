"""What one process reads of the shared memory while another changes it: each value is read once, or it is none."""

import subprocess
from pathlib import Path

import pytest

from tests.native.harness import LONG_S, NATIVE, compiled


@pytest.mark.parametrize("flags", [("-O2",), ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")])
def test_what_is_reckoned_of_a_row_that_changes_is_within_its_bounds(tmp_path: Path, flags: tuple[str, ...]) -> None:
    probe = compiled(tmp_path / "probe", [NATIVE / "test" / "flip_probe.cpp"], *flags)
    ran = subprocess.run([probe], capture_output=True, text=True, timeout=LONG_S, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "0\n", "")
