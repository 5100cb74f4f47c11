"""Commands with their flags, and for each flag values that are sound or nearly so."""

ON = ("--nodes", "2", "--gpus-per-node", "4")
Flags = dict[str, tuple[str, ...]]

PARTS = (
    *(
        "fifo",
        "sjf",
        "srtf",
        "las",
        "tiresias",
        "ftf",
        "drf",
        "tetris",
        "priority",
        "multifactor",
        "qssf",
        "fit",
        "easy",
    ),
    *("conservative", "best-fit", "spread", "consolidate", "fgd", "random", "migrate", "tune", "headway", "compass"),
    *(
        "tiresias(thresholds=1h/10h)",
        "random(seed=3)",
        "las(",
        "fifo()",
        "fifo(x=1)",
        "srtf)",
        "easy(depth=-1)",
        "+",
        "",
    ),
    *(
        "slurm:none.conf",
        "./none.py:X",
        "multifactor(fair_tree=true)",
        "migrate(margin=nan)",
        "qssf(seed=1e308)",
        "FIFO",
    ),
)


def _flags(*lines: str) -> Flags:
    """``--load=1.1|2`` as a flag and its values; without values it takes none."""
    table: Flags = {}
    for flag in " ".join(lines).split():
        name, _, values = flag.partition("=")
        table[name] = table.get(name, ()) + (tuple(values.split("|")) if values else ())
    return table


MEASURED = "--seed=3 --seeds=2 --confidence=0.9|0 --out=run --report=page.html"
SIMULATED = _flags(
    "--estimates=exact|factor:3 --load=1.1 --nodes=2 --gpus-per-node=4",
    "--failures=mtbf=10m,repair=1m|mtbf=,repair= --cpus-per-node=8 --memory-per-node=1GB",
    "--preemption=on --preemption-cost=3s --migration=costed --migration-cost=1s --allocation=tune --round=300s",
    "--warmup=10% --measure-jobs=2:9 --by=tenant --models=20,70,10 --profiles=none.toml --skip-infeasible --no-strict",
    "--set=costs.preemption=1s|cluster.tenancy=walls|a.b=c|policy.backfill=easy|policy.quantum=5s",
    "--set=run.completions=round|speed.model=matrix|cluster.storage_per_node=1GB|trace=1|cluster.nodes.x=1",
    "--format=headway|swf",
    MEASURED,
)
SERVING = _flags(
    "--setting=rush --workers=2 --rate=3 --requests=15 --slo=1s|2L",
    "--arrivals=gamma:2|onoff|uniform:1,2|gamma:nan|diurnal|diurnal(peak=3,period=1m)|diurnal(peak=nan)|rates:none.csv",
    "--load=0.5|0 --start=warm|cold|hot --fidelity=authors --push-interval=1s",
    "--control=central --failures=every=1s,repair=1s|mtbf=1h,repair=1h --policy=hash|headway|hash(x=1)",
    "--warmup=10% --set=fleet.x=1|serving.control=central|serving.profile=law",
    MEASURED,
)
KERNELS = _flags(
    "--think=5ms --seconds=0.01 --floor=5% --slo=1.05 --policy=fikit|mps|headway(slo=1.1)",
    "--set=gpu.settle=1ms|gpu.low=[]|gpu.x=1|run.seed=2",
    MEASURED,
)
COMPARED = {name: values for name, values in KERNELS.items() if name != "--policy"} | _flags(
    "--policies=mps|mps,headway|time-slicing,fikit,xsched --baseline=mps|0"
)
GENERATED = _flags(
    "--jobs=20 --seed=3 --gpus=8 --load=0.8 --rate=9/h --split=20,70,10 --gpus-per-job=multi",
    "--out=out.csv|out.xyz",
)
PREDICTED = _flags(
    "--slo=1.05 --floor=5% --think=5ms --alone=4.8ms --seed=1 --seconds=0.01 --json",
)
PLANNED = _flags(
    "--slo=1s --rate=2 --in-time=0.9 --requests=100 --policy=hash --arrivals=gamma:2 --control=central",
    "--seed=2 --scenario=compass",
)
_COMPARED_JOBS = SIMULATED | _flags("--baseline=srtf --picture=bars.svg")
_COMPARED_FLEET = {name: values for name, values in SERVING.items() if name != "--policy"} | _flags("--baseline=hash")
COMMANDS: tuple[tuple[tuple[str, ...], Flags], ...] = (
    (("jobs", "simulate", "jobs.csv", *ON), SIMULATED),
    (("jobs", "simulate", "jobs.csv", *ON), SIMULATED),
    (("jobs", "compare", "jobs.csv", *ON, "--policies", "fifo,srtf"), _COMPARED_JOBS),
    (("fleet", "simulate", "mine.toml"), SERVING),
    (("fleet", "simulate", "mine.toml", "--json"), SERVING),
    (("fleet", "compare", "mine.toml", "--policies", "hash,headway"), _COMPARED_FLEET),
    (("gpu", "simulate", "resnet50", "bert", "--seconds", "0.01"), KERNELS),
    (("gpu", "simulate", "vit,bert@0", "gpt2@3", "gpt2@0", "--seconds", "0.01", "--json"), KERNELS),
    (("gpu", "compare", "resnet50", "bert", "--seconds", "0.01", "--policies", "mps,headway"), COMPARED),
    (("trace", "generate", "philly", "--jobs", "20"), GENERATED),
    (("trace", "generate", "synergy", "--jobs", "20"), GENERATED),
    (("gpu", "predict", "resnet50", "bert", "--seconds", "0.01"), PREDICTED),
    (("fleet", "plan", "mine.toml", "--slo", "1s", "--rate", "2", "--requests", "100"), PLANNED),
    (("demo", "--jobs", "20"), _flags("--jobs=30 --seed=2 --seeds=2 --baseline=srtf --picture=bars.svg --json")),
    (("share", "status"), {"--gpu": ("0",), "--every": ("1s",)}),
    (("policies",), {"--json": ()}),
    (("profile", "list"), {"--json": ()}),
    (("profile", "show", "res18"), {"--json": ()}),
    (("trace", "formats"), {"--json": ()}),
)
