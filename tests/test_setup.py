"""What a build puts into the package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_what_an_earlier_build_left_is_not_in_the_package(tmp_path: Path) -> None:
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("src", "native"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    left = tmp_path / "build" / "lib" / "headway" / "training" / "policies" / "parts.py"
    left.parent.mkdir(parents=True)
    left.touch()
    (left.parents[3] / "other.py").touch()  # of nobody here
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_py"],
        cwd=tmp_path,
        env={**os.environ, "PATH": "", "CXX": ""},  # no compiler: that would take long
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    package = left.parents[2]
    assert not (package / "training").exists()
    assert (left.parents[3] / "other.py").exists()
    built = {path.relative_to(package) for path in package.rglob("*") if path.is_file()}
    wanted = {path.relative_to(ROOT / "src/headway") for path in (ROOT / "src/headway").rglob("*") if path.is_file()}
    assert {path for path in wanted if "__pycache__" not in path.parts} <= built, (
        "shipped files, as pyproject.toml has them"
    )
    assert any(path.match("native/*.cpp") for path in built)
