"""Names that others rely on, in scripts and notebooks: they change on purpose only."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from headway import traces
from headway.cli import main
from headway.cli.program import app

RUN = ["--trace", "--format", "--map", "--cluster", "--nodes", "--gpus-per-node"]
PARTS = ["--backfill", "--placement", "--preemption", "--preemption-cost", "--migration", "--migration-cost"]
REST = [
    *("--estimates", "--quantum", "--failures", "--cpus-per-node", "--memory-per-node", "--load", "--skip-infeasible"),
    *("--strict", "--lenient", "--seed", "--out", "--json", "--by"),
]
COMMANDS = {
    "simulate": [*RUN, "--policy", *PARTS, *REST, "--set"],
    "compare": ["--policies", *RUN, *PARTS, *REST, "--picture", "--set", "--processes"],
    "run": ["path", "--out", "--json", "--by", "--picture", "--set", "--processes"],
    "demo": ["--jobs", "--seed", "--json", "--picture", "--processes"],
    "policies": ["--json"],
    "story": ["folder", "job", "--json"],
    "replay": ["folder"],
    "audit": ["folder"],
}
FIRST_KEYS = [
    *("policy", "jobs", "finished", "jct_mean_s", "jct_p50_s", "jct_p99_s", "wait_mean_s", "makespan_s"),
    *("gpu_utilisation", "fragmentation_mean", "preemptions", "migrations", "lost_gpu_hours", "events"),
    *("wall_s", "jobs_per_s", "peak_rss_bytes"),
]


def test_the_commands_and_their_flags() -> None:
    group: Any = typer.main.get_command(app)
    found = {
        name: [word for option in command.params for word in (*option.opts, *option.secondary_opts)]
        for name, command in group.commands.items()
    }
    assert found == COMMANDS


def test_the_first_keys_of_a_result_in_their_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "jobs.csv").write_text("submit_s,work_s,gpus\n0,60,1\n")
    size = ["--nodes", "1", "--gpus-per-node", "1"]
    with pytest.raises(SystemExit):
        main(["simulate", "--trace", str(tmp_path / "jobs.csv"), *size, "--json"])
    assert list(json.loads(capsys.readouterr().out))[: len(FIRST_KEYS)] == FIRST_KEYS


def test_what_traces_offers() -> None:
    names = [
        *("FORMATS", "Dropped", "Trace", "estimates", "guess", "load", "load_scale", "offered_load", "philly_like"),
        "write",
    ]
    assert traces.__all__ == names
    assert all(hasattr(traces, name) for name in names)
