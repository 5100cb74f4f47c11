"""The source files, parsed, and the few questions that the architecture tests ask of them."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "headway"

FILES = sorted(PACKAGE.rglob("*.py"))
CORE_FILES = sorted((PACKAGE / "core").rglob("*.py"))
POLICY_FILES = sorted(PACKAGE.glob("*/policies/**/*.py"))


def name(path: Path) -> str:
    """A file as a test's id: ``jobs/policies/orders/srtf.py``."""
    return path.relative_to(PACKAGE).as_posix()


def package(path: Path) -> str:
    """The part of headway that a file belongs to: ``jobs``, or ``api`` for ``api.py``."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def inside(path: Path, rooms: Iterable[str]) -> bool:
    """Whether a file is one of these, or lies in one of these folders of headway, at any depth."""
    return f"{name(path)}/".startswith(tuple(f"{room}/" for room in rooms))


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module that a file imports, at its top or inside a function; for ``from a import b``, ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)


def dotted(node: ast.expr) -> str:
    """``a.b.c`` for the expression a.b.c; what is not a plain chain of names ends in nothing."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
