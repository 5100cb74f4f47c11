"""ARCHITECTURE.md: what it draws exists, no solid arrow leads back, and layers and folders are those of the source."""

import ast
import re
import tomllib
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import pytest

from tests.architecture.source import FILES, PACKAGE, ROOT
from tests.docs.pages import blocks, read

PAGE = read("ARCHITECTURE.md")
DRAWN = re.findall(r"```mermaid\n(.*?)```", PAGE, re.DOTALL)
_NODE = r"(\w+)(?:\[[^\]]*\])?"


def forward(drawing: str) -> list[tuple[str, str]]:
    """The solid arrows of a drawing, from whom to whom; a dotted one is time that passes."""
    found = []
    for line in drawing.splitlines()[1:]:
        if "-." in line:
            assert '"later' in line, line
            continue
        nodes = re.findall(_NODE, re.sub(r'-- ".*?" -->', "-->", line).replace("-->", " "))
        assert len(nodes) >= 2, line
        found += pairwise(nodes)
    return found


def turns_back(arrows: list[tuple[str, str]]) -> bool:
    """Whether some arrows lead round in a circle."""
    graph: dict[str, set[str]] = {}
    for first, second in arrows:
        graph.setdefault(second, set()).add(first)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        return True
    return False


@pytest.mark.parametrize("drawing", DRAWN)
def test_the_way_turns_back_nowhere_but_in_time(drawing: str) -> None:
    arrows = forward(drawing)
    assert len(arrows) >= 9
    assert not turns_back(arrows)
    (later,) = (line for line in drawing.splitlines() if "-." in line)
    first, *_, last = re.findall(_NODE, re.sub(r'-\. ".*?" \.->', " ", later))
    assert turns_back([*arrows, (first, last)]), "the dotted arrow is the way back"


def test_what_is_drawn_exists() -> None:
    known: set[str] = set()
    for path in FILES:
        known |= {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)}
    named = set(re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b", PAGE))
    assert {"JobArrived", "PlaceRequest", "KernelReached", "SimulatedGpu"} <= named
    assert named - known == set()
    files = re.findall(r"`((?:core|fleet|gpu|jobs|native|tests)/[\w/.]+\.\w+)`", PAGE)
    assert files
    for file in files:
        path = FILES[0].parents[2] / ("" if file.startswith(("native", "tests")) else "src/headway") / file
        assert path.is_file(), file


def test_six_ways_are_drawn() -> None:
    assert len(DRAWN) == 6


def test_the_layers_are_those_of_the_contract() -> None:
    contracts = tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layers, *_ = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    (shown,) = (block.text for block in blocks(PAGE) if block.text.startswith("__main__\n"))
    assert shown.splitlines() == [re.sub(r"[()]", "", layer) for layer in layers]


def test_what_lies_where_lies_there_and_nothing_is_left_out() -> None:
    (shown,) = (block.text for block in blocks(PAGE) if block.text.startswith("src/headway/\n"))
    inside = [line for line in shown.splitlines()[1:] if line.startswith("  ")]
    listed = {path.rstrip("/") for line in inside for path in _paths(line)}
    assert [path for path in sorted(listed) if not (PACKAGE / path).exists()] == []
    found = {path.relative_to(PACKAGE).parts[0] for path in (*FILES, *PACKAGE.rglob("*.toml"))}
    assert found - listed == {"__init__.py", "__main__.py"}
    rooms = {path.relative_to(PACKAGE).parts[:2] for path in FILES if len(path.relative_to(PACKAGE).parts) > 2}
    assert {"/".join(room) for room in rooms if room[0] in ("jobs", "fleet", "gpu")} - listed == set()
    for line in shown.splitlines()[1:]:
        if not line.startswith("  "):
            assert all((ROOT / path).is_dir() for path in _paths(line)), line


def _paths(line: str) -> list[str]:
    """Return the files and folders that a line begins with; two blanks end a path."""
    return [part for part in re.split(r"\s{2,}", line.strip()) if re.fullmatch(r"[\w/]+(?:/|\.py)", part)]


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_the_files_that_a_page_names_exist(page: str) -> None:
    """Whole paths, and those without the name of the package; SCALE and x stand for any."""
    paths = re.findall(r"`((?:[\w-]+/)+(?:[\w.-]+)?)`", read(page))
    named = [path for path in paths if "SCALE" not in path and "/x." not in path]
    assert len(named) >= 10
    roots = (ROOT, PACKAGE, PACKAGE / "jobs" / "policies")
    assert [path for path in named if not any((root / path).exists() for root in roots)] == []
    bare = set(re.findall(r"`(\w+\.py)`", read(page)))
    assert bare - {path.name for path in FILES} == set(), "files outside src/headway are named with their whole path"
