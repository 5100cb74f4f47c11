"""The commands about trace files: what they print, what they write, and what they refuse in one line."""

import gzip
import os
import re
from pathlib import Path
from typing import Any

import pytest

from headway.cli import main
from headway.jobs.traces import FORMATS, load, philly_like, synergy_like, write
from headway.jobs.traces.workloads.cut import cut
from headway.units import HOUR
from tests.cli.test_jobs import Ended
from tests.docs.pages import read, tables

TEXT = """submit_s,work_s,gpus,name,tenant
0,60,1,a,vision
5,-1,2,b,speech
9,60,x,c,vision
9,60,8,a,vision
10,600,16,d,speech
7200,30,1,e,vision
"""
PARTS = ("mean", "p50", "p90", "p99", "max")
COMMANDS = ("inspect", "formats", "convert", "slice", "scale", "generate")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a small trace, some of its rows bad, and files that are none."""
    (tmp_path / "jobs.csv").write_text(TEXT)
    (tmp_path / "sound.csv").write_text("".join(TEXT.splitlines(keepends=True)[:2]) + "9,60,8,c,speech\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "bare.csv").write_text(TEXT.splitlines()[0])
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(TEXT.encode(), mtime=0)[:-12])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def trace(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run ``headway trace`` in this process."""

    def call(*arguments: object) -> Ended:
        with pytest.raises(SystemExit) as ended:
            main(["trace", *map(str, arguments)])
        out, err = capsys.readouterr()
        return Ended(int(ended.value.code or 0), out, err)

    return call


def test_inspect_prints_what_a_file_holds_and_what_would_be_dropped(folder: Path, trace: Any) -> None:
    ended = trace("inspect", "jobs.csv", "--json")
    found = ended.json
    assert (ended.status, ended.err) == (0, "")
    assert (found["format"], found["rows"], found["jobs"], found["dropped"]) == ("headway", 6, 3, 3)
    assert (found["span_s"], found["gpus_max"]) == (7200, 16)
    assert [(row["line"], row["column"], row["value"]) for row in found["dropped_rows"]] == [
        (3, "work_s", "-1"), (4, "gpus", "x"), (5, "name", "a"),
    ]  # fmt: skip
    text = trace("inspect", "jobs.csv", "--gpus", "8")
    assert text.status == 0
    assert text.out.startswith("jobs.csv: headway\n  rows          6: 3 jobs, 3 dropped\n")
    assert "1 × name occurs twice: ids must be unique (line 5: 'a')" in text.out
    assert "on 8 GPUs" in text.out
    assert "1 job wants more than all 8 GPUs" in text.out


def test_the_keys_of_an_inspection_are_those_of_the_reference(folder: Path, trace: Any) -> None:
    page = read("docs/reference/trace-metrics.md")
    (rows,) = (rows for header, rows in tables(page) if header[0] == "key of a job trace")
    listed = {key for row in rows for key in re.findall(r"`([\w*]+)`", row[0])}
    expanded = {key.replace("*", part) for key in listed for part in PARTS}
    assert expanded == set(trace("inspect", "jobs.csv", "--gpus", 8, "--json").json)


def test_requests_are_inspected_too_and_are_no_jobs(folder: Path, trace: Any) -> None:
    rows = "".join(f"2023-11-16 18:15:{at:02d}.5000000,{100 + at},{at}\n" for at in range(40))
    (folder / "requests.csv").write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}2023-11-16 18:17:00.5,-1,2\n")
    found = trace("inspect", "requests.csv", "--json").json
    assert found == trace("inspect", "requests.csv", "--format", "azure-llm", "--json").json
    assert (found["format"], found["rows"], found["jobs"], found["requests"]) == ("azure-llm", 41, 0, 40)
    assert (found["dropped"], found["span_s"], found["gpus_max"]) == (1, 39, 0)
    page = read("docs/reference/trace-metrics.md")
    (own,) = (rows for header, rows in tables(page) if header[0] == "key of a request trace")
    named = {key.replace("*", part) for row in own for key in re.findall(r"`([\w*]+)`", row[0]) for part in PARTS}
    assert named <= set(found)
    assert set(found) - named <= set(trace("inspect", "jobs.csv", "--json").json)
    text = trace("inspect", "requests.csv").out
    assert "rows          41: 40 requests, 1 dropped" in text
    assert "input tokens  mean 120," in text
    ended = trace("convert", "requests.csv", "out.csv")
    assert (ended.status, ended.err.count("\n")) == (2, 1)


def test_formats_lists_all(trace: Any) -> None:
    known = trace("formats", "--json").json
    assert set(FORMATS) <= {each["name"] for each in known}
    table = trace("formats").out
    assert [line.split()[0] for line in table.splitlines()] == [each["name"] for each in known]


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet", "out.parquet.gz", "OUT.PQ"])
def test_convert_writes_what_was_read(folder: Path, trace: Any, name: str) -> None:
    ended = trace("convert", "jobs.csv", name, "--skip-bad-rows")
    assert (ended.status, ended.out) == (0, "")
    assert "note: 3 of 6 rows dropped: line 3: work_s '-1' must be above 0; " in ended.err
    assert ended.err.endswith(f"jobs.csv: 3 jobs of 6 rows (headway)\n{name}: 3 jobs over 2h 00m written\n")
    again = load(folder / name)
    assert again.jobs == load(folder / "jobs.csv", skip_bad_rows=True).jobs
    assert not again.dropped


def test_what_is_there_is_overwritten_only_by_force(folder: Path, trace: Any) -> None:
    (folder / "out.csv").write_text("mine")
    for command in (["convert"], ["slice", "--from", "1s"], ["scale", "--load", "2"]):
        ended = trace(command[0], "jobs.csv", "out.csv", *command[1:])
        assert (ended.status, ended.err) == (2, "headway: out.csv: is already there; --force overwrites it\n")
    assert trace("generate", "--out", "out.csv").status == 2
    assert (folder / "out.csv").read_text() == "mine"
    assert trace("convert", "jobs.csv", "out.csv", "--force", "--skip-bad-rows").status == 0
    assert trace("scale", "out.csv", "out.csv", "--load", "2", "--force").status == 0
    assert load(folder / "out.csv").jobs[-1].submit == HOUR
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_slice_takes_times_numbers_and_tenants(folder: Path, trace: Any) -> None:
    jobs = philly_like(400, seed=2, gpus=8)
    write(jobs, folder / "all.parquet")
    trace("slice", "all.parquet", "a.csv", "--from", "12h", "--to", "2d")
    assert load(folder / "a.csv").jobs == cut(jobs, start=12 * HOUR, end=48 * HOUR)
    trace("slice", "all.parquet", "b.csv", "--jobs", "100:200", "--tenant", "tenant00", "--tenant", "tenant01")
    assert load(folder / "b.csv").jobs == cut(jobs, numbers=(100, 200), tenants=["tenant00", "tenant01"])
    trace("slice", "all.parquet", "c.csv", "--jobs", ":10")
    assert load(folder / "c.csv").jobs == jobs[:10]


def test_scale_divides_submit_times(folder: Path, trace: Any) -> None:
    trace("scale", "jobs.csv", "fast.csv", "--load", "1.2", "--skip-bad-rows")
    assert [job.submit for job in load(folder / "fast.csv").jobs] == [
        job.submit * 5 // 6 for job in load(folder / "jobs.csv", skip_bad_rows=True).jobs
    ]


def test_generate_draws_the_same_for_the_same_seed(folder: Path, trace: Any) -> None:
    size = ("--jobs", 300, "--gpus", 64, "--load", "0.9")
    for name, seed in (("a.csv", 7), ("b.csv", 7), ("c.csv", 8)):
        assert trace("generate", "philly", *size, "--seed", seed, "--out", name).status == 0
    assert (folder / "a.csv").read_bytes() == (folder / "b.csv").read_bytes() != (folder / "c.csv").read_bytes()
    assert load(folder / "a.csv").jobs == philly_like(300, seed=7, gpus=64, load=0.9)
    trace("generate", *size, "--no-outcomes", "--no-estimates", "--out", "plain.parquet")
    plain = load(folder / "plain.parquet").jobs
    assert plain == philly_like(300, gpus=64, load=0.9, outcomes=False, estimates=False)


def test_without_a_file_generate_prints_the_jobs(folder: Path, trace: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["trace", "generate", "synergy", "--split", "50,0,50", "--rate", "9/h", "--jobs", "20"])
    assert left.value.code == 0
    printed = capsys.readouterr().out
    (folder / "printed.csv").write_text(printed)
    assert load(folder / "printed.csv").jobs == synergy_like(20, seed=0, split="50,0,50", rate="9/h")


def test_generate_draws_workloads_of_synergys_kind(folder: Path, trace: Any) -> None:
    plain = trace("generate", "synergy", "--jobs", 200, "--out", "plain.csv")
    assert (plain.status, plain.out) == (0, "")
    assert load(folder / "plain.csv").jobs == synergy_like(200)
    given = ("--split", "50,0,50", "--rate", "4/h", "--jobs", 200, "--seed", 42, "--gpus-per-job", "multi")
    assert trace("generate", "synergy", *given, "--out", "multi.parquet").status == 0
    drawn = synergy_like(200, split="50,0,50", rate="4/h", seed=42, gpus="multi")
    assert load(folder / "multi.parquet").jobs == drawn


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["inspect", "absent.csv"], "trace absent.csv: there is no such file"),
        (["inspect", "empty.csv"], "the file is empty"),
        (["inspect", "bare.csv"], "there is a header but no row"),
        (["inspect", "cut.csv.gz"], "truncated"),
        (["inspect", "."], "is a directory"),
        (["inspect", "jobs.csv", "--format", "hedway"], "did you mean 'headway'?"),
        (["inspect", "jobs.csv", "--gpus", "0"], "--gpus"),
        (["inspect"], "FILE"),
        (["convert", "jobs.csv"], "OUT"),
        (["convert", "jobs.csv", "out.txt"], "must end in .csv or .parquet"),
        (["convert", "jobs.csv", "no/such/out.csv"], "there is no folder no/such"),
        (["convert", "jobs.csv", "folder.csv"], "is a directory, not a file"),
        (["convert", "absent.csv", "out.csv"], "there is no such file"),
        (["convert", "jobs.csv", "out.csv", "--strict"], "line 3: work_s '-1' must be above 0"),
        (["slice", "jobs.csv", "out.csv", "--from", "2d", "--to", "1d"], "--to 1d must be after --from 2d"),
        (["slice", "jobs.csv", "out.csv", "--from", "-1d"], "must not be negative"),
        (["slice", "jobs.csv", "out.csv", "--to", "soon"], "--to 'soon' is not understood"),
        (
            ["slice", "jobs.csv", "out.csv", "--skip-bad-rows", "--from", "9d"],
            "of 3 jobs over 2h 00m none is left: from 9d 0h to the end",
        ),
        (["slice", "jobs.csv", "out.csv", "--skip-bad-rows", "--tenant", "vison"], "none is left: tenant vison"),
        (["slice", "jobs.csv", "out.csv", "--jobs", "5"], "--jobs '5' is not understood"),
        (["slice", "jobs.csv", "out.csv", "--jobs", "5:x"], "--jobs '5:x' is not understood"),
        (["slice", "jobs.csv", "out.csv", "--jobs", "5:5"], "the second number must be above the first"),
        (["scale", "jobs.csv", "out.csv"], "--load"),
        (["scale", "jobs.csv", "out.csv", "--load", "0"], "load factor '0' must be above 0"),
        (["scale", "jobs.csv", "out.csv", "--load", "fast"], "load factor 'fast' is not a number"),
        (["scale", "jobs.csv", "out.csv", "--load", "1e9"], "must lie in 0.001 to 1,000"),
        (["generate", "phily", "--out", "out.csv"], "did you mean 'philly'?"),
        (["generate", "--out", "out.csv", "--jobs", "0"], "jobs 0 must lie in 1 to"),
        (["generate", "--out", "out.csv", "--jobs", "10", "--load", "0"], "load 0"),
        (["generate", "--out", "out.csv", "--jobs", "10", "--load", "nan"], "load nan"),
        (["generate", "synergy", "--out", "out.csv", "--gpus", "64"], "--gpus is for generate philly, not synergy"),
        (["generate", "synergy", "--out", "out.csv", "--no-outcomes"], "--outcomes is for generate philly"),
        (["generate", "philly", "--out", "out.csv", "--rate", "9/h"], "--rate is for generate synergy, not philly"),
        (["generate", "--out", "out.csv", "--gpus-per-job", "multi"], "--gpus-per-job is for generate synergy"),
        (["generate", "synergy", "--out", "out.csv", "--jobs", "0"], "jobs 0 must lie in 1 to"),
        (["generate", "synergy", "--out", "out.csv", "--rate", "9"], "rate '9' is not understood"),
        (["generate", "synergy", "--out", "out.csv", "--rate", "0/h"], "rate '0/h' must be above 0"),
        (["generate", "synergy", "--out", "out.csv", "--split", "50,50"], "split '50,50' is not understood"),
        (["generate", "synergy", "--out", "out.csv", "--split", "60,60,60"], "must add up to 100, not 180"),
        (["generate", "synergy", "--out", "out.csv", "--gpus-per-job", "two"], "unknown GPUs of jobs 'two'"),
        (["nonsense"], "nonsense"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_written(
    folder: Path, trace: Any, arguments: list[str], line: str
) -> None:
    (folder / "folder.csv").mkdir()
    ended = trace(*arguments)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert ended.err.startswith("headway: ")
    assert line in ended.err
    assert not (folder / "out.csv").exists()


def test_ctrl_c_in_the_middle_of_writing_leaves_what_was_there(
    folder: Path, trace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace("convert", "sound.csv", "out.csv")
    before = (folder / "out.csv").read_bytes()

    def stopped(_file: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", stopped)
    ended = trace("generate", "--jobs", 50, "--gpus", 8, "--out", "out.csv", "--force")
    assert (ended.status, ended.out, ended.err) == (130, "", "headway: stopped\n")
    assert (folder / "out.csv").read_bytes() == before
    assert not list(folder.glob(".headway-*"))


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_explains_every_command(trace: Any, command: str) -> None:
    ended = trace(*([command] if command else []), "--help")
    assert ended.status == 0
    assert f"headway trace {command}".strip() in ended.out
    assert all(name in ended.out for name in COMMANDS) or command
