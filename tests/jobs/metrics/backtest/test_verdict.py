"""The verdict of a backtest: its rule, and what it names as the reason."""

from dataclasses import replace

import polars as pl
import pytest

from headway.jobs.metrics.backtest import remedies
from headway.jobs.metrics.backtest.errors import GROUPS, Backtest, Errors
from headway.jobs.metrics.backtest.verdict import NO, RELATIVE, UNKNOWN, YES, level_of, spread, verdict_of


def errors(group: str, recorded: float, simulated: float, jobs: int = 100, **more: float | None) -> Errors:
    return Errors(group, jobs, recorded, simulated, 0.0, 0.0, simulated - recorded, **more)  # type: ignore[arg-type]


def made(whole: Errors, **groups: tuple[Errors, ...]) -> Backtest:
    told = {name: groups.get(name, (replace(whole, group="–"),)) for name in GROUPS}
    return Backtest("site", whole.jobs, whole.jobs, 0, 0, whole, told, pl.DataFrame())


@pytest.mark.parametrize(
    ("recorded", "simulated", "rank", "level"),
    [
        (1000, 1100, 0.9, YES),
        (1000, 900, 0.9, YES),
        (1000, 1101, 0.9, RELATIVE),
        (1000, 1300, 0.5, RELATIVE),
        (1000, 1301, 0.9, NO),
        (1000, 1200, 0.49, NO),
        (1000, 1000, 0.2, NO),
        (10, 15, 0.0, YES),  # who hardly waits is not judged by seconds
        (10, 600, 0.9, NO),
    ],
)
def test_the_rule(recorded: float, simulated: float, rank: float, level: str) -> None:
    assert level_of(errors("all", recorded, simulated, rank_correlation=rank)) == level


def test_a_site_driven_by_its_qos_limits_is_not_trusted_without_them_and_they_are_named() -> None:
    whole = errors("all", 80_000, 35_000, jobs=200, rank_correlation=0.4)
    told = verdict_of(
        made(
            whole,
            reason=(errors("–", 100, 90, share=0.1), errors("QOSMaxGRESPerUser", 160_000, 70_000, share=0.9)),
            qos=(errors("long", 160_000, 70_000, share=0.9), errors("normal", 100, 100, share=0.1)),
        )
    )
    assert told.level == NO
    assert "Do not trust it" in told.text
    assert "QOS limits (90 % of the error)" in told.text
    assert told.sources[0].limits
    assert "sacctmgr show qos" in told.sources[0].remedy
    assert told.record()["sources"][0]["by"] == "reason"


def test_a_mean_that_is_right_by_accident_is_not_trusted_without_the_limits_that_the_record_names() -> None:
    whole = errors("all", 1000, 1020, jobs=200, rank_correlation=0.6)
    early, late = errors("QOSMaxGRESPerUser", 1700, 900, share=0.5), errors("–", 300, 1140, share=0.5)
    told = verdict_of(made(whole, reason=(late, early)))
    assert told.level == NO, "alone, the jobs that the limit held would put the mean off by 40 %"
    assert "The likely reason: QOS limits (50 % of the error)" in told.text
    little = errors("QOSMaxGRESPerUser", 1700, 1550, share=0.5)
    assert verdict_of(made(whole, reason=(late, little))).level == RELATIVE
    given = replace(made(whole, reason=(late, early)), given=frozenset({"qos"}), limits=frozenset({early.group}))
    assert verdict_of(given).level == YES


def test_a_group_that_is_off_is_named_although_the_whole_is_right() -> None:
    whole = errors("all", 1000, 1020, jobs=200, rank_correlation=0.9)
    long = errors("long", 5000, 1000, share=0.5, rank_correlation=0.3)
    told = verdict_of(made(whole, qos=(long, errors("normal", 900, 920, share=0.5, rank_correlation=0.9))))
    assert told.level == YES
    assert told.doubtful == ("QOS long",)
    assert "About QOS long: no." in told.text


def test_nothing_in_common_is_no_verdict_and_a_known_one_holds_for_all() -> None:
    nothing = verdict_of(replace(made(errors("all", 0, 0)), compared=0))
    assert nothing.level == UNKNOWN
    known = verdict_of(made(errors("all", 1000, 1000, rank_correlation=1.0)))
    assert spread([{"verdict": nothing.record()}, {"verdict": known.record()}]) == known.record()
    assert spread([{}]) is None


def test_reasons_of_slurm_have_remedies() -> None:
    for reason in ("QOSGrpGRES", "AssocGrpCPUMinutesLimit", "Dependency", "JobArrayTaskLimit", "BeginTime"):
        assert remedies.for_reason(reason) is not None
    assert remedies.for_reason("Priority") is None


def test_nobody_is_told_to_give_what_was_given() -> None:
    reasons = ("QOSGrpGRES", "AssocGrpGRES", "PartitionTimeLimit", "ReqNodeNotAvail", "NodeDown")
    files = ("sacctmgr show", "sshare", "scontrol show", "SubmitLine", "give ")
    told = [remedies.for_group(by, remedies.RULES) for by in remedies.GROUPS]
    told += [remedies.for_reason(reason, remedies.RULES) for reason in (*reasons, "JobArrayTaskLimit", "Dependency")]
    assert not [each for each in told if each is None or any(file in each.remedy for file in files)]
    for reason in reasons:
        missing, given = remedies.for_reason(reason), remedies.for_reason(reason, remedies.RULES)
        assert missing is not None
        assert given is not None
        assert missing[0] == given[0], "the cause is the same"
        assert "give" in missing[1]
        assert given[1].startswith(("they were given", "its rules were given"))
    for by in remedies.GROUPS:
        assert remedies.for_group(by)[1].startswith("give ")
        assert "were given" in remedies.for_group(by, remedies.RULES)[1]


def test_of_two_files_the_one_that_was_not_given_is_asked_for() -> None:
    for given, file in (("event", "scontrol show reservation"), ("reservation", "sacctmgr show events")):
        cause = remedies.for_reason("Reservation", {given})
        assert cause is not None
        assert cause.remedy == f"give {file}"


def test_whether_a_limit_is_the_cause_does_not_hang_on_its_words() -> None:
    reason = (errors("–", 100, 90, share=0.1), errors("AssocGrpGRES", 160_000, 70_000, share=0.9))
    source = verdict_of(made(errors("all", 80_000, 35_000, jobs=200), reason=reason)).sources[0]
    assert source.rule == "association"
    assert replace(source, cause="other words").limits
    assert not replace(source, cause="limits", rule="usage").limits


def test_with_the_limits_given_the_verdict_looks_elsewhere() -> None:
    whole = errors("all", 80_000, 35_000, jobs=200, rank_correlation=0.4)
    reason = (errors("–", 100, 90, share=0.1), errors("QOSMaxGRESPerUser", 160_000, 70_000, share=0.9))
    told = verdict_of(replace(made(whole, reason=reason), given=frozenset({"qos"})))
    assert told.level == NO
    assert "give the limits" not in told.text
    assert "they were given: look whether they were others then" in told.text


def test_without_reasons_and_rules_a_site_with_several_qos_is_told_that_their_limits_are_missing() -> None:
    whole = errors("all", 80_000, 35_000, jobs=200, rank_correlation=0.4)
    even = (errors("long", 80_000, 35_000, share=0.55), errors("normal", 80_000, 35_000, share=0.45))
    parts = (errors("a", 200_000, 20_000, 20, share=0.6), errors("b", 20_000, 40_000, 180, share=0.4))
    told = verdict_of(made(whole, qos=even, partition=parts))
    assert told.level == NO
    assert "The likely reason: QOS limits, or the priority of the QOS" in told.text
    assert "sacctmgr show qos -P" in told.text
    known = verdict_of(replace(made(whole, qos=even, partition=parts), given=frozenset({"qos"})))
    assert known.sources[0].by == "partition"


def test_it_is_never_yes_while_limits_that_the_record_names_were_not_given() -> None:
    near = made(
        errors("all", 1000, 1020, jobs=200, rank_correlation=0.9),
        reason=(errors("–", 900, 900, share=0.5), errors("QOSMaxGRESPerUser", 1100, 1140, jobs=7, share=0.1)),
    )
    told = verdict_of(near)
    assert told.level == RELATIVE
    assert "The record names limits that were not given (QOSMaxGRESPerUser: 7 jobs): give the limits" in told.text
    other = verdict_of(replace(near, given=frozenset({"qos"}), limits=frozenset({"QOSMaxJobsPerUserLimit"})))
    assert other.level == RELATIVE
    assert "the files that were given have no such limit: print all columns" in other.text
    assert verdict_of(replace(near, given=frozenset({"qos"}), limits=frozenset({"QOSMaxGRESPerUser"}))).level == YES
    paused = made(near.whole, reason=(errors("Dependency", 1000, 1000), errors("Priority", 1000, 1000)))
    assert verdict_of(paused).level == YES, "no limit"
