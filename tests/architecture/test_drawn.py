"""CI draws the same cases whatever is loaded and whatever a test is called, so that no change fails by luck."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEST = """
{imports}
from hypothesis import given, strategies as st

drawn = []

@given(st.lists(st.integers() | st.text() | st.floats()))
def test_{name}(value):
    drawn.append(value)

def test_print():
    print("drawn", drawn)
"""


def drawn(folder: Path, name: str, imports: str, **environment: str) -> str:
    """Return what a test draws in a process of its own."""
    (folder / "test_it.py").write_text(TEST.format(imports=imports, name=name))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.conftest", "-s", "-c"]
    done = subprocess.run(
        [*command, str(ROOT / "pyproject.toml"), str(folder / "test_it.py")],
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return next(line for line in done.stdout.splitlines() if "drawn [" in line).partition("drawn ")[2]


def test_ci_draws_the_same_cases_whatever_is_loaded_or_renamed(tmp_path: Path) -> None:
    first = drawn(tmp_path, "it", "", CI="true")
    assert len(first) > 1000
    assert drawn(tmp_path, "it", "", CI="true") == first
    assert drawn(tmp_path, "it_by_another_name", "import headway.runs.sweep.sweep", CI="true") == first


def test_outside_ci_each_run_draws_anew(tmp_path: Path) -> None:
    assert drawn(tmp_path, "it", "", CI="") != drawn(tmp_path, "it", "", CI="false")
