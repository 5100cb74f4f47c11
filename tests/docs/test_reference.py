"""What the reference pages list is what the code has: metrics, columns of traces, flags, scripts, names, ranks."""

import importlib
import json
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

import headway as hw
from headway.cli.program import app
from headway.errors import TraceError
from headway.formats import toml
from headway.jobs.model import events
from headway.jobs.tables.settings import Experiment
from headway.jobs.traces import FORMATS, REQUEST_FORMATS, guess, load
from headway.jobs.traces.readers import generic, native
from headway.moved import MODULES
from headway.plugins import GROUP
from headway.runs.measured import measured
from tests.docs.pages import PAGES, ROOT, blocks, name, read, spans, tables


def _commands(group: Any, before: str = "") -> dict[str, Any]:
    """All commands by name; those of a group as ``trace inspect``."""
    found: dict[str, Any] = {}
    for own, command in group.commands.items():
        found[before + own] = command
        found |= _commands(command, f"{before}{own} ") if hasattr(command, "commands") else {}
    return found


COMMANDS = _commands(typer.main.get_command(app))
PARTS = ("mean", "p50", "p90", "p99", "max")
SAMPLES = ROOT / "tests" / "samples"
OWN_PROGRAMS = ("headway", ".venv/bin/headway")


def _expanded(key: str) -> set[str]:
    return {key.replace("*", part) for part in PARTS}


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    """What ``--json`` prints for a run with all levels, tenants and partitions."""
    levels = [{"name": "zone", "nodes_per_domain": 4}, {"name": "rack", "nodes_per_domain": 2}, {"name": "node"}]
    document = {
        "scale": "jobs",
        "trace": {"synthetic": {"jobs": 60, "load": 0.5}, "skip_infeasible": True},
        "cluster": {"nodes": 24, "gpus_per_node": 8, "levels": levels, "islands": [4], "tenancy": "walls"},
    }
    return measured(toml.typed(document, Experiment, "test"), "walls").row


def test_every_number_of_the_json_is_defined_once_and_nothing_else_is(result: dict[str, Any]) -> None:
    text = read("docs/reference/metrics.md")
    cells = [row[0] for header, rows in tables(text) if header[0] == "key" for row in rows]
    listed = [key for cell in cells for key in re.findall(r"`([\w*]+)`", cell)]
    in_tables = {key for name in listed for key in _expanded(name)}
    named = {*in_tables, *spans(text)}
    assert set(result) - named == set(), "numbers of --json that docs/reference/metrics.md does not define"
    assert in_tables - set(result) == set(), "keys of docs/reference/metrics.md that --json does not have"
    assert len(listed) == len(set(listed))


def _fleet_rows() -> list[dict[str, Any]]:
    """What ``--json`` prints for runs of a fleet that together have every number."""
    small = {"requests": 30}
    chat = hw.Fleet("chat", **small, controller="1ms", control="central")
    loaded = hw.Fleet("examples/rag/rag.toml", **small, load=0.2)
    seeded = hw.compare(hw.Fleet("compass", **small), ["hash", "jit"], seeds=2)
    return [hw.simulate(chat, "headway").row, hw.simulate(loaded, "headway").row, *seeded.rows]


def test_every_number_of_a_fleet_is_defined_once_and_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text, rows = read("docs/reference/fleet-metrics.md"), _fleet_rows()
    defined = [row for header, rows_ in tables(text) if header[0].startswith("key") for row in rows_]
    listed = [key for row in defined for key in re.findall(r"`(\w+)`", row[0])]
    found = {key for row in rows for key in row}
    about_the_run = text.partition("are as for [jobs]")[0].rpartition("\n")[2]
    named = {*listed, *re.findall(r"`(\w+)`", about_the_run)}
    assert found - named == set(), "numbers of --json that docs/reference/fleet-metrics.md does not define"
    assert named - found <= {"variant"}, "keys of docs/reference/fleet-metrics.md that --json does not have"
    assert len(listed) == len(set(listed))
    cells = {row[0]: set(re.findall(r"`(\w+)`", row[2])) for row in defined}
    short = cells["`graphs`"]
    (long,) = (keys for cell, keys in cells.items() if "`classes`" in cell)
    for row in rows:
        for group in row.get("graphs", ()):
            assert set(group) == short
        for kind in ("classes", "tenants"):
            for group in row.get(kind, ()):
                assert set(group) - short <= long
                assert long - set(group) - {"graphs", "slo_hit_rate"} <= {"class", "tenant"}


def test_the_columns_of_a_headway_trace_are_those_that_are_read(tmp_path: Path) -> None:
    text = read("docs/guides/traces.md")
    (rows,) = (rows for header, rows in tables(text) if header[0] == "column")
    listed = [column for row in rows for column in re.findall(r"`(\w+)`", row[0])]
    assert len(listed) == len(set(listed))
    assert set(listed) == {column.spellings[0] for column in (*native._COLUMNS, *native._TERMS, *native._BESIDE)}
    assert tuple(listed[:3]) == tuple(native._COLUMNS[i].spellings[0] for i in range(3))
    assert set(listed) == set((SAMPLES / "headway.csv").read_text().splitlines()[0].split(","))
    assert load(SAMPLES / "headway.csv", "headway").jobs
    (tmp_path / "jobs.csv").write_text("submit_s,work_ns,gpus\n0,5,1\n")
    assert load(tmp_path / "jobs.csv", "headway").jobs[0].work == 5


def test_the_columns_that_the_readme_names_are_read() -> None:
    sentence = read("README.md").partition("is enough;")[2].partition("are used")[0]
    assert set(re.findall(r"`(\w+)`", sentence)) <= {column.spellings[0] for column in native._COLUMNS}


def _told(path: Path) -> str:
    """The format of a sample; empty where it holds no jobs, or is any table."""
    try:
        return guess(path)
    except TraceError:
        return ""


def _listed(cell: str) -> list[str]:
    return re.sub(r" \(.*?\)", "", cell).split(", ")


def test_the_formats_and_their_columns_are_those_of_the_readers() -> None:
    header, rows = next(tables(read("docs/guides/traces.md")))
    assert header[0] == "`--format`"
    assert {row[0].strip("`") for row in rows} == set(FORMATS), "the table of docs/guides/traces.md has a row a format"
    headers: dict[str, list[list[str]]] = {}
    for sample in SAMPLES.glob("*.csv"):
        headers.setdefault(_told(sample), []).append(sample.read_text().splitlines()[0].split(","))
    for row in rows:
        samples = headers.get(row[0].strip("`"), [])
        assert row[2].startswith("see ") or _listed(row[2]) in samples, (
            f"docs/guides/traces.md, {row[0]}: the columns are not the header of a sample in tests/samples: {samples}"
        )


def test_the_formats_of_requests_and_the_fields_of_any_table_are_those_that_are_read() -> None:
    listed = {header[0]: rows for header, rows in tables(read("docs/guides/traces.md"))}
    assert {row[0].strip("`") for row in listed["requests"]} == set(REQUEST_FORMATS)
    assert _listed(listed["requests"][0][2]) == (SAMPLES / "azure-llm.csv").read_text().splitlines()[0].split(",")
    request = json.loads((SAMPLES / "mooncake.jsonl").read_text().splitlines()[0])
    assert _listed(listed["requests"][1][2]) == list(request)
    assert {field for row in listed["field"] for field in re.findall(r"`(\w+)`", row[0])} == set(generic.KINDS)


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_a_command_or_flag_that_a_document_names_exists(path: Path) -> None:
    text = read(path)
    lines = [*spans(text), *(line for block in blocks(text) for line in block.text.splitlines() if line.strip())]
    every = {flag for command in COMMANDS.values() for option in command.params for flag in option.opts}
    every |= {flag for command in COMMANDS.values() for option in command.params for flag in option.secondary_opts}
    for line in lines:
        flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", line))
        program, *words = line.split()
        if program in OWN_PROGRAMS and words and not line.startswith(f"{program}  "):  # else a row of a table
            command = " ".join(words[:2]) if " ".join(words[:2]) in COMMANDS else words[0]
            assert command in COMMANDS, line
            assert not words[1:] or not hasattr(COMMANDS[command], "commands"), line
            known = {flag for option in COMMANDS[command].params for flag in (*option.opts, *option.secondary_opts)}
            assert flags <= known, line
        elif program.startswith("--"):
            assert flags <= every, line


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_a_script_or_program_that_a_document_names_is_there(path: Path) -> None:
    text = read(path)
    code = [*spans(text), *(block.text for block in blocks(text))]
    for script in {found for piece in code for found in re.findall(r"(?<![\w/])(?:\./)?(scripts/[\w-]+)", piece)}:
        assert (ROOT / script).stat().st_mode & 0o111, script
    for program in {found for piece in code for found in re.findall(r"\.venv/bin/([\w-]+)", piece)}:
        assert (Path(sys.executable).parent / program).exists(), program
    for flag in {found for piece in code for found in re.findall(r"scripts/bench .*?(--\w+)", piece)}:
        assert flag in read("bench/run.py")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray's own, where a document names a module that imports it
@pytest.mark.parametrize("path", PAGES, ids=name)
def test_a_class_module_or_folder_that_a_document_names_exists(path: Path) -> None:
    source = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "src").rglob("*.py"))
    for span in spans(read(path)):
        if match := re.match(r"((?:[A-Z][a-z]+){2,})(?:\.(\w+))?(?=\W|$)", span):
            assert re.search(rf"^class {match[1]}\b", source, re.MULTILINE), span
            assert not match[2] or match[2] in source, span
        if re.fullmatch(r"headway(\.\w+)+", span) and span not in (GROUP, *MODULES):  # old paths, told by the changelog
            _resolve(span)
        if re.fullmatch(r"(tests|docs|src|experiments)/[\w/.-]*", span) and "x." not in span:
            assert (ROOT / span).exists(), span


def _resolve(dotted: str) -> Any:
    module, _, attribute = dotted.rpartition(".")
    try:
        return importlib.import_module(dotted)
    except ModuleNotFoundError:
        return getattr(importlib.import_module(module), attribute)


@pytest.mark.parametrize("page", ["docs/reference/glossary.md", "docs/background/model.md"])
def test_the_rank_order_is_that_of_the_events(page: str) -> None:
    ranks = {re.sub("^(Job|Node)", "", event.__name__).lower(): event.rank for event in get_args(events.Event)}
    ranks |= {"failed": events.JobFailed.rank, "node failed": events.NodeFailed.rank}
    (said,) = re.findall(r"finished(?:, [\w ]+)+, woke", read(page))
    order = said.split(", ")
    assert set(order) == set(ranks)
    assert all(ranks[first] < ranks[second] for first, second in pairwise(order))


def test_the_glossary_explains_each_word_once() -> None:
    words = [row[0] for _, rows in tables(read("docs/reference/glossary.md")) for row in rows]
    assert len(words) == len(set(words)) > 40


def test_the_folders_of_tests_are_those_that_contributing_describes() -> None:
    (rows,) = (rows for header, rows in tables(read("CONTRIBUTING.md")) if header[0] == "folder")
    described = {row[0].strip("`") for row in rows}
    assert "tests/docs" in described
    assert all((ROOT / folder).is_dir() for folder in described)


def test_the_limits_that_contributing_states_are_those_that_are_checked() -> None:
    text = " ".join(read("CONTRIBUTING.md").split())
    limits = read("tests/architecture/test_source.py")
    (file, function) = re.findall(r"never over (\d+)", text)
    assert f"LONGEST_FILE = {file}\n" in limits
    assert f"LONGEST_FUNCTION = {function}\n" in limits
    (variable,) = set(re.findall(r"`(HEADWAY_\w+)=", text))
    assert f'"{variable}"' in read("tests/conftest.py")
