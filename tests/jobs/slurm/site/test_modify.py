"""Changes of a site's records: as sacctmgr and scontrol make them, and the commands that would."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from headway.errors import ExperimentError
from headway.jobs.slurm.output.records import Association, Bound, Change, PartitionRules, Qos, Share, SiteRules
from headway.jobs.slurm.site.commands import commands
from headway.jobs.slurm.site.modify import modified
from headway.units import HOUR

SITE = SiteRules(
    qos=(
        Qos("normal", 10, ("scavenger",), bounds=(Bound("MaxJobsPU", "", 50),)),
        Qos("long", 5, bounds=(Bound("MaxTRESPU", "gres/gpu", 24), Bound("MaxTRESPU", "cpu", 100))),
        Qos("scavenger", preempt_mode="requeue"),
    ),
    associations=(
        Association("root", parent=""),
        Association("bio", parent="root", shares=10, bounds=(Bound("MaxTRES", "gres/gpu", 8),)),
        Association("bio", "alice", shares=1, bounds=(Bound("MaxTRES", "gres/gpu", 8),)),
        Association("bio", "bob", shares=1, bounds=(Bound("MaxTRES", "gres/gpu", 4),)),
    ),
    shares=(Share("bio", parent="root", shares=10, usage=7.0),),
    partitions=(PartitionRules("debug", tier=1, most_time=HOUR), PartitionRules("batch")),
)


def bounds(site: SiteRules, name: str) -> dict[str, int]:
    return {str(each): each.most for qos in site.qos if qos.name == name for each in qos.bounds}


def test_a_limit_is_set_and_resources_that_are_not_named_keep_theirs() -> None:
    made = modified(SITE, {"qos long": {"MaxTRESPU": "gres/gpu=32"}})
    assert bounds(made.site, "long") == {"MaxTRESPU gres/gpu": 32, "MaxTRESPU cpu": 100}
    assert made.told == ("QOS long: MaxTRESPU gres/gpu 32 instead of 24",)


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("gres/gpu=-1", {"MaxTRESPU cpu": 100}),
        ("gres/gpu=", {"MaxTRESPU cpu": 100}),
        ("", {}),
        ("-1", {}),
        ("gres/gpu=0", {"MaxTRESPU gres/gpu": 0, "MaxTRESPU cpu": 100}),
        ("cpu=7,gres/gpu:h100=2", {"MaxTRESPU gres/gpu": 24, "MaxTRESPU cpu": 7, "MaxTRESPU gres/gpu:h100": 2}),
    ],
)
def test_minus_one_or_nothing_lifts_a_limit_and_zero_is_a_limit(value: str, left: dict[str, int]) -> None:
    assert bounds(modified(SITE, {"qos long": {"MaxTRESPU": value}}).site, "long") == left


def test_only_what_the_site_preempts_by_is_offered_where_a_name_is_unknown() -> None:
    for kind, listed, other in (("qos", "scavenger", "batch"), ("partition_prio", "batch", "scavenger")):
        site = replace(SITE, settings={**SITE.settings, "preempttype": f"preempt/{kind}"})
        with pytest.raises(ExperimentError, match=r"unknown (QOS|partition) 'nobody'") as refused:
            modified(site, {"preempt": {"nobody": "off"}})
        assert listed in str(refused.value)
        assert other not in str(refused.value)


def test_other_spellings_of_a_limit_mean_the_same() -> None:
    for key, value in (("MaxTRESPerUser", "cpu=40"), ("maxtrespu", "cpu=40"), ("MaxCPUsPU", "40"), ("MaxCPUsPU", 40)):
        made = modified(SITE, {"qos long": {key: value}})
        assert bounds(made.site, "long")["MaxTRESPU cpu"] == 40


def test_what_changes_nothing_is_told_by_nothing() -> None:
    rules = {
        "qos long": {"MaxTRESPU": "gres/gpu=24", "Priority": 5},
        "partition debug": {"PriorityTier": 1, "MaxTime": "01:00:00"},
        "account bio": {"MaxTRES": "gres/gpu=8"},
        "shares": {"bio": 10},
        "preempt": {"normal": "off"},
    }
    made = modified(SITE, rules)
    assert made.told == ()
    assert {each.name: dict.fromkeys(each.bounds) for each in made.site.qos} == {
        each.name: dict.fromkeys(each.bounds) for each in SITE.qos
    }
    assert (made.site.associations, made.site.partitions, made.site.shares) == (
        SITE.associations,
        SITE.partitions,
        SITE.shares,
    )


def test_a_limit_of_an_account_changes_rows_that_only_show_it() -> None:
    made = modified(SITE, {"account bio": {"MaxTRES": "gres/gpu=16"}})
    shown = {(each.account, each.user): [bound.most for bound in each.bounds] for each in made.site.associations}
    assert shown == {("root", ""): [], ("bio", ""): [16], ("bio", "alice"): [16], ("bio", "bob"): [4]}
    own = modified(SITE, {"account bio/bob": {"MaxTRES": "gres/gpu=6"}})
    assert [bound.most for each in own.site.associations if each.user == "bob" for bound in each.bounds] == [6]


def test_shares_preemption_partitions_and_qos_keys() -> None:
    rules = {
        "shares": {"bio": 40, "bio/alice": "parent"},
        "preempt": {"scavenger": "off"},
        "partition debug": {"prioritytier": 3, "MaxTime": "", "QOS": "long"},
        "qos normal": {"Priority": 99, "MaxWall": "2-0", "Flags": "DenyOnLimit"},
    }
    made = modified(SITE, rules)
    site = made.site
    assert [each.shares for each in site.associations if each.account == "bio"] == [40, None, 1]
    assert (site.shares[0].shares, site.shares[0].usage) == (40, 7.0)
    assert all("scavenger" not in each.preempts for each in site.qos)
    assert site.partitions[0] == PartitionRules("debug", tier=3, qos="long")
    normal = site.qos[0]
    assert (normal.priority, normal.flags) == (99, frozenset({"denyonlimit"}))
    assert bounds(site, "normal")["MaxWall"] == 48 * HOUR
    assert "QOS scavenger: is preempted by nobody instead of normal" in made.told
    assert "partition debug: MaxTime no limit instead of 01:00:00" in made.told
    assert "shares of bio: 40 instead of 10" in made.told


@pytest.mark.parametrize(
    ("rules", "line"),
    [
        ({"qos lnog": {"MaxTRESPU": "gres/gpu=1"}}, "unknown QOS 'lnog'; did you mean 'long'?"),
        ({"qos long": {"MaxTRESPUU": "gres/gpu=1"}}, "QOS long: unknown key 'MaxTRESPUU'; did you mean 'MaxTRESPU'?"),
        ({"qos long": {"UsageThres": 1}}, "UsageThres is not followed"),
        ({"account bio": {"MinTRES": "cpu=1"}}, "MinTRES is no limit of an account or a user"),
        ({"qos long": {"MaxJobs": 1}}, "MaxJobs is no limit of a QOS"),
        ({"account bio": {"MaxTRESPU": "cpu=1"}}, "MaxTRESPU is no limit of an account or a user"),
        ({"qos long": {"MaxTRESPU": "32"}}, "is not a list like gres/gpu=8,cpu=400"),
        ({"qos long": {"MaxTRESPU": "gres/gpu=many"}}, "'many' is not a whole number"),
        ({"qos long": {"MaxTRESPU": "license/x=2"}}, "license/x is not counted here"),
        ({"qos long": {"Preempt": "nobody"}}, "unknown QOS 'nobody'"),
        ({"partition dbg": {"PriorityTier": 2}}, "unknown partition 'dbg'"),
        ({"partition debug": {"Tier": 2}}, "partition debug: unknown key 'Tier'"),
        ({"partition debug": {"PriorityTier": "high"}}, "PriorityTier 'high' is not a whole number"),
        ({"partition debug": {"MaxNodes": 0}}, "is 0: no job could ever start"),
        ({"partition debug": {"QOS": "gone"}}, "unknown QOS 'gone'"),
        ({"preempt": {"scavenger": "never"}}, "unknown mode 'never'"),
        ({"preempt": {"nobody": "off"}}, "unknown QOS 'nobody'"),
        ({"partition debug": {"MaxTime": "0"}}, "partition debug: MaxTime is 0: no job could ever start; -1 lifts"),
        ({"qos long": {"MaxWall": "00:00:00"}}, "QOS long: MaxWall is 0: no job could ever start; -1 lifts"),
        ({"shares": {"chem": 4}}, "unknown account 'chem'"),
        ({"shares": {"bio": "lots"}}, "'lots' is not a whole number"),
        ({"shares": {"bio": "-4"}}, "shares of bio '-4' must not be negative"),
        ({"qos long": {"MaxJobsPU": "-3"}}, "MaxJobsPU '-3' must not be negative"),
        ({"qos long": {"MaxTRES": "gpu=24"}}, "is not counted here: did you mean gres/gpu?"),
        ({"qos long": {"MaxTRES": "gpu:a100=24"}}, "did you mean gres/gpu:a100?"),
        ({"qos long": {"MaxTRESPU": "mem=100X"}}, "'100X' is no amount of memory: write it like 100M, 100G or 100T"),
        ({"qs long": {"MaxTRESPU": "gres/gpu=1"}}, "unknown kind of rule 'qs'"),
        ({"qos": {"long": "1"}}, "write qos NAME and its keys"),
    ],
)
def test_what_cannot_be_is_one_line_that_names_what_there_is(rules: dict[str, dict[str, str]], line: str) -> None:
    with pytest.raises(ExperimentError) as raised:
        modified(SITE, rules)
    assert line in str(raised.value)
    assert "\n" not in str(raised.value)


def test_without_files_of_the_kind_it_is_said_which_to_give() -> None:
    with pytest.raises(ExperimentError, match="describe no QOS: give --cluster with what sacctmgr show qos -P prints"):
        modified(SiteRules(), {"qos long": {"MaxTRESPU": "gres/gpu=1"}})


def test_the_commands_are_those_of_sacctmgr_and_scontrol() -> None:
    rules = {
        "qos long": {"MaxTRESPU": "gres/gpu=32", "MaxSubmitPU": 100},
        "partition debug": {"PriorityTier": 2},
        "account bio/alice": {"MaxJobs": ""},
        "preempt": {"scavenger": "off"},
        "shares": {"bio": 40},
    }
    assert commands(SITE, rules) == [
        "sacctmgr modify qos long set MaxTRESPU=gres/gpu=32 MaxSubmitJobsPU=100",
        "scontrol update PartitionName=debug PriorityTier=2",
        "sacctmgr modify user alice where account=bio set MaxJobs=-1",
        "sacctmgr modify qos normal set Preempt-=scavenger",
        "sacctmgr modify account bio set fairshare=40",
    ]
    assert commands(SITE, {"qos long": {"MaxTRESPU": ""}}) == [
        "sacctmgr modify qos long set MaxTRESPU=gres/gpu=-1,cpu=-1"
    ]


def test_a_limit_that_is_set_has_no_earlier_amounts_and_the_others_keep_theirs() -> None:
    told = (
        Change(5, "QOS long", ("MaxTRESPU", "MaxJobsPU"), (("MaxTRESPU", "'1=50'"), ("MaxJobsPU", "3"))),
        Change(6, "QOS normal", ("MaxTRESPU",), (("MaxTRESPU", "'1=50'"),)),
        Change(7, "association 15, 9", ("MaxTRES",), (("MaxTRES", "'1=50'"),)),
    )
    numbered = tuple(replace(each, id=str(9 + place)) for place, each in enumerate(SITE.associations))
    site = replace(SITE, changes=told, associations=numbered)
    made = modified(site, {"qos long": {"MaxTRESPU": "cpu=7"}}).site
    assert made.changes == (Change(5, "QOS long", ("MaxJobsPU",), (("MaxJobsPU", "3"),)), *told[1:])
    assert modified(site, {"qos long": {"MaxTRESPU": "cpu=100"}}).site == site, "the present amount changes nothing"
    account = modified(site, {"account root": {"MaxTRES": "gres/gpu=16"}}).site
    assert account.changes == (*told[:2], replace(told[2], what="association 15"))


@given(first=st.integers(0, 100), second=st.integers(0, 100))
def test_the_last_value_holds_and_going_back_restores_the_records(first: int, second: int) -> None:
    once = modified(SITE, {"qos long": {"MaxTRESPU": f"gres/gpu={first}"}}).site
    twice = modified(once, {"qos long": {"MaxTRESPU": f"gres/gpu={second}"}})
    assert bounds(twice.site, "long")["MaxTRESPU gres/gpu"] == second
    assert bool(twice.told) is (first != second)
    back = modified(twice.site, {"qos long": {"MaxTRESPU": "gres/gpu=24"}}).site
    assert bounds(back, "long") == bounds(SITE, "long")
