"""Define the flags of a run of jobs. A setting without a flag is set by its key: --set cluster.tenancy=walls."""

from functools import partial

from headway.jobs.experiment.site_changes import FLAGS as RULE_FLAGS, TABLE, choices
from headway.runs.settings.common_flags import STATISTICS, WARMUP
from headway.runs.settings.flags import Flag

JOBS, MEASURED, PARTS, RULES = "Jobs", STATISTICS, "Policy, CPUs and memory", "Rules of a Slurm site"

WORK = (
    Flag(
        "trace",
        "trace.path",
        "File of jobs, plain or gzip: sacct, kubectl, a public trace, any table.",
        metavar="TRACE",
    ),
)
AXES = (
    Flag("loads", "trace.load", "Arrivals so many times as fast: 0.8,1.0,1.2.", float),
    Flag("nodes", "cluster.nodes", "Nodes of the cluster: 40,80.", int),
)
EXAMPLES = {
    "simulate": "jobs.csv --nodes 16 --gpus-per-node 8 --policy srtf+easy --out runs/srtf",
    "compare": "sacct.txt --cluster nodes.txt --policies fifo+easy,srtf --report page.html",
    "sweep": "jobs.csv --nodes 16,32 --gpus-per-node 8 --policies fifo,srtf --loads 0.8,1.0 -o sweeps/mine",
}
FLAGS = (
    Flag("cluster", "cluster.file", "As scontrol or kubectl print it, or TOML.", list, metavar="FILE"),
    Flag("nodes", "cluster.nodes", "Nodes, where no file describes the cluster.", int),
    Flag("gpus_per_node", "cluster.gpus_per_node", "GPUs of each node.", int),
    Flag("load", "trace.load", "Let jobs arrive so many times as fast.", metavar="FACTOR"),
    Flag("preemption_cost", "costs.preemption", "Standstill after it; else the job's own.", metavar="TIME"),
    Flag(
        "failures",
        "failures.*",
        "Means of a node: mtbf=30d,repair=4h.",
        metavar="MEANS",
        needs=("mtbf",),
        beside=("repair",),
    ),
    Flag("start", "trace.start", "Jobs from 2026-03-01 on (or 3d in).", panel=JOBS, metavar="DATE", spelled="--from"),
    Flag("end", "trace.end", "Jobs before 2026-04-01 (or 30d in).", panel=JOBS, metavar="DATE", spelled="--to"),
    Flag("format", "trace.format", "Of the trace; told by its beginning.", panel=JOBS),
    Flag("map", "trace.map", "Any table: gpus=n,submit=t:ms,work=d.", panel=JOBS, metavar="FIELD=COLUMN"),
    Flag("estimates", "trace.estimates", "trace, exact, factor:3 or user.", panel=JOBS),
    Flag("skip_infeasible", "trace.skip_infeasible", "Drop jobs that could never run.", bool, JOBS),
    Flag("strict", "trace.strict", "Stop at the first bad row.", bool, JOBS),
    Flag("skip_bad_rows", "trace.skip_bad_rows", "Go on, however many are dropped.", bool, JOBS),
    Flag("measure_jobs", "measure.jobs", "Measure these jobs only: 4000:5000.", panel=MEASURED, metavar="A:B"),
    WARMUP,
    Flag("price", "measure.price", "Of a GPU-hour: h100=3.2,a100=1.8.", list, MEASURED, metavar="TYPE=PRICE"),
    Flag("watts", "measure.watts", "Of a GPU in use: h100=700.", list, MEASURED, metavar="TYPE=WATTS"),
    Flag("preemption", "policy.preemption", "on or off; as the order wants it if left out.", panel=PARTS),
    Flag("migration", "policy.migration", "off, costed, free or always.", panel=PARTS),
    Flag("migration_cost", "costs.migration", "Standstill after a move: 60s if left out.", panel=PARTS, metavar="TIME"),
    Flag("round", "policy.round", "Decide at multiples of this only: 300s.", panel=PARTS, metavar="TIME"),
    Flag("allocation", "policy.allocation", "Who divides CPUs and memory: proportional, tune, …", panel=PARTS),
    Flag("cpus_per_node", "cluster.cpus_per_node", "CPUs of each node; not counted if left out.", int, PARTS),
    Flag("memory_per_node", "cluster.memory_per_node", "Memory of each node: 500GB.", panel=PARTS, metavar="SIZE"),
    Flag("profiles", "speed.profiles", "Profiles of programs: files or folders.", list, PARTS, metavar="PATH"),
    Flag("models", "trace.models", "What jobs train that do not say it: 20,70,10 %.", panel=PARTS),
    *(
        Flag(kind, f"{TABLE}.*", about, list, RULES, metavar=written, choices=partial(choices, kind))
        for kind, about, written in (
            ("qos", "A limit or key of a QOS: long.MaxTRESPU=gres/gpu=32.", "NAME.KEY=VALUE"),
            ("partition", "A key of a partition: debug.PriorityTier=2.", "NAME.KEY=VALUE"),
            ("preempt", "How a QOS is preempted: scavenger=off.", "NAME=HOW"),
            ("shares", "Shares of an account: bio=40.", "ACCOUNT=SHARES"),
        )
    ),
)
CHANGES = (
    *("add_nodes", "remove_nodes", "policy", "quota", "limit", *RULE_FLAGS, "gpu_speed", "upgrade", "failures"),
    *("load", "set", "skip_infeasible"),
)
"""What a what-if may change."""
