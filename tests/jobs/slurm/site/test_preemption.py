"""What a site says about preemption becomes rules of the cluster; what is left of it is listed by name."""

import pytest

from headway.errors import ExperimentError
from headway.jobs.model.cluster import Cluster
from headway.jobs.rules.preemption.preemption import AGAIN_AFTER, Mode, Preemption
from headway.jobs.slurm.output import conf, sacctmgr
from headway.jobs.slurm.site.followed import Followed, followed
from headway.jobs.tables import cluster as cluster_table
from headway.jobs.tables.cluster import ClusterTable, NodeGroup, PartitionTable
from headway.jobs.traces.clusters.file import ruled
from headway.units import MINUTE, SECOND

QOS = (
    "Name|Priority|Preempt|PreemptMode|GraceTime|PreemptExemptTime\n"
    "high|100|low,scavenger|cluster|00:00:00|\nlow|10||cluster|00:00:30|00:02:00\nscavenger|1||cancel|00:00:00|\n"
)
CONF = "ClusterName=x\nPreemptType=preempt/{}\nPreemptMode={}\n"
PARTITIONS = (
    "PartitionName=batch Nodes=n1 PriorityTier=1 PreemptMode=REQUEUE GraceTime=30\n"
    "PartitionName=debug Nodes=n1 PriorityTier=5 PreemptMode=OFF\n"
)


def read(*, qos: str = QOS, settings: str = "") -> Followed:
    rules = sacctmgr.cluster(qos, "qos").rules
    return followed(rules.merged(conf.cluster(settings, "conf").rules) if settings else rules)


def built(rules: Followed) -> Cluster:
    group = NodeGroup(nodes=1, gpus=4, names=["n1"])
    tables = [PartitionTable(name=each.name, nodes=[0]) for each in rules.levels]
    return cluster_table.build(ruled(ClusterTable(node_groups=[group], partitions=tables), rules))


def test_qos_preempt_by_their_lists_with_mode_grace_and_exempt_time() -> None:
    cluster = built(read(settings=CONF.format("qos", "REQUEUE") + "PreemptExemptTime=00:05:00\n"))
    high, low, scavenger = cluster.qos
    assert cluster.preemption == Preemption("qos", Mode.REQUEUE, 5 * MINUTE, AGAIN_AFTER)
    assert (high.preempts, high.preempt_mode) == (("low", "scavenger"), None)
    assert (low.preempt_mode, low.grace, low.exempt) == (None, 30 * SECOND, 2 * MINUTE)
    assert (scavenger.preempt_mode, scavenger.exempt) == (Mode.CANCEL, None)


def test_tiers_preempt_with_mode_and_grace_of_the_partition() -> None:
    cluster = built(read(settings=CONF.format("partition_prio", "CANCEL") + PARTITIONS))
    batch, debug = cluster.partitions
    assert cluster.preemption == Preemption("partition", Mode.CANCEL)
    assert (batch.tier, batch.preempt_mode, batch.grace) == (1, Mode.REQUEUE, 30 * SECOND)
    assert (debug.tier, debug.preempt_mode, debug.grace) == (5, Mode.OFF, 0)


def test_what_was_read_is_written_into_an_experiment_and_read_back() -> None:
    cluster = built(read(settings=CONF.format("qos", "REQUEUE") + PARTITIONS + "PreemptParameters=youngest_first\n"))
    group = NodeGroup(nodes=1, gpus=4, names=["n1"])
    assert cluster_table.build(cluster_table.described(ClusterTable(node_groups=[group]), cluster)) == cluster
    assert cluster.preemption is not None
    assert cluster.preemption.youngest_first


@pytest.mark.parametrize(
    ("settings", "rules"),
    [
        ("", Preemption("qos", Mode.REQUEUE)),
        ("ClusterName=x\n", None),
        ("ClusterName=x\nPreemptType=preempt/none\n", None),
        (CONF.format("partition_prio", "REQUEUE"), None),
        (CONF.format("qos", "CANCEL") + "AuthInfo=cred_expire=60\n", Preemption("qos", Mode.CANCEL, 0, MINUTE)),
        (CONF.format("qos", "REQUEUE") + "JobRequeue=0\n", Preemption("qos", Mode.CANCEL)),
        (CONF.format("qos", "REQUEUE") + "PreemptExemptTime=-1\n", Preemption("qos", Mode.REQUEUE)),
        (CONF.format("qos", "SUSPEND,GANG"), Preemption("qos", Mode.OFF)),
        (CONF.format("qos", "GANG,REQUEUE"), Preemption("qos", Mode.REQUEUE)),
    ],
)  # fmt: skip
def test_settings_decide_whether_and_how(settings: str, rules: Preemption | None) -> None:
    assert read(settings=settings).preemption == rules


def test_suspending_frees_no_gpu_and_counts_as_no_preemption() -> None:
    found = read(settings=CONF.format("qos", "SUSPEND,GANG"))
    assert [each.preempt_mode for each in found.qos] == [None, None, Mode.CANCEL]
    line = "PreemptMode=SUSPEND of the cluster: a suspended job keeps its GPUs, and nobody gains any: taken as no "
    assert f"{line}preemption" in found.notes
    own = read(qos=QOS.replace("low|10||cluster", "low|10||suspend"), settings=CONF.format("qos", "REQUEUE"))
    assert own.qos[1].preempt_mode is Mode.OFF
    assert any(note.startswith("PreemptMode=SUSPEND of QOS low:") for note in own.notes)


def test_what_is_not_followed_of_preemption_is_listed_and_nothing_that_is() -> None:
    settings = CONF.format("qos", "REQUEUE,WITHIN") + (
        "PreemptParameters=youngest_first,reorder_count=3,min_exempt_priority=100\n"
        "SchedulerParameters=bf_interval=30,preempt_strict_order\n"
    )
    found = read(settings=settings).unread
    assert [each.what for each in found] == [
        "PreemptParameters reorder_count=3",
        "PreemptParameters min_exempt_priority=100",
        "PreemptParameters preempt_strict_order",
        "PreemptMode=WITHIN",
    ]
    assert found[0].where == (("qos", "low"), ("qos", "scavenger"))
    assert not read(settings=CONF.format("qos", "REQUEUE") + PARTITIONS).unread


def test_without_settings_the_lists_count_and_that_is_said() -> None:
    found = read()
    assert (
        "PreemptType is not given (slurm.conf or scontrol show config): taken as preempt/qos with REQUEUE"
        in found.notes
    )
    assert read(qos="Name|Priority|Preempt\na|1|\n").preemption is None


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (CONF.format("magic", "REQUEUE"), "PreemptType 'preempt/magic' must be one of"),
        (CONF.format("qos", "CHECKPOINT"), "PreemptMode 'CHECKPOINT' is not known"),
        (CONF.format("qos", "REQUEUE") + "PreemptExemptTime=soon\n", "PreemptExemptTime 'soon' is not a time"),
    ],
)
def test_what_is_not_understood_is_one_clear_line(settings: str, line: str) -> None:
    with pytest.raises(ExperimentError, match=line):
        read(settings=settings)


def test_the_exempt_time_of_a_partitions_qos_is_named_as_not_followed() -> None:
    settings = CONF.format("qos", "REQUEUE") + "PartitionName=batch Nodes=n1 QOS=low\n"
    (left,) = read(settings=settings).unread
    assert left.what == "PreemptExemptTime of QOS low as that of partition batch"
    assert left.where == (("partition", "batch"),)
