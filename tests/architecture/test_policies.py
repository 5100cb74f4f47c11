"""A policy is a function of what it is shown: no clock, no I/O, no hidden randomness.

It imports core, its own domain and numeric solvers. Randomness comes from ``headway.streams`` and a seed that is an
argument of the constructor. And neither a policy nor core knows whether time is virtual.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source import CORE_FILES, POLICY_FILES, dotted, imported, name, package

IMPURE_MODULES = {
    *("time", "datetime", "random", "secrets", "uuid"),
    *("os", "io", "pathlib", "shutil", "tempfile", "logging", "socket", "subprocess"),
    *("asyncio", "threading", "multiprocessing", "concurrent", "importlib"),
}
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "breakpoint", "__import__"}
SOLVERS = {"numpy", "scipy", "networkx"}
HIDDEN = {"work", "outcome", "outcome_after", "ends_after"}
"""What only time will tell of a job; a policy sees what it is believed to be, and what has happened so far."""
SHORTEST_CITATION = 60
"""Characters; a docstring below this cannot say what the policy does and where it is from."""


def impurities(source: str, domain: str) -> Iterator[str]:
    """Whatever keeps this source of a policy of ``domain`` from being a function of what it is shown."""
    tree = ast.parse(source)
    rooms = (f"{domain}.{room}" for room in ("model", "state", "rules", "control", "policies"))
    headway = tuple(f"headway.{part}." for part in ("core", *rooms, "units", "errors", "streams"))
    for module in imported(tree):
        root = module.partition(".")[0]
        known = root in sys.stdlib_module_names | SOLVERS or f"{module}.".startswith(headway)
        if root in IMPURE_MODULES or not known or module.startswith("numpy.random"):
            yield f"imports {module}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield f"line {node.lineno}: global {', '.join(node.names)}"
        if isinstance(node, ast.Call):
            called = dotted(node.func)
            if called in IMPURE_CALLS or re.match(r"(np|numpy)\.random\.", called):
                yield f"line {node.lineno}: calls {called}"


@pytest.mark.parametrize("path", POLICY_FILES, ids=name)
def test_a_policy_reads_no_clock_does_no_io_and_draws_no_hidden_randomness(path: Path) -> None:
    assert list(impurities(path.read_text(), package(path))) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from os import environ",
        "def decide():\n    import random",
        "import asyncio.events",
        "from threading import Lock",
        "import polars",
        "import headway.jobs.sim",
        "from headway.jobs import traces",
        "from headway.fleet.model import fleet",
        "from . import neighbour",
        "open('x')",
        "print('x')",
        "import numpy as np\nnp.random.default_rng()",
        "from numpy.random import default_rng",
        "def decide():\n    global calls",
    ],
)
def test_an_impure_policy_is_caught(source: str) -> None:
    assert list(impurities(source, "jobs"))


@pytest.mark.parametrize(
    "source",
    [
        "from headway.streams import small_stream",
        "from headway.jobs.model.job import Job",
        "import heapq\nfrom scipy.optimize import linprog",
        "import numpy as np\nrandom: np.random.Generator",
        "job.open()",
    ],
)
def test_a_pure_policy_passes(source: str) -> None:
    assert list(impurities(source, "jobs")) == []


@pytest.mark.parametrize("path", [path for path in POLICY_FILES if not path.name.startswith("_")], ids=name)
def test_a_policy_says_what_it_does_and_where_it_is_from(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert len(docstring) >= SHORTEST_CITATION, f"cite the paper or the origin of the policy: {docstring!r}"


@pytest.mark.parametrize("path", CORE_FILES + POLICY_FILES, ids=name)
def test_neither_core_nor_a_policy_knows_whether_time_is_virtual(path: Path) -> None:
    assert re.findall(r"\w*simulat\w*", path.read_text(), re.IGNORECASE) == []


def foresight(source: str) -> list[str]:
    """Whatever this source reads of a job's future."""
    nodes = list(ast.walk(ast.parse(source)))
    read = [(node.lineno, node.attr) for node in nodes if isinstance(node, ast.Attribute) and node.attr in HIDDEN]
    texts = [
        (node.lineno, argument.value)
        for node in nodes
        if isinstance(node, ast.Call) and dotted(node.func).endswith(("getattr", "attrgetter"))
        for argument in node.args
        if isinstance(argument, ast.Constant) and argument.value in HIDDEN
    ]
    return [f"line {line}: reads {name}" for line, name in (*read, *texts)]


@pytest.mark.parametrize("path", POLICY_FILES, ids=name)
def test_a_policy_does_not_read_how_long_a_job_really_is_or_how_it_ends(path: Path) -> None:
    assert foresight(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "js.job.work",
        "[job.ends_after for job in jobs]",
        "getattr(js.job, 'outcome')",
        "attrgetter('outcome_after')(job)",
    ],
)
def test_a_policy_that_looks_ahead_is_caught(source: str) -> None:
    assert foresight(source)


def test_a_policy_may_read_what_is_believed_and_what_has_happened() -> None:
    assert foresight("js.expected - js.done_at(now) + js.job.estimate") == []
