"""The notebooks run from top to bottom, and what their cells end in can be shown."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def cells_of(path: Path) -> list[str]:
    """Return the code of a notebook, cell by cell."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def shown(cells: list[str]) -> None:
    """Run cells in one namespace; show the last expression of each as a notebook does."""
    names: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        body = ast.parse(cell).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), f"cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
            assert repr(value)
            if hasattr(value, "_repr_html_"):
                assert value._repr_html_()


def test_there_is_one_for_each_kind_of_reader() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["operator", "platform", "researcher"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "TMPDIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, __file__, str(path)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        cwd=path.parent,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_what_it_printed(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["nbformat"] == 4
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


def test_a_cell_that_fails_is_noticed() -> None:
    with pytest.raises(ZeroDivisionError):
        shown(["x = 1", "x / 0"])


if __name__ == "__main__":
    shown(cells_of(Path(sys.argv[1])))
