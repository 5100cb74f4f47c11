"""The commands: flags become the tables of an experiment, results become a table or JSON."""

import json
from typing import Annotated

import typer

from headway import experiment
from headway.cli import console, kernels, serving
from headway.cli.app import app
from headway.cli.flags import (
    AllocationFlag,
    ArrivalsFlag,
    BackfillFlag,
    BadRowsFlag,
    BaselineFlag,
    ByFlag,
    ClusterFlag,
    CompletionsFlag,
    ConfidenceFlag,
    ControlFlag,
    CpusFlag,
    EstimatesFlag,
    FailuresFlag,
    FidelityFlag,
    FloorFlag,
    FormatFlag,
    GpusFlag,
    HighFlag,
    JsonFlag,
    LoadFlag,
    LowFlag,
    MapFlag,
    MeasureJobsFlag,
    MemoryFlag,
    MigrationCostFlag,
    MigrationFlag,
    ModelsFlag,
    NodesFlag,
    NoIntervalsFlag,
    OutFlag,
    PictureFlag,
    PlacementFlag,
    PoliciesFlag,
    PolicyFlag,
    PreemptionCostFlag,
    PreemptionFlag,
    ProcessesFlag,
    ProfilesFlag,
    PushFlag,
    QuantumFlag,
    RateFlag,
    ReportFlag,
    RequestsFlag,
    RoundFlag,
    ScenarioFlag,
    SecondsFlag,
    SeedFlag,
    SeedsFlag,
    SetFlag,
    SettingFlag,
    SkipFlag,
    SloFlag,
    SpeedFlag,
    StorageFlag,
    StrictFlag,
    ThinkFlag,
    TraceFlag,
    WarmupFlag,
    WorkersFlag,
    document_of,
    measure_settings,
    split_policies,
)
from headway.cli.results import Wanted, play_out
from headway.cli.runs import apart, under_each
from headway.experiment.measured import baseline_of
from headway.formats import toml
from headway.formats.plugins import resolve
from headway.report import tables

DEMO_NODES = 128
DEMO_JOBS = 30_000
DEMO_LOAD = 0.95
DEMO_LONGEST = "2d"
"""The time limit of the cluster: without one a few jobs of weeks would outlast all others."""
DEMO_COST = "60s"
DEMO_BASELINE = "fifo+easy"
"""What many clusters run: in order of submission, small jobs filling the gaps."""
DEMO_POLICIES = (
    *("fifo", "fifo+fit", "fifo+easy", "sjf", "srtf", "las", "tiresias", "ftf", "drf", "multifactor+easy", "qssf"),
)


@app.command()
def simulate(
    trace: TraceFlag = None,
    format: FormatFlag = None,
    columns: MapFlag = None,
    cluster: ClusterFlag = None,
    nodes: NodesFlag = None,
    gpus_per_node: GpusFlag = None,
    policy: PolicyFlag = None,
    backfill: BackfillFlag = None,
    placement: PlacementFlag = None,
    preemption: PreemptionFlag = None,
    preemption_cost: PreemptionCostFlag = None,
    migration: MigrationFlag = None,
    migration_cost: MigrationCostFlag = None,
    estimates: EstimatesFlag = None,
    quantum: QuantumFlag = None,
    allocation: AllocationFlag = None,
    round: RoundFlag = None,
    completions: CompletionsFlag = None,
    speed: SpeedFlag = None,
    profiles: ProfilesFlag = None,
    models: ModelsFlag = None,
    failures: FailuresFlag = None,
    cpus_per_node: CpusFlag = None,
    memory_per_node: MemoryFlag = None,
    storage_per_node: StorageFlag = None,
    scenario: ScenarioFlag = None,
    setting: SettingFlag = None,
    workers: WorkersFlag = None,
    rate: RateFlag = None,
    requests: RequestsFlag = None,
    arrivals: ArrivalsFlag = None,
    slo: SloFlag = None,
    fidelity: FidelityFlag = None,
    push_interval: PushFlag = None,
    control: ControlFlag = None,
    high: HighFlag = None,
    low: LowFlag = None,
    think: ThinkFlag = None,
    seconds: SecondsFlag = None,
    floor: FloorFlag = None,
    load: LoadFlag = None,
    skip_infeasible: SkipFlag = None,
    strict: StrictFlag = None,
    skip_bad_rows: BadRowsFlag = None,
    seed: SeedFlag = None,
    seeds: SeedsFlag = None,
    warmup: WarmupFlag = None,
    measure_jobs: MeasureJobsFlag = None,
    confidence: ConfidenceFlag = None,
    no_intervals: NoIntervalsFlag = False,
    out: OutFlag = None,
    as_json: JsonFlag = False,
    by: ByFlag = None,
    report: ReportFlag = None,
    overrides: SetFlag = None,
) -> None:
    """Run one policy over a trace of jobs, or over a scenario of requests.

    headway simulate --trace jobs.csv --format headway --nodes 16 --gpus-per-node 8 --policy fifo --backfill easy

    headway simulate --trace venus.csv.gz --format helios-csv --nodes 80 --gpus-per-node 8 --policy srtf --out runs/srtf

    headway simulate --trace jobs.csv --nodes 16 --gpus-per-node 8 --policy las --report las.html

    headway simulate --scenario compass --policy compass --workers 5 --rate 2 --requests 1000 --seed 42

    headway simulate --scenario kernels --high resnet50 --low resnet101-b64 --policy headway --slo 1.05
    """
    if scenario == kernels.SCENARIO:
        kernels.simulate(locals())
        return
    kernels.refuse_kernel_flags(locals())
    if scenario is not None:
        serving.simulate(locals())
        return
    serving.refuse_serving_flags(locals())
    document = document_of(locals(), overrides)
    play_out(list(experiment.variants(document, "flags")), Wanted(as_json, by, report=report), single=True)


@app.command()
def compare(
    policies: PoliciesFlag,
    trace: TraceFlag = None,
    format: FormatFlag = None,
    columns: MapFlag = None,
    cluster: ClusterFlag = None,
    nodes: NodesFlag = None,
    gpus_per_node: GpusFlag = None,
    backfill: BackfillFlag = None,
    placement: PlacementFlag = None,
    preemption: PreemptionFlag = None,
    preemption_cost: PreemptionCostFlag = None,
    migration: MigrationFlag = None,
    migration_cost: MigrationCostFlag = None,
    estimates: EstimatesFlag = None,
    quantum: QuantumFlag = None,
    allocation: AllocationFlag = None,
    round: RoundFlag = None,
    completions: CompletionsFlag = None,
    speed: SpeedFlag = None,
    profiles: ProfilesFlag = None,
    models: ModelsFlag = None,
    failures: FailuresFlag = None,
    cpus_per_node: CpusFlag = None,
    memory_per_node: MemoryFlag = None,
    storage_per_node: StorageFlag = None,
    scenario: ScenarioFlag = None,
    setting: SettingFlag = None,
    workers: WorkersFlag = None,
    rate: RateFlag = None,
    requests: RequestsFlag = None,
    arrivals: ArrivalsFlag = None,
    slo: SloFlag = None,
    fidelity: FidelityFlag = None,
    push_interval: PushFlag = None,
    control: ControlFlag = None,
    high: HighFlag = None,
    low: LowFlag = None,
    think: ThinkFlag = None,
    seconds: SecondsFlag = None,
    floor: FloorFlag = None,
    load: LoadFlag = None,
    skip_infeasible: SkipFlag = None,
    strict: StrictFlag = None,
    skip_bad_rows: BadRowsFlag = None,
    seed: SeedFlag = None,
    seeds: SeedsFlag = None,
    baseline: BaselineFlag = None,
    warmup: WarmupFlag = None,
    measure_jobs: MeasureJobsFlag = None,
    confidence: ConfidenceFlag = None,
    no_intervals: NoIntervalsFlag = False,
    out: OutFlag = None,
    as_json: JsonFlag = False,
    by: ByFlag = None,
    picture: PictureFlag = None,
    report: ReportFlag = None,
    overrides: SetFlag = None,
    processes: ProcessesFlag = 1,
) -> None:
    """Run several policies over the same trace or scenario, side by side.

    headway compare --trace jobs.csv --format headway --nodes 16 --gpus-per-node 8 --policies fifo,sjf,srtf,las

    headway compare --trace jobs.csv --nodes 16 --gpus-per-node 8 --policies "fifo+easy,tiresias(thresholds=1h/10h)"

    headway compare --trace jobs.csv --nodes 16 --gpus-per-node 8 --policies fifo,srtf --report comparison.html

    headway compare --scenario esg --setting strict-light --policies stagewise,plan-once,esg,headway

    headway compare --scenario kernels --high vgg16 --low matmul --policies time-slicing,mps,fikit,headway
    """
    if scenario == kernels.SCENARIO:
        kernels.compare(locals())
        return
    kernels.refuse_kernel_flags(locals())
    if scenario is not None:
        serving.compare(locals())
        return
    serving.refuse_serving_flags(locals())
    document = document_of(locals(), overrides)
    document.setdefault("policy", {}).pop("name", None)
    experiments = under_each(document, split_policies(policies))
    play_out(experiments, Wanted(as_json, by, picture, report), processes, baseline=baseline_of(experiments))


@app.command()
def run(
    path: Annotated[str, typer.Argument(help="An experiment as TOML.", metavar="EXPERIMENT.toml")],
    seeds: SeedsFlag = None,
    baseline: BaselineFlag = None,
    warmup: WarmupFlag = None,
    measure_jobs: MeasureJobsFlag = None,
    confidence: ConfidenceFlag = None,
    no_intervals: NoIntervalsFlag = False,
    out: OutFlag = None,
    as_json: JsonFlag = False,
    by: ByFlag = None,
    picture: PictureFlag = None,
    report: ReportFlag = None,
    overrides: SetFlag = None,
    processes: ProcessesFlag = 1,
) -> None:
    """Run an experiment from a TOML file; with variants, a run for each.

    headway run experiments/example.toml --set policy.name=srtf --set cluster.nodes=20
    """
    own = [*measure_settings(locals()), *([("run.out", out)] if out is not None else [])]
    if serving.is_serving_file(path):
        serving.run_file(path, locals())
        return
    given = [*(overrides or ()), *(f"{key}={json.dumps(value)}" for key, value in own)]
    experiments = experiment.same_jobs(experiment.read(path, given))
    single = len(experiments) == 1
    against = 0 if single else baseline_of(experiments)
    wanted = Wanted(as_json, by, picture, report)
    play_out(apart(experiments), wanted, processes, single=single, baseline=against)


def demo_document(jobs: int = DEMO_JOBS) -> toml.Document:
    """The jobs, the cluster and the costs of the demo, as an experiment."""
    return {
        "trace": {"synthetic": {"jobs": jobs, "load": DEMO_LOAD, "longest": DEMO_LONGEST}},
        "cluster": {"nodes": DEMO_NODES, "gpus_per_node": 8},
        "costs": {"preemption": DEMO_COST, "migration": DEMO_COST},
    }


@app.command()
def demo(
    jobs: Annotated[int, typer.Option(help="Jobs to draw.", min=1, max=1_000_000)] = DEMO_JOBS,
    seed: SeedFlag = 0,
    seeds: SeedsFlag = None,
    baseline: BaselineFlag = None,
    as_json: JsonFlag = False,
    picture: PictureFlag = None,
    report: ReportFlag = None,
    processes: ProcessesFlag = 1,
) -> None:
    """Compare policies on a drawn workload: a busy week on 1,024 GPUs, no files needed.

    headway demo

    headway demo --jobs 50000 --seed 7 --processes 8 --report demo.html
    """
    document = demo_document(jobs)
    document |= {"run": {"seed": seed or 0}, "measure": {"seeds": seeds or 1, "baseline": baseline or DEMO_BASELINE}}
    console.note(
        f"{jobs:,} jobs drawn like those of the Philly cluster, {DEMO_LONGEST} long at most, on {DEMO_NODES} nodes "
        f"with 8 GPUs each, {DEMO_COST} a preemption"
    )
    experiments = under_each(document, DEMO_POLICIES)
    wanted = Wanted(as_json, picture=picture, report=report)
    play_out(experiments, wanted, processes, baseline=baseline_of(experiments))


@app.command()
def policies(as_json: JsonFlag = False) -> None:
    """List every part that a policy can be made of.

    headway policies

    Parts are joined by +, options stand in brackets: headway simulate … --policy "tiresias(thresholds=1h/10h)+easy+fgd"

    Those of kind serving and kernels are whole: headway simulate --scenario kernels … --policy "headway(slo=1.1)"
    """
    resolve("")
    console.print_json(tables.parts()) if as_json else console.out().print(tables.parts_table())
