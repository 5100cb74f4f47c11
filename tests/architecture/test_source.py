"""Files open with what they are, and stay short enough to be read at one go."""

import ast
from pathlib import Path

import pytest

from tests.architecture.source import FILES, name

LONGEST_FILE = 800
LONGEST_FUNCTION = 60


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_module_opens_with_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", FILES, ids=name)
def test_files_and_functions_are_short(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) <= LONGEST_FILE
    lengths = {
        node.name: (node.end_lineno or node.lineno) - _beginning(node) + 1
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {function: lines for function, lines in lengths.items() if lines > LONGEST_FUNCTION} == {}


def _beginning(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Its first line; of a command that of its body, for its flags are a list and no logic."""
    command = any(ast.unparse(each).endswith(".command()") for each in function.decorator_list)
    return function.body[0].lineno if command else function.lineno
