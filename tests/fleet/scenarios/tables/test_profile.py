"""Profile files of functions: the grid is whole, times are times, and the law is the published formula."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from headway.errors import ProfileError
from headway.fleet.model.catalogue import Configuration
from headway.fleet.scenarios.tables import profile as serving_profile
from headway.fleet.scenarios.tables.profile import LawTable, cells_of, check_law, law_cells
from headway.units import MILLISECOND, SECOND
from tests.docs.pages import blocks, read

GRID = [[b, c, g, 10.0 * b / (c + g)] for b in (1, 2, 4) for c in (1, 2) for g in (1, 3)]


def file(folder: Path, text: str) -> Path:
    path = folder / "profile.toml"
    path.write_text(text)
    return path


def test_the_profile_on_the_page_is_read_as_its_comments_say(tmp_path: Path) -> None:
    page = [block.text for block in blocks(read("docs/reference/scenarios.md"), "toml")]
    text = next(text for text in page if "host_to_gpu" in text and "[fleet" not in text)
    profile = serving_profile.read(file(tmp_path, text))
    function = profile.functions["super-resolution"]
    assert profile.gpu == "H200"
    assert profile.host_to_gpu == 48 << 30
    assert len(function.cells) == 8
    assert function.cells[Configuration(2, 1, 2)] == 41 * MILLISECOND
    assert (function.spread, function.weights_bytes, function.activation_bytes) == (0.02, 67_000_000, 310_000_000)
    assert (function.cold_start, function.load) == (3500 * MILLISECOND, 4 * MILLISECOND)


def test_the_link_is_what_all_weights_took(tmp_path: Path) -> None:
    text = "\n".join(
        f'[functions.{name}]\ncells = [[1, 1, 1, 5]]\nweights = "{size}"\nload = "{load}"'
        for name, size, load in (("a", "3GB", "200ms"), ("b", "1GB", "200ms"))
    )
    profile = serving_profile.read(file(tmp_path, text))
    assert profile.host_to_gpu == 10 * 10**9
    assert profile.gpu == ""


def test_what_a_file_leaves_out_is_not_known(tmp_path: Path) -> None:
    function = serving_profile.read(file(tmp_path, "[functions.a]\ncells = [[1, 1, 1, 5]]")).functions["a"]
    assert (function.weights_bytes, function.cold_start, function.load) == (None, None, None)
    assert function.spread == 0.0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ('"0s"', {}),
        ('"1ms"', {0: MILLISECOND}),
        ('{ 16ms = "3ms", 0s = "1ms" }', {0: MILLISECOND, 16 * MILLISECOND: 3 * MILLISECOND}),
    ],
)
def test_the_overhead_is_one_time_or_one_by_idle_time(text: str, found: dict[int, int], tmp_path: Path) -> None:
    line = f"overhead = {text}\n" if text else ""
    assert serving_profile.read(file(tmp_path, f"{line}[functions.a]\ncells = [[1, 1, 1, 5]]")).overhead == found


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('{ 4ms = "1ms" }', 'begins with "0s"'),
        ('{ 0s = "1ms", 0ms = "2ms" }', "has each time once"),
        ('{ 0s = "1ms", soon = "2ms" }', "overhead after"),
        ('{ 0s = "-1ms" }', "must not be negative"),
        ("[1]", "overhead"),
    ],
)
def test_an_overhead_that_is_none_is_refused(text: str, rule: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=rule):
        serving_profile.read(file(tmp_path, f"overhead = {text}\n[functions.a]\ncells = [[1, 1, 1, 5]]"))


@pytest.mark.parametrize(
    ("rows", "rule"),
    [
        ("[]", "cells is empty"),
        ("[[1, 1, 1]]", "row 1 of cells is [1.0, 1.0, 1.0]: write batch, cpus, slices, ms and perhaps a spread"),
        ("[[1, 1, 1, 0]]", "batch 1, cpus 1, slices 1: takes 0 ms: must be above 0 and at most 1,000,000,000"),
        ("[[1, 1, 1, -3.5]]", "batch 1, cpus 1, slices 1: takes -3.5 ms: must be above 0 and at most 1,000,000,000"),
        ("[[1, 1, 1, nan]]", "cells[0][3] is nan: must be a finite number"),
        ("[[0, 1, 1, 5]]", "row 1 of cells: batch is 0: must be a whole number, at least 1"),
        ("[[1, 1.5, 1, 5]]", "row 1 of cells: cpus is 1.5: must be a whole number, at least 1"),
        ("[[1, 1, inf, 5]]", "cells[0][2] is inf: must be a finite number"),
        ("[[1, 1, 1, 5], [1, 1, 1, 6]]", "batch 1, cpus 1, slices 1 is in cells twice"),
        ("[[1, 1, 1, 5, -1]]", "batch 1, cpus 1, slices 1: the spread is -1: must lie in 0 to 2"),
        (
            "[[1, 1, 1, 5], [2, 1, 1, 6], [1, 1, 3, 2]]",
            "1 cell is missing from the grid, batch 2, cpus 1, slices 3 first (sparse = true: it is meant)",
        ),
        (
            "[[1, 1, 1, 5], [2, 2, 1, 6]]",
            "2 cells are missing from the grid, batch 1, cpus 2, slices 1 first (sparse = true: it is meant)",
        ),
    ],
)
def test_bad_cells_are_one_line_with_the_file_the_function_and_the_rule(tmp_path: Path, rows: str, rule: str) -> None:
    path = file(tmp_path, f"[functions.deblur]\ncells = {rows}")
    with pytest.raises(ProfileError) as wrong:
        serving_profile.read(path)
    assert str(wrong.value) == f"profile {path}, function deblur: {rule}"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "key 'functions' is missing"),
        ("[functions]", "has no functions"),
        ("[functions.a]\nweights = 1", "function a: key 'cells' is missing"),
        ("[functions.a]\ncels = []", "function a: unknown table or key 'cels'; did you mean 'cells'?"),
        ('[functions.a]\ncells = [[1,1,1,5]]\nweights = "-1GB"', "weights '-1GB' must be at least 0"),
        ('[functions.a]\ncells = [[1,1,1,5]]\nload = "fast"', "load 'fast' is not understood"),
        ('[functions.a]\ncells = "none"', "cells is 'none'"),
    ],
)
def test_a_broken_file_is_one_line(tmp_path: Path, text: str, rule: str) -> None:
    path = file(tmp_path, text)
    with pytest.raises(ProfileError) as wrong:
        serving_profile.read(path)
    assert str(wrong.value).startswith(f"profile {path}")
    assert rule in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="there is no such file"):
        serving_profile.read(tmp_path / "no.toml")


@given(st.sets(st.integers(0, len(GRID) - 1)))
def test_a_grid_is_accepted_whole_and_refused_with_a_hole(left_out: set[int]) -> None:
    rows = [row for number, row in enumerate(GRID) if number not in left_out]
    axes = [{row[axis] for row in rows} for axis in range(3)]
    whole = len(axes[0]) * len(axes[1]) * len(axes[2]) == len(rows)
    if not rows or not whole:
        with pytest.raises(ProfileError):
            cells_of(rows, "here")
        if rows:
            assert len(cells_of(rows, "here", sparse=True)[0]) == len(rows)
    else:
        assert len(cells_of(rows, "here")[0]) == len(rows)


def test_the_law_is_the_published_formula() -> None:
    cells = law_cells(1047, LawTable(), "any", "here")
    assert len(cells) == 224
    assert cells[Configuration(1, 1, 1)] == 1047 * MILLISECOND
    for (b, c, g), time in cells.items():
        exact = 1.047 * (0.25 + 0.75 * b**0.85) * (0.25 / c**0.6 + 0.75 / g**0.7)
        assert time == pytest.approx(exact * SECOND, abs=1)


def test_the_law_may_differ_by_type_of_gpu() -> None:
    law = LawTable(gpus={"H200": 0.5}, slices=[1, 2, 3, 4, 7])
    slow, fast = (law_cells(100, law, gpu, "here") for gpu in ("A100", "H200"))
    assert {cell.slices for cell in slow} == {1, 2, 3, 4, 7}
    assert all(fast[cell] == pytest.approx(slow[cell] / 2, abs=1) for cell in slow)


@pytest.mark.parametrize(
    ("law", "rule"),
    [
        (LawTable(batches=[]), "batches of the law must be 1 to 64 different whole numbers from 1 up"),
        (LawTable(cpus=0), "cpus of the law must be"),
        (LawTable(slices=10**9), "slices of the law must be"),
        (LawTable(slices=[1, 1]), "slices of the law must be"),
        (LawTable(batch_fixed=1.5), "batch_fixed of the law is 1.5: must lie in 0 to 1"),
        (LawTable(cpu_power=-1), "cpu_power of the law is -1: must lie in 0 to 3"),
        (LawTable(gpus={"A": 0}), "the factor of GPU A in the law is 0: must be above 0"),
        (LawTable(spread=9), "law: the spread is 9: must lie in 0 to 2"),
    ],
)
def test_a_law_that_is_none_is_refused(law: LawTable, rule: str) -> None:
    with pytest.raises(ProfileError) as wrong:
        check_law(law, "scenario x")
    assert str(wrong.value).startswith("scenario x: ")
    assert rule in str(wrong.value)
