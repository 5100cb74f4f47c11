"""The settings of a run of jobs that have a flag. Whatever has none is set by its key: --set cluster.tenancy=walls."""

from headway.experiment.common_flags import WARMUP
from headway.experiment.flags import Flag

JOBS, CLUSTER, COSTS, SHARES = "Jobs", "Cluster", "Preemption, migration, failures", "CPUs and memory"

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
    "compare": "sacct.txt --cluster nodes.txt --policies slurm:slurm.conf,fifo+easy,srtf --report comparison.html",
    "sweep": "jobs.csv --nodes 16,32 --gpus-per-node 8 --policies fifo,srtf --loads 0.8,1.0 -o sweeps/mine",
}
FLAGS = (
    Flag(
        "cluster", "cluster.file", "Files that describe it: scontrol show node -o, kubectl get nodes -o json, …", list
    ),
    Flag("nodes", "cluster.nodes", "Nodes of the cluster, where no file describes it.", int),
    Flag("gpus_per_node", "cluster.gpus_per_node", "GPUs of each node.", int),
    Flag("preemption_cost", "costs.preemption", "Standstill after a preemption; the job's own times if left out."),
    Flag("failures", "failures.*", "Node failures and repairs, as means: mtbf=30d,repair=4h."),
    Flag("load", "trace.load", "Let jobs arrive so many times as fast."),
    Flag("format", "trace.format", "Of the trace; told by its beginning (headway trace formats).", panel=JOBS),
    Flag(
        "map",
        "trace.map",
        "Any table: gpus=num_gpus,submit=timestamp,work=duration.",
        panel=JOBS,
        metavar="FIELD=COLUMN,…",
    ),
    Flag("estimates", "trace.estimates", "What users announce: trace, exact, factor:3 or user.", panel=JOBS),
    Flag("skip_infeasible", "trace.skip_infeasible", "Drop and count jobs that could never run.", bool, JOBS),
    Flag("strict", "trace.strict", "Stop at the first bad row instead of dropping it.", bool, JOBS),
    Flag("skip_bad_rows", "trace.skip_bad_rows", "Go on although a rule drops over a tenth of the rows.", bool, JOBS),
    Flag("measure_jobs", "measure.jobs", "Measure these jobs only, from 0: 4000:5000.", panel=JOBS, metavar="A:B"),
    WARMUP,
    Flag("migration", "policy.migration", "off, costed, free or always.", panel=COSTS),
    Flag("migration_cost", "costs.migration", "Standstill after a move: 60s if left out.", panel=COSTS),
    Flag("preemption", "policy.preemption", "on or off; as the order wants it if left out.", panel=COSTS),
    Flag("round", "policy.round", "Decide at multiples of this only, e.g. 300s.", panel=COSTS),
    Flag(
        "allocation", "policy.allocation", "Who divides CPUs and memory: proportional, tune, headway, …", panel=SHARES
    ),
    Flag("cpus_per_node", "cluster.cpus_per_node", "CPUs of each node; not counted if left out.", int, SHARES),
    Flag("memory_per_node", "cluster.memory_per_node", "Memory of each node, e.g. 500GB.", panel=SHARES),
    Flag("profiles", "speed.profiles", "Profiles of programs: files or folders.", list, SHARES),
    Flag("models", "trace.models", "What jobs train that do not say it, in percent: 20,70,10.", panel=SHARES),
)
