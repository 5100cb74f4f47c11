"""A run with classes, named tenants and tasks on CPUs, from the command line to its tables, stories and page."""

import csv
import json
from pathlib import Path

import pytest

from tests.cli.test_fleet import _refused, _run
from tests.docs.pages import ROOT

RAG = str(ROOT / "examples" / "rag" / "rag.toml")
FEW = ("--requests", "80", "--arrivals", "poisson", "--start", "warm", "--warmup", "0%")


@pytest.fixture
def stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The folder of a small run."""
    _run(capsys, "fleet", "simulate", RAG, "--policy", "stagewise", *FEW, "--out", str(tmp_path / "run"))
    return tmp_path / "run"


def test_json_has_a_row_for_each_class_and_tenant(capsys: pytest.CaptureFixture[str]) -> None:
    row = json.loads(_run(capsys, "fleet", "simulate", RAG, "--policy", "headway", *FEW, "--json"))
    assert [each["class"] for each in row["classes"]] == ["interactive", "reports"]
    assert {each["tenant"] for each in row["tenants"]} == {"search", "reporting"}
    assert sum(each["requests"] for each in row["classes"]) == row["requests"] == 80
    due, in_time = (sum(each[key] for each in row["classes"]) for key in ("due", "in_time"))
    assert (due, in_time / due) == (80, row["slo_hit_rate"])


def test_a_stored_run_keeps_its_classes(stored: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "sound" in _run(capsys, "audit", str(stored))
    assert "identical" in _run(capsys, "replay", str(stored))
    told = [_run(capsys, "story", str(stored), str(number)).splitlines()[0] for number in range(10)]
    assert any("class interactive, priority 2, tenant search" in line for line in told)
    _run(capsys, "export", str(stored), "--csv", str(tmp_path / "tables"))
    rows = list(csv.DictReader((tmp_path / "tables" / "requests.csv").read_text().splitlines()))
    assert {(each["class"], each["priority"], each["tenant_name"]) for each in rows} == {
        ("interactive", "2", "search"),
        ("reports", "0", "reporting"),
    }
    batches = list(csv.DictReader((tmp_path / "tables" / "batches.csv").read_text().splitlines()))
    assert {each["slices"] for each in batches if each["function"] == "retrieve"} == {"0"}
    _run(capsys, "report", str(stored), "-o", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert "Which classes and tenants suffer?" in page
    assert "reporting" in page


def test_a_run_without_classes_has_neither_rows_nor_a_section(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("fleet", "simulate", "compass", "--requests", "30", "--policy", "hash", "--json")
    row = json.loads(_run(capsys, *words, "--out", str(tmp_path / "run")))
    assert not {"classes", "tenants"} & row.keys()
    _run(capsys, "report", str(tmp_path / "run"), "-o", str(tmp_path / "page.html"))
    assert "Which classes" not in (tmp_path / "page.html").read_text()
    row = json.loads(_run(capsys, *words, "--set", "workload.tenants=3"))
    assert [each["tenant"] for each in row["tenants"]] == ["0", "1", "2"]
    assert sum(each["requests"] for each in row["tenants"]) == 30


def test_a_mistake_in_a_class_is_one_line_on_the_command_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = _refused(capsys, "fleet", "simulate", RAG, "--set", "workload.classes.gold.share=0.4")
    assert "classes: the shares sum to 0.4 (gold 0.4): they must sum to 1" in said
    twice = tmp_path / "twice.toml"
    twice.write_text(f'base = "{RAG}"\n[workload.classes.a]\nshare = 0.5\n[workload.classes.a]\nshare = 0.5\n')
    assert "twice" in _refused(capsys, "fleet", "simulate", str(twice))
