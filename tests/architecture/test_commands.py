"""Commands are thin: a module of them reads flags, calls a function of the layers below and prints."""

import ast
from pathlib import Path

import pytest

from tests.architecture.source import PACKAGE, dotted, imported, name

FILES = sorted((PACKAGE / "cli").rglob("*.py"))
ROOMS = ("audit", "control", "explain", "metrics", "model", "policies", "replay", "rules", "sim", "state")
DECIDES = ("core", "statistics", *(f"{tree}.{room}" for tree in ("jobs", "fleet", "gpu") for room in ROOMS))
"""Packages that decide, play or measure: a command asks ``api``, ``runs`` or a tree's own questions for that."""
TYPES = {"headway.core.tasks.Pool", "headway.jobs.model.job.Job"}
"""What commands hand on or show, and name in annotations."""
LONGEST_BODY = 40
"""Lines of a function without its signature: flags in, a call, lines out."""


def thick(source: str) -> list[str]:
    """Whatever a module of commands does that is not its business."""
    tree = ast.parse(source)
    wrong = [f"headway.{package}." for package in DECIDES]
    found = [f"imports {each}" for each in imported(tree) if f"{each}.".startswith(tuple(wrong)) and each not in TYPES]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted(node.func) in ("locals", "vars", "globals"):
            found.append(f"line {node.lineno}: calls {dotted(node.func)}")
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.body[0].lineno >= LONGEST_BODY:
            found.append(f"line {node.lineno}: {node.name} is long")
    return found


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_command_reads_flags_calls_and_prints(path: Path) -> None:
    assert thick(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "from headway.jobs.sim.cluster import play",
        "def run():\n    from headway.statistics.replications import over_seeds",
        "import headway.jobs.policies.registry",
        "def run(seed):\n    return locals()",
        "def run():\n" + "    x = 1\n" * (LONGEST_BODY + 1),
    ],
)
def test_a_command_that_does_more_is_caught(source: str) -> None:
    assert thick(source)


def test_a_command_of_a_scale_is_called_by_what_was_given_and_nothing_else() -> None:
    """The commands of all scales are made of settings: no flag is written twice, none is read under another name."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and any(
                isinstance(each, ast.Call) and dotted(each.func) == "command" for each in node.decorator_list
            ):
                assert [argument.arg for argument in node.args.args] == ["given"], f"{path.name}: {node.name}"
