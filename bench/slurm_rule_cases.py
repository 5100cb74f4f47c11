"""Small cases of one rule of Slurm each: a few jobs on two nodes of four pretended GPUs."""

from dataclasses import dataclass, field

from bench.slurm_drive import Step

USERS = {"lab-ada": "bio", "lab-alan": "vision"}
_SCHEDULER = "bf_interval=1,bf_resolution=1,bf_continue,sched_interval=1,sched_min_interval=100000,batch_sched_delay=0"
_PRIORITIES = {
    "AccountingStorageEnforce": "limits,qos",
    "PriorityWeightQOS": "1000",
    "SchedulerParameters": _SCHEDULER,
}
_REQUEUE = {"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"}
_BATCH = "PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP"


@dataclass(frozen=True, slots=True)
class Case:
    """One rule: how the site is set, and what is done there."""

    name: str
    plan: tuple[Step, ...]
    settings: dict[str, str] = field(default_factory=dict)
    partitions: tuple[str, ...] = (_BATCH,)
    accounting: tuple[str, ...] = ()
    """Commands of sacctmgr, after those that make accounts and users."""
    nodes: dict[str, int] = field(default_factory=lambda: {"a100": 2})

    @property
    def all_settings(self) -> dict[str, str]:
        """The settings that all cases have, and those of its own."""
        return {**_PRIORITIES, **self.settings}

    @property
    def all_accounting(self) -> list[str]:
        """The commands of sacctmgr that make accounts and users, and those of its own."""
        made = ["add account science", "add account bio parent=science", "add account vision parent=science"]
        made += [f"add user {user} account={account}" for user, account in USERS.items()]
        return [*made, *self.accounting]


def _job(when: float, name: str, gpus: int, seconds: float, *options: str, user: str = "lab-ada") -> Step:
    """Return a job on one node, or on two where it wants eight GPUs. Without another limit it has two minutes."""
    nodes = max(1, gpus // 4)
    sizes = (f"--nodes={nodes}", f"--ntasks={max(1, gpus)}", f"--gpus-per-node={gpus // nodes}")
    time = () if any(option.startswith("--time") for option in options) else ("--time=2",)
    return Step(when, name, (f"--account={USERS[user]}", *sizes, *time, *options), seconds, user)


def _told(when: float, *command: str) -> Step:
    return Step(when, command=command)


def _with_qos(names: str) -> tuple[str, ...]:
    """Return the commands that make QOSs which everybody may use."""
    every = ",".join(("normal", *names.split()))
    return (*(f"add qos {name}" for name in names.split()), f"modify cluster lab set qos={every} defaultqos=normal")


def _stubborn(step: Step) -> Step:
    return Step(step.when, step.name, step.options, step.seconds, step.user, stubborn=True)


def _preemption(name: str, *qos: str, stubborn: bool = False, settings: dict[str, str] | None = None) -> Case:
    """Return a case in which two jobs of a scavenger QOS hold all GPUs when one of QOS normal wants half of them."""
    first, second = (_job(when, f"s{place}", 4, 30, "--qos=scavenger") for place, when in ((1, 0), (2, 4)))
    plan = (first, second, _job(10, "n1", 4, 14, user="lab-alan"), _job(12, "s3", 4, 5, "--qos=scavenger"))
    plan = tuple(_stubborn(step) if stubborn and step.name != "n1" else step for step in plan)
    rules = (*_with_qos("scavenger"), "modify qos normal set Priority=100 Preempt=scavenger")
    return Case(name, plan, {**_REQUEUE, **(settings or {})}, accounting=(*rules, *qos))


def _partition(name: str, tier: int, more: str = "") -> str:
    return f"PartitionName={name} Nodes=ALL MaxTime=INFINITE State=UP PriorityTier={tier} {more}".rstrip()


def _of_preemption() -> list[Case]:
    tiers = (_partition("low", 1, "PreemptMode=REQUEUE Default=YES"), _partition("top", 2, "PreemptMode=OFF"))
    halted = (_partition("low", 1, "PreemptMode=SUSPEND Default=YES"), _partition("top", 2, "PreemptMode=OFF"))
    above = (
        _job(0, "l1", 4, 20, "--partition=low"),
        _job(3, "l2", 4, 25, "--partition=low"),
        _job(7, "t1", 4, 8, "--partition=top", user="lab-alan"),
    )
    several = [_job(2 * place, f"s{place}", 2, 40, "--qos=scavenger") for place in range(4)]
    wide = [_job(11, "n1", 4, 10, user="lab-alan"), _job(13, "n2", 1, 8, user="lab-alan")]
    rules = (*_with_qos("scavenger"), "modify qos normal set Priority=100 Preempt=scavenger")
    return [
        _preemption("preempt-requeue"),
        _preemption("preempt-cancel", "modify qos scavenger set PreemptMode=cancel"),
        _preemption("preempt-grace", "modify qos scavenger set GraceTime=10", stubborn=True),
        _preemption("preempt-exempt", "modify qos scavenger set PreemptExemptTime=00:00:20"),
        _preemption("preempt-exempt-all", settings={"PreemptExemptTime": "00:00:15"}),
        _preemption("preempt-youngest", settings={"SchedulerParameters": f"{_SCHEDULER},preempt_youngest_first"}),
        Case("preempt-several", (*several, *wide), _REQUEUE, accounting=rules),
        Case("preempt-partition", above, {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}, tiers),
        Case(
            "preempt-suspend", above, {"PreemptType": "preempt/partition_prio", "PreemptMode": "SUSPEND,GANG"}, halted
        ),
    ]


def _of_order() -> list[Case]:
    tiers = (_partition("low", 1, "PriorityJobFactor=100 Default=YES"), _partition("top", 10, "PriorityJobFactor=1"))
    tiered = (
        _job(0, "first", 8, 10, "--partition=low"),
        _job(2, "l1", 8, 6, "--partition=low"),
        _job(3, "t1", 8, 6, "--partition=top", user="lab-alan"),
        _job(4, "l2", 2, 6, "--partition=low", "--time=1"),
    )
    queue = [_job(0, "first", 8, 10), _job(2, "slow", 8, 6, "--qos=slow"), _job(3, "plain", 8, 6)]
    queue += [_job(4, "fast", 8, 6, "--qos=fast", user="lab-alan"), _job(5, "nice", 8, 4, "--nice=50", "--qos=slow")]
    ranks = (*_with_qos("slow fast"), "modify qos normal set Priority=50", "modify qos fast set Priority=100")
    behind = (
        _job(0, "half", 4, 20, "--time=3"),
        _job(1, "wide", 8, 5),
        _job(3, "short", 2, 8, "--time=1"),
        _job(4, "long", 2, 8, "--time=5"),
        _job(5, "other", 1, 30, "--time=1"),
    )
    sizes = tuple(_job(place, f"j{place}", gpus, 6) for place, gpus in enumerate((8, 1, 2, 4, 8), 1))
    weights = {"PriorityWeightTRES": "gres/gpu=5000", "PriorityWeightJobSize": "100", "PriorityFavorSmall": "YES"}
    shared = [_job(place / 4, f"b{place}", 8, 9) for place in range(10)]
    shared += [_job(0.1 + place / 4, f"v{place}", 8, 9, user="lab-alan") for place in range(10)]
    fair = {"PriorityWeightFairshare": "10000", "PriorityDecayHalfLife": "00:02:00", "PriorityCalcPeriod": "1"}
    unequal = ("modify account bio set fairshare=80", "modify account vision set fairshare=20")
    return [
        Case("tiers", tiered, {"PriorityWeightPartition": "1000"}, tiers),
        Case("qos-priority", tuple(queue), accounting=ranks),
        Case("backfill", behind),
        Case("weight-tres", sizes, weights),
        Case("fair-share", tuple(sorted(shared, key=lambda step: step.when)), fair, accounting=unequal),
    ]


def _of_limits() -> list[Case]:
    alan = "lab-alan"
    few = tuple(_job(place / 2, f"j{place}", 2, 10 + place) for place in range(4))
    both = (*few, _job(3, "other", 2, 5, user=alan), _job(4, "last", 2, 5, user=alan))
    mixed = tuple(_job(place / 2, f"j{place}", 2, 10, user=("lab-ada", alan)[place % 2]) for place in range(6))
    tight = (*_with_qos("strict loose"), "modify qos strict set MaxTRESPU=gres/gpu=4 Flags=DenyOnLimit")
    asked = (
        _job(0, "fits", 4, 6, "--qos=strict"),
        _job(1, "denied", 8, 6, "--qos=strict"),
        _job(2, "kept", 8, 6, "--qos=loose"),
        _job(3, "behind", 4, 6, "--qos=loose"),
        _told(14, "scancel", "{kept}"),
    )
    over = [_job(place / 2, f"p{place}", 2, 8) for place in range(3)]
    over += [_job(2 + place / 2, f"o{place}", 2, 8, "--qos=over", user=alan) for place in range(4)]
    most = {"part": "gres/gpu=2", "normal": "gres/gpu=4", "over": "gres/gpu=6 Flags=OverPartQOS"}
    part = (*_with_qos("over part"), *(f"modify qos {name} set MaxTRESPU={limit}" for name, limit in most.items()))
    walls = (
        _job(0, "short", 4, 8, "--time=1"),
        _job(1, "long", 4, 8, "--time=10"),
        _job(2, "next", 4, 8, "--time=2"),
        _job(3, "after", 4, 5, "--time=2"),
        _told(16, "scancel", "{long}"),
    )
    runs = tuple(_job(place / 2, f"j{place}", 2, 10, "--time=2") for place in range(4))
    raised = ("modify", "qos", "normal", "set", "MaxTRESPU=gres/gpu=8")
    return [
        Case("max-tres-pu", both, accounting=("modify qos normal set MaxTRESPU=gres/gpu=4",)),
        Case("grp-tres", mixed, accounting=("modify qos normal set GrpTRES=gres/gpu=4",)),
        Case("assoc-grp-tres", mixed, accounting=("modify account science set GrpTRES=gres/gpu=4",)),
        Case("max-jobs", both, accounting=("modify qos normal set MaxJobsPU=2", "modify user lab-alan set MaxJobs=1")),
        Case("max-submit", both, accounting=("modify qos normal set MaxSubmitJobsPerUser=3",)),
        Case("deny-on-limit", asked, accounting=(*tight, "modify qos loose set MaxTRESPU=gres/gpu=4")),
        Case("over-part-qos", tuple(over), partitions=(f"{_BATCH} QOS=part",), accounting=part),
        Case("max-wall", walls, accounting=("modify qos normal set MaxWall=00:05:00",)),
        Case("run-minutes", runs, accounting=("modify qos normal set GrpTRESRunMins=gres/gpu=8",)),
        Case(
            "limit-changed",
            (*both[:4], _told(6, "sacctmgr", "-i", *raised), *both[4:]),
            accounting=("modify qos normal set MaxTRESPU=gres/gpu=4",),
        ),
    ]


def _of_submission() -> list[Case]:
    alan = "lab-alan"
    after = (
        _job(0, "first", 2, 8),
        _job(0.5, "fails", 2, 30),
        _job(1, "ok", 2, 5, "--dependency=afterok:{first}"),
        _job(1.5, "any", 2, 5, "--dependency=afterany:{fails}"),
        _job(2, "not", 2, 5, "--dependency=afternotok:{fails}"),
        _job(2.5, "both", 2, 5, "--dependency=afterok:{ok}:{first}"),
        _told(12, "scancel", "{fails}"),
    )
    ones = tuple(_job(place / 2, "one", 1, 6, "--dependency=singleton") for place in range(3))
    begins = (_job(0, "now", 4, 6), _job(1, "later", 4, 5, "--begin=now+12"), _job(2, "soon", 8, 5, "--begin=now+6"))
    reserve = ("ReservationName=course", "Users=lab-ada", "Nodes=n1", "StartTime=now+20", "Duration=00:01:00")
    reserved = (
        _told(0, "scontrol", "create", "reservation", *reserve),
        _job(1, "guest", 2, 6, "--reservation=course"),
        _job(2, "long", 4, 12, "--time=2", user=alan),
        _job(3, "behind", 4, 6, "--time=2", user=alan),
        _job(4, "wide", 8, 5, "--time=1", user=alan),
    )
    away = (
        _told(0, "scontrol", "update", "nodename=n1", "state=drain", "reason=test"),
        _job(1, "one", 4, 6),
        _job(2, "two", 4, 6),
        _job(3, "wide", 8, 5),
        _told(20, "scontrol", "update", "nodename=n1", "state=resume"),
    )
    licences = tuple(_job(place / 2, f"j{place}", 1, 8, "--licenses=matlab:1") for place in range(4))
    types = (
        Step(0, "any1", ("--account=bio", "--gpus-per-node=4", "--time=2"), 10, "lab-ada"),
        Step(1, "h1", ("--account=bio", "--gpus-per-node=h100:4", "--time=2"), 8, "lab-ada"),
        Step(2, "h2", ("--account=bio", "--gpus-per-node=h100:2", "--time=2"), 8, "lab-ada"),
        Step(3, "a1", ("--account=vision", "--gpus-per-node=a100:2", "--time=2"), 8, alan),
        Step(4, "any2", ("--account=vision", "--gpus-per-node=2", "--time=2"), 8, alan),
    )
    whole = (_job(0, "one", 1, 8, "--exclusive"), _job(1, "two", 2, 8), _job(2, "three", 4, 6), _job(3, "four", 1, 4))
    limit = (_job(0, "over", 8, 100, "--time=1"), _job(1, "behind", 8, 5), _job(2, "small", 1, 5, "--time=1"))
    throttled = (_job(0, "array", 1, 6, "--array=1-6%2"), _job(1, "other", 4, 5, user=alan))
    return [
        Case("array-throttle", throttled),
        Case("dependencies", after),
        Case("singleton", ones),
        Case("begin", begins),
        Case("reservation", reserved),
        Case("drained", away),
        Case("licences", licences, {"Licenses": "matlab:2"}),
        Case("gpu-types", types, nodes={"a100": 1, "h100": 1}),
        Case("exclusive", whole),
        Case("time-limit", limit),
    ]


CASES = {case.name: case for case in (*_of_preemption(), *_of_order(), *_of_limits(), *_of_submission())}
