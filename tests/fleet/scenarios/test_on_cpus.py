"""Functions on CPUs alone in scenario files: their cells, what fits, the capacity of a fleet, and mistakes."""

from pathlib import Path
from typing import Any

import pytest

from headway.fleet.model.catalogue import Configuration
from headway.fleet.scenarios.file import load
from headway.fleet.scenarios.limits import capacity_per_second, cheapest_per_second, mix_of
from headway.units import MILLISECOND
from tests.fleet.scenarios.test_file import of, refused, small

FIND: tuple[str, Any] = ("functions.find", {"ms": 12, "slices": 0, "cpus": 2})
CHAIN: tuple[str, Any] = ("graphs.line.chain", ["f", "find", "g"])
CPUS: tuple[str, Any] = (
    "fleet.workers",
    [{"count": 2, "gpu": "T4", "memory": "14GB", "cpus": 4}],
)


def cells(path: Path, name: str = "find") -> dict[Configuration, int]:
    built = load(of(path))
    found = next(function for function in built.catalogue.functions if function.name == name)
    assert found.on_cpus
    assert not found.models
    return dict(found.profile.on("T4"))


def test_a_time_is_of_the_cpus_and_slices_that_are_given(tmp_path: Path) -> None:
    assert cells(small(tmp_path, FIND, CHAIN, CPUS)) == {Configuration(1, 2, 0): 12 * MILLISECOND}
    with_slices = small(tmp_path, ("functions.f", {"ms": 10, "cpus": 3}), CPUS)
    f = next(function for function in load(of(with_slices)).catalogue.functions if function.name == "f")
    assert dict(f.profile.on("T4")) == {Configuration(1, 3, 1): 10 * MILLISECOND}


def test_the_law_batches_a_function_on_cpus_and_leaves_its_gpu_factors_out(tmp_path: Path) -> None:
    law = ("law", {"batches": [1, 4], "cpus": [1, 4], "slices": [1], "gpus": {"T4": 3.0}})
    fixed = cells(small(tmp_path, FIND, CHAIN, CPUS, law))
    grown = 0.25 + 0.75 * 4**0.85
    assert fixed == {Configuration(1, 2, 0): 12_000_000, Configuration(4, 2, 0): round(12_000_000 * grown)}
    free = cells(small(tmp_path, ("functions.find", {"ms": 12, "slices": 0}), CHAIN, CPUS, law))
    assert free[Configuration(1, 4, 0)] == round(12_000_000 / 4**0.6)
    assert free[Configuration(1, 1, 0)] == 12_000_000
    assert len(free) == 4


def test_cells_may_have_no_slices(tmp_path: Path) -> None:
    rows = ("functions.find", {"cells": [[1, 1, 0, 12], [1, 2, 0, 7]]})
    assert cells(small(tmp_path, rows, CHAIN, CPUS)) == {
        Configuration(1, 1, 0): 12 * MILLISECOND,
        Configuration(1, 2, 0): 7 * MILLISECOND,
    }


@pytest.mark.parametrize("geometry", ["free", "mig"])
def test_a_task_on_cpus_uses_up_cpus_and_nothing_of_the_gpu(tmp_path: Path, geometry: str) -> None:
    """Two workers of 4 CPUs: 2 CPUs for 12 ms each carry 2 · 4 / 2 / 0.012 requests a second, with MIG too."""
    workers = [{"count": 2, "gpu": "T4", "memory": "14GB", "cpus": 4, "geometry": geometry}]
    experiment = of(small(tmp_path, FIND, ("graphs", {"look": {"chain": ["find"]}}), ("fleet.workers", workers)))
    built = load(experiment)
    mix = mix_of(experiment, built)
    assert cheapest_per_second(built, mix) == pytest.approx(4 / 0.012)
    assert capacity_per_second(built, mix) == pytest.approx(4 / 0.012)


def test_a_measured_profile_need_not_have_a_function_on_cpus(tmp_path: Path) -> None:
    (tmp_path / "gpu.toml").write_text(
        'gpu = "T4"\n[functions.f]\ncells = [[1, 1, 1, 5]]\n[functions.g]\ncells = [[1, 1, 1, 6]]\nweights = "1GB"\n'
    )
    path = small(tmp_path, FIND, CHAIN, CPUS, ("functions.g.models", ["b"]))
    built = load(of(path, profile=str(tmp_path / "gpu.toml")))
    times = {function.name: min(function.profile.on("T4").values()) for function in built.catalogue.functions}
    assert times == {"f": 5 * MILLISECOND, "g": 6 * MILLISECOND, "find": 12 * MILLISECOND}


def test_a_table_of_pairs_does_not_slow_a_task_on_cpus(tmp_path: Path) -> None:
    built = load(of(small(tmp_path, FIND, CHAIN, CPUS), interference="h200"))
    at = [function.name for function in built.catalogue.functions].index("find")
    assert built.interference
    assert all(at not in pair for pair in built.interference)
    assert not any("find" in note for note in built.notes)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            [("functions.find", {"ms": 12, "slices": 0, "models": ["a"]})],
            "function find has models and a configuration with 0 slices",
        ),
        ([("functions.find", {"ms": 12, "slices": 0, "activation": 9})], "function find has activation and a config"),
        ([("functions.find", {"ms": 12, "slices": -1})], "slices -1 must lie in 0 to 1,024"),
        ([("functions.find", {"ms": 12, "slices": 0, "cpus": 0})], "cpus 0 must lie in 1 to 4,096"),
        ([("functions.find", {"ms": 12, "slices": 0, "cpus": 8})], "none of its 1 cell can run"),
        ([("functions.f", {"ms": 10, "slices": 2}), ("law", {})], "slices is 2: the law makes its configurations"),
        ([("functions.find", {"cells": [[1, 1, 0, 5]], "cpus": 2})], "cpus says what ms is given for"),
        ([("functions.find", {"cells": [[1, 0, 0, 5]]})], "cpus is 0: must be a whole number, at least 1"),
        ([("functions.find", {"cells": [[1, 1, -1, 5]]})], "slices is -1: must be a whole number, at least 0"),
    ],
)
def test_a_mistake_about_cpus_and_slices_is_one_line(tmp_path: Path, changes: list[Any], line: str) -> None:
    assert line in refused(of(small(tmp_path, FIND, CHAIN, CPUS, *changes)))
