"""Applications measured task by task: what is measured, how it is resumed and merged, and what cannot be measured."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from headway.cli import main
from headway.errors import InputError
from headway.fleet.model.catalogue import Configuration
from headway.fleet.profiling import application as module
from headway.fleet.profiling.application import Wanted, document, measure, write
from headway.fleet.profiling.session import Effort
from headway.fleet.scenarios.file import load
from headway.fleet.scenarios.tables.profile import read
from headway.formats import toml
from headway.profiling import store
from tests.fleet.scenarios.test_file import of

APP = """
import torch
import headway as hw

print("an application may print")

@hw.model
def numbers():
    return torch.nn.Linear(4, 3)

@hw.model(memory="1KB")
def table():
    return {"a": 1}

@hw.task(models=[numbers, table], max_batch=3, example=lambda count: [[float(at)] * 4 for at in range(count)])
def first(network, words, rows):
    assert torch.get_num_threads() == 1 and len(rows) <= 3
    assert words == {"a": 1}
    return list(network(torch.tensor(rows)))

@hw.task(max_batch=4)
def second(rows):
    assert all(row.shape == (3,) for row in rows)
    return [row.tolist() for row in rows]

@hw.task(max_batch=2)
def third(second, first):
    assert [row.tolist() for row in first] == second
    return [b"x" * 1000 for row in second]

line = hw.graph("line", first >> second)
fork = hw.graph("fork", first >> second >> third, first >> third)
"""
WEIGHTS = 4 * (4 * 3 + 3)
QUICK = Effort(runs=2, least_s=0.0)


@pytest.fixture(autouse=True)
def _own_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADWAY_PROFILES", str(tmp_path / "profiles"))


def app(folder: Path, text: str = APP) -> Path:
    path = folder / "app.py"
    path.write_text(text)
    return path


def ran(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["profile", "model", *arguments])
    return int(ended.value.code or 0)


def test_an_application_is_measured_resumed_written_and_simulated_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, told = app(tmp_path), list[str]()

    def once(**more: Any) -> module.AppProfile:
        return measure(path, effort=QUICK, device="cpu", tell=lambda done, of, what: told.append(what), **more)

    found = once()
    cells = {task.name: [cell[:3] for cell in task.cells] for task in found.tasks}
    assert cells == {
        "first": [(1, 1, 1), (2, 1, 1), (3, 1, 1)],
        "second": [(1, 1, 0), (2, 1, 0), (4, 1, 0)],
        "third": [(1, 1, 0), (2, 1, 0)],
    }
    assert all(cell.ms > 0 for task in found.tasks for cell in task.cells)
    sizes = {task.name: (task.input_bytes > 0, task.output_bytes > 1000, task.activation_bytes) for task in found.tasks}
    assert sizes == {"first": (True, False, 0), "second": (False, False, 0), "third": (False, True, 0)}
    assert [(each.name, each.weights_bytes, sorted(each.load_ms)) for each in found.models] == [
        ("numbers", WEIGHTS, ["pageable"]),
        ("table", 0, []),
    ]
    assert told[:3] == ["model numbers", "model table", "task first, batch 1, cpus 1"]
    assert len(told) == 2 + 8
    assert "an application may print" in (store.folder() / "models" / "app.output").read_text()

    assert once() == found
    assert len(told) == 2 + 8, "nothing is measured twice"

    write(found, tmp_path / "app.profile.toml")
    back = read(tmp_path / "app.profile.toml")
    assert back.functions["third"].cells.keys() == {Configuration(1, 1, 0), Configuration(2, 1, 0)}
    assert {name: each.weights_bytes for name, each in back.models.items()} == {"numbers": WEIGHTS}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    built = load(of(path))
    assert [(model.name, model.size_bytes) for model in built.catalogue.models] == [
        ("numbers", WEIGHTS),
        ("table", 1000),
    ]
    assert built.notes == ()


def test_shares_are_measured_and_served_by_workers_of_their_size(tmp_path: Path) -> None:
    path, out = app(tmp_path), tmp_path / "app.profile.toml"
    found = measure(path, module.Wanted(batches=(1,), shares=(2, 7)), effort=QUICK, device="cpu")
    assert {task.name: [cell[:3] for cell in task.cells] for task in found.tasks} == {
        "first": [(1, 1, 2), (1, 1, 7)],
        "second": [(1, 1, 0)],
        "third": [(1, 1, 0)],
    }
    write(found, out)
    shares = [worker.gpu.slices for worker in load(of(path)).fleet.workers]
    assert shares == [7, 7], "without shares, each worker has a whole device"
    experiment = of(path)
    experiment.serving.slices = "2,7"
    assert [worker.gpu.slices for worker in load(experiment).fleet.workers] == [2, 7]
    experiment.serving.slices = "2,3"
    with pytest.raises(InputError, match="function first: none of its 2 cells can run on GPU gpu with 3 slices"):
        load(experiment)


def test_a_task_alone_is_put_into_the_file_beside_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = app(tmp_path), tmp_path / "app.profile.toml"
    flags = ["--device", "cpu", "--runs", "2", "--out", str(out)]
    assert ran(str(path), *flags, "--task", "second,third", "--batches", "2") == 0
    shown = capsys.readouterr()
    assert "app on the CPU" in shown.out
    assert f"profile: {out}" in shown.err
    assert list(toml.read(out)["functions"]) == ["second", "third"]
    assert ran(str(path), *flags, "--task", "first", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert list(printed["functions"]) == ["first"]
    functions = toml.read(out)["functions"]
    assert sorted(functions) == ["first", "second", "third"]
    assert [row[:3] for row in functions["second"]["cells"]] == [[2, 1, 0]]
    assert functions["first"] == printed["functions"]["first"]


def test_a_profile_of_another_gpu_is_not_mixed_with_it(tmp_path: Path) -> None:
    cell = module.Cell(1, 1, 1, 2.0, 0.1)
    one = module.AppProfile("app", "H200", (module.TaskProfile("first", (cell,), 10, 20, 30),), ())
    other = module.AppProfile("app", "A100", (module.TaskProfile("second", (cell,), 0, 0, 0),), ())
    for profile in (one, other):
        write(profile, tmp_path / "p.toml")
    assert list(read(tmp_path / "p.toml").functions) == ["second"]
    assert document(one)["functions"]["first"] == {
        "activation": 10,
        "input": 20,
        "output": 30,
        "cells": [[1, 1, 1, 2.0, 0.1]],
    }


EXAMPLE = "example=lambda count: [[float(at)] * 4 for at in range(count)]"


@pytest.mark.parametrize(
    ("old", "new", "wanted", "line"),
    [
        (EXAMPLE, "", Wanted(), "task first: has no example to measure with: write @hw.task(example="),
        ("range(count)", "range(2)", Wanted(), "task first: its example gave 2 inputs for 4: it must give a list"),
        ("", "", Wanted(("fourth",)), "unknown task 'fourth'"),
        (" max_batch=3", " cpus=4000", Wanted(), "task first: 4000 CPUs cannot be measured: this machine has"),
        ("[row.tolist() for row in rows]", "[1, 2]", Wanted(), "task second: gave 2 results for 1 inputs: it must"),
        ('return {"a": 1}', "return 1 / 0", Wanted(), "model table: ZeroDivisionError: division by zero"),
        ('b"x" * 1000', "nothing", Wanted(), "task third: NameError: name 'nothing' is not defined"),
        ("hw.graph", "hw.graff", Wanted(), "cannot be loaded (AttributeError: module 'headway' has no attribute"),
        ("", "", Wanted(batches=(0,)), "batch 0: must be at least 1"),
    ],
)
def test_what_cannot_be_measured_is_one_line(tmp_path: Path, old: str, new: str, wanted: Wanted, line: str) -> None:
    with pytest.raises(InputError) as wrong:
        measure(app(tmp_path, APP.replace(old, new) if old else APP), wanted, effort=QUICK, device="cpu")
    assert line in str(wrong.value)
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("app.py", "--shares", "1,8"), "--shares 1,8: sevenths of a device are from 1 to 7"),
        (("app.py", "--name", "mine"), "--name mine: is of a network"),
        (("app.py", "--device", "tpu"), "--device tpu: must be cuda or cpu"),
        (("app.py", "--batches", "two"), "--batches 'two' is not understood"),
        (("app.py", "--out", "no/such/folder/p.toml"), "there is no folder no/such/folder"),
        (("nothing.py",), "app nothing.py: there is no such file"),
        (("app.py:first", "--task", "first"), "--task first: is of an app, APP.py; app.py:first is one function"),
    ],
)
def test_a_wrong_flag_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    line: str,
) -> None:
    app(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert ran(*arguments) == 2
    assert line in capsys.readouterr().err
