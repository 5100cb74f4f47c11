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
        table[name] = tuple(values.split("|")) if values else ()
    return table


SIMULATED = _flags(
    "--estimates=exact|factor:3 --load=1.1 --nodes=2 --gpus-per-node=4",
    "--failures=mtbf=10m,repair=1m|mtbf=,repair= --cpus-per-node=8 --memory-per-node=1GB",
    "--storage-per-node=1GB --backfill=easy --placement=spread --preemption=on --preemption-cost=3s",
    "--migration=costed --migration-cost=1s --quantum=5s --allocation=tune --round=300s --completions=round",
    "--seed=3 --seeds=2 --warmup=10% --measure-jobs=2:9 --confidence=0.9 --by=tenant --speed=matrix",
    "--models=20,70,10 --profiles=none.toml --out=run --report=page.html",
    "--set=costs.preemption=1s|cluster.tenancy=walls|a.b=c --format=headway|swf",
)
SERVING = _flags(
    "--setting=rush --workers=2 --rate=3 --requests=15 --slo=1s|2L",
    "--arrivals=gamma:2|onoff|uniform:1,2|gamma:nan --fidelity=authors --out=run --push-interval=1s",
    "--control=central --failures=every=1s,repair=1s|mtbf=1h,repair=1h --policy=hash|headway|hash(x=1)",
    "--seed=3 --seeds=2 --set=fleet.x=1",
)
KERNELS = _flags(
    "--think=5ms --seconds=0.01 --floor=5% --slo=1.05 --policy=fikit|mps --high=vit|bert@0",
    "--low=gpt2@3|gpt2@0|none.parquet --seed=1",
)
GENERATED = _flags(
    "--jobs=20 --seed=3 --gpus=8 --load=0.8 --rate=9/h --split=20,70,10 --gpus-per-job=multi",
    "--out=out.csv|out.xyz",
)
PREDICTED = _flags(
    "--slo=1.05 --floor=5% --think=5ms --alone=4.8ms --seed=1",
)
PLANNED = _flags(
    "--slo=1s --rate=2 --in-time=0.9 --requests=100 --policy=hash --arrivals=gamma:2 --control=central",
    "--seed=2",
)
COMMANDS: tuple[tuple[tuple[str, ...], Flags], ...] = (
    (("simulate", "--trace", "jobs.csv", *ON), SIMULATED),
    (("simulate", "--trace", "jobs.csv", *ON), SIMULATED),
    (("compare", "--trace", "jobs.csv", *ON, "--policies", "fifo,srtf"), SIMULATED),
    (("simulate", "--scenario", "mine.toml"), SERVING),
    (("simulate", "--scenario", "mine.toml", "--json"), SERVING),
    (("simulate", "--scenario", "kernels", "--high", "resnet50", "--low", "bert", "--seconds", "0.01"), KERNELS),
    (("trace", "generate", "philly", "--jobs", "20"), GENERATED),
    (("trace", "generate", "synergy", "--jobs", "20"), GENERATED),
    (("share", "predict", "resnet50", "bert", "--seconds", "0.01"), PREDICTED),
    (("plan", "mine.toml", "--slo", "1s", "--rate", "2", "--requests", "100"), PLANNED),
    (("share", "status"), {"--gpu": ("0",), "--every": ("1s",)}),
    (("policies",), {"--json": ()}),
    (("profile", "list"), {"--json": ()}),
    (("profile", "show", "res18"), {"--json": ()}),
    (("trace", "formats"), {"--json": ()}),
)
