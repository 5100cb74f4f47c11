"""Writes what an operator can print of the site, as sacct, sacctmgr, scontrol and sshare print it."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from examples.slurm.site.jobs import Attempt, Job
from examples.slurm.site.priority import CPU_WEIGHT, GPU_WEIGHT, billing
from examples.slurm.site.rules import GPU, Node, Partition, Qos, Site

COLUMNS = (
    *("JobID", "JobIDRaw", "User", "Account", "Partition", "QOS", "Priority", "Submit", "Eligible", "Start"),
    *("End", "Elapsed", "Timelimit", "State", "Reason", "Restarts", "ReqTRES", "AllocTRES", "NNodes", "NodeList"),
    "SubmitLine",
)
QOS_COLUMNS = (
    *("Name", "Priority", "GraceTime", "Preempt", "PreemptExemptTime", "PreemptMode", "Flags", "UsageThres"),
    *("UsageFactor", "GrpTRES", "GrpTRESMins", "GrpTRESRunMins", "GrpJobs", "GrpSubmit", "GrpWall", "MaxTRES"),
    *("MaxTRESPerNode", "MaxTRESMins", "MaxWall", "MaxTRESPU", "MaxJobsPU", "MaxSubmitPU", "MaxTRESPA", "MaxJobsPA"),
    *("MaxSubmitPA", "MinTRES"),
)
ASSOC_COLUMNS = (
    *("Cluster", "Account", "User", "Partition", "Share", "Priority", "GrpJobs", "GrpTRES", "GrpSubmit", "GrpWall"),
    *("GrpTRESMins", "MaxJobs", "MaxTRES", "MaxTRESPerNode", "MaxSubmit", "MaxWall", "MaxTRESMins", "QOS", "Def QOS"),
    "GrpTRESRunMins",
)
CLUSTER = "meadow"


def clock(second: int) -> str:
    """Return a time as sacct writes it."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S") if second >= 0 else "Unknown"


def span(seconds: int) -> str:
    """Return a length of time as sacct writes it."""
    days, rest = divmod(seconds, 86_400)
    text = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


def write(folder: Path, site: Site, jobs: Iterable[Job]) -> None:
    """Write all files."""
    (folder / "config").mkdir(parents=True, exist_ok=True)
    known = {job.number: job for job in jobs}
    lines = [line for job in known.values() for line in _rows(site, job, known)]
    files = {
        "sacct.txt": ["|".join(COLUMNS), *lines],
        "nodes.txt": [_node(site, at, node) for at, node in enumerate(site.nodes)],
        "partitions.txt": [_partition(site, each) for each in site.partitions.values()],
        "qos.txt": ["|".join(QOS_COLUMNS), *map(_qos, site.qos.values())],
        "assoc.txt": ["|".join(ASSOC_COLUMNS), *_tree(site, "root", 0)],
        "user.txt": ["User|Def Acct|Admin", *_users(site)],
        "config/slurm.conf": _settings(site),
    }
    for name, text in files.items():
        (folder / name).write_text("\n".join(text) + "\n")


def _rows(site: Site, job: Job, known: Mapping[int, Job]) -> list[str]:
    """Return the lines of a job: one for each attempt."""
    attempts = (*job.earlier, job.attempt(job.state, job.end))
    return [_row(site, job, known, number, each) for number, each in enumerate(attempts)]


def _row(site: Site, job: Job, known: Mapping[int, Job], restarts: int, each: Attempt) -> str:
    types = f"{GPU}:{job.gpu_type}={job.gpus}," if job.gpu_type else ""
    gpus = f"{types}{GPU}={job.gpus}," if job.gpus else ""
    tres = f"billing={int(billing(job))},cpu={job.cpus},{gpus}mem={job.memory_gb}G,node={job.nodes}"
    begun = each.start >= 0
    nodes = ",".join(site.nodes[node].name for node in each.place) or "None assigned"
    cells = (
        *(f"{job.array}_{job.task}" if job.array else str(job.number), str(job.number), job.user, job.account),
        *(job.partition, job.qos, str(int(job.priority)), clock(each.submit), clock(each.eligible)),
        *(clock(each.start) if begun else "None", clock(each.end), span(each.end - each.start if begun else 0)),
        *(span(job.limit), each.state, each.reason, str(restarts), tres, tres if begun else "", str(job.nodes), nodes),
        _command(job, known),
    )
    return "|".join(cells)


def _command(job: Job, known: Mapping[int, Job]) -> str:
    """Return the command that submitted a job."""
    words = ["sbatch", "-A", job.account, "-p", job.partition, f"--qos={job.qos}", "-t", span(job.limit)]
    if job.array:
        words.append(f"--array=1-{job.tasks}{f'%{job.throttle}' if job.throttle else ''}")
    if job.after in known:
        words.append(f"--dependency={'afterok' if job.after_ok else 'afterany'}:{job.after}")
    return " ".join([*words, "train.sh"])


def _listed(amounts: Mapping[str, int]) -> str:
    return ",".join(f"{tres}={amount}" for tres, amount in amounts.items())


def _cells(columns: Iterable[str], told: Mapping[str, object]) -> str:
    return "|".join(str(told.get(column) or "") for column in columns)


def _qos(qos: Qos) -> str:
    told = {
        "Name": qos.name,
        "Priority": str(qos.priority),
        "GraceTime": "00:00:00",
        "Preempt": ",".join(qos.preempts),
        "PreemptMode": "requeue" if qos.requeues else "cluster",
        "UsageFactor": "1.000000",
        "GrpTRES": _listed(qos.group),
        "MaxWall": span(qos.most_wall) if qos.most_wall else "",
        "MaxTRESPU": _listed(qos.per_user),
        "MaxJobsPU": qos.jobs_per_user,
        "MaxSubmitPU": qos.submit_per_user,
    }
    return _cells(QOS_COLUMNS, told)


def _tree(site: Site, name: str, depth: int) -> list[str]:
    """Return an account, its users and the accounts below it, indented as ``show assoc tree`` does."""
    account = site.accounts[name]
    names = ",".join(qos.name for qos in site.qos.values() if qos.name != "h100part")
    told = {"Cluster": CLUSTER, "Account": " " * depth + name, "Share": account.shares, "QOS": names}
    lines = [_cells(ASSOC_COLUMNS, told | {"GrpTRES": _listed(account.group)})]
    for user, shares in account.users.items():
        own = told | {"Account": " " * (depth + 1) + name, "User": user, "Share": shares, "Def QOS": "normal"}
        lines.append(_cells(ASSOC_COLUMNS, own))
    below = (each for each in site.accounts.values() if each.parent == name)
    return lines + [line for each in below for line in _tree(site, each.name, depth + 1)]


def _users(site: Site) -> list[str]:
    return [f"{user}|{account.name}|None" for account in site.accounts.values() for user in account.users]


def _node(site: Site, at: int, node: Node) -> str:
    gres = f"gpu:{node.gpu_type}:{node.gpus}" if node.gpus else "(null)"
    tres = f",{GPU}={node.gpus},{GPU}:{node.gpu_type}={node.gpus}" if node.gpus else ""
    memory = node.memory_gb * 1024
    partitions = ",".join(each.name for each in site.partitions.values() if at in each.nodes)
    return (
        f"NodeName={node.name} Arch=x86_64 CPUAlloc=0 CPUEfctv={node.cpus} CPUTot={node.cpus} Gres={gres} "
        f"RealMemory={memory} AllocMem=0 State=IDLE ThreadsPerCore=1 Weight=1 Partitions={partitions} "
        f"CfgTRES=cpu={node.cpus},mem={memory}M,billing={node.cpus}{tres} AllocTRES="
    )


def _partition(site: Site, each: Partition) -> str:
    names = ",".join(site.nodes[at].name for at in each.nodes)
    return (
        f"PartitionName={each.name} AllowGroups=ALL AllowAccounts=ALL AllowQos={','.join(each.allowed) or 'ALL'} "
        f"AllocNodes=ALL Default={'YES' if each.name == 'a100' else 'NO'} QoS={each.qos or 'N/A'} DefaultTime=NONE "
        f"MaxNodes=UNLIMITED MaxTime={span(each.most_time)} MinNodes=0 Nodes={names} PriorityJobFactor={each.factor} "
        f"PriorityTier={each.tier} OverSubscribe=NO PreemptMode=REQUEUE State=UP "
        f"TRESBillingWeights=CPU={CPU_WEIGHT},GRES/gpu={GPU_WEIGHT}"
    )


def _settings(site: Site) -> list[str]:
    preempts = any(qos.preempts for qos in site.qos.values())
    backfill = f"bf_interval={site.backfill_interval},bf_max_job_test={site.backfill_depth}"
    return [
        f"ClusterName={CLUSTER}",
        "SlurmctldHost=head",
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageEnforce=associations,limits,qos",
        "AccountingStorageTRES=gres/gpu,gres/gpu:a100,gres/gpu:h100",
        "DependencyParameters=kill_invalid_depend",
        f"PreemptType={'preempt/qos' if preempts else 'preempt/none'}",
        f"PreemptMode={'REQUEUE' if preempts else 'OFF'}",
        "PriorityType=priority/multifactor",
        f"PriorityWeightAge={site.age_weight}",
        f"PriorityWeightFairShare={site.fairshare_weight}",
        f"PriorityWeightJobSize={site.size_weight}",
        f"PriorityWeightPartition={site.partition_weight}",
        f"PriorityWeightQOS={site.qos_weight}",
        f"PriorityMaxAge={span(site.most_age)}",
        f"PriorityDecayHalfLife={span(site.half_life)}",
        f"PriorityCalcPeriod={site.calc_period // 60}",
        "SelectType=select/cons_tres",
        "SchedulerType=sched/backfill",
        f"SchedulerParameters={backfill},bf_window=43200,bf_continue",
    ]
