"""Files open with what they are, and stay short enough to be read at one go."""

import ast
from pathlib import Path

import pytest

from tests.architecture.source import FILES, name

LONGEST_FILE = 800
LONGEST_FUNCTION = 60


def says_what_it_is(source: str) -> bool:
    """Return whether a module has a docstring."""
    return bool(ast.get_docstring(ast.parse(source)))


def too_long(source: str) -> list[str]:
    """Return the functions that are too long, and the file itself where it is."""
    lengths = {
        node.name: (node.end_lineno or node.lineno) - _beginning(node) + 1
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    found = [function for function, lines in lengths.items() if lines > LONGEST_FUNCTION]
    return [*found, *["the file"] * (len(source.splitlines()) > LONGEST_FILE)]


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_module_opens_with_what_it_is(path: Path) -> None:
    assert says_what_it_is(path.read_text())


@pytest.mark.parametrize("path", FILES, ids=name)
def test_files_and_functions_are_short(path: Path) -> None:
    assert too_long(path.read_text()) == []


def test_a_module_without_words_and_what_is_too_long_are_caught() -> None:
    assert not says_what_it_is("import ast\n")
    long = "    x = 1\n" * LONGEST_FUNCTION
    assert too_long(f"def short():\n{long[10:]}") == []
    assert too_long(f"def long():\n{long}") == ["long"]
    flags = "    x,\n" * 9
    assert too_long(f"@app.command()\ndef flags(\n{flags}):\n{long}") == []
    assert too_long("x = 1\n" * (LONGEST_FILE + 1)) == ["the file"]


def _beginning(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Its first line; of a command that of its body, for its flags are a list and no logic."""
    command = any(ast.unparse(each).endswith(".command()") for each in function.decorator_list)
    return function.body[0].lineno if command else function.lineno
