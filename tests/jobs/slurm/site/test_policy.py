"""A site's settings become the nearest policy, and what is not followed is said."""

from dataclasses import replace
from pathlib import Path

import pytest

from headway.errors import ExperimentError
from headway.jobs.model.cluster import Partition, Qos, Tenant, uniform
from headway.jobs.policies.orders.multifactor import Multifactor
from headway.jobs.policies.registry import build
from headway.jobs.rules.preemption.preemption import Preemption
from headway.jobs.slurm.output.conf import settings as parse
from headway.jobs.slurm.output.records import PartitionRules, Share, SiteRules
from headway.jobs.slurm.site.policy import (
    EQUAL_SHARES,
    NO_USAGE,
    PREEMPTING_QOS_UNKNOWN,
    PREEMPTION_UNKNOWN,
    QOS_UNKNOWN,
    TIERS_UNKNOWN,
    read,
    site,
    told,
)
from headway.plugins import anchored, resolve, site_notes
from headway.runs.settings.files import called
from headway.units import DAY, MINUTE

CONF = """\
# a site
ClusterName=made-up
prioritytype=priority/multifactor   # names do not care about case
PriorityWeightAge=1000
PriorityWeightFairshare=5000
PriorityWeightJobSize=10
PriorityMaxAge=1-0
PriorityDecayHalfLife=0
PriorityCalcPeriod=2
PriorityFavorSmall=YES
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=60,bf_max_job_test=50,bf_max_job_user=10,\\
default_queue_depth=100
"""


def test_weights_ages_and_backfill_are_taken_over() -> None:
    found = site(parse(CONF))
    policy = build(found.policy)
    order, backfill = policy.order, policy.backfill
    assert (order.age_weight, order.fairshare_weight, order.size_weight) == (1000, 5000, 10)
    assert (order.qos_weight, order.partition_weight) == (0, 0)
    assert (order.max_age, order.period, order.favor_small) == (DAY, 2 * MINUTE, True)
    assert order.half_life > 1000 * DAY, "0 means that usage is never forgotten"
    assert (backfill.name, backfill.depth, backfill.interval) == ("conservative", 50, MINUTE)
    assert not policy.preempts
    assert {"bf_max_job_user=10", "default_queue_depth=100"} <= {each.what for each in found.unread}
    other = site(parse("SelectType=select/linear\nTopologyPlugin=topology/tree\nSchedulerParameters=assoc_limit_stop"))
    assert {"SelectType=select/linear", "TopologyPlugin=topology/tree", "assoc_limit_stop=yes"} <= {
        each.what for each in other.unread
    }


def test_what_scontrol_show_config_prints_says_the_same_as_the_file() -> None:
    shown = "\n".join(f"{key.title():<24}= {value}" for key, value in parse(CONF).items())
    assert site(parse(shown)).policy == site(parse(CONF)).policy
    assert parse("PriorityWeightTRES      = (null)") == {"priorityweighttres": ""}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("PriorityType=priority/basic\nSchedulerType=sched/builtin", "fifo+consecutive"),
        ("PriorityType=priority/multifactor\nSchedulerType=sched/builtin", "fifo+consecutive"),
        (
            "SchedulerType=sched/backfill",
            "fifo+conservative(depth=500, interval=30s, slurm=true, window=1d)+consecutive",
        ),
        *(
            (
                f"SchedulerParameters=bf_window={minutes}",
                "fifo+conservative(depth=500, interval=30s, slurm=true, window=1d)+consecutive",
            )
            for minutes in (0, -1, 43_201)
        ),
        (
            "SchedulerParameters=bf_max_job_test=0,bf_interval=0",
            "fifo+conservative(depth=500, interval=30s, slurm=true, window=1d)+consecutive",
        ),
        (
            "SchedulerParameters=bf_window=4320",
            "fifo+conservative(depth=500, interval=30s, slurm=true, window=3d)+consecutive",
        ),
        ("SchedulerParameters=bf_interval=-1", "fifo+consecutive"),
    ],
)
def test_sites_without_weights_or_backfill(text: str, name: str) -> None:
    assert build(site(parse(text)).policy).name == name


def test_what_has_no_counterpart_is_said() -> None:
    (weight,) = site(parse("PriorityWeightTRES=license/matlab=100")).unread
    assert "license/matlab=100" in weight.what
    shown = (
        "PriorityFlags = SMALL_RELATIVE_TO_TIME,FAIR_TREE\nPriorityWeightAssoc = 5\nPriorityUsageResetPeriod = NONE\n"
    )
    left = site(parse(shown + "SchedulerParameters = bf_window=2880,bf_continue,bf_interval=60,bf_queue=3")).unread
    assert [(each.what, each.why) for each in left] == [
        ("priorityflags=SMALL_RELATIVE_TO_TIME", ""),
        ("priorityweightassoc=5", ""),
        ("bf_queue=3", ""),
    ], "bf_continue lets Slurm go on after a pause: no plan has one here"
    assert site(parse("SchedulerType=sched/builtin\nSchedulerParameters=bf_queue=3")).unread == ()


def test_weights_of_resources_are_those_of_the_order() -> None:
    found = site(parse("PriorityType=priority/multifactor\nPriorityWeightTRES=cpu=10,Mem=0,GRES/gpu=5000,node=3"))
    assert "tres=cpu:10/gpu:5000" in found.policy
    assert "Mem" not in found.policy
    assert [each.what for each in found.unread] == ["priorityweighttres=node=3"]
    order = build(found.policy).order
    assert isinstance(order, Multifactor)
    assert order.tres == ("cpu:10", "gpu:5000")


def test_weights_without_a_type_are_those_of_multifactor() -> None:
    found = site(parse("PriorityWeightAge=10"))
    assert found.policy.startswith("multifactor(age_weight=10")
    assert any("PriorityType is not given" in note for note in found.notes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"\xff\xfe", "cannot be read"),
        (b"hello = world\n", "neither a slurm.conf"),
        (b"PriorityType=priority/multifactor\nPriorityWeightAge=lots\n", "not a whole number"),
        (b"PriorityType=priority/multifactor\nPriorityWeightAge=1\nPriorityMaxAge=soon\n", "prioritymaxage 'soon'"),
        (b"SchedulerType=sched/backfill\nSchedulerParameters=bf_interval=often\n", "bf_interval"),
        (b"PriorityType=priority/multifactor\nPriorityWeightTRES=gres/gpu\n", "not like gres/gpu=1000"),
    ],
)
def test_what_is_wrong_with_the_file_is_one_line(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "slurm.conf").write_bytes(content)
    with pytest.raises(ExperimentError, match=message):
        read(tmp_path / "slurm.conf")


def test_a_site_is_a_policy_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text(CONF)
    assert anchored(f"slurm:{path}") == resolve(f"slurm:{path}") == site(parse(CONF)).policy
    more = build(resolve(f"slurm:{path}+migrate+preempt"))
    assert more.migration is not None
    assert more.preempts


def test_options_of_the_order_are_set_behind_the_file(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text(CONF + "PriorityWeightQOS=500\n")
    policy = build(resolve(f"slurm:{path}(qos=high:1000/low:10, age_weight=7)+migrate"))
    assert (policy.order.qos, policy.order.age_weight) == (("high:1000", "low:10"), 7)
    assert policy.migration is not None
    with pytest.raises(ExperimentError, match="unknown option of multifactor 'colour'"):
        build(resolve(f"slurm:{path}(colour=red)"))
    with pytest.raises(ExperimentError, match=r"write it like slurm:slurm\.conf"):
        resolve(f"slurm:{path}(qos=high:1000")


def test_tiers_and_preemption_in_the_file_belong_to_the_cluster_and_that_is_said_where_it_lacks_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "parts.conf").write_text("PartitionName=a PriorityTier=1\nPartitionName=b PriorityTier=5\n")
    preempts = "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n"
    (tmp_path / "slurm.conf").write_text(CONF + preempts + "Include parts.conf\n")
    notes = read(tmp_path / "slurm.conf").notes
    plain = uniform(1, 4)
    assert {PREEMPTION_UNKNOWN, TIERS_UNKNOWN} <= set(told(notes, plain, SiteRules()))
    partitions = (Partition("a", (0,)), Partition("b", (0,), tier=5))
    known = replace(plain, partitions=partitions, preemption=Preemption("partition"))
    assert not {PREEMPTION_UNKNOWN, TIERS_UNKNOWN} & set(told(notes, known, SiteRules()))
    rules = SiteRules(settings=parse(CONF + preempts), partitions=(PartitionRules("a"), PartitionRules("b")))
    assert not {PREEMPTION_UNKNOWN, TIERS_UNKNOWN} & set(told(notes, plain, rules)), "the file was given: they are off"
    by_qos = SiteRules(settings=parse(CONF + "PreemptType=preempt/qos\nPreemptMode=REQUEUE\n"))
    left = told(notes, plain, by_qos)
    assert PREEMPTING_QOS_UNKNOWN in left, "only the QOSs are missing"
    assert PREEMPTION_UNKNOWN not in left
    suspends = CONF + preempts.replace("REQUEUE", "SUSPEND,GANG")
    assert PREEMPTION_UNKNOWN not in site(parse(suspends)).notes


def test_notes_that_a_cluster_settles_are_left_out() -> None:
    notes = site(parse(CONF + "PriorityWeightQOS=500\n")).notes
    assert {QOS_UNKNOWN, EQUAL_SHARES} <= set(notes)
    known = uniform(1, 8, tenants=(Tenant("bio"),))
    assert not {QOS_UNKNOWN, EQUAL_SHARES} & set(told(notes, replace(known, qos=(Qos("high", 10),)), SiteRules()))
    assert told(notes, uniform(1, 8), SiteRules()) == list(notes)
    unused = SiteRules(shares=(Share("bio"),))
    assert NO_USAGE in notes
    assert NO_USAGE not in told(notes, uniform(1, 8), unused), "sshare was given, and nothing had been used"


def test_a_policy_with_qos_priorities_of_its_own_does_not_ask_for_them_and_is_called_by_its_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "slurm.conf").write_text(CONF + "PriorityWeightQOS=500\n")
    plain, given = f"slurm:{tmp_path}/slurm.conf", f"slurm:{tmp_path}/slurm.conf(qos=high:1000/low:10)"
    assert QOS_UNKNOWN in site_notes(plain)
    assert QOS_UNKNOWN not in site_notes(given)
    assert called(given) == "slurm:slurm.conf(qos=high:1000/low:10)"
    assert called(f"{plain}+easy") == "slurm:slurm.conf+easy"


def test_options_out_of_range_are_told_with_the_default_that_counts() -> None:
    notes = site(parse("SchedulerParameters=bf_window=0,bf_max_job_test=-3,bf_interval=60")).notes
    assert notes == (
        "bf_max_job_test=-3 is not between 1 and 1,000,000: 500 counts, Slurm's default",
        "bf_window=0 is not between 1 and 43,200: 1440 counts, Slurm's default",
    )
    assert site(parse("SchedulerParameters=bf_window=0,bf_interval=-1")).notes == ()
