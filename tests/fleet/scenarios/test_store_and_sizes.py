"""Sizes by function, the store between stages, and measured shapes at the paper's times."""

from pathlib import Path

import pytest

from headway.errors import InputError
from headway.fleet.model.catalogue import Configuration
from headway.fleet.model.fleet import Store
from headway.fleet.scenarios.file import load
from headway.units import MILLISECOND
from tests.fleet.scenarios.test_file import of

LEAST = Configuration(1, 1, 1)


def test_the_profile_paper_has_the_measured_shape_at_the_papers_times() -> None:
    paper, measured, law = (load(of("esg", profile=name)).catalogue for name in ("paper", "measured", "law"))
    for scaled, shape, given in zip(paper.functions, measured.functions, law.functions, strict=True):
        cells, before = scaled.profile.on("H200"), shape.profile.on("H200")
        assert cells[LEAST] == given.profile.on("gpu")[LEAST], "the paper's time"
        assert cells.keys() == before.keys()
        for cell, time in cells.items():
            assert abs(time / cells[LEAST] - before[cell] / before[LEAST]) < 1e-6
        assert scaled.cold_start == given.cold_start, "the scenario's"
        assert (scaled.profile.spread, scaled.activation_bytes) == (shape.profile.spread, shape.activation_bytes)
    assert paper.functions[0].profile.on("H200")[LEAST] == 86 * MILLISECOND


def test_the_profile_paper_needs_the_times_and_a_measured_profile(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    head = 'measured = "esg-h200.toml"\n[[fleet.workers]]\nmemory = "141GB"\nslices = 7\ncpus = 8\n'
    mine.write_text(head + '[functions.depth]\ncells = [[1, 1, 1, 5]]\n[graphs.g]\nchain = ["depth"]\n')
    with pytest.raises(InputError, match=r"function depth: profile paper needs ms, its time at the least"):
        load(of(mine, profile="paper"))
    with pytest.raises(InputError, match=r"no measured profile belongs to it"):
        load(of("compass", profile="paper"))


def test_a_task_says_its_sizes_or_its_function_or_its_chain(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(
        """
[functions]
look = { ms = 5, input = "1MB", output = "2MB" }
say = { ms = 5 }
[graphs.tasks]
tasks = [
    { function = "look", output = "7KB" },
    { function = "say", after = ["look"] },
    { name = "none", function = "look", input = 0, after = ["say"] },
]
[graphs.chain]
chain = ["look", "say"]
input = "3MB"
output = "4MB"
[[fleet.workers]]
memory = "1GB"
[fleet.store]
rate = "1GB"
latency = "2ms"
"""
    )
    built = load(of(mine))
    sizes = [[(task.input_bytes, task.output_bytes) for task in graph.tasks] for graph in built.catalogue.graphs]
    assert sizes == [[(10**6, 7_000), (0, 0), (0, 2 * 10**6)], [(10**6, 2 * 10**6), (0, 4 * 10**6)]]
    assert built.fleet.store == Store(10**9, 2 * MILLISECOND)


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ('rate = ""', "store: rate is missing: write bytes a second, like 1GB"),
        ("rate = 0", "store: rate 0 must be above 0"),
        ('rate = "fast"', "store: rate"),
        ('rate = "1GB"\nlatency = "-1s"', "store: latency"),
        ('latency = "1s"', "rate"),
        ('rate = "1GB"\nshared = true', "shared"),
    ],
)
def test_a_store_that_makes_no_sense_is_one_line(tmp_path: Path, table: str, line: str) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(f'base = "esg"\n[fleet.store]\n{table}\n')
    with pytest.raises(InputError) as caught:
        load(of(mine))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_shipped_store_has_sizes_by_network() -> None:
    built = load(of("esg-store"))
    assert built.fleet.store is not None
    outputs = {task.name: task.output_bytes for graph in built.catalogue.graphs for task in graph.tasks}
    assert len(set(outputs.values())) == 6
    assert load(of("esg")).fleet.store is None
