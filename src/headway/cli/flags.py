"""The flags of all commands, and how they become the tables of an experiment."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import typer

from headway.errors import ExperimentError, unknown_name
from headway.formats import toml
from headway.formats.serving_settings import ServingPolicyTable
from headway.formats.settings import PolicyTable

FLAGS = {
    "trace": "trace.path",
    "format": "trace.format",
    "columns": "trace.map",
    "load": "trace.load",
    "estimates": "trace.estimates",
    "models": "trace.models",
    "skip_infeasible": "trace.skip_infeasible",
    "strict": "trace.strict",
    "skip_bad_rows": "trace.skip_bad_rows",
    "cluster": "cluster.file",
    "nodes": "cluster.nodes",
    "gpus_per_node": "cluster.gpus_per_node",
    "cpus_per_node": "cluster.cpus_per_node",
    "memory_per_node": "cluster.memory_per_node",
    "storage_per_node": "cluster.storage_per_node",
    "policy": "policy.name",
    "backfill": "policy.backfill",
    "placement": "policy.placement",
    "preemption": "policy.preemption",
    "migration": "policy.migration",
    "quantum": "policy.quantum",
    "allocation": "policy.allocation",
    "round": "policy.round",
    "completions": "run.completions",
    "speed": "speed.model",
    "profiles": "speed.profiles",
    "preemption_cost": "costs.preemption",
    "migration_cost": "costs.migration",
    "seed": "run.seed",
    "out": "run.out",
}
SERVING_FLAGS = {
    "scenario": "serving.scenario",
    "setting": "serving.setting",
    "workers": "serving.workers",
    "fidelity": "serving.fidelity",
    "push_interval": "serving.push_interval",
    "control": "serving.control",
    "rate": "workload.rate",
    "requests": "workload.requests",
    "arrivals": "workload.arrivals",
    "slo": "workload.slo",
}
"""What only runs of a fleet have."""
BOTH_FLAGS = {
    "policy": "policy.name",
    "skip_bad_rows": "workload.skip_bad_rows",
    "seed": "run.seed",
    "out": "run.out",
}
"""Of the flags for jobs those that runs of a fleet have too, with their keys there."""
MEASURE_FLAGS = {
    "seeds": "measure.seeds",
    "baseline": "measure.baseline",
    "warmup": "measure.warmup",
    "measure_jobs": "measure.jobs",
    "confidence": "measure.confidence",
}

_jobs = partial(typer.Option, rich_help_panel="Jobs")
_cluster = partial(typer.Option, rich_help_panel="Cluster")
_policy = partial(typer.Option, rich_help_panel="Policy")
_serving = partial(typer.Option, rich_help_panel="Serving")
_kernels = partial(typer.Option, rich_help_panel="Kernels")
_run = partial(typer.Option, rich_help_panel="Run")
_measure = partial(typer.Option, rich_help_panel="Statistics")

TraceFlag = Annotated[str | None, _jobs(help="File of jobs, plain or gzip.", metavar="FILE")]
TrustFlag = Annotated[
    bool, typer.Option("--trust", help="Run the Python file that the run folder names, if it names one.")
]
FormatFlag = Annotated[
    str | None, _jobs(help="The format of the file (headway trace formats lists them); told by its beginning.")
]
MapFlag = Annotated[
    str | None,
    _jobs("--map", help="Any CSV or Parquet: gpus=num_gpus,submit=queued:ms,work=duration.", metavar="FIELD=COLUMN,…"),
]
ClusterFlag = Annotated[
    list[str] | None,
    _cluster("--cluster", help="Files that describe it: scontrol show node -o, kubectl get nodes -o json, …"),
]
LoadFlag = Annotated[str | None, _jobs(help="Let jobs arrive so many times as fast.")]
EstimatesFlag = Annotated[str | None, _jobs(help="What users announce: trace, exact, factor:3 or user.")]
ModelsFlag = Annotated[
    str | None,
    _jobs(
        "--models",
        help="What jobs train that do not say it: percentages of image, language, speech.",
        metavar="20,70,10",
    ),
]
SkipFlag = Annotated[bool | None, _jobs("--skip-infeasible", help="Drop and count jobs that could never run.")]
StrictFlag = Annotated[
    bool | None,
    _jobs("--strict/--lenient", help="Stop at the first bad row, or drop bad rows, explain them, and sort (default)."),
]
BadRowsFlag = Annotated[
    bool | None,
    _jobs("--skip-bad-rows", help="Go on although one rule drops more than a tenth of the rows of a trace."),
]
NodesFlag = Annotated[int | None, _cluster(help="Nodes of the cluster.")]
GpusFlag = Annotated[int | None, _cluster(help="GPUs of each node.")]
CpusFlag = Annotated[int | None, _cluster(help="CPUs of each node; not counted if left out.")]
MemoryFlag = Annotated[str | None, _cluster(help="Memory of each node, e.g. 500GB; not counted if left out.")]
StorageFlag = Annotated[
    str | None, _cluster(help="Storage bandwidth of each node a second, e.g. 500MB; not counted if left out.")
]
FailuresFlag = Annotated[
    str | None,
    _cluster(help="mtbf=30d,repair=4h: means for one node or worker; every=30s,repair=10s: some worker of a fleet."),
]
JOBS_POLICY, FLEET_POLICY = PolicyTable().name, ServingPolicyTable().name
"""What is meant where no policy is named."""
PolicyFlag = Annotated[
    str | None,
    _policy(
        help="An order, or parts joined by +: srtf+easy+fgd. Your own: ./mine.py:MyOrder. "
        f"If left out {JOBS_POLICY}, with --scenario {FLEET_POLICY}."
    ),
]
FleetPolicyFlag = Annotated[
    str | None,
    _policy(
        "--policy",
        help=f"A serving policy: compass, esg(k=3), …. Your own: ./mine.py:MyPolicy. If left out {FLEET_POLICY}.",
    ),
]
PoliciesFlag = Annotated[str, _policy(help="Policies to compare, with commas between them.")]
BackfillFlag = Annotated[str | None, _policy(help="Who may overtake: none, fit, easy, conservative.")]
PlacementFlag = Annotated[str | None, _policy(help="Where jobs go: best-fit, first-fit, spread, …")]
PreemptionFlag = Annotated[str | None, _policy(help="on or off; if left out, as the order wants it.")]
PreemptionCostFlag = Annotated[
    str | None, _policy(help="Standstill after a preemption; the job's own times if left out.")
]
MigrationFlag = Annotated[str | None, _policy(help="off, costed, free or always.")]
MigrationCostFlag = Annotated[str | None, _policy(help="Standstill after a move: 60s if left out.")]
QuantumFlag = Annotated[str | None, _policy(help="A started job is not preempted before this long, e.g. 5m.")]
AllocationFlag = Annotated[
    str | None,
    _policy(
        "--allocation",
        help="Who divides CPUs and memory: proportional, greedy, tune, opt, drf, tetris or headway.",
    ),
]
RoundFlag = Annotated[
    str | None, _policy("--round", help="Decide at multiples of this only; 300s with --allocation, 0: at every event.")
]
CompletionsFlag = Annotated[
    str | None, _policy("--completions", help="When ends are noticed: exact, or round: at the end of a round.")
]
SpeedFlag = Annotated[
    str | None, _jobs("--speed", help="What CPUs and memory do for jobs: matrix or synergy-scalar (all or nothing).")
]
ProfilesFlag = Annotated[
    list[str] | None, _jobs("--profiles", help="Profiles of programs: files or folders.", metavar="FILE")
]
ScenarioFlag = Annotated[
    str | None,
    _serving(
        "--scenario",
        help="Serve requests instead: compass, esg, …, or a file of your own (.toml, .py); or kernels: share one GPU.",
    ),
]
SettingFlag = Annotated[
    str | None,
    _serving("--setting", help="A setting of the scenario; esg has strict-light, moderate-normal, relaxed-heavy."),
]
WorkersFlag = Annotated[int | None, _serving("--workers", help="Workers, a GPU each; the scenario's if left out.")]
RateFlag = Annotated[float | None, _serving("--rate", help="Requests a second in total; the scenario's if left out.")]
RequestsFlag = Annotated[int | None, _serving("--requests", help="How many requests; the scenario's if left out.")]
ArrivalsFlag = Annotated[
    str | None,
    _serving("--arrivals", help="poisson, gamma:CV, onoff, uniform:A,B, or a trace of requests.", metavar="HOW|FILE"),
]
SloFlag = Annotated[
    str | None,
    _serving("--slo", help="Deadline: 500ms for all graphs, 1.2L: times the least path; kernels: slow-down 1.05."),
]
FidelityFlag = Annotated[
    str | None, _serving("--fidelity", help="true, or authors: the simplifications of the paper's own simulator.")
]
PushFlag = Annotated[str | None, _serving("--push-interval", help="How often workers tell the others of themselves.")]
ControlFlag = Annotated[
    str | None, _serving("--control", help="central or decentralised; as the scenario or the policy wants it.")
]
HighFlag = Annotated[
    list[str] | None,
    _kernels("--high", help="With --scenario kernels: a program above, by name or a .parquet.", metavar="PROGRAM"),
]
LowFlag = Annotated[
    list[str] | None, _kernels("--low", help="A program below; NAME@3: of priority 3.", metavar="PROGRAM")
]
ThinkFlag = Annotated[str | None, _kernels("--think", help="Time between the requests of those above, e.g. 5ms.")]
SecondsFlag = Annotated[float | None, _kernels("--seconds", help="How long they run: 2 if left out.")]
FloorFlag = Annotated[str | None, _kernels("--floor", help="Share that those below keep under headway, e.g. 5%.")]
SeedFlag = Annotated[int | None, _run(help="Seed of everything that is drawn.")]
SeedsFlag = Annotated[
    int | None, _measure("--seeds", help="So many runs, from --seed on, where something is drawn.", min=1, max=1000)
]
BaselineFlag = Annotated[
    str | None, _measure("--baseline", help="Compare with this policy or variant; the first if left out.")
]
WarmupFlag = Annotated[
    str | None, _measure("--warmup", help="Do not measure the first jobs: 10% of them, or those of the first 2d.")
]
MeasureJobsFlag = Annotated[
    str | None,
    _measure("--measure-jobs", help="Measure these jobs only, counted from 0: 4000:5000.", metavar="FIRST:LAST"),
]
ConfidenceFlag = Annotated[
    float | None, _measure("--confidence", help="How sure intervals are: 0.95 if left out.", min=0.5, max=0.999)
]
NoIntervalsFlag = Annotated[bool, _measure("--no-intervals", help="No confidence intervals.")]
OutFlag = Annotated[str | None, _run(help="New folder for the tape and the results.", metavar="RUN")]
JsonFlag = Annotated[bool, _run("--json", help="Print JSON, times in seconds.")]
ByFlag = Annotated[
    list[str] | None,
    _run("--by", help="More tables: by tenant, partition or level of the topology.", metavar="tenant|partition|level"),
]
PictureFlag = Annotated[
    str | None, _run("--picture", help="Draw the comparison as a bar chart into this SVG file.", metavar="FILE.svg")
]
ReportFlag = Annotated[
    str | None, _run("--report", help="Make a page of it, with figures and a map of the cluster.", metavar="FILE.html")
]
SetFlag = Annotated[
    list[str] | None, _run("--set", help="Any key of an experiment file: cluster.tenancy=walls.", metavar="KEY=VALUE")
]
ProcessesFlag = Annotated[int, _run("--processes", help="Runs at a time, each in its own process.", min=1, max=256)]
RunArgument = Annotated[str, typer.Argument(help="The folder of a run (--out).", metavar="RUN")]


def document_of(flags: Mapping[str, Any], overrides: Sequence[str] | None) -> toml.Document:
    """The document that flags stand for; ``--set`` comes last and wins."""
    document: toml.Document = {}
    for flag, key in FLAGS.items():
        if flags.get(flag) == "":
            raise ExperimentError(f"--{flag.replace('_', '-')} is empty: give it a value, or leave it out")
        if flags.get(flag) is not None:
            toml.put(document, key, flags[flag])
    for key, value in measure_settings(flags):
        toml.put(document, key, value)
    if flags.get("failures") is not None:
        for name, value in split_failures(str(flags["failures"])).items():
            toml.put(document, f"failures.{name}", value)
    for assignment in overrides or ():
        toml.override(document, assignment)
    return document


def measure_settings(flags: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What the flags about statistics set."""
    given = [(key, flags[flag]) for flag, key in MEASURE_FLAGS.items() if flags.get(flag) is not None]
    if flags.get("no_intervals"):
        given.append(("measure.confidence", 0))
    return given


def split_failures(text: str, known: Sequence[str] = ("mtbf", "repair")) -> dict[str, str]:
    """``mtbf=30d,repair=4h`` as the keys of the table ``[failures]``; for a fleet also ``every=30s``."""
    given: dict[str, str] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in known:
            raise ExperimentError(f"failures: {unknown_name('key', name, known)}, e.g. mtbf=30d,repair=4h")
        if not value:
            raise ExperimentError(f"failures {text!r}: {name} has no value, e.g. mtbf=30d,repair=4h")
        if name in given:
            raise ExperimentError(f"failures {text!r}: {name} is given twice")
        given[name] = value
    if not given.keys() & {"mtbf", "every"}:
        raise ExperimentError("failures needs mtbf, e.g. mtbf=30d,repair=4h")
    return given


def split_policies(text: str, example: str = "fifo,sjf,srtf+easy", what: str = "policies") -> list[str]:
    """Policies (or other values) between commas, none twice; commas inside brackets belong to options."""
    found = [spec.strip() for spec in re.split(r",(?![^()]*\))", text)]
    if not all(found):
        raise ExperimentError(f"{what} {text!r} is not understood: write it like {example}")
    for index, spec in enumerate(found):
        if spec in found[:index]:
            raise ExperimentError(f"{what} {text!r}: {spec} is named twice; name each once")
    return found
