"""Which of a site's limits hold for a job: worked examples of Slurm's order, one rule at a time."""

from dataclasses import dataclass

import pytest

from headway.jobs.model.cluster import Cluster, Node, Partition
from headway.jobs.model.job import Job
from headway.jobs.rules.limits.choice import binding, choosing
from headway.jobs.slurm.output import sacctmgr, scontrol
from headway.jobs.slurm.output.conf import settings
from headway.jobs.slurm.output.records import SiteRules
from headway.jobs.slurm.site.followed import followed
from headway.units import DAY, HOUR, MINUTE
from tests.jobs.policies.orders.drive import play

NODES = tuple(Node(f"n{index}", 8, "a100", 64_000, 512 * 2**30) for index in range(8))
PARTITIONS = (Partition("batch", tuple(range(8))), Partition("debug", tuple(range(8))))
TREE = "Account|User|Partition|ParentName|{}\nroot||||{}\nuni|||root|{}\nbio|||uni|{}\nbio|eve|||{}\n"


@dataclass(frozen=True)
class Site:
    """What a made-up site's commands print."""

    qos: str = ""
    associations: str = ""
    partitions: str = "PartitionName=batch Nodes=ALL\nPartitionName=debug Nodes=ALL\n"
    settings: str = "AccountingStorageEnforce=limits"

    def cluster(self) -> Cluster:
        """Return the cluster with the site's rules."""
        tables = [sacctmgr.cluster(text, "x").rules for text in (self.qos, self.associations) if text]
        rules = scontrol.cluster(self.partitions, "x").rules.merged(SiteRules(settings=settings(self.settings)))
        for each in tables:
            rules = rules.merged(each)
        found = followed(rules)
        return Cluster(NODES, partitions=PARTITIONS, tenants=found.tenants, limits=found.limits)

    def holding(self, **job: str) -> dict[str, int]:
        """Return the limits that hold for a job, with their amounts; GPUs and CPUs in whole ones."""
        cluster = self.cluster()
        asked = Job(0, 0, HOUR, 1, **{"tenant": "bio", "user": "eve", "qos": "long", "partition": "batch", **job})  # type: ignore[arg-type]
        chosen = choosing(cluster.limits, asked, {each.name: each.parent for each in cluster.tenants})
        rules = [rule for _, rule in chosen]
        held = [rule for rule, holds in zip(rules, binding(rules, asked), strict=True) if holds]
        unit = {"gpus": 1000, "cpus": 1000, "wall": HOUR}
        return {rule.name: rule.most // unit.get(rule.kind, 1) for rule in held}


def _tree(column: str, root: object = "", uni: object = "", bio: object = "", eve: object = "") -> str:
    return TREE.format(column, root, uni, bio, eve)


def test_the_qos_of_the_partition_comes_before_the_jobs() -> None:
    qos = "Name|MaxTRESPU|Flags\nlong|gres/gpu=24|\npart|gres/gpu=6|\n"
    parts = "PartitionName=batch Nodes=ALL QoS=part\nPartitionName=debug Nodes=ALL\n"
    site = Site(qos, partitions=parts)
    assert site.holding() == {"QOSMaxGRESPerUser": 6}
    assert site.holding(partition="debug") == {"QOSMaxGRESPerUser": 24}


def test_over_part_qos_turns_the_two_round() -> None:
    qos = "Name|MaxTRESPU|Flags\nlong|gres/gpu=24|OverPartQOS\npart|gres/gpu=6|\n"
    site = Site(qos, partitions="PartitionName=batch Nodes=ALL QoS=part\n")
    assert site.holding() == {"QOSMaxGRESPerUser": 24}
    assert site.holding(qos="other") == {"QOSMaxGRESPerUser": 6}


def test_each_resource_is_a_limit_of_its_own() -> None:
    qos = "Name|GrpTRES|MaxWall\npart|cpu=100,mem=10G|24:00:00\nlong|cpu=10,gres/gpu=4|36:00:00\n"
    held = Site(qos, partitions="PartitionName=batch Nodes=ALL QoS=part\n").holding()
    assert held == {
        "QOSGrpCpuLimit": 100, "QOSGrpMemLimit": 10 * 2**30, "QOSMaxWallDurationPerJobLimit": 24, "QOSGrpGRES": 4,
    }  # fmt: skip


def test_the_manuals_example_of_jobs_and_submissions() -> None:
    qos = "Name|MaxJobsPU|MaxSubmitPU\npart|20|\nlong||\n"
    tree = "Account|User|ParentName|MaxJobs|MaxSubmit\nroot||||\nbio||root||\nbio|eve||4|50\n"
    site = Site(qos, tree, "PartitionName=batch Nodes=ALL QoS=part\n")
    assert site.holding() == {"QOSMaxJobsPerUserLimit": 20, "AssocMaxSubmitJobLimit": 50}


@pytest.mark.parametrize(
    ("given", "most"),
    [
        ({"eve": 3, "bio": 5, "uni": 7, "root": 9}, 3),
        ({"bio": 5, "uni": 7, "root": 9}, 5),
        ({"uni": 7, "root": 9}, 7),
        ({"root": 9}, 9),
    ],
)
def test_of_user_accounts_upward_and_cluster_the_first_that_defines_a_limit_holds(
    given: dict[str, int], most: int
) -> None:
    assert Site(associations=_tree("MaxJobs", **given)).holding() == {"AssocMaxJobsLimit": most}
    above = Site("Name|MaxJobsPU\nlong|30\n", _tree("MaxJobs", **given))
    assert above.holding() == {"QOSMaxJobsPerUserLimit": 30}, "a QOS comes before all of them"


def test_a_limit_for_each_account_in_a_qos_lifts_that_of_associations_for_each_user() -> None:
    site = Site("Name|MaxJobsPA\nlong|30\n", _tree("MaxJobs", eve=3))
    held = site.holding()
    assert held.pop("MaxJobsPerAccount instead of that of associations") >= 10**9
    assert held == {"MaxJobsPerAccount": 30}
    assert site.holding(qos="other") == {"AssocMaxJobsLimit": 3}


def test_group_limits_hold_at_every_account_above_unless_a_qos_has_them() -> None:
    tree = _tree("GrpTRES", root="gres/gpu=60", uni="gres/gpu=30", bio="gres/gpu=40", eve="gres/gpu=9")
    cluster = Site(associations=tree).cluster()
    job = Job(0, 0, HOUR, 1, tenant="bio", user="eve")
    chosen = choosing(cluster.limits, job, {each.name: each.parent for each in cluster.tenants})
    assert {rule.where[0][1]: rule.most // 1000 for _, rule in chosen if rule.where[0][0] == "account"} == {
        "root": 60, "uni": 30, "bio": 40,
    }  # fmt: skip
    assert all(binding([rule for _, rule in chosen], job)), "all of one level: all hold"
    assert Site("Name|GrpTRES\nlong|gres/gpu=50\n", tree).holding() == {"QOSGrpGRES": 50}
    assert Site("Name|GrpTRES\nlong|cpu=50\n", tree).holding()["AssocGrpGRES"] == 9, "of another resource"


def test_jobs_count_in_the_group_that_their_qos_sets_aside() -> None:
    """Bio may hold 8 GPUs; QOS big has its own limit of 16 and is not asked, but what it holds is gone for bio."""
    site = Site("Name|GrpTRES\nbig|gres/gpu=16\nsmall|\n", _tree("GrpTRES", bio="gres/gpu=8"))
    jobs = [
        Job(0, 0, 10 * MINUTE, 8, tenant="bio", user="eve", qos="big"),
        Job(1, 0, 10 * MINUTE, 8, tenant="bio", user="eve", qos="big"),
        Job(2, 0, 10 * MINUTE, 1, tenant="bio", user="eve", qos="small"),
        Job(3, 0, 10 * MINUTE, 1, tenant="other", user="bob", qos="small"),
    ]
    starts = {job: start for job, start, _ in play(jobs, "fifo", site.cluster()).spans}
    assert starts == {0: 0, 1: 0, 3: 0, 2: 10}


def test_a_user_in_two_accounts_has_a_count_in_each_and_a_qos_one_for_both() -> None:
    two = "Account|User|ParentName|MaxJobs\nroot|||\nbio||root|1\nchem||root|1\nbio|eve||\nchem|eve||\n"
    jobs = [Job(0, 0, MINUTE, 1, tenant="bio", user="eve"), Job(1, 0, MINUTE, 1, tenant="chem", user="eve")]
    assert play(jobs, "fifo", Site(associations=two).cluster()).running_at(0) == {0, 1}
    named = [Job(at, 0, MINUTE, 1, tenant=tenant, user="eve", qos="long") for at, tenant in enumerate(("bio", "chem"))]
    one = Site("Name|MaxJobsPU\nlong|1\n", two).cluster()
    assert [start for _, start, _ in play(named, "fifo", one).spans] == [0, 1]


def test_an_account_in_a_qos_counts_by_itself() -> None:
    site = Site("Name|MaxTRESPA\nlong|gres/gpu=2\n", _tree("GrpTRES")).cluster()
    jobs = [Job(at, 0, MINUTE, 2, tenant=tenant, qos="long") for at, tenant in enumerate(("bio", "uni", "bio"))]
    assert [start for _, start, _ in sorted(play(jobs, "fifo", site).spans)] == [0, 0, 1]


def test_an_association_with_a_partition_counts_apart_from_that_without() -> None:
    tree = "Account|User|Partition|ParentName|MaxJobs\nroot||||\nbio|||root|\nbio|eve|||2\nbio|eve|debug||1\n"
    site = Site(associations=tree)
    assert site.holding(partition="debug") == {"AssocMaxJobsLimit": 1}
    assert site.holding() == {"AssocMaxJobsLimit": 2}
    jobs = [
        Job(at, 0, MINUTE, 1, tenant="bio", user="eve", partition=part)
        for at, part in enumerate(("debug",) + 2 * ("batch",))
    ]
    assert play(jobs, "fifo", site.cluster()).running_at(0) == {0, 1, 2}


def test_time_and_nodes_stay_capped_by_the_partition_unless_a_flag_lifts_that() -> None:
    parts = "PartitionName=batch Nodes=ALL MaxTime=12:00:00 MaxNodes=2\n"
    qos = "Name|MaxWall|MaxTRES|Flags\nlong|2-00:00:00|node=4|\n"
    qos += "free|2-00:00:00|node=4|PartitionTimeLimit,PartitionMaxNodes\n"
    both = Site(qos, partitions=parts)
    assert both.holding() == {
        "QOSMaxWallDurationPerJobLimit": 48, "QOSMaxNodePerJobLimit": 4, "PartitionTimeLimit": 12,
        "PartitionNodeLimit": 2,
    }  # fmt: skip
    free = both.holding(qos="free")
    assert "PartitionTimeLimit" not in free
    assert free["PartitionTimeLimit lifted"] > 1000 * DAY // HOUR


@pytest.mark.parametrize(
    ("given", "enforced"),
    [("", True), ("AccountingStorageEnforce=associations,limits", True), ("AccountingStorageEnforce=safe", True),
     ("AccountingStorageEnforce=all", True), ("AccountingStorageEnforce=associations,qos", False),
     ("AccountingStorageEnforce=(null)", False)],
)  # fmt: skip
def test_accounting_storage_enforce_decides_whether_any_applies(given: str, enforced: bool) -> None:
    assert bool(Site("Name|MaxJobsPU\nlong|1\n", settings=given).holding()) is enforced


def test_minutes_decay_unless_the_qos_says_not_and_safe_looks_ahead() -> None:
    qos = "Name|GrpTRESMins|GrpTRESRunMins|MaxTRESMins|Flags\nlong|gres/gpu=60|cpu=90|gres/gpu=30|\n"
    qos += "kept|gres/gpu=60|||NoDecay\n"
    conf = "AccountingStorageEnforce=safe\nPriorityDecayHalfLife=2-0\n"
    rules = {(rule.name, rule.where[0][1]): rule for rule in Site(qos, settings=conf).cluster().limits}
    minutes = rules[("QOSGrpGRESMinutes", "long")]
    assert (minutes.resource, minutes.most, minutes.half_life, minutes.ahead) == (
        "gpu_time",
        60 * MINUTE * 1000,
        2 * DAY,
        True,
    )
    assert rules[("QOSGrpGRESMinutes", "kept")].half_life == 0
    assert rules[("QOSGrpCPURunMinutesLimit", "long")].resource == "running_cpu_time"
    assert rules[("QOSMaxGRESMinutesPerJob", "long")].per == ("job",)


def test_what_sacctmgr_repeats_of_an_account_below_it_is_one_rule() -> None:
    cluster = Site(associations=_tree("MaxJobs", bio=5, eve=5)).cluster()
    assert [rule.where for rule in cluster.limits] == [(("account", "bio"),)]


def test_deny_on_limit_rejects_what_exceeds_alone() -> None:
    (rule,) = Site("Name|MaxTRES|Flags\nlong|gres/gpu=2|DenyOnLimit\n").cluster().limits
    assert (rule.name, rule.denies, rule.per) == ("QOSMaxGRESPerJob", True, ("job",))


def test_a_limit_factor_holds_for_the_limits_of_associations_and_not_for_those_of_the_qos() -> None:
    qos = "Name|LimitFactor|MaxTRESPU\nbig|2|gres/gpu=20\nlong||\nhalf|0.5|\n"
    tree = _tree("GrpTRES", uni="gres/gpu=30", bio="gres/gpu=8")
    site = Site(qos, tree)
    assert site.holding() == {"AssocGrpGRES": 8}, "the nearest is shown last"
    assert site.holding(qos="big") == {"QOSMaxGRESPerUser": 20, "AssocGrpGRES by LimitFactor of big": 16}
    assert site.holding(qos="half") == {"AssocGrpGRES by LimitFactor of half": 4}
    most = Site(qos, _tree("MaxTRES", bio="cpu=9", eve="cpu=3"))
    assert most.holding(qos="half") == {"AssocMaxCpuPerJobLimit by LimitFactor of half": 1}


def test_under_a_limit_factor_what_all_jobs_of_the_account_hold_counts() -> None:
    site = Site("Name|LimitFactor\nbig|2\nlong|\n", _tree("GrpTRES", bio="gres/gpu=8"))
    jobs = [
        Job(0, 0, 10 * MINUTE, 8, tenant="bio", user="eve", qos="long"),
        Job(1, 0, 20 * MINUTE, 8, tenant="bio", user="eve", qos="big"),
        Job(2, 0, 10 * MINUTE, 1, tenant="bio", user="eve", qos="big"),
        Job(3, 0, 10 * MINUTE, 1, tenant="bio", user="eve", qos="long"),
    ]
    starts = {job: start for job, start, _ in play(jobs, "fifo", site.cluster()).spans}
    assert starts == {0: 0, 1: 0, 2: 10, 3: 20}


def test_the_limit_factor_of_the_partitions_qos_comes_first() -> None:
    qos = "Name|LimitFactor|Flags\npart|3|\nlong|2|\nover|2|OverPartQOS\n"
    site = Site(qos, _tree("GrpTRES", bio="cpu=10"), "PartitionName=batch Nodes=ALL QoS=part\n")
    assert site.holding() == {"AssocGrpCpuLimit by LimitFactor of part": 30}
    assert site.holding(qos="over") == {"AssocGrpCpuLimit by LimitFactor of over": 20}


def test_a_qos_that_is_the_jobs_and_the_partitions_has_one_counter() -> None:
    site = Site("Name|GrpTRES\npart|gres/gpu=8\nlong|\n", partitions="PartitionName=batch Nodes=ALL QoS=part\n")
    jobs = [
        Job(0, 0, 10 * MINUTE, 8, user="eve", qos="part", partition="debug"),
        Job(1, 0, 10 * MINUTE, 8, user="eve", qos="long", partition="batch"),
        Job(2, 0, 10 * MINUTE, 8, user="eve", qos="long", partition="debug"),
        Job(3, 0, 10 * MINUTE, 8, user="eve", qos="part", partition="batch"),
    ]
    assert [rule.most for rule in site.cluster().limits] == [8000]
    starts = {job: start for job, start, _ in play(jobs, "fifo", site.cluster()).spans}
    assert starts == {0: 0, 2: 0, 1: 10, 3: 20}


def test_what_a_job_may_have_of_a_node_and_must_ask_for() -> None:
    qos = "Name|MaxTRESPerNode|MinTRES|Flags\npart|gres/gpu=4|gres/gpu=2|\nlong|cpu=8,gres/gpu=6|cpu=2,mem=1G,node=1|\n"
    site = Site(qos, _tree("MaxTRESPerNode", bio="mem=4G"), "PartitionName=batch Nodes=ALL QoS=part\n")
    assert site.holding() == {
        "QOSMaxGRESPerNode": 4000,
        "QOSMinGRES": 2,
        "QOSMaxCpuPerNode": 8000,
        "QOSMinCpuNotSatisfied": 2,
        "QOSMinMemory": 2**30,
        "QOSMinNode": 1,
        "AssocMaxMemPerNode": 4 * 2**30,
    }


@pytest.mark.parametrize(
    ("qos", "tree", "name"),
    [
        ("Name|GrpJobsAccrue|MaxJobsAccruePU\nlong|1|1\n", {}, "QOSGrpJobsAccrue"),
        ("Name|MaxJobsAccruePU|MaxJobsAccruePA\nlong|1|1\n", {}, "QOSMaxJobsAccruePA"),
        ("Name|MaxJobsAccruePU\nlong|1\n", {"MaxJobsAccrue": {"eve": 1}}, "QOSMaxJobsAccruePU"),
        ("", {"MaxJobsAccrue": {"bio": 1, "root": 1}}, "AssocMaxJobsAccrue"),
        ("", {"GrpJobsAccrue": {"uni": 1, "root": 1}}, "AssocGrpJobsAccrue"),
    ],
)
def test_of_limits_on_ageing_the_first_that_is_defined_holds(
    qos: str, tree: dict[str, dict[str, int]], name: str
) -> None:
    site = Site(qos, *(_tree(column, **given) for column, given in tree.items()))
    assert site.holding() == {name: 1}


def test_the_qos_of_a_partition_says_nothing_about_ageing() -> None:
    site = Site("Name|MaxJobsAccruePU\npart|5\n", partitions="PartitionName=batch Nodes=ALL QoS=part\n")
    assert site.holding() == {}


def test_the_age_of_only_so_many_waiting_jobs_counts() -> None:
    site = Site("Name|MaxJobsAccruePU\nlong|1\n")
    alice, bob = {"user": "alice", "qos": "long"}, {"user": "bob", "qos": "long"}
    jobs = [
        Job(0, 0, 60 * MINUTE, 64, **alice),
        Job(1, MINUTE, 60 * MINUTE, 64, **alice),
        Job(2, 2 * MINUTE, 60 * MINUTE, 64, **alice),
        Job(3, 30 * MINUTE, 60 * MINUTE, 64, **bob),
    ]
    spec = "multifactor(age_weight=1000,fairshare_weight=0,size_weight=0,qos_weight=0,partition_weight=0,period=1m)"
    assert play(jobs, spec, site.cluster()).first_starts == [0, 1, 3, 2]
    assert play(jobs, spec, Site().cluster()).first_starts == [0, 1, 2, 3]


def test_a_partition_may_ask_for_nodes_and_a_qos_lift_that() -> None:
    site = Site(
        "Name|Flags|Preempt\nlong||\nfree|PartitionMinNodes|\n", partitions="PartitionName=batch Nodes=ALL MinNodes=2\n"
    )
    assert site.holding() == {"PartitionNodeLimit by MinNodes": 2}
    assert site.holding(qos="free") == {"PartitionNodeLimit by MinNodes lifted": 1}


def test_what_a_partition_says_and_is_not_followed_is_named() -> None:
    text = (
        "PartitionName=batch Nodes=ALL MaxCPUsPerNode=16 OverSubscribe=EXCLUSIVE LLN=NO MaxMemPerNode=UNLIMITED "
        "TRESBillingWeights=CPU=1.0 ReqResv=NO\n"
    )
    unread = followed(scontrol.cluster(text, "x").rules).unread
    assert [(each.what, each.where) for each in unread] == [
        ("MaxCPUsPerNode=16 of partition batch", (("partition", "batch"),)),
        ("OverSubscribe=EXCLUSIVE of partition batch", (("partition", "batch"),)),
        ("TRESBillingWeights=CPU=1.0 of partition batch", (("partition", "batch"),)),
    ]
