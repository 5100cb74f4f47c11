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
SHARES = ["--allocation", "--round", "--completions", "--speed", "--profiles", "--models"]
HOSTS = ["--cpus-per-node", "--memory-per-node", "--storage-per-node"]
REST = ["--estimates", "--quantum", *SHARES, "--failures", *HOSTS]
ROWS = ["--strict", "--lenient"]
JOBS = ["--skip-infeasible", *ROWS, "--skip-bad-rows"]
SURE = ["--warmup", "--measure-jobs", "--confidence", "--no-intervals"]
FILE = ["--format", "--map", *ROWS, "--skip-bad-rows", "--force"]
FLEET = ["--scenario", "--setting", "--workers", "--rate", "--requests", "--arrivals", "--slo", "--fidelity"]
FLEET += ["--push-interval", "--control"]
GPU = ["--high", "--low", "--think", "--seconds", "--floor"]
COMMANDS = {
    "demo": ["--jobs", "--seed", "--seeds", "--baseline", "--json", "--picture", "--report", "--processes"],
    "simulate": [
        *(*RUN, "--policy", *PARTS, *REST, *FLEET, *GPU, "--load", *JOBS, "--seed", "--seeds", *SURE),
        *("--out", "--json", "--by", "--report", "--set"),
    ],
    "compare": [
        *("--policies", *RUN, *PARTS, *REST, *FLEET, *GPU, "--load", *JOBS, "--seed", "--seeds", "--baseline"),
        *(*SURE, "--out", "--json", "--by", "--picture", "--report", "--set", "--processes"),
    ],
    "run": [
        *("path", "--seeds", "--baseline", *SURE, "--out", "--json", "--by", "--picture", "--report", "--set"),
        "--processes",
    ],
    "sweep": [
        *("--out", "-o", "grid", "--policies", "--loads", "--nodes", "--vary"),
        *(*RUN[:4], "--gpus-per-node", *PARTS, *REST, *JOBS, "--seed", "--seeds", "--baseline", *SURE),
        *("--json", "--set", "--processes", "--engine", "--address", "--keep-runs", "--retry"),
    ],
    "report": ["runs", "--out", "-o", "--baseline", "--title", "--force", "--open", "--trust"],
    "story": ["folder", "job", "--trust", "--json"],
    "explain": ["folder", "job", "--at", "--draws", "--trust", "--json"],
    "whatif": [
        *("folder", "--at", "--add-nodes", "--remove-nodes", "--policy", "--quota", "--limit", "--gpu-speed"),
        *("--upgrade", "--failures", "--load", "--set", "--skip-infeasible", "--out", "--trust", "--json"),
    ],
    "backtest": [*RUN, "--config", "--policies", *JOBS, "--json", "--set"],
    "export": ["folder", "--perfetto", "--parquet", "--csv", "--force", "--trust"],
    "plan": [
        *("graph", "--slo", "--rate", "--in-time", "--policy", "--arrivals", "--scenario", "--control"),
        *("--requests", "--seed", "--json"),
    ],
    "audit": ["folder", "--trust"],
    "replay": ["folder", "--trust"],
    "policies": ["--json"],
    "profile job": [
        *("command", "--cpus", "--memory", "--steps", "--gpus", "--pattern", "--model", "--dataset"),
        *("--bytes-per-sample", "--check", "--out", "--again", "--timeout", "--json"),
    ],
    "profile list": ["--json"],
    "profile show": ["name", "--json"],
    "profile model": [
        *("factory", "--batches", "--cpus", "--shares", "--runs", "--device", "--name", "--out", "--json"),
    ],
    "profile kernels": [
        *("command", "--seconds", "--name", "--out", "--perfetto", "--threshold", "--gpu", "--json"),
    ],
    "share run": [
        *("command", "--priority", "--name", "--gpu", "--slo", "--floor", "--memory", "--mps", "--linger"),
        *("--program", "--timeline"),
    ],
    "share status": ["--gpu", "--watch", "--every", "--json"],
    "share stop": ["--gpu", "--kill", "--wait"],
    "share doctor": ["command", "--gpu", "--json"],
    "share predict": ["high", "low", "--slo", "--floor", "--think", "--alone", "--seconds", "--seed", "--json"],
    "share build": [],
    "share broker": ["--gpu", "--slo", "--floor", "--mps", "--linger"],
    "trace inspect": ["path", "--format", "--map", "--gpus", *ROWS, "--json"],
    "trace formats": ["--json"],
    "trace convert": ["source", "out", *FILE],
    "trace slice": ["source", "out", "--from", "--to", "--jobs", "--tenant", *FILE],
    "trace scale": ["source", "out", "--load", *FILE],
    "trace generate": [
        *("kind", "--out", "--jobs", "--seed", "--gpus", "--load", "--outcomes", "--no-outcomes"),
        *("--estimates", "--no-estimates", "--longest", "--rate", "--split", "--gpus-per-job", "--force"),
    ],
}
FIRST_KEYS = [
    *("policy", "jobs", "finished", "jct_mean_s", "jct_p50_s", "jct_p99_s", "wait_mean_s", "makespan_s"),
    *("gpu_utilisation", "fragmentation_mean", "preemptions", "migrations", "lost_gpu_hours", "events"),
    *("wall_s", "jobs_per_s", "peak_rss_bytes"),
]


def _flags(group: Any, prefix: str = "") -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            found |= _flags(command, f"{prefix}{name} ")
        else:
            found[f"{prefix}{name}"] = [word for each in command.params for word in (*each.opts, *each.secondary_opts)]
    return found


def test_the_commands_and_their_flags_in_the_order_of_the_help() -> None:
    found = _flags(typer.main.get_command(app))
    assert found == COMMANDS
    assert list(found) == list(COMMANDS)


def test_the_first_keys_of_a_result_in_their_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "jobs.csv").write_text("submit_s,work_s,gpus\n0,60,1\n")
    size = ["--nodes", "1", "--gpus-per-node", "1"]
    with pytest.raises(SystemExit):
        main(["simulate", "--trace", str(tmp_path / "jobs.csv"), *size, "--json"])
    assert list(json.loads(capsys.readouterr().out))[: len(FIRST_KEYS)] == FIRST_KEYS


def test_what_traces_offers() -> None:
    names = [
        *("FORMATS", "REQUEST_FORMATS", "REQUEST_READERS", "Dropped", "RequestTrace", "Trace", "estimates", "guess"),
        *("load", "load_requests", "load_scale", "offered_load", "philly_like", "synergy_like", "with_models", "write"),
    ]
    assert traces.__all__ == names
    assert all(hasattr(traces, name) for name in names)
