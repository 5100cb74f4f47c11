"""docs/architecture.md: what it draws exists, and no solid arrow leads back."""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import pytest

from tests.architecture.source import FILES
from tests.docs.pages import read

PAGE = read("docs/architecture.md")
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
    files = re.findall(r"`((?:core|kernels|native|tests)/[\w/.]+\.\w+)`", PAGE)
    assert files
    for file in files:
        path = FILES[0].parents[2] / ("" if file.startswith(("native", "tests")) else "src/headway") / file
        assert path.is_file(), file


def test_four_ways_are_drawn() -> None:
    assert len(DRAWN) == 4
