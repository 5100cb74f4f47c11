"""Names that others rely on, in scripts and notebooks: they change on purpose only."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer

import headway
from headway.cli import main
from headway.cli.program import app
from headway.jobs import traces
from headway.runs.registry import DOMAINS, domain
from headway.runs.settings import common_flags

API = [
    *("AsyncClient", "CachedDataset", "Fleet", "Gpu", "HeadwayError", "Jobs", "NoServerError", "RequestError"),
    "RequestLateError",
    *("RequestLostError", "RequestRefusedError", "ServeError", "TaskFailedError", "UnknownGraphError", "Work"),
    *("backtest", "client", "compare", "environment", "fleet", "gpu"),
    *("graph", "jobs", "model", "open", "plan", "predict"),
    *("request", "run", "simulate", "step", "steps", "sweep", "synthetic"),
    *("task", "tune", "work"),
]
PACKAGES = {
    "headway.jobs": [
        *("Action", "Allocation", "Backfill", "BestFit", "JobState", "MigrateJob", "Migration", "Order", "Placement"),
        *("PreemptJob", "ReallocateJob", "StartJob", "State", "WakeAt"),
    ],
    "headway.fleet": [
        *("Action", "DecideUntil", "DrainWorker", "DropRequest", "EvictModel", "FetchModel", "LocalQueue", "MoveTask"),
        *("PlaceRequest", "Policy", "RunBatch", "StartInstance", "StartWorker", "State", "StopInstance", "StopWorker"),
        "WakeAt",
    ],
    "headway.gpu": ["Action", "LetGo", "Policy", "Reason", "State", "WakeAt", "idle_above", "in_turn"],
}
RUN_NAMES = [
    *(
        "audit",
        "baseline",
        "distance",
        "explain",
        "export",
        "figure",
        "folder",
        "jobs",
        "notes",
        "places",
        "replay",
        "report",
    ),
    *("requests", "row", "save", "stored", "story", "table", "tables", "tenants", "timeline", "view", "whatif"),
]
COMPARISON_NAMES = [
    *("baseline", "experiments", "figure", "frame", "jobs", "names", "notes", "outcomes", "places", "report"),
    *("requests", "rows", "runs", "single", "stopped", "table", "tenants", "timeline", "view"),
]
ROWS = ["--strict", "--lenient"]
FILE = ["--format", "--map", *ROWS, "--skip-bad-rows", "--force"]
CLUSTER = ["--cluster", "--nodes", "--gpus-per-node"]
BAD = ["--skip-bad-rows", "--no-skip-bad-rows"]
SKIPPED = ["--skip-infeasible", "--no-skip-infeasible", "--strict", "--no-strict", *BAD]
COSTS = ["--preemption-cost", "--failures"]
WINDOW = ["--from", "--to"]
RULES = ["--qos", "--partition", "--preempt", "--shares"]
JOBS = [
    *(
        *WINDOW,
        "--format",
        "--map",
        "--estimates",
        *SKIPPED,
        "--measure-jobs",
        "--warmup",
        "--price",
        "--watts",
        "--preemption",
        "--migration",
    ),
    *("--migration-cost", "--round", "--allocation", "--cpus-per-node", "--memory-per-node", "--profiles", "--models"),
    *RULES,
]
REQUESTS = ["--requests", "--arrivals", "--slo", "--prompt-tokens", "--output-tokens", "--setting"]
FLEET = [
    *("--start", "--profile", "--autoscale", "--startup", *BAD, "--warmup", "--failures"),
    *("--push-interval", "--control", "--controller", "--fidelity"),
]
GPU = ["--think", "--seconds", "--slo", "--floor"]
FIRST = ["--seeds", "--out", "--report"]
GRID = ["--vary", "--grid", "--out", "-o"]
REST = ["--seed", "--seeds", "--baseline", "--confidence", "--json", "--set"]
CELLS = [*REST, "--processes", "--engine", "--address", "--keep-runs", "--retry"]
COMMANDS = {
    "demo": ["--jobs", "--seed", "--seeds", "--baseline", "--json", "--picture", "--report", "--processes"],
    "run": [
        *("path", "--seeds", "--baseline", "--confidence", "--out", "--json", "--report", "--picture", "--by"),
        *("--set", "--processes"),
    ],
    "report": ["runs", "--out", "-o", "--baseline", "--title", "--force", "--open", "--trust"],
    "summary": ["folder", "--trust"],
    "story": ["folder", "job", "--all", "--trust", "--json"],
    "explain": ["folder", "job", "--at", "--draws", "--trust", "--json"],
    "whatif": [
        *("folder", "--at", "--add-nodes", "--remove-nodes", "--policy", "--quota", "--limit", *RULES, "--gpu-speed"),
        *("--upgrade", "--failures", "--load", "--add-workers", "--remove-workers", "--memory", "--slo", "--start"),
        *("--set", "--skip-infeasible", "--out", "--report", "--csv", "--trust", "--json"),
    ],
    "distance": ["folder", "other", "--trust", "--json"],
    "export": ["folder", "--perfetto", "--parquet", "--csv", "--force", "--trust"],
    "audit": ["folder", "--trust"],
    "replay": ["folder", "--trust"],
    "policies": ["--json"],
    "shadow": [
        *("dumps", "--out", "-o", "--slurm", "--policy", "--cluster", "--config", "--every", "--looks"),
        *("--confidence", "--json", "--set"),
    ],
    "call": ["graph", "value", "--deadline", "--key", "--tenant", "--priority", "--server", "--token-file"],
    "load": [
        *("graphs", "--rate", "--arrivals", "--duration", "--input", "--deadline", "--seed", "--out", "-o"),
        *("--server", "--token-file", "--json"),
    ],
    "jobs simulate": [
        *("trace", "--policy", *CLUSTER, "--load", *COSTS, *JOBS, *FIRST, "--confidence", "--seed", "--json", "--by"),
        *("--label", "--set"),
    ],
    "jobs compare": [
        *("trace", "--policies", *CLUSTER, "--load", *COSTS, *JOBS, *FIRST, "--baseline", "--confidence", "--seed"),
        *("--json", "--by", "--label", "--set", "--picture", "--processes"),
    ],
    "jobs sweep": [
        *("trace", "--policies", "--loads", "--nodes", *GRID, "--cluster", "--gpus-per-node", *COSTS, *JOBS, *CELLS),
    ],
    "jobs backtest": [
        *("trace", "--config", "--policies", *CLUSTER, *WINDOW, "--format", "--map", *SKIPPED, "--measure-jobs"),
        *("--warmup", "--squeue", "--csv", "--json", "--set"),
    ],
    "jobs tune": [
        *("trace", "--knob", "--lower", "--keep", "--test-from", "--cluster", *WINDOW, "--format", "--map"),
        *("--estimates", *SKIPPED, "--warmup", *RULES, "--policy", "--seeds", "--confidence", "--seed"),
        *("--processes", "--json", "--set"),
    ],
    "fleet simulate": [
        *(
            "scenario",
            "--policy",
            "--workers",
            "--slices",
            "--gpu-memory",
            "--rate",
            "--load",
            *REQUESTS,
            *FLEET,
            *FIRST,
        ),
        *("--confidence", "--seed", "--json", "--label", "--set"),
    ],
    "fleet compare": [
        *(
            "scenario",
            "--policies",
            "--workers",
            "--slices",
            "--gpu-memory",
            "--rate",
            "--load",
            *REQUESTS,
            *FLEET,
            *FIRST,
            "--baseline",
            "--confidence",
        ),
        *("--seed", "--json", "--label", "--set", "--processes"),
    ],
    "fleet sweep": [
        *(
            "scenario",
            "--policies",
            "--rates",
            "--loads",
            "--workers",
            *GRID,
            "--slices",
            "--gpu-memory",
            *REQUESTS,
            *FLEET,
            *CELLS,
        ),
    ],
    "fleet plan": [
        *(
            "graph",
            "--rate",
            "--load",
            "--slo",
            "--in-time",
            "--policy",
            "--policies",
            "--arrivals",
            "--prompt-tokens",
            "--output-tokens",
            "--start",
            "--scenario",
            "--control",
        ),
        *("--fidelity", "--requests", "--seed", "--report", "--json"),
    ],
    "gpu simulate": ["high", "low", "--policy", *GPU, *FIRST, "--confidence", "--seed", "--json", "--label", "--set"],
    "gpu compare": [
        *(
            "high",
            "low",
            "--policies",
            *GPU,
            *FIRST,
            "--baseline",
            "--confidence",
            "--seed",
            "--json",
            "--label",
            "--set",
        ),
        "--processes",
    ],
    "gpu sweep": ["high", "low", "--policies", *GRID, *GPU, *CELLS],
    "gpu predict": [
        "high",
        "low",
        "--slo",
        "--floor",
        "--think",
        "--alone",
        "--first",
        "--seconds",
        "--seed",
        "--json",
    ],
    "queue start": ["--gpus", "--policy", "--engine", "--estimate", "--profiles", "--folder", "--foreground"],
    "queue submit": [
        *("command", "--gpus", "--cpus", "--memory", "--tenant", "--estimate", "--profile", "--name"),
        *("--retries", "--grace", "--priority", "--no-preempt", "--nodes", "--partition", "--folder"),
    ],
    "queue cancel": ["job", "--now", "--folder"],
    "queue stop": ["--kill", "--now", "--wait", "--folder"],
    "queue release-all": ["--folder"],
    "queue list": ["--all", "--run", "--folder", "--json"],
    "queue show": ["job", "--run", "--folder", "--json"],
    "queue logs": ["job", "--follow", "-f", "--stderr", "--run", "--folder"],
    "queue report": ["--out", "-o", "--run", "--folder"],
    "serve start": [
        *(
            "app_file",
            "--workers",
            "--policy",
            "--slices",
            "--gpu-memory",
            "--devices",
            "--warm",
            "--no-warm",
            "--engine",
            "--address",
            "--worker-option",
            "--scale",
        ),
        *(
            "--profile",
            "--port",
            "--host",
            "--no-http",
            "--token-file",
            "--most-body",
            "--folder",
            "--out",
            "-o",
            "--set",
        ),
    ],
    "serve status": ["--server", "--watch", "--every", "--token-file", "--json"],
    "serve drain": ["--server"],
    "serve stop": ["--server", "--now", "--wait"],
    "profile job": [
        *("command", "--cpus", "--memory", "--steps", "--gpus", "--pattern", "--model", "--dataset"),
        *("--bytes-per-sample", "--check", "--out", "--again", "--timeout", "--json"),
    ],
    "profile list": ["--json"],
    "profile show": ["name", "--json"],
    "profile model": [
        *("program", "--task", "--batches", "--cpus", "--shares", "--overhead", "--runs", "--device", "--name"),
        *("--out", "--json"),
    ],
    "profile kernels": [
        *("command", "--seconds", "--name", "--out", "--perfetto", "--threshold", "--gpu", "--json"),
    ],
    "share run": [
        *("command", "--priority", "--name", "--gpu", "--slo", "--floor", "--memory", "--sms", "--mps"),
        *("--linger", "--program", "--timeline", "--out"),
    ],
    "share status": ["--gpu", "--watch", "--every", "--json"],
    "share stop": ["--gpu", "--kill", "--wait"],
    "share doctor": ["command", "--gpu", "--json"],
    "share build": [],
    "share broker": ["--gpu", "--slo", "--floor", "--mps", "--linger", "--out"],
    "trace inspect": ["path", "--format", "--map", "--gpus", *WINDOW, *ROWS, "--json"],
    "trace formats": ["--json"],
    "trace convert": ["source", "out", "--format", "--map", *ROWS, *WINDOW, "--skip-bad-rows", "--force"],
    "trace slice": ["source", "out", "--from", "--to", "--jobs", "--tenant", *FILE],
    "trace scale": ["source", "out", "--load", *WINDOW, *FILE],
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
        main(["jobs", "simulate", str(tmp_path / "jobs.csv"), *size, "--json"])
    assert list(json.loads(capsys.readouterr().out))[: len(FIRST_KEYS)] == FIRST_KEYS


def test_what_the_package_offers() -> None:
    assert sorted(headway._NAMES) == API
    assert set(API) <= set(dir(headway))
    assert all(getattr(headway, name) is not None for name in API)
    with pytest.raises(AttributeError, match="has no attribute 'simulte'"):
        headway.simulte  # noqa: B018


def test_every_verb_of_the_command_line_is_one_in_python() -> None:
    verbs = {command.split()[1] for command in COMMANDS if command.split()[0] in DOMAINS}
    assert verbs <= set(API)
    assert set(DOMAINS) <= set(API)


@pytest.mark.parametrize("name", DOMAINS)
def test_every_flag_of_a_scale_is_a_keyword_and_the_other_way_round(name: str) -> None:
    scale = domain(name)
    flags = [flag.option for flag in (*scale.flags, *common_flags.ALL)]
    offered = {word for verb in ("simulate", "compare") for word in COMMANDS[f"{name} {verb}"] if word[:2] == "--"}
    shown = {"--json", "--report", "--picture", "--by", "--set", "--policies", "--processes", "--label"}
    assert {word for word in offered if not word.startswith("--no-")} - shown == set(flags)


def test_what_a_run_and_a_comparison_offer(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("submit_s,work_s,gpus\n0,60,1\n")
    found = headway.compare(headway.Jobs(tmp_path / "jobs.csv", nodes=1, gpus_per_node=1), ["fifo", "srtf"])
    assert [name for name in dir(found) if name[0] != "_"] == COMPARISON_NAMES
    assert [name for name in dir(found["srtf"]) if name[0] != "_"] == RUN_NAMES


def test_what_traces_offers() -> None:
    names = [
        *("FORMATS", "REQUEST_FORMATS", "REQUEST_READERS", "Dropped", "RequestTrace", "Trace", "estimates", "guess"),
        *("load", "load_requests", "load_scale", "offered_load", "philly_like", "synergy_like", "with_models", "write"),
    ]
    assert traces.__all__ == names
    assert all(hasattr(traces, name) for name in names)
