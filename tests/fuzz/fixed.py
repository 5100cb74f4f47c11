"""Inputs that were once answered badly, each by its number for ever: append, never insert."""

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

from headway.formats.toml import put, write
from tests.fuzz.play import Input
from tests.fuzz.samples import EXPERIMENT, OWN_ORDER, RUNS, SAMPLES, SCENARIO, SHARED, SWEEPS, SWEPT, TRACE

Make = Callable[[Path, Path], Input]
ON = ("jobs.csv", "--nodes", "2", "--gpus-per-node", "4")


def price_is_no_number(folder: Path, _: Path) -> Input:
    """``cpu_hour = nan``."""
    scenario = deepcopy(SCENARIO)
    scenario["fleet"]["prices"]["cpu_hour"] = float("nan")
    (folder / "mine.toml").write_text(write(scenario))
    return Input(("fleet", "simulate", "mine.toml", "--json"), "a price of nan")


def less_than_no_gpus(folder: Path, _: Path) -> Input:
    """``Gres=gpu:a100:-8``."""
    (folder / "jobs.csv").write_text(TRACE)
    nodes = (SAMPLES / "scontrol-nodes.txt").read_text()
    (folder / "nodes.txt").write_text(nodes.replace("Gres=gpu:a100:", "Gres=gpu:a100:-", 1))
    return Input(("jobs", "simulate", "jobs.csv", "--cluster", "nodes.txt", "--skip-infeasible"), "-8 GPUs")


def two_kinds_of_nodes(folder: Path, _: Path) -> Input:
    """``nodes`` beside ``node_groups``."""
    (folder / "jobs.csv").write_text(TRACE)
    experiment = deepcopy(EXPERIMENT)
    experiment["cluster"]["nodes"] = 4
    (folder / "mine.toml").write_text(write(experiment))
    return Input(("run", "mine.toml"), "nodes beside node_groups")


def own_order(key: str, must_fail: str) -> Make:
    """A user's order with such keys."""

    def make(folder: Path, _: Path) -> Input:
        (folder / "jobs.csv").write_text(TRACE)
        (folder / "mine.py").write_text(OWN_ORDER.format(key=key))
        return Input(("jobs", "simulate", *ON, "--policy", "./mine.py:Mine"), must_fail)

    return make


def nobody(run: str) -> Make:
    """``story RUN ''``."""

    def make(_: Path, runs: Path) -> Input:
        return Input(("story", str(runs / run), ""), "a job without a name")

    return make


def path_of_no_file(folder: Path, _: Path) -> Input:
    """A sweep over a trace whose path holds a NUL."""
    (folder / "grid.toml").write_text(write({**SWEEPS["jobs"], "trace": {"path": "a\0b"}}))
    return Input(
        ("jobs", "sweep", "--grid", "grid.toml", "--out", "swept", "--processes", "1"), "a path that holds a NUL"
    )


def path_is_a_number(folder: Path, _: Path) -> Input:
    """A sweep over a trace whose path is a number."""
    (folder / "grid.toml").write_text(write({**SWEEPS["jobs"], "trace": {"path": -1}}))
    return Input(("jobs", "sweep", "--grid", "grid.toml", "--out", "swept", "--processes", "1"), "a number as a path")


def command(*words: str, must_fail: str = "") -> Make:
    """A command over the small trace and the scenario."""

    def make(folder: Path, _: Path) -> Input:
        (folder / "jobs.csv").write_text(TRACE)
        (folder / "mine.toml").write_text(write(SCENARIO))
        return Input(words, must_fail)

    return make


def experiment(key: str, value: str, must_fail: str) -> Make:
    """The experiment of a GPU with another value of a key."""

    def make(folder: Path, _: Path) -> Input:
        changed = deepcopy(SHARED)
        put(changed, key, value)
        (folder / "given.toml").write_text(write(changed))
        return Input(("run", "given.toml"), must_fail)

    return make


def changed_result(run: str, key: str) -> Make:
    """The page of a run whose stored numbers lack one."""

    def make(folder: Path, runs: Path) -> Input:
        shutil.copytree(runs / run, folder / "run")
        result = json.loads((folder / "run" / "result.json").read_text())
        del result[key]
        (folder / "run" / "result.json").write_text(json.dumps(result))
        return Input(("report", "run", "--out", "page.html"))

    return make


def changed_cell(folder: Path, runs: Path) -> Input:
    """A sweep that is taken up again where the sums of a cell are of different lengths."""
    shutil.copytree(runs / "swept", folder / "swept")
    for path in (folder / "swept" / "cells").glob("*.json"):
        record = json.loads(path.read_text())
        record["batches"][0] = [1.0]
        path.write_text(json.dumps(record))
    return Input(("jobs", "sweep", "--out", "swept", "--processes", "1"))


FIXED: tuple[Make, ...] = (
    price_is_no_number,
    less_than_no_gpus,
    command(
        "jobs",
        "sweep",
        *ON,
        "--policies",
        "fifo",
        "--loads",
        "",
        "--out",
        "swept",
        "--processes",
        "1",
        must_fail="no loads",
    ),
    command("jobs", "compare", *ON, "--policies", "fifo,fifo"),
    nobody("first"),
    nobody("served"),
    two_kinds_of_nodes,
    own_order("js.id if js.id % 2 else 'x'", "keys that cannot be compared"),
    own_order("float('nan')", "keys that are nan"),
    own_order("float('nan') if js.id % 2 else 1.0", "keys of which some are nan"),
    command(
        *("jobs", "sweep", *ON, "--policies", "fifo", "--loads", "nan", "--out", "swept", "--processes", "1"),
        must_fail="a load of nan",
    ),
    command("jobs", "simulate", *ON, "--round", "1ns"),
    command("jobs", "simulate", *ON, "--failures", "mtbf=1ns,repair=1h"),
    command(
        *(
            "jobs",
            "sweep",
            *ON,
            "--policies",
            "fifo",
            "--vary",
            "costs.preemption=nan",
            "--out",
            "swept",
            "--processes",
            "1",
        ),
        must_fail="a cost of nan",
    ),
    command("trace", "slice", "jobs.csv", "out.csv", "--jobs", ":"),
    command("trace", "scale", "jobs.csv", "out.csv", "--load", "nan", must_fail="a load of nan"),
    command(*RUNS["first"], "--load", "1e308"),
    command(*RUNS["first"], "--load", "1e-308"),
    path_of_no_file,
    experiment("run.out", "a\0b", "a folder whose name holds a NUL"),
    command("fleet", "simulate", "mine.toml", "--set", "serving=1979-05-27", must_fail="a date instead of a table"),
    command(*RUNS["first"], "--set", f"costs.reallocation={'9' * 5000}", must_fail="5,000 digits"),
    command(*RUNS["shared"], "--set", f"gpu.floor={'[' * 2000}", must_fail="2,000 brackets"),
    command(*RUNS["shared"], "--set", "gpu.settle=1000000s", must_fail="a time to settle of days"),
    command(*SWEPT["swept"], "--out", "again", "--vary", "costs.migration=1979-05-27", must_fail="a date as a cost"),
    changed_result("served", "slowdown_mean"),
    changed_result("shared", "clients"),
    changed_cell,
    *(
        command(*old, must_fail="a command that is called something else now")
        for old in (
            ("simulate", "--trace", *ON),
            ("compare", "--scenario", "mine.toml", "--policies", "hash"),
            ("share", "predict", "resnet50", "bert"),
            ("plan", "mine.toml", "--rate", "2"),
        )
    ),
    path_is_a_number,
)
