"""The benchmarks' own machinery: cases are found by name, counts are exact, slower is told from noisy."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import run
from bench.cases import registry
from bench.run import ROOT, Figures, slower


def figures(*cpu_s: float) -> Figures:
    return Figures("a case", "jobs", 10, "", list(cpu_s), list(cpu_s))


@pytest.mark.parametrize("name", ["cases", "run", "readers", "growth"])
def test_headway_is_known_to_the_adapter_only(name: str) -> None:
    tree = ast.parse((ROOT / "bench" / f"{name}.py").read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not [module for module in modules if module and module.startswith("headway")]
    plain = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert [each for each in plain if each.startswith("headway.")] == []


def test_every_scale_and_every_kind_of_work_has_cases() -> None:
    kinds = {name.partition("/")[0] for name in registry()}
    assert kinds >= {"training", "allocations", "serving", "kernels", "readers", "reports"}


def test_cases_are_picked_by_a_part_of_their_name() -> None:
    cases = registry()
    assert [case.name for case in run.picked(cases, ["page, srtf"], long=False)] == ["reports/page, srtf"]
    assert not any(case.long for case in run.picked(cases, [], long=False))
    assert len(run.picked(cases, [], long=True)) == len(cases)


@pytest.mark.parametrize(
    ("here", "there", "told"),
    [
        ((1.0, 1.0, 1.0), (1.0, 1.0, 1.0), False),
        ((1.04, 1.04, 1.04), (1.0, 1.0, 1.0), False),
        ((1.06, 1.06, 1.06), (1.0, 1.0, 1.0), True),
        ((1.06, 1.2, 1.3), (1.0, 1.0, 1.0), False),  # runs here differ by more
        ((1.06, 1.06, 1.06), (1.0, 1.2, 1.3), False),  # runs there do
        ((1.06, 1.06, 9.0), (1.0, 1.0, 1.0), True),  # one bad run hides nothing
        ((0.5, 0.5, 0.5), (1.0, 1.0, 1.0), False),
    ],
)
def test_slower_is_more_than_five_percent_and_more_than_runs_differ(
    here: tuple[float, ...], there: tuple[float, ...], told: bool
) -> None:
    assert slower(figures(*here), figures(*there)) is told


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, ROOT / "bench" / "run.py", *arguments], capture_output=True, text=True)


def test_a_case_is_played_in_both_checkouts(tmp_path: Path) -> None:
    done = bench(
        *("--case", "cluster, openb nodes", "--best-of", "1", "--against", str(ROOT), "--json", f"{tmp_path}/out.json")
    )
    (row,) = json.loads((tmp_path / "out.json").read_text())
    assert row["same_result"], done.stderr
    assert row["here"]["count"] == row["there"]["count"] == 40_000
    assert (" SLOWER" in done.stdout) == row["slower"] == (done.returncode == 1)


def test_a_wrong_count_fails_before_anything_is_timed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "bench").mkdir(parents=True)
    (other / "src").symlink_to(ROOT / "src")
    adapter = (ROOT / "bench" / "adapter.py").read_text()
    (other / "bench" / "adapter.py").write_text(
        adapter.replace("return len(cluster_table", "return 1 + len(cluster_table")
    )
    done = bench("--case", "cluster, openb nodes", "--best-of", "1", "--against", str(other))
    assert done.returncode == 1
    assert "40,001 nodes instead of 40,000" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--case", "no such"), "no case contains no such"),
        (("--best-of", "0"), "--best-of: at least 1"),
        (("--against", "/nowhere"), "there is no src/headway in it"),
        (("--growth", "--case", "no such"), "no case contains no such"),
        (("--growth", "--json", "out.json"), "leave out --against and --json"),
        (("--growth", "--limit", "0"), "--limit 0: must be above 0"),
        (("--quick",), "--quick, --out and --limit go with --growth"),
    ],
)
def test_wrong_arguments_are_one_line(arguments: tuple[str, ...], complaint: str) -> None:
    done = bench(*arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
