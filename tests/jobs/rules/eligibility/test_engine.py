"""When a job becomes eligible: each rule alone in a small case, then drawn workloads against a plain oracle."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.core.tape import Tape
from headway.errors import ExperimentError, TraceError
from headway.jobs.ask.explanation import explain
from headway.jobs.audit.audit import audit
from headway.jobs.audit.replay import replay
from headway.jobs.explain.explain import why_waiting
from headway.jobs.metrics.summary import summarise
from headway.jobs.model.cluster import Qos, uniform
from headway.jobs.model.job import Job, Outcome, broken_rule, workload
from headway.jobs.model.rows import Kind
from headway.jobs.model.submission import Terms, dependency, licences
from headway.jobs.policies.registry import build
from headway.jobs.rules.eligibility.audit import has_terms
from headway.jobs.rules.eligibility.check import check_dependencies, within_workload
from headway.jobs.rules.eligibility.engine import Gate
from headway.jobs.rules.limits.limit import LimitRule
from headway.jobs.rules.preemption.preemption import Mode, Preemption
from headway.jobs.show.story.story import story
from headway.jobs.sim.resume import resume
from headway.units import MINUTE, SECOND
from tests.drive import Run, World, drive

_ENDS = {Kind.FINISHED: "finished", Kind.FAILED: "failed", Kind.CANCELLED: "cancelled", Kind.WITHDRAWN: "withdrawn"}


def job(
    submit: float, work: float, gpus: int = 1, name: str = "", outcome: Outcome = Outcome.FINISHES, **terms: object
) -> Job:
    """Return a job, times in seconds; what is left over are its terms."""
    patience = round(float(str(terms.pop("patience", 0))) * SECOND)
    length = round(work * SECOND)
    after = 0 if outcome is Outcome.FINISHES else length
    own = Terms(**terms) if terms else None  # type: ignore[arg-type]
    return Job(
        0,
        round(submit * SECOND),
        length,
        gpus,
        name=name,
        outcome=outcome,
        outcome_after=after,
        terms=own,
        patience=patience,
    )


def played(*jobs: Job, gpus: int = 8, policy: str = "fifo", limits: tuple[LimitRule, ...] = ()) -> Run:
    """Run jobs on one node; the tape has to pass the audit, replay identically and be taken up again anywhere."""
    cluster, ordered = uniform(1, gpus, limits=limits), workload(jobs)
    made = drive(policy, World(cluster, ordered))
    assert not audit(cluster, ordered, made.tape, policy=build(policy), complete=True)
    assert replay(cluster, ordered, made.tape, build(policy), complete=True).digest == made.tape.digest
    times = sorted(set(made.tape.column("time").tolist()))
    for at in times[:-1:3]:
        rest = resume(cluster, ordered, made.tape, at, build(policy)).go_on()
        assert Tape(made.tape.rows[len(made.tape.until(at)) :]).digest == rest.digest
    return made


def starts(made: Run) -> dict[str, float]:
    """Return first starts in seconds, by name."""
    return {made.jobs[number].name: time / SECOND for number, time in sorted(made.starts.items())}


def withdrawn(made: Run) -> dict[str, float]:
    """Return when jobs were withdrawn, in seconds, by name."""
    return {made.jobs[row.subject].name: row.time / SECOND for row in made.rows(Kind.WITHDRAWN)}


# --- each rule alone ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["fifo", "sjf", "fifo+easy", "multifactor+conservative", "srtf"])
def test_a_job_waits_for_another_to_finish_and_blocks_nobody_meanwhile(policy: str) -> None:
    made = played(
        job(0, 10, 8, "a"), job(1, 5, 8, "b", after="afterok:c"), job(2, 5, 8, "c"), job(3, 5, 8, "d"), policy=policy
    )
    assert starts(made)["b"] >= starts(made)["c"] + 5
    assert {row.subject: row.time / SECOND for row in made.rows(Kind.ARRIVED)}[1] == starts(made)["c"] + 5


def test_after_follows_a_start_and_a_delay_counts_from_there() -> None:
    made = played(
        job(0, 1000, 1, "a"),
        job(1, 5, 1, "at once", after="after:a"),
        job(2, 5, 1, "later", after="after:a+2"),
        job(3, 5, 1, "after the end", after="after:x+1"),
        job(5, 5, 1, "x", Outcome.CANCELLED),
    )
    # a starts at 0, before anybody waits for it; x starts at 5
    assert starts(made) == {"a": 0, "at once": 1, "later": 120, "x": 5, "after the end": 65}


def test_who_waits_for_a_start_comes_a_nanosecond_after_it() -> None:
    made = played(job(0, 10, 8, "a"), job(0, 5, 8, "b"), job(1, 5, 0 + 1, "c", after="after:b"), gpus=9)
    assert made.starts[2] == 10 * SECOND + 1


@pytest.mark.parametrize(
    ("condition", "outcome", "starts_at"),
    [
        ("afterok", Outcome.FINISHES, 10),
        ("afterok", Outcome.FAILS, None),
        ("afterok", Outcome.CANCELLED, None),
        ("afterany", Outcome.FINISHES, 10),
        ("afterany", Outcome.FAILS, 10),
        ("afterany", Outcome.CANCELLED, 10),
        ("afternotok", Outcome.FINISHES, None),
        ("afternotok", Outcome.FAILS, 10),
        ("afternotok", Outcome.CANCELLED, 10),
    ],
)
def test_conditions_follow_how_a_job_ends(condition: str, outcome: Outcome, starts_at: float | None) -> None:
    made = played(job(0, 10, 1, "a", outcome), job(1, 5, 1, "b", after=f"{condition}:a"))
    assert starts(made).get("b") == starts_at
    assert withdrawn(made) == ({"b": 10} if starts_at is None else {})


def test_a_failed_attempt_that_is_tried_again_is_no_end() -> None:
    first = replace(job(0, 10, 1, "a", Outcome.FAILS), retries=2)
    made = played(first, job(1, 5, 1, "b", after="afternotok:a"))
    assert starts(made)["b"] == 30


def test_of_several_all_have_to_be_met_or_one_where_a_question_mark_says_so() -> None:
    three = (job(0, 10, 1, "a"), job(0, 20, 1, "b", Outcome.FAILS), job(0, 30, 1, "c"))
    assert starts(played(*three, job(1, 5, 1, "d", after="afterany:a:b,afterok:c")))["d"] == 30
    assert starts(played(*three, job(1, 5, 1, "d", after="afterok:b?afterok:c?afterok:a")))["d"] == 10
    assert withdrawn(played(*three, job(1, 5, 1, "d", after="afterok:b,afterok:c"))) == {"d": 20}
    assert withdrawn(played(*three, job(1, 5, 1, "d", after="afterok:b?afternotok:c"))) == {"d": 30}


def test_the_name_of_an_array_stands_for_all_its_tasks() -> None:
    tasks = [job(0, 10 * n, 1, f"7_{n}", array="7") for n in (1, 2, 3)]
    assert starts(played(*tasks, job(1, 5, 1, "b", after="afterok:7")))["b"] == 30
    assert starts(played(*tasks, job(1, 5, 1, "b", after="afterok:7_2")))["b"] == 20
    bad = [*tasks[:2], replace(tasks[2], outcome=Outcome.FAILS, outcome_after=tasks[2].work)]
    assert withdrawn(played(*bad, job(1, 5, 1, "b", after="afterok:7"))) == {"b": 30}
    assert starts(played(*bad, job(1, 5, 1, "b", after="afternotok:7")))["b"] == 30


def test_a_singleton_waits_for_all_earlier_jobs_of_its_series() -> None:
    made = played(
        job(0, 10, 1, "a", series="u/train"),
        job(1, 30, 1, "b", series="u/train"),
        job(2, 5, 1, "c", series="u/train", after="singleton"),
        job(3, 5, 1, "d", series="u/train", after="singleton"),
        job(4, 5, 1, "e", series="u/other", after="singleton"),
    )
    assert starts(made) == {"a": 0, "b": 1, "c": 31, "d": 36, "e": 4}


def test_a_job_does_not_begin_before_its_time() -> None:
    made = played(
        job(0, 10, 8, "a"),
        job(1, 5, 8, "b", begin=60 * SECOND),
        job(2, 5, 8, "c"),
        job(3, 5, 8, "d", begin=20 * SECOND, after="afterany:a"),
        job(4, 5, 8, "e", begin=7 * SECOND, after="afterany:a"),
    )
    assert starts(made) == {"a": 0, "b": 60, "c": 10, "d": 20, "e": 15}


def test_age_counts_from_when_a_job_is_eligible() -> None:
    """The job that was submitted first but is eligible last is the youngest."""
    made = played(
        job(0, 100, 8, "a"),
        job(1, 10, 8, "early", begin=90 * SECOND),
        job(50, 10, 8, "late"),
        policy="multifactor(fairshare_weight=0,size_weight=0,max_age=1h,period=1s)",
    )
    assert starts(made)["late"] < starts(made)["early"]


def test_nice_is_taken_off_the_priority() -> None:
    made = played(
        job(0, 100, 8, "a"), job(1, 10, 8, "niced", nice=500), job(50, 10, 8, "late"), policy="multifactor(max_age=1h)"
    )
    assert starts(made)["late"] < starts(made)["niced"]


def test_an_array_throttle_limits_how_many_tasks_run_at_once() -> None:
    tasks = [job(0, 10, 1, f"7_{n}", array="7", throttle=2) for n in range(5)]
    made = played(*tasks, job(0, 10, 1, "other"))
    assert starts(made) == {"7_0": 0, "7_1": 0, "7_2": 10, "7_3": 10, "7_4": 20, "other": 0}


def test_licences_are_counted_over_the_cluster() -> None:
    rule = LimitRule("licence matlab", "licences:matlab", 3)
    made = played(
        job(0, 10, 1, "a", licences=(("matlab", 2),)),
        job(0, 10, 1, "b", licences=(("matlab", 2),)),
        job(0, 10, 1, "c", licences=(("matlab", 1), ("ansys", 1))),
        job(0, 10, 1, "d"),
        limits=(rule,),
    )
    assert starts(made) == {"a": 0, "b": 10, "c": 0, "d": 0}


# --- what can never be ------------------------------------------------------------------------------------------


def test_a_job_that_waits_in_vain_is_withdrawn_and_so_are_those_that_wait_for_it() -> None:
    made = played(
        job(0, 10, 1, "a", Outcome.FAILS),
        job(1, 5, 1, "b", after="afterok:a"),
        job(2, 5, 1, "c", after="afterok:b"),
        job(3, 5, 1, "d", after="afterany:c"),
    )
    assert withdrawn(made) == {"b": 10, "c": 10}
    assert starts(made) == {"a": 0, "d": 10}


def test_a_user_who_cancels_a_job_that_is_not_eligible_withdraws_it() -> None:
    made = played(
        job(0, 100, 1, "a"), job(1, 5, 1, "b", after="afterok:a", patience=20), job(2, 5, 1, "c", after="afterany:b")
    )
    assert withdrawn(made) == {"b": 21}
    assert starts(made) == {"a": 0, "c": 21}


def test_patience_goes_on_counting_once_a_job_is_eligible() -> None:
    made = played(job(0, 10, 8, "a"), job(0, 100, 8, "x"), job(1, 5, 8, "b", after="afterok:a", patience=20))
    assert [(row.subject, row.time) for row in made.rows(Kind.CANCELLED)] == [(2, 21 * SECOND)]


def test_who_waits_for_a_job_that_a_limit_stops_for_ever_is_withdrawn_at_the_end() -> None:
    rule = LimitRule("licence matlab", "licences:matlab", 1)
    cluster = uniform(1, 8, limits=(rule,))
    jobs = workload(
        [job(0, 5, 1, "a", licences=(("matlab", 2),)), job(1, 5, 1, "b", after="afterok:a"), job(2, 5, 1, "c")]
    )
    for policy in ("fifo", "multifactor"):
        made = drive(policy, World(cluster, jobs))
        assert starts(made) == {"c": 2}
        assert list(withdrawn(made)) == ["b"]
        assert not audit(cluster, jobs, made.tape, complete=True)


# --- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "line"),
    [
        (Terms(after="afterok"), "names no job"),
        (Terms(after="afterok:"), "names no job"),
        (Terms(after="afterwards:1"), "unknown dependency 'afterwards'"),
        (Terms(after="afterok:1,afterany:2?afterok:3"), "mixes"),
        (Terms(after="singleton"), "needs a series"),
        (Terms(throttle=-1, array="7"), "throttle -1 must be at least 1"),
        (Terms(throttle=2), "needs the name of an array"),
        (Terms(begin=-1), "before the run began"),
        (Terms(licences=(("matlab", 0),)), "must be at least 1"),
    ],
)
def test_terms_that_make_no_sense_are_one_line(terms: Terms, line: str) -> None:
    broken = broken_rule(Job(0, 0, SECOND, terms=terms))
    assert broken is not None
    assert line in broken
    assert "\n" not in broken


def test_loops_and_unknown_jobs_are_one_line() -> None:
    loop = workload(
        [job(0, 1, 1, "a", after="afterok:b"), job(1, 1, 1, "b", after="afterok:c"), job(2, 1, 1, "c", after="after:a")]
    )
    with pytest.raises(TraceError, match="job a waits for itself: a after b after c after a"):
        check_dependencies(loop)
    through = workload(
        [job(0, 1, 1, "a", series="s", after="afterok:b"), job(1, 1, 1, "b", series="s", after="singleton")]
    )
    with pytest.raises(TraceError, match="waits for itself"):
        check_dependencies(through)
    with pytest.raises(TraceError, match="no job or array is called 'x'"):
        check_dependencies(workload([job(0, 1, 1, "a", after="afterok:x")]))
    check_dependencies(workload([job(0, 1, 1, "a", after="afterok:b"), job(1, 1, 1, "b")]))


def test_dependencies_on_jobs_that_were_cut_off_count_as_met_with_a_note() -> None:
    notes: list[str] = []
    jobs = within_workload(
        workload(
            [job(0, 1, 1, "a", after="afterok:x:b"), job(1, 1, 1, "b"), job(2, 1, 1, "c", after="afterok:x?afterok:b")]
        ),
        notes,
    )
    assert [each.terms and each.terms.after for each in jobs] == ["afterok:b", None, None]
    assert notes == ["2 jobs wait for jobs that are not in the workload: those dependencies count as met"]


def test_a_licence_without_a_name_is_refused() -> None:
    with pytest.raises(ExperimentError, match="licences:matlab"):
        LimitRule("x", "licences", 3)


def test_texts_are_read_as_they_are_written() -> None:
    for text in ("afterok:1:2,afterany:3", "after:1+30", "singleton", "afternotok:1?afterok:2"):
        assert str(dependency(str(dependency(text)))) == str(dependency(text))
    assert dependency("after:17+30").clauses[0].delay == 30 * MINUTE
    assert licences("matlab:2, ansys") == (("matlab", 2), ("ansys", 1))


# --- drawn workloads against a plain oracle --------------------------------------------------------------------------


@st.composite
def _workloads(draw: st.DrawFn) -> tuple[Job, ...]:
    count = draw(st.integers(2, 9))
    made = []
    for number in range(count):
        names = [f"j{other}" for other in range(count) if other != number] + ["arr"]
        clauses = draw(
            st.lists(
                st.tuples(st.sampled_from(["after", "afterok", "afterany", "afternotok"]), st.sampled_from(names)),
                max_size=2,
            )
        )
        parts = [
            f"{condition}:{name}" + ("+1" if condition == "after" and draw(st.booleans()) else "")
            for condition, name in clauses
        ]
        if draw(st.integers(0, 5)) == 0:
            parts.append("singleton")
        throttled = draw(st.booleans())
        made.append(
            job(
                draw(st.integers(0, 5)),
                draw(st.integers(1, 100)),
                draw(st.integers(1, 4)),
                f"j{number}",
                draw(st.sampled_from(Outcome)),
                after=draw(st.sampled_from(",?")).join(parts),
                series=draw(st.sampled_from("st")),
                begin=draw(st.sampled_from([0, 0, 3, 150])) * SECOND,
                array="arr" if throttled else "",
                throttle=2 if throttled else 0,
                patience=draw(st.sampled_from([0, 0, 0, 4, 200])),
            )
        )
    return workload(made)


@settings(max_examples=300, suppress_health_check=list(HealthCheck), deadline=None)
@given(_workloads(), st.sampled_from(["fifo", "sjf+fit", "fifo+easy", "multifactor+conservative", "srtf", "las"]))
def test_jobs_arrive_exactly_when_a_plain_oracle_has_them_eligible(jobs: tuple[Job, ...], policy: str) -> None:
    cluster = uniform(1, 4)
    made = drive(policy, World(cluster, jobs))
    assert not audit(cluster, jobs, made.tape, policy=build(policy), complete=True)
    assert replay(cluster, jobs, made.tape, build(policy), complete=True).digest == made.tape.digest
    arrived = {row.subject: row.time for row in made.rows(Kind.ARRIVED)}
    gone = {row.subject: row.time for row in made.rows(Kind.WITHDRAWN)}
    assert arrived.keys() ^ gone.keys() == set(range(len(jobs)))
    for each in jobs:
        earliest = _earliest(each, jobs, made)
        if each.id in arrived:
            assert arrived[each.id] == earliest
        else:
            assert earliest is None or earliest >= gone[each.id]
            assert not each.patience or gone[each.id] <= each.submit + each.patience
    running: dict[int, int] = {}
    for row in made.tape.rows.tolist():
        if row[1] == Kind.START and has_terms([jobs[row[2]]], "throttle"):
            running[row[2]] = 1
        elif row[1] in (Kind.FINISHED, Kind.FAILED, Kind.CANCELLED, Kind.PREEMPT):
            running.pop(row[2], None)
        assert len(running) <= 2


def _earliest(mine: Job, jobs: Sequence[Job], made: Run) -> int | None:
    """Return the first time at which all holds for a job, from the starts and ends on the tape; None: never."""
    assert mine.terms is not None
    begun: dict[int, int] = {}
    left: dict[int, tuple[int, str]] = {}
    for row in made.tape.rows.tolist():
        if row[1] == Kind.START:
            begun.setdefault(row[2], row[0])
        elif row[1] in _ENDS:
            left[row[2]] = row[0], _ENDS[row[1]]
    times: list[int | None] = []
    wanted = dependency(mine.terms.after) if mine.terms.after else None
    for clause in wanted.clauses if wanted else ():
        if clause.condition == "singleton":
            alike = [each.id for each in jobs if each.terms is not None and each.terms.series == mine.terms.series]
            before = [left.get(each) for each in alike if each < mine.id]
            times.append(None if None in before else max((each[0] for each in before if each), default=0))
            continue
        members = [each.id for each in jobs if each.name == clause.job] or [
            each.id for each in jobs if each.terms is not None and each.terms.array == clause.job
        ]
        if not members:
            times.append(0)
        elif clause.condition == "after":
            starts_ = [
                begun[each] + 1 if each in begun else left[each][0] if each in left else None for each in members
            ]
            bare = [begun[each] if each in begun else left[each][0] if each in left else None for each in members]
            if None in starts_:
                times.append(None)
            else:
                times.append(
                    max(
                        max(each for each in starts_ if each is not None),
                        max(each for each in bare if each is not None) + clause.delay,
                    )
                )
        elif any(each not in left for each in members):
            times.append(None)
        else:
            good = all(left[each][1] == "finished" for each in members)
            fits = {"afterany": True, "afterok": good, "afternotok": not good}[clause.condition]
            times.append(max(left[each][0] for each in members) if fits else None)
    known = [time for time in times if time is not None]
    if wanted is None:
        met: int | None = 0
    elif wanted.one_is_enough:
        met = min(known, default=None)
    else:
        met = max(known, default=0) if len(known) == len(times) else None
    return None if met is None else max(mine.submit, mine.terms.begin, met)


def test_a_gate_told_of_nothing_keeps_who_waits() -> None:
    jobs = workload([job(0, 10, 1, "a"), job(1, 5, 1, "b", after="afterok:a"), job(2, 5, 1, "c", begin=9 * SECOND)])
    gate = Gate(jobs)
    assert [gate.enter(each.submit, each) for each in jobs] == [0, -2, 9 * SECOND]
    assert gate.unmet(SECOND, jobs[1]) == ["waits for job a to finish"]
    assert list(gate.held) == [1, 2]
    assert gate.ended(10 * SECOND, 0, Outcome.FINISHES) == [1]


@pytest.mark.parametrize(
    ("terms", "found"),
    [
        (Terms(after="afterok:b"), "job 1 has not ended"),
        (Terms(after="after:b+1"), "job b has not started 60000000000 ns before"),
        (Terms(after="afternotok:a"), "job a has finished"),
        (Terms(begin=60 * SECOND), "must not begin before 60000000000 ns"),
        (Terms(after="singleton", series="s"), "job 1 of its series has not ended"),
        (Terms(array="x", throttle=1), "limit JobArrayTaskLimit@array:x: 1 + 1 exceeds 1"),
    ],
)
def test_the_audit_finds_a_job_that_came_too_early(terms: Terms, found: str) -> None:
    """The tape is that of the same jobs without terms; the workload that it is checked against has them."""
    shared = Terms(series="s", array=terms.array, throttle=terms.throttle)
    plain = workload([job(0, 5, 1, "a"), job(1, 50, 1, "b"), job(10, 5, 1, "c")])
    jobs = (plain[0], replace(plain[1], terms=shared), replace(plain[2], terms=terms))
    cluster = uniform(1, 8)
    made = drive("fifo", World(cluster, plain))
    assert not audit(cluster, plain, made.tape, complete=True)
    assert any(found in finding.text for finding in audit(cluster, jobs, made.tape, complete=True))


def test_a_limit_names_the_array_or_the_licence_and_who_holds_it() -> None:
    rule = LimitRule("licence matlab", "licences:matlab", 4)
    jobs = workload(
        [
            job(0, 100, 1, "a", licences=(("matlab", 4),)),
            job(1, 100, 1, "b", licences=(("matlab", 1),)),
            job(2, 100, 1, "7_1", array="7", throttle=1),
            job(3, 100, 1, "7_2", array="7", throttle=1),
        ]
    )
    cluster, policy = uniform(1, 8, limits=(rule,)), build("fifo")
    made = drive("fifo", World(cluster, jobs))
    state = resume(cluster, jobs, made.tape, 5 * SECOND, policy).state
    told = [str(cause) for number in (1, 3) for cause in why_waiting(5 * SECOND, state, policy, state.jobs[number])]
    assert told == [
        "limit licence matlab: everybody holds 4 of 4 matlab licences; job a (4 matlab licences)",
        "limit JobArrayTaskLimit: array 7 holds 1 of 1 running job; job 7_1 (1 running job)",
    ]


def test_jobs_taken_away_in_the_middle_of_a_run_are_waited_for_no_longer() -> None:
    jobs = workload(
        [job(0, 100, 1, "a"), job(1, 5, 1, "b", after="afternotok:a"), job(2, 5, 1, "c", after="afterok:b")]
    )
    cluster = uniform(1, 8)
    made = drive("fifo", World(cluster, jobs))
    moment = resume(cluster, jobs, made.tape, 2 * SECOND, build("fifo"))
    assert moment.executor.held == 2
    moment.executor.leave_out(3 * SECOND, [0])
    moment.expect([])
    rows = moment.go_on().rows.tolist()
    assert [(row[0], row[2]) for row in rows if row[1] == Kind.START] == [(3 * SECOND + 1, 1), (8 * SECOND + 1, 2)]


@pytest.mark.parametrize(("mode", "found"), [(Mode.CANCEL, {"c": 5.000000001}), (Mode.REQUEUE, {"c": 25})])
def test_a_job_that_is_preempted_for_good_has_ended_and_one_that_is_requeued_has_not(
    mode: Mode, found: dict[str, float]
) -> None:
    rules = Preemption(mode=mode, again_after=0)
    cluster = replace(uniform(1, 5), qos=(Qos("high", 9, preempts=("low",)), Qos("low", 1)), preemption=rules)
    victim, other = replace(job(0, 10, 4, "a"), qos="low"), replace(job(5, 10, 4, "b"), qos="high")
    jobs = workload([victim, other, job(1, 5, 1, "c", after="afterany:a"), job(1, 5, 1, "d", after="afterok:a")])
    made = drive("fifo+fit", World(cluster, jobs))
    assert not audit(cluster, jobs, made.tape, complete=True)
    assert starts(made)["c"] == found["c"]
    assert bool(withdrawn(made)) == (mode is Mode.CANCEL)
    assert replay(cluster, jobs, made.tape, build("fifo+fit"), complete=True).digest == made.tape.digest


def test_a_summary_counts_withdrawn_jobs_as_cancelled() -> None:
    made = played(
        job(0, 10, 1, "a", Outcome.FAILS), job(1, 5, 1, "b", after="afterok:a"), job(2, 5, 1, "c", after="afterany:a")
    )
    numbers = summarise(made.tape, made.jobs, uniform(1, 8))
    assert (numbers.jobs, numbers.to_come, numbers.cancelled, numbers.failed, numbers.finished) == (3, 0, 1, 1, 1)
    assert numbers.wait_s.max == 0
    assert numbers.makespan_s == 15


def test_a_story_tells_what_a_job_waited_for_before_it_was_eligible() -> None:
    cluster = uniform(1, 8)
    jobs = workload(
        [
            job(0, 3600, 1, "a", Outcome.FAILS),
            job(60, 5, 1, "b", after="afterok:a"),
            job(60, 5, 1, "c", begin=7200 * SECOND),
        ]
    )
    made = drive("fifo", World(cluster, jobs))
    told = [story(cluster, jobs, made.tape, build("fifo"), number).all_lines()[1:] for number in (1, 2)]
    assert told[0] == [
        "          00:01:00  for 59m 00s  is not eligible",
        "      waits for job a to finish",
        "cancelled before it was eligible: waited 0s in all under fifo",
    ]
    assert told[1][:2] == ["          00:01:00  for 1h 59m  is not eligible", "      not before 02:00:00"]
    held = explain(cluster, jobs, made.tape, build("fifo"), 1, 1800 * SECOND)
    assert (held.status, held.told) == ("not eligible", "at 00:30:00 it is not eligible: waits for job a to finish")
    assert explain(cluster, jobs, made.tape, build("fifo"), 1, 5000 * SECOND).status == "cancelled"
