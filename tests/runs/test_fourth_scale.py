"""A scale is a folder and a registry line: tests/runs/toy is one, and all that is written once serves it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headway as hw
from headway import api
from headway.cli import main, scales
from headway.cli.app import app
from headway.cli.program import app as every
from headway.cli.scales import group_of
from headway.core.tasks import Done, Told, Work
from headway.runs.folder.folder import open_run
from headway.runs.registry import DOMAINS, domain
from tests.runs.toy.server import StartTask

ROOT = Path(__file__).resolve().parents[2]
LINE = ("toy", "tests.runs.toy")
"""The line that the registry would have."""


class Here:
    """A pool of this process: another would not know of a line that a test added."""

    def __init__(self, processes: int) -> None:
        self.processes = processes

    def run(self, tasks: Sequence[Any], work: Work, told: Told | None = None) -> Generator[Done, None, None]:
        """Do one task after the other."""
        for number, task in enumerate(tasks):
            yield Done(number, work(task, None))


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(DOMAINS, *LINE)
    monkeypatch.setattr(app, "registered_groups", [*every.registered_groups])
    app.add_typer(group_of(domain("toy")))
    for module in (api, scales):
        monkeypatch.setattr(module, "LocalPool", Here)
    monkeypatch.chdir(tmp_path)


Said = Callable[..., str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Run a command that succeeds; return what it printed."""

    def run(*arguments: str, status: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        told = capsys.readouterr()
        assert ended.value.code == status, told.err
        return told.out if status == 0 else told.err

    return run


def test_it_runs_from_the_command_line_and_its_run_is_stored_opened_replayed_and_audited(said: Said) -> None:
    row = json.loads(said("toy", "simulate", "20", "--policy", "shortest", "--out", "run", "--json"))
    assert list(row)[:3] == ["policy", "tasks", "time_mean_s"]
    assert (row["policy"], row["tasks"], row["seed"]) == ("shortest", 20, 0)
    stored = open_run("run")
    assert stored.complete
    assert stored.tape.digest == row["digest"]
    assert said("replay", "run") == f"identical: {row['events']} rows, digest {row['digest']}\n"
    assert said("audit", "run") == f"sound: {row['events']} rows checked, nothing wrong; digest {row['digest']}\n"


def test_its_audit_finds_what_was_forged() -> None:
    hw.simulate(hw.work("toy", tasks="5"), out="run")
    stored = open_run("run")
    rows = stored.tape.rows.copy()
    rows[-1, 0] += 1
    forged = replace(stored, tape=type(stored.tape)(rows))
    assert [finding.rule for finding in stored.scene.audit(forged.tape, complete=True)] == ["work"]
    assert stored.scene.audit(stored.tape, complete=True) == []


def test_it_is_told_of_exported_and_reported(said: Said, tmp_path: Path) -> None:
    said("toy", "compare", "20", "--policies", "in-order,shortest", "--out", "runs", "--report", "first.html")
    assert "task 3: came at" in said("story", "runs/shortest", "3")
    assert json.loads(said("story", "runs/shortest", "3", "--json"))["task"] == 3
    assert said("story", "runs/shortest", "99", status=2) == "headway: task '99' is not in this run\n"
    said("report", "runs", "-o", "page.html", "--title", "Toys")
    for name in ("first.html", "page.html"):
        assert "How long do tasks take?" in (tmp_path / name).read_text()
    said("export", "runs/shortest", "--perfetto", "trace.json", "--parquet", "tables", "--csv", "sheets")
    assert len(json.loads((tmp_path / "trace.json").read_text())["traceEvents"]) == 20
    assert (tmp_path / "tables" / "tasks.parquet").is_file()
    assert (tmp_path / "sheets" / "tasks.csv").read_text().startswith("task,came_s")
    assert "explain is about jobs" in said("explain", "runs/shortest", "3", status=2)
    assert "whatif is about runs of jobs and fleets" in said("whatif", "runs/shortest", "--at", "1s", status=2)


def test_it_is_compared_over_seeds_with_a_baseline(said: Said) -> None:
    rows = json.loads(
        said(
            *("toy", "compare", "30", "--policies", "in-order,shortest", "--seeds", "3", "--baseline", "shortest"),
            *("--busy", "0.9", "--json"),
        )
    )
    first, second = rows
    assert [row["seed"] for row in first["runs"]] == [0, 1, 2]
    assert first["time_mean_low_s"] < first["time_mean_s"] < first["time_mean_high_s"]
    assert first["baseline"] == second["baseline"] == "shortest"
    assert first["time_change"] > 0
    assert second["time_change"] is None
    assert np.isclose(first["time_mean_s"], np.mean([run["time_mean_s"] for run in first["runs"]]))


def test_it_is_swept_and_what_is_done_is_not_done_again(said: Said) -> None:
    grid = ("toy", "sweep", "10", "--policies", "in-order,shortest", "--busies", "0.5,0.8", "--seeds", "2", "-o", "s")
    rows = json.loads(said(*grid, "--json"))
    assert len(rows) == 4
    assert {row["values"]["toy.busy"] for row in rows} == {0.5, 0.8}
    assert json.loads(said(*grid, "--json")) == rows
    again = hw.sweep(
        hw.work("toy", tasks="10"), "s", {"policy.name": ["in-order", "shortest"], "toy.busy": [0.5, 0.8]}, seeds=2
    )
    assert again.rows == rows
    assert again.frame().shape[0] == 8
    assert "shortest" in repr(again)


def test_an_experiment_file_names_it_and_has_variants(said: Said, tmp_path: Path) -> None:
    (tmp_path / "toy.toml").write_text(
        'scale = "toy"\n[toy]\ntasks = "15"\n[[variants]]\nname = "calm"\nset = { toy.busy = 0.2 }\n'
        '[[variants]]\nname = "busy"\nset = { toy.busy = 0.9 }\n'
    )
    rows = json.loads(said("run", "toy.toml", "--json"))
    assert [row["variant"] for row in rows] == ["calm", "busy"]
    assert hw.run("toy.toml", seeds=2).rows[0]["seeds"] == 2


def test_it_has_the_verbs_of_python() -> None:
    work = hw.work("toy", tasks="12", busy=0.8)
    assert repr(work) == "hw.toy: toy.tasks='12', toy.busy=0.8"
    found = hw.compare(work, ["in-order", "shortest"])
    assert found.names == ["in-order", "shortest"]
    assert found.table("tasks")["policy"].to_list() == ["in-order"] * 12 + ["shortest"] * 12
    assert "everything here is made up" in repr(found)
    run = found["shortest"]
    assert run.audit() == []
    assert run.replay() is None
    assert len(found.figure("times").data) == 2
    assert run.story(0).record()["task"] == 0
    kept = run.save("kept")
    assert hw.open("kept").row == kept.row == run.row


def test_it_is_an_environment_too() -> None:
    env = hw.environment(hw.work("toy", tasks="8", seed=3))
    state, _ = env.reset()
    total, done = 0.0, False
    while not done:
        actions = [StartTask(next(iter(state.waiting)))] if state.waiting and not state.running else []
        state, reward, done, cut, info = env.step(actions)
        assert not cut
        assert info["refused"] == []
        total += reward
    run = hw.simulate(hw.work("toy", tasks="8", seed=3), "in-order")
    assert env.tape.digest == run.row["digest"]
    assert np.isclose(-total, run.table("tasks")["time_s"].sum())


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["simulate", "20", "--policy", "shortst"], "did you mean 'shortest'?"),
        (["simulate", "many"], "toy: many tasks, busy 0.7: not understood"),
        (["simulate", "20", "--set", "toy.bussy=1"], "unknown key of [toy] 'bussy'"),
        (["simulate", "20", "--by", "tenant"], "No such option"),
    ],
)
def test_what_is_wrong_is_one_line(said: Said, arguments: list[str], line: str) -> None:
    told = said("toy", *arguments, status=2)
    assert line in told
    assert told.count("\n") == 1


def test_its_group_of_commands_is_in_the_help(said: Said) -> None:
    assert "Tasks that queue for one server." in said("--help")
    assert "headway toy sweep" in said("toy", "sweep", "--help")


def test_with_its_line_in_the_registry_another_program_knows_it(tmp_path: Path) -> None:
    program = (
        f"from headway.runs.registry import DOMAINS; DOMAINS[{LINE[0]!r}] = {LINE[1]!r}\n"
        "from headway.cli import main; main(['toy', 'compare', '9', '--policies', 'in-order,shortest', '--json'])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert [row["policy"] for row in json.loads(ended.stdout)] == ["in-order", "shortest"]
