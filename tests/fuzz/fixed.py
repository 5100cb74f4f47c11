"""Inputs that were once answered badly, each by its number for ever: append, never insert."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

from headway.formats.toml_text import write
from tests.fuzz.play import Input
from tests.fuzz.samples import EXPERIMENT, OWN_ORDER, RUNS, SAMPLES, SCENARIO, SWEEPS, TRACE

Make = Callable[[Path, Path], Input]
ON = ("jobs.csv", "--nodes", "2", "--gpus-per-node", "4")


def jobs(*words: str, must_fail: str = "") -> Make:
    """A command over the small trace."""

    def make(folder: Path, _: Path) -> Input:
        (folder / "jobs.csv").write_text(TRACE)
        return Input(words, must_fail)

    return make


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


FIXED: tuple[Make, ...] = (
    price_is_no_number,
    less_than_no_gpus,
    jobs(
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
    jobs("jobs", "compare", *ON, "--policies", "fifo,fifo"),
    nobody("first"),
    nobody("served"),
    two_kinds_of_nodes,
    own_order("js.id if js.id % 2 else 'x'", "keys that cannot be compared"),
    own_order("float('nan')", "keys that are nan"),
    own_order("float('nan') if js.id % 2 else 1.0", "keys of which some are nan"),
    jobs(
        *("jobs", "sweep", *ON, "--policies", "fifo", "--loads", "nan", "--out", "swept", "--processes", "1"),
        must_fail="a load of nan",
    ),
    jobs("jobs", "simulate", *ON, "--round", "1ns"),
    jobs("jobs", "simulate", *ON, "--failures", "mtbf=1ns,repair=1h"),
    jobs(
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
    jobs("trace", "slice", "jobs.csv", "out.csv", "--jobs", ":"),
    jobs("trace", "scale", "jobs.csv", "out.csv", "--load", "nan", must_fail="a load of nan"),
    jobs(*RUNS["first"], "--load", "1e308"),
    jobs(*RUNS["first"], "--load", "1e-308"),
    path_of_no_file,
)
