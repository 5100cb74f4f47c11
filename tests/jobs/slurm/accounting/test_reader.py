"""Slurm's records give the jobs they describe, whichever command wrote them, and explain what they leave out."""

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.errors import TraceError
from headway.jobs.model.job import Job, Outcome
from headway.jobs.model.submission import Terms
from headway.jobs.slurm.accounting import reader as slurm
from headway.jobs.traces import Trace, guess, load
from headway.jobs.traces.inspect import inspect
from headway.jobs.traces.trace import dropped_note
from headway.units import HOUR, MINUTE, SECOND

SAMPLES = Path(__file__).parents[3] / "samples"
GIB = 2**30
COLUMNS = ("JobID", "Submit", "Start", "End", "Elapsed", "State", "ReqTRES", "AllocTRES")
DAY = "2026-03-02T"


def _file(folder: Path, content: str | bytes, name: str = "sacct.txt") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def _row(**cells: str) -> dict[str, str]:
    """A job of an hour on one GPU, as sacct would print it."""
    usual = {
        "JobID": "1",
        "Submit": f"{DAY}08:00:00",
        "Start": f"{DAY}08:10:00",
        "End": f"{DAY}09:10:00",
        "Elapsed": "01:00:00",
        "State": "COMPLETED",
        "ReqTRES": "cpu=4,gres/gpu=1,mem=16G,node=1",
        "AllocTRES": "cpu=4,gres/gpu=1,mem=16G,node=1",
    }
    return {**usual, **cells}


def _table(*rows: dict[str, str]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["|".join(row.get(name, "") for name in columns) for row in rows]
    return "\n".join(["|".join(columns), *lines]) + "\n"


def _load(folder: Path, *rows: dict[str, str], strict: bool = False) -> Trace:
    return load(_file(folder, _table(*rows)), "slurm", strict=strict, skip_bad_rows=True)


def _only(folder: Path, **cells: str) -> Job:
    """The job that a row becomes, beside a usual one."""
    trace = _load(folder, _row(JobID="99"), _row(**cells))
    (job,) = (job for job in trace.jobs if job.name != "99")
    return job


def _rules(trace: Trace) -> list[tuple[int, str, str]]:
    return [(each.line, each.column, each.rule) for each in trace.dropped]


def test_the_sample_gives_every_kind_of_job() -> None:
    trace = load(SAMPLES / "sacct.txt", "slurm")
    jobs = {job.name: job for job in trace.jobs}
    assert list(jobs) == [
        *("4101", "4102", "4103_1", "4103_3", "4103_4", "4103_5", "4103_2"),
        *("4106", "4108", "4109", "4110", "4111", "4112", "4113"),
    ]
    assert jobs["4101"] == Job(
        0, 0, 2 * HOUR, gpus=4, name="4101", tenant="vision", partition="gpu", gpu_types=("a100",), nodes=1,
        cpu_milli=32_000, memory_bytes=128 * GIB, estimate=4 * HOUR, priority=10234, qos="normal", user="ada",
    )  # fmt: skip
    timeout = jobs["4102"]
    assert (timeout.nodes, timeout.gpus, timeout.gpu_types) == (2, 8, ())
    assert (timeout.outcome, timeout.outcome_after) == (Outcome.FAILS, 24 * HOUR + 10 * SECOND)
    assert jobs["4103_2"].outcome is Outcome.FAILS
    assert jobs["4103_2"].submit == 50 * MINUTE + 10 * SECOND  # when it became eligible, behind 4103_1
    assert (jobs["4106"].gpus, jobs["4106"].cpu_milli, jobs["4106"].nodes) == (5, 24_000, 0)
    assert (jobs["4109"].gpus, jobs["4109"].nodes, jobs["4109"].cpu_milli) == (0, 1, 64_000)
    assert (jobs["4110"].outcome, jobs["4110"].outcome_after, jobs["4110"].estimate) == (
        Outcome.CANCELLED,
        12 * MINUTE,
        0,
    )
    assert (jobs["4112"].gpus, jobs["4112"].nodes, jobs["4112"].work) == (6, 0, SECOND)
    assert (jobs["4113"].work, jobs["4113"].outcome) == (3 * HOUR, Outcome.FINISHES)
    assert trace.rows == 23
    assert [(each.line, each.column, each.value) for each in trace.dropped] == [(24, "State", "PENDING")]
    assert trace.notes == (
        "the file is not sorted by submit time: sorted",
        "7 rows of steps counted with their jobs",
        "3 array tasks that were cancelled while they waited stand in 1 row",
        "1 requeued job taken as one each: the last attempt counts, the 1.3 GPU-hours of earlier ones do not",
        "1 heterogeneous job of 2 components taken as one each, with what the components hold together",
        "1 job still running when the file was written: taken to end then",
        "4 jobs cancelled before the start: kept, with as much patience as it took",
        "1 job shorter than a second: taken as 1 s",
        "1 job eligible later than submitted (held, or waiting for another): arriving then",
        "1 job with several partitions: the first counts",
        "1 job without a GPU: kept with CPUs and memory",
    )


def test_a_job_that_never_started_has_the_patience_it_showed() -> None:
    job = next(job for job in load(SAMPLES / "sacct.txt").jobs if job.name == "4111")
    assert (job.patience, job.outcome, job.outcome_after) == (2 * HOUR, Outcome.CANCELLED, 45 * MINUTE)
    assert (job.partition, job.nodes, job.gpus) == ("gpu", 4, 16)


def test_a_requeued_job_is_one_with_its_first_submission_and_its_last_run() -> None:
    path = SAMPLES / "sacct.txt"
    job = next(job for job in load(path).jobs if job.name == "4108")
    assert (job.submit, job.work, job.outcome, job.retries) == (70 * MINUTE, 90 * MINUTE, Outcome.FINISHES, 0)
    record = slurm.history(path).by_name()["4108"]
    assert (record.attempts, record.start, record.end) == (3, 70 * MINUTE + 30 * SECOND, 4 * HOUR)
    later, ran = load(path).requeued["4108"]
    assert later == record.end - job.work - record.start, "the last attempt began so long after the first"
    assert 0 < ran < later


def test_older_columns_trailing_separators_and_seconds_since_1970_are_read() -> None:
    trace = load(SAMPLES / "sacct-old.txt", "slurm", strict=True)
    first, second, third, fourth = trace.jobs
    assert first == Job(
        0, 0, HOUR, gpus=4, name="7001", tenant="physics", partition="gpu", gpu_types=("v100",), nodes=2,
        cpu_milli=8000, memory_bytes=32 * GIB, estimate=2 * HOUR, user="fay",
    )  # fmt: skip
    assert (second.tenant, second.memory_bytes, second.outcome) == ("gus", 16 * GIB, Outcome.FAILS)
    assert (third.patience, third.gpus, third.outcome_after) == (8955 * SECOND, 4, HOUR)
    assert (fourth.gpus, fourth.cpu_milli, fourth.memory_bytes) == (0, 16_000, 32_000 * 2**20)
    assert trace.rows == 5


def test_json_gives_the_same_jobs_as_the_table() -> None:
    table = {job.name: job for job in load(SAMPLES / "sacct.txt", "slurm").jobs}
    for job in load(SAMPLES / "sacct.json", "slurm", strict=True).jobs:
        same = table[job.name]
        assert (job.submit, job.work, job.gpus, job.gpu_types, job.nodes) == (
            *(same.submit, same.work, same.gpus, same.gpu_types, same.nodes),
        )
        assert (job.tenant, job.user, job.estimate, job.priority, job.outcome, job.memory_bytes) == (
            *(same.tenant, same.user, same.estimate, same.priority, same.outcome, same.memory_bytes),
        )


def _json_job(**changes: Any) -> dict[str, Any]:
    """A job as Slurm 22.05 writes it: plain numbers, one state."""
    tres = [{"type": "cpu", "name": None, "id": 1, "count": 2}, {"type": "gres", "name": "gpu", "id": 1001, "count": 2}]
    job = {
        "account": "vision",
        "allocation_nodes": 1,
        "array": {"job_id": 0, "task": None, "task_id": None},
        "association": {"account": "vision", "user": "ada"},
        "het": {"job_id": 0, "job_offset": None},
        "job_id": 5,
        "partition": "gpu",
        "state": {"current": "COMPLETED", "reason": "None"},
        "time": {"elapsed": 60, "eligible": 1000000000, "end": 1000000070, "start": 1000000010, "limit": 5}
        | {"submission": 1000000000},
        "tres": {"allocated": tres, "requested": tres},
    }
    return {**job, **changes}


def test_json_of_older_versions_and_of_squeue_is_read(tmp_path: Path) -> None:
    running = {"elapsed": 30, "end": 0, "start": 1000000020, "submission": 1000000001, "limit": None}
    waiting = {"elapsed": 0, "end": 0, "start": 0, "submission": 1000000002, "limit": 5}
    jobs = [
        _json_job(),
        _json_job(job_id=7, array={"job_id": 6, "task": None, "task_id": 0}),
        _json_job(job_id=8, het={"job_id": 8, "job_offset": 0}),
        _json_job(job_id=9, het={"job_id": 8, "job_offset": 1}),
        _json_job(job_id=10, time=running, state={"current": ["RUNNING", "COMPLETING"]}),
        _json_job(job_id=11, time=waiting, state={"current": "PENDING"}),
    ]
    trace = load(_file(tmp_path, json.dumps({"meta": {"Slurm": {}}, "errors": [], "jobs": jobs}), "s.json"))
    assert [(job.name, job.gpus) for job in trace.jobs] == [("5", 2), ("6_0", 2), ("8", 4), ("10", 2)]
    assert [job.estimate for job in trace.jobs] == [5 * MINUTE] * 3 + [0]
    assert [each.line for each in trace.dropped] == [6]
    queue = {
        "jobs": [
            {"job_id": 5, "array_job_id": 3, "array_task_id": 4, "array_task_string": "", "job_state": ["FAILED"],
             "submit_time": {"set": True, "number": 1000000000}, "start_time": 1000000010, "end_time": 1000000070,
             "tres_req_str": "cpu=2,mem=4G,node=2", "tres_per_node": "gres:gpu:a100:2", "node_count": 2,
             "time_limit": {"set": True, "infinite": True, "number": 0}, "user_name": "ada", "account": ""}
        ]
    }  # fmt: skip
    (job,) = load(_file(tmp_path, json.dumps(queue), "q.json"), strict=True).jobs
    assert (job.name, job.gpus, job.gpu_types, job.nodes, job.tenant) == ("3_4", 4, ("a100",), 2, "ada")
    assert (job.work, job.outcome, job.estimate) == (MINUTE, Outcome.FAILS, 0)


def test_scontrol_show_job_is_read_with_and_without_o(tmp_path: Path) -> None:
    text = (SAMPLES / "scontrol-jobs.txt").read_text()
    trace = load(SAMPLES / "scontrol-jobs.txt", strict=True)
    first, second, third, fourth = trace.jobs
    assert (first.name, first.gpus, first.gpu_types, first.work) == ("51", 2, (), 40 * SECOND)
    assert (first.priority, first.user, first.tenant) == (4294901751, "ada", "vision")
    assert (second.name, second.gpus, second.gpu_types, second.work) == ("52_1", 1, ("a100",), SECOND)
    assert (third.gpus, third.nodes, third.outcome, third.estimate) == (6, 0, Outcome.CANCELLED, 0)
    assert (fourth.patience, fourth.gpus) == (10 * SECOND, 4)
    below = text.replace(" UserId=", "\n   UserId=").replace(" RunTime=", "\n   RunTime=").replace("\nJob", "\n\nJob")
    assert load(_file(tmp_path, below)) == trace


def test_numbers_may_be_plain_or_say_whether_they_are_set_in_one_file(tmp_path: Path) -> None:
    kinds: list[Any] = [
        5,
        "5",
        5.0,
        {"set": True, "infinite": False, "number": 5},
        {"set": False, "infinite": False, "number": 7},
        2**70,
        None,
    ]
    jobs = [_json_job(job_id=20 + place, priority=kind) for place, kind in enumerate(kinds)]
    trace = load(_file(tmp_path, json.dumps({"jobs": jobs, "meta": {}}), "s.json"))
    assert [job.priority for job in trace.jobs] == [5, 5, 5, 5, 0, 0, 0]


def test_json_with_resources_of_another_shape_says_where(tmp_path: Path) -> None:
    bad = _json_job(job_id=2, tres={"allocated": [{"type": 3}]})
    with pytest.raises(TraceError, match=r"got `int` - at `\$\.jobs\[1\]\.tres\.allocated\[0\]\.type`"):
        load(_file(tmp_path, json.dumps({"jobs": [_json_job(), bad], "meta": {}}), "s.json"))
    bad = _json_job(job_id=2, tres={"requested": 3})
    with pytest.raises(TraceError, match=r"got `int` - at `\$\.jobs\[1\]\.tres\.requested`"):
        load(_file(tmp_path, json.dumps({"jobs": [_json_job(), bad], "meta": {}}), "s.json"))


def test_records_of_many_layouts_are_read_alike(tmp_path: Path) -> None:
    line = (SAMPLES / "scontrol-jobs.txt").read_text().split("\n")[0]
    lines = [line.replace("JobId=51", f"JobId={100 + place}") for place in range(20)]
    # Words in a job's name, which may look like keys, and a key that only some records have.
    mixed = [text.replace("JobName=train net", "JobName=" + " a" * place) for place, text in enumerate(lines)]
    mixed = [text.replace(" Nice=0", " Nice=0 ArrayJobId=0") if place % 3 else text for place, text in enumerate(mixed)]
    assert load(_file(tmp_path, "\n".join(mixed))).jobs == load(_file(tmp_path, "\n".join(lines), "same.txt")).jobs


def test_the_log_of_completed_jobs_is_read(tmp_path: Path) -> None:
    line = (
        "JobId={0} UserId=ada(1001) GroupId=staff(100) Name=my job JobState={1} Partition=gpu TimeLimit={2} "
        f"StartTime={DAY}08:00:10 EndTime={DAY}08:01:10 NodeList=n[1-2] NodeCnt=2 ProcCnt=4 WorkDir=/home/ada "
        "ReservationName= Tres=cpu=4,mem=8G,node=2,billing=4,gres/gpu=2 Account= QOS= WcKey= Cluster=unknown "
        f"SubmitTime={DAY}08:00:00 EligibleTime={DAY}08:00:00{{3}} DerivedExitCode=0:0 ExitCode=0:0 \n"
    )
    text = line.format(7, "COMPLETED", 60, "") + line.format(9, "TIMEOUT", "1", " ArrayJobId=8 ArrayTaskId=3")
    first, second = load(_file(tmp_path, text), strict=True).jobs
    assert first == Job(
        0, 0, MINUTE, gpus=2, name="7", tenant="ada", partition="gpu", nodes=2, cpu_milli=4000,
        memory_bytes=8 * GIB, estimate=HOUR, user="ada",
    )  # fmt: skip
    assert (second.name, second.outcome, second.estimate) == ("8_3", Outcome.FAILS, MINUTE)


def test_columns_may_come_in_any_order(tmp_path: Path) -> None:
    row = {"JobID": "5", "Submit": f"{DAY}08:00:00", "Elapsed": "00:10:00", "AllocTRES": "cpu=1,gres/gpu=1"}
    found = {
        load(_file(tmp_path, "|".join(order) + "\n" + "|".join(row[name] for name in order) + "\n"), strict=True).jobs
        for order in permutations(row)
    }
    assert found == {(Job(0, 0, 10 * MINUTE, gpus=1, name="5", cpu_milli=1000),)}


def test_start_and_end_tell_the_run_time_where_elapsed_is_not_there(tmp_path: Path) -> None:
    row = _row()
    del row["Elapsed"]
    assert _load(tmp_path, row).jobs[0].work == HOUR


def test_raw_ids_and_headings_in_another_case_are_read(tmp_path: Path) -> None:
    text = _table(_row()).replace("JobID", "JobIDRaw").replace("AllocTRES", "AllocTres")
    assert load(_file(tmp_path, text), strict=True).jobs[0].gpus == 1


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("COMPLETED", Outcome.FINISHES),
        ("FAILED", Outcome.FAILS),
        ("OUT_OF_MEMORY", Outcome.FAILS),
        ("BOOT_FAIL", Outcome.FAILS),
        ("NODE_FAIL", Outcome.FAILS),
        ("DEADLINE", Outcome.FAILS),
        ("TIMEOUT", Outcome.FAILS),
        ("CANCELLED by 1002", Outcome.CANCELLED),
        ("PREEMPTED", Outcome.CANCELLED),
        ("RUNNING", Outcome.FINISHES),
        ("SUSPENDED", Outcome.FINISHES),
    ],
)
def test_every_state_of_a_job_that_ran_is_an_outcome_after_what_it_ran(
    tmp_path: Path, state: str, outcome: Outcome
) -> None:
    job = _only(tmp_path, State=state)
    assert (job.outcome, job.work, job.patience) == (outcome, HOUR, 0)
    assert job.outcome_after == (0 if outcome is Outcome.FINISHES else HOUR)


@pytest.mark.parametrize("state", ["PENDING", "REQUEUED", "SPECIAL_EXIT", "REVOKED", "FINE", ""])
def test_what_has_no_outcome_is_left_out_and_explained(tmp_path: Path, state: str) -> None:
    trace = _load(tmp_path, _row(), _row(JobID="2", State=state, Start="Unknown", End="Unknown", Elapsed="00:00:00"))
    assert [job.name for job in trace.jobs] == ["1"]
    assert [(each.line, each.value) for each in trace.dropped] == [(3, "Unknown" if state == "REQUEUED" else state)]


def test_jobs_that_have_not_started_are_no_reason_to_refuse_a_file(tmp_path: Path) -> None:
    trace = load(SAMPLES / "sacct.txt", strict=True)
    assert [(each.line, each.column, each.value) for each in trace.dropped] == [(24, "State", "PENDING")]
    assert trace == load(SAMPLES / "sacct.txt")
    with pytest.raises(
        TraceError, match=r"none of its 1 jobs can be played; the first: line 2: State 'PENDING' has not"
    ):
        _load(tmp_path, _row(State="PENDING", Start="Unknown", End="Unknown"))


def test_held_gpus_count_before_requested_ones_and_types_only_where_they_were_asked_for(tmp_path: Path) -> None:
    exclusive = _only(tmp_path, ReqTRES="cpu=3,gres/gpu=2,node=1", AllocTRES="cpu=16,gres/gpu:a100=4,gres/gpu=4,node=1")
    assert (exclusive.gpus, exclusive.gpu_types, exclusive.cpu_milli) == (4, (), 16_000)
    typed = _only(tmp_path, ReqTRES="cpu=1,gres/gpu:a100=1", AllocTRES="")
    assert (typed.gpus, typed.gpu_types) == (1, ("a100",))
    untracked = _only(tmp_path, AllocTRES="cpu=1,mem=1G,node=1")
    assert untracked.gpus == 1
    given = _only(tmp_path, ReqTRES="", AllocTRES="cpu=8,gres/gpu:a100=4,gres/gpu=4,node=2")
    assert (given.gpus, given.gpu_types, given.nodes) == (4, ("a100",), 2)


def test_nodes_bind_where_they_were_asked_for_and_the_gpus_divide(tmp_path: Path) -> None:
    assert _only(tmp_path, ReqTRES="gres/gpu=8,node=2", AllocTRES="cpu=2,gres/gpu=8,node=2").nodes == 2
    assert _only(tmp_path, ReqTRES="gres/gpu=8,node=1", AllocTRES="cpu=2,gres/gpu=8,node=2").nodes == 0
    assert _only(tmp_path, ReqTRES="gres/gpu=5,node=2", AllocTRES="cpu=2,gres/gpu=5,node=2").nodes == 0
    cpus = _only(tmp_path, ReqTRES="cpu=64,node=1", AllocTRES="cpu=64,mem=32G,node=2")
    assert (cpus.nodes, cpus.cpu_milli, cpus.memory_bytes) == (2, 32_000, 16 * GIB)


def test_attempts_that_failed_by_themselves_become_retries_and_others_do_not(tmp_path: Path) -> None:
    def attempt(hour: int, state: str) -> dict[str, str]:
        at = f"{DAY}{hour:02d}"
        return _row(Submit=f"{at}:00:00", Start=f"{at}:10:00", End=f"{at}:40:00", Elapsed="00:30:00", State=state)

    failed = _load(
        tmp_path, attempt(8, "FAILED"), attempt(9, "NODE_FAIL"), attempt(10, "PREEMPTED"), attempt(11, "FAILED")
    )
    (job,) = failed.jobs
    assert (job.outcome, job.retries, job.submit, job.work) == (Outcome.FAILS, 1, 0, 30 * MINUTE)
    (job,) = _load(tmp_path, attempt(9, "COMPLETED"), attempt(8, "FAILED")).jobs
    assert (job.outcome, job.retries) == (Outcome.FINISHES, 0)
    never = {**attempt(9, "CANCELLED by 1"), "Start": "None", "Elapsed": "00:00:00"}
    (job,) = _load(tmp_path, attempt(8, "PREEMPTED"), never).jobs
    assert (job.outcome, job.work, job.patience) == (Outcome.CANCELLED, 30 * MINUTE, 0)


def test_rows_of_two_dumps_that_overlap_count_once(tmp_path: Path) -> None:
    rows = (_row(), _row(JobID="2"))
    trace = load(_file(tmp_path, _table(*rows) + _table(*rows)), "slurm")
    assert [job.name for job in trace.jobs] == ["1", "2"]
    assert _rules(trace) == [(4, "JobID", "is the header again")]
    assert "2 rows repeated in the file counted once" in trace.notes
    assert trace.rows == 5


def test_several_clusters_in_one_dump_keep_their_jobs_apart(tmp_path: Path) -> None:
    trace = _load(tmp_path, _row(Cluster="east"), _row(Cluster="west"))
    assert [job.name for job in trace.jobs] == ["east:1", "west:1"]


def test_components_of_a_heterogeneous_job_that_are_alike_keep_their_nodes(tmp_path: Path) -> None:
    each = {"ReqTRES": "gres/gpu:a100=2,node=1", "AllocTRES": "cpu=2,gres/gpu=2,node=1"}
    (job,) = _load(tmp_path, _row(JobID="7+0", **each), _row(JobID="7+1", **each)).jobs
    assert (job.name, job.gpus, job.nodes, job.gpu_types, job.cpu_milli) == ("7", 4, 2, ("a100",), 4000)


@pytest.mark.parametrize(
    ("cells", "column", "rule"),
    [
        ({"Start": f"{DAY}07:59:00"}, "Start", "is before Submit: the clock went back"),
        ({"End": f"{DAY}08:09:00"}, "End", "is before Start: the clock went back"),
        ({"Submit": "yesterday"}, "Submit", "is not a time like 2026-03-01T12:00:00"),
        ({"Submit": ""}, "Submit", "is empty"),
        ({"Submit": "1950-01-01T00:00:00"}, "Submit", "must lie in the years 1971 to 2261"),
        ({"Start": "Unknown"}, "Start", "is empty, although the job ran"),
        ({"Elapsed": "long"}, "Elapsed", "is not a time like 1-00:00:00"),
        ({"AllocTRES": "cpu=x"}, "AllocTRES", "is not a list of resources like cpu=8,gres/gpu=4,mem=64G"),
        ({"AllocTRES": "cpu=1,mem=4Q"}, "AllocTRES", "is not a list of resources like cpu=8,gres/gpu=4,mem=64G"),
        ({"ReqTRES": "", "AllocTRES": ""}, "row", "asks for no GPU, no CPU and no memory"),
        ({"JobID": "abc"}, "JobID", "is not the number of a job like 123, 123_4 or 123+0"),
        ({"JobID": "5_[1,3,...]"}, "JobID", "stands for several tasks, which cannot have run as one"),
        ({"Submit": f"{DAY}08:00:00+01:00"}, "Submit", "has a time zone, other times of the file do not"),
        ({"End": "1772445605"}, "End", "has a time zone, other times of the file do not"),
        ({"Timelimit": "tomorrow"}, "Timelimit", "is not a time like 1-00:00:00"),
        ({"Priority": "high"}, "Priority", "is not a whole number"),
        ({"ReqMem": "lots", "ReqTRES": "", "AllocTRES": "cpu=1"}, "ReqMem", "is not a size like 64G, 4Gc or 64Gn"),
    ],
)
def test_a_bad_row_is_dropped_with_its_line_column_and_rule(
    tmp_path: Path, cells: dict[str, str], column: str, rule: str
) -> None:
    trace = _load(tmp_path, _row(), _row(JobID="2") | {"JobID": "3"} | cells, _row(JobID="4"), _row(JobID="5"))
    assert _rules(trace) == [(3, column, rule)]
    assert len(trace.jobs) == 3
    with pytest.raises(TraceError, match="line 3"):
        _load(tmp_path, _row(), {**_row(JobID="3"), **cells}, _row(JobID="4"), _row(JobID="5"), strict=True)


@pytest.mark.parametrize(
    ("cells", "column", "rule"),
    [
        ({"End": "Unknown"}, "End", "is empty: when it was cancelled is not known"),
        ({"End": f"{DAY}07:00:00"}, "End", "is before Submit: the clock went back"),
        ({"Eligible": "Unknown"}, "Eligible", "is not before its end: it was cancelled while it was held"),
        ({"JobID": "2_[1,3,...]"}, "JobID", "is cut short: dump it with SLURM_BITSTR_LEN=0"),
        ({"JobID": "2_[one]"}, "JobID", "is not a list of tasks like 123_[1-5,9]"),
    ],
)
def test_what_was_cancelled_while_it_waited_must_say_when_and_what(
    tmp_path: Path, cells: dict[str, str], column: str, rule: str
) -> None:
    never = {"State": "CANCELLED by 1", "Start": "None", "Elapsed": "00:00:00", "AllocTRES": ""}
    eligible = {"Eligible": f"{DAY}08:00:00"}
    trace = _load(tmp_path, _row(**eligible), {**_row(JobID="2", **never, **eligible), **cells})
    assert _rules(trace) == [(3, column, rule)]


def test_a_cancelled_job_that_got_its_nodes_has_run(tmp_path: Path) -> None:
    at_once = {"State": "CANCELLED by 1", "Start": f"{DAY}09:10:00", "Elapsed": "00:00:00"}
    assert _only(tmp_path, **at_once).patience == 0
    assert _only(tmp_path, **at_once, AllocTRES="").patience == 70 * MINUTE


def test_times_with_a_zone_are_compared_as_what_they_are(tmp_path: Path) -> None:
    cells = {"Submit": f"{DAY}09:00:00+0100", "Start": f"{DAY}08:10:00Z", "End": f"{DAY}11:10:00+02:00"}
    (job,) = _load(tmp_path, _row(**cells), strict=True).jobs
    assert job.work == HOUR
    record = slurm.history(_file(tmp_path, _table(_row(**cells)))).recorded[0]
    assert (record.submit, record.start, record.end) == (0, 10 * MINUTE, 70 * MINUTE + 0)


def test_a_job_name_with_a_separator_costs_that_row_only(tmp_path: Path) -> None:
    trace = _load(tmp_path, _row(JobID="1|x"), _row(JobID="2"))
    assert [job.name for job in trace.jobs] == ["2"]
    assert _rules(trace) == [(2, "row", "is a field too many: the header has 8")]


def test_history_has_the_recorded_times_in_the_order_of_the_jobs() -> None:
    for name in ("sacct.txt", "sacct-old.txt", "sacct.json", "scontrol-jobs.txt"):
        found = slurm.history(SAMPLES / name)
        assert found.trace == load(SAMPLES / name)
        assert [each.name for each in found.recorded] == [job.name for job in found.trace.jobs]
        assert [each.arrival for each in found.recorded] == [job.submit for job in found.trace.jobs]
        assert found.trace.starts == {each.name: each.start for each in found.recorded if each.start is not None}
        for job, each in zip(found.trace.jobs, found.recorded, strict=True):
            assert each.submit <= each.arrival
            assert (each.start is None) == (job.patience > 0)
            assert each.start is None or each.arrival <= each.start
            assert each.end is None or each.end >= (each.start or each.arrival)


def test_history_tells_running_waiting_and_requeued_jobs_apart() -> None:
    found = slurm.history(SAMPLES / "sacct.txt").by_name()
    assert found["4101"] == slurm.Recorded("4101", 0, 0, 5 * SECOND, 2 * HOUR + 5 * SECOND, 1)
    assert found["4113"].end is None
    assert found["4111"].start is None
    assert found["4103_2"].submit == 20 * MINUTE < found["4103_2"].arrival


def test_a_log_without_gpus_says_why(tmp_path: Path) -> None:
    trace = _load(tmp_path, _row(ReqTRES="cpu=1", AllocTRES="cpu=1"))
    assert trace.notes == (
        "no job of the file has a GPU: Slurm records them where AccountingStorageTRES lists gres/gpu",
    )


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"JobID|Submit|Elapsed\n", "there is a header but no row"),
        (b"JobID|Elapsed|AllocTRES\n1|00:01:00|cpu=1\n", "column 'Submit' is missing"),
        (b"Submit|Elapsed|AllocTRES\n1|00:01:00|cpu=1\n", "column 'JobID' is missing"),
        (b"JobID|Submit|AllocTRES\n1|2026-03-02T08:00:00|cpu=1\n", "nothing tells the run time"),
        (b"JobID|Submit|Elapsed\n1|2026-03-02T08:00:00|00:01:00\n", "nothing tells what jobs ask for"),
        (b"JobID|Submit|Elapsed|AllocTRES\n1.batch|x|00:01:00|cpu=1\n", "all 1 rows are steps"),
        (b"JobID|Submit|submit\n1|x|y\n", "a column occurs twice in the header, in different spelling"),
        (b"       JobID    JobName\n------------\n1  x\n", "write it with sacct --parsable2"),
        (b'{"jobs": [{"job_id": 1, "tres"', "is not the JSON of sacct"),
        (b'{"jobs": [], "tres": 1}', "holds no job"),
        (b'{"jobs": [5]}', "is not the JSON of sacct"),
        (b"JobID|Submit|caf\xe9\n1|x|y\n", "is not UTF-8 text"),
        (b"\x1f\x8b\x08\x00cut", "truncated"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, content: bytes, rule: str) -> None:
    path = _file(tmp_path, content)
    with pytest.raises(TraceError) as caught:
        load(path, "slurm")
    assert rule in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_samples_are_recognised() -> None:
    for name in ("sacct.txt", "sacct-old.txt", "sacct.json", "scontrol-jobs.txt"):
        assert guess(SAMPLES / name) == "slurm"


CELLS = {
    "JobID": ["1", "2", "2_1", "2_[1-3]", "3+0", "3+1", "1.batch", "JobID", "", "x"],
    "Submit": [f"{DAY}08:00:00", f"{DAY}09:00:00", "1772438400", "Unknown", "", "9" * 30],
    "Eligible": [f"{DAY}08:00:00", "Unknown"],
    "Start": [f"{DAY}08:30:00", "None", "Unknown", "0"],
    "End": [f"{DAY}10:00:00", "Unknown", "1"],
    "Elapsed": ["00:00:00", "01:30:00", "9" * 12, "999999999-00:00:00", ""],
    "Timelimit": ["01:00:00", "UNLIMITED", "9" * 12],
    "State": ["COMPLETED", "FAILED", "CANCELLED by 0", "RUNNING", "PENDING", "NODE_FAIL", ""],
    "AllocTRES": ["", "cpu=4,gres/gpu=2,mem=1G,node=2", f"gres/gpu={'9' * 18}", f"mem={'9' * 15}P,cpu=1"],
    "ReqGRES": ["", "gpu:a100:2", "gpu:999999999"],
    "ReqMem": ["4Gc", "", f"{'9' * 15}Tn"],
    "NNodes": ["1", "4", "999999999", "-1"],
    "Priority": ["1", "4294901751", str(10**18)],
}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_cells_give_jobs_or_one_line(tmp_path: Path, data: st.DataObject) -> None:
    columns = data.draw(st.permutations(sorted(CELLS)))
    rows = data.draw(st.lists(st.fixed_dictionaries({n: st.sampled_from(CELLS[n]) for n in columns}), max_size=6))
    path = _file(tmp_path, "|".join(columns) + "\n" + "".join("|".join(row.values()) + "\n" for row in rows))
    try:
        found = slurm.history(path)
    except TraceError as refusal:
        line = str(refusal)
    else:
        _sound(found, len(rows))
        return
    assert "\n" not in line


def _sound(found: slurm.History, rows: int) -> None:
    assert found.trace.rows == rows
    assert len(found.recorded) == len(found.trace.jobs) > 0
    assert found.trace.jobs[0].submit == 0


SUNDAY = "2025-10-26T"


def test_times_around_the_end_of_summer_time_are_mended_by_the_elapsed_time(tmp_path: Path) -> None:
    late_start = _row(
        JobID="1", Submit=f"{SUNDAY}02:50:00", Start=f"{SUNDAY}02:05:00", End=f"{SUNDAY}02:35:00", Elapsed="00:30:00"
    )
    late_end = _row(
        JobID="2", Submit=f"{SUNDAY}02:30:00", Start=f"{SUNDAY}02:40:00", End=f"{SUNDAY}02:10:00", Elapsed="00:30:00"
    )
    ghost = _row(
        JobID="3", Submit=f"{SUNDAY}02:58:00", Start="Unknown", End=f"{SUNDAY}02:01:00", Elapsed="00:00:00",
        State="CANCELLED by 5", AllocTRES="",
    )  # fmt: skip
    trace = _load(tmp_path, late_start, late_end, ghost)
    assert not trace.dropped
    waits = {job.name: trace.starts[job.name] - job.submit for job in trace.jobs if job.name in trace.starts}
    assert waits == {"1": 15 * MINUTE, "2": 10 * MINUTE}
    assert {job.name: job.patience for job in trace.jobs if job.patience} == {"3": 3 * MINUTE}
    assert "3 jobs around the end of summer time mended: an hour added to what came after it" in trace.notes


@pytest.mark.parametrize("day", ["2025-10-27T", "2025-10-26T1"])
def test_clocks_that_go_back_at_other_times_are_not_mended(tmp_path: Path, day: str) -> None:
    hour = "2" if day.endswith("1") else "02"
    bad = _row(JobID="1", Submit=f"{day}{hour}:50:00", Start=f"{day}{hour}:05:00", End=f"{day}{hour}:35:00")
    trace = _load(tmp_path, *(_row(JobID=str(number)) for number in range(2, 20)), bad)
    assert [each.rule for each in trace.dropped] == ["is before Submit: the clock went back"]


def test_tasks_that_wait_are_counted_one_by_one(tmp_path: Path) -> None:
    waiting = _row(
        JobID="7_[1-250%3]", State="PENDING", Start="Unknown", End="Unknown", Elapsed="00:00:00", AllocTRES=""
    )
    trace = _load(tmp_path, _row(JobID="1"), waiting)
    assert [each.jobs for each in trace.dropped] == [250]
    assert "1 of 2 rows dropped (250 jobs: some rows hold several tasks of an array)" in dropped_note(
        trace.dropped, trace.rows, "x"
    )
    record = inspect(trace)
    assert (record["dropped"], record["dropped_jobs"]) == (1, 250)


def test_a_job_that_never_started_brings_no_gpu_time_and_a_limit_that_ended_a_job_is_told(tmp_path: Path) -> None:
    never = _row(JobID="2", Start="Unknown", End=f"{DAY}18:00:00", Elapsed="00:00:00", State="CANCELLED", AllocTRES="")
    ended = _row(JobID="3", Elapsed="01:00:35", End=f"{DAY}09:10:35", State="TIMEOUT")
    slow = _row(JobID="4", Elapsed="02:00:00", End=f"{DAY}10:10:00")
    rows = ({**row, "Timelimit": "01:00:00"} for row in (_row(), never, ended, slow))
    record = inspect(_load(tmp_path, *rows))
    assert record["gpu_hours"] == pytest.approx((3600 + 3635 + 7200) / 3600)
    assert record["duration_max_s"] == 7200
    lines = {each["kind"]: each["line"] for each in record["oddities"]}
    assert lines["limit-ended"] == "1 job was ended by the time limit: failed within 2 min after it"
    assert lines["short-estimate"] == "1 job runs longer than estimated: no time limit ended that"
    assert record["estimates"]["too_short"] == 1


def test_the_command_of_a_submission_may_hold_bars_and_tells_options(tmp_path: Path) -> None:
    rows = [
        {**_row(JobID="1"), "SubmitLine": "sbatch --nice=5 -L matlab run.sh"},
        {**_row(JobID="2"), "SubmitLine": "sbatch --wrap a --nice | b"},
    ]
    trace = _load(tmp_path, *rows)
    assert [job.name for job in trace.jobs] == ["1", "2"]
    assert "1 job submitted with nice waited 0.2 h: followed by policies with Slurm's priorities" in trace.notes
    assert any(note.startswith("1 job submitted with licences waited 0.2 h: followed where") for note in trace.notes)
    assert trace.jobs[0].terms == Terms(nice=5, licences=(("matlab", 1),))
    assert trace.jobs[1].terms is None
